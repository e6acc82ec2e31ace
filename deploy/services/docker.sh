# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of `services`
# The services as containers of deploy/compose.yaml, where a daemon runs.
# Sourced by `services`, which sets $dir, $here and $regions and defines names and port.

# A project for each folder, so that two sets do not share containers.
project=muster-$(cksum <<<"$dir" | cut -d ' ' -f 1)

# compose_file COMMAND...: with the ports of this folder, which the compose file
# takes from the environment.
compose_file() {
	local name variable settings=()
	for name in $(names); do
		variable=${name//[.-]/_}
		if [ -e "$dir/$name.ports" ]; then settings+=("MUSTER_PORT_${variable^^}=$(port "$name")"); fi
	done
	env "${settings[@]}" docker compose -p "$project" -f "$here/../compose.yaml" "$@" </dev/null 9>&-
}

compose() { compose_file "$@" >>"$dir/compose.log" 2>&1; }

# prepare_containers KIND: brings the image. That of etcd is ours, and one for
# all regions, so it is built for the first alone.
prepare_containers() {
	if [ "$1" = etcd ]; then compose_file build -q "etcd-${regions[0]}"; else compose_file pull -q --policy missing "$1"; fi >&2
}

container_up() {
	docker ps -q --filter "label=com.docker.compose.project=$project" \
		--filter "label=com.docker.compose.service=$1" 2>/dev/null | grep -q .
}

container_log() {
	cat "$dir/compose.log"
	compose_file logs --no-color --tail 30 "$1" 2>&1
}

# in_volume NAME SCRIPT: in the data folder of its volume, with this set's
# folder as $1.
in_volume() {
	local data
	case $1 in
	etcd-*) data=/var/lib/etcd ;;
	kafka) data=/var/lib/kafka/data ;;
	postgres) data=/var/lib/postgresql/data ;;
	esac
	compose run --rm --no-deps -T --user root -v "$dir:/set" -w "$data" --entrypoint sh "$1" -euc "$2" - /set
}
