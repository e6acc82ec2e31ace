# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # variables of `services` and for it
# A disk of a service's own that can run full: a file system in memory that only
# a namespace of its own sees. One process keeps it there while the service is
# dead; nobody has to be root for it, and nothing is left mounted. Sourced by
# `services`, which sets $dir and defines die.

# keeper_of NAME: sets $pid of who keeps its disk.
keeper_of() { own_pid "$1.disk" && grep -qs '^muster ' "/proc/$pid/mounts"; }

# make_disk NAME BYTES: unless it has one; sets $inside, which runs a command
# that sees it.
make_disk() {
	local deadline=$((SECONDS + 10)) pid=''
	if ! keeper_of "$1"; then
		mkdir -p "$dir/$1"
		# shellcheck disable=SC2016 # expanded by the inner shell, on purpose
		spawn "$1.disk" / unshare --user --map-root-user --mount \
			sh -euc 'mount -t tmpfs -o "size=$2" muster "$1"; exec sleep infinity' - "$dir/$1" "$2"
		until keeper_of "$1"; do
			if ! kill -0 "$spawned" 2>/dev/null || [ $SECONDS -ge $deadline ]; then
				{ tail -n 5 "$dir/$1.disk.log" && echo "services: a disk of its own needs root, or user namespaces for everybody"; } >&2
				return 1
			fi
			sleep 0.05
		done
	fi
	inside=(nsenter --user --mount --preserve-credentials --target "$pid")
}

# on_disk NAME: sets $folder, where its data is as others see it.
on_disk() {
	local pid=''
	keeper_of "$1" || die "$1 has no disk of its own; start it with --etcd-disk"
	folder=/proc/$pid/root$dir/$1
}

fill_disk() {
	local folder
	on_disk "$1"
	# Ends with an error, as it should: there is no room for more.
	if dd if=/dev/zero of="$folder/ballast" bs=64k >>"$dir/$1.disk.log" 2>&1; then die "the disk of $1 has no end"; fi
}

free_disk() {
	local folder
	on_disk "$1"
	rm -f "$folder/ballast"
}

remove_disk() {
	end_process "$1.disk"
	rm -f "$dir/$1.disk".*
}
