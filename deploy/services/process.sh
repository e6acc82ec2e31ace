# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # variables of `services` and for it
# One service as a process: is it ours, does it answer, start, signal, end.
# Sourced by `services`, which sets $dir (absolute) and defines die.

# stat_of PID: sets $state, $born (clock ticks since boot) of a live process.
# Fields are taken after the last ')', since the command name before it may
# itself hold spaces and parentheses.
stat_of() {
	local line fields
	{ read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
	read -ra fields <<<"${line##*) }"
	state=${fields[0]} born=${fields[19]}
	# A container's init may never reap: a zombie is gone all the same.
	[ "$state" != Z ] && [ "$state" != X ]
}

# own_pid NAME: sets $pid if the process we started under this name lives.
# A pid alone proves nothing, it may have been given to somebody else after a
# kill -9 or a reboot; pid and time of birth together do.
own_pid() {
	local birth
	pid=''
	{ read -r pid <"$dir/$1.pid"; read -r birth <"$dir/$1.born"; } 2>/dev/null || return 1
	if [ -n "$pid" ] && stat_of "$pid" && [ "$born" = "$birth" ]; then return 0; fi
	pid=''
	return 1
}

# spawn NAME FOLDER COMMAND...: in its own session, so that neither Ctrl-C nor
# the end of the caller's shell reaches it, and with none of the caller's open
# files, so that nobody waits for the end of a pipe we kept open. The process
# writes its own pid before it becomes the service: however this script is
# killed, there is no moment in which a service runs that `stop` cannot find.
spawn() {
	local name=$1 folder=$2
	shift 2
	rm -f "$dir/$name.pid"
	# shellcheck disable=SC2016 # expanded by the inner shell, on purpose
	setsid bash -c '
		cd "$2" || exit 1
		for fd in /proc/$$/fd/*; do
			fd=${fd##*/}
			if [ "$fd" -gt 2 ]; then eval "exec $fd>&-"; fi
		done
		read -r line </proc/$$/stat
		read -ra fields <<<"${line##*) }"
		echo "${fields[19]}" >"$1.born"
		echo $$ >"$1.pid.new" && mv "$1.pid.new" "$1.pid"
		shift 2
		exec "$@"
	' muster-service "$dir/$name" "$folder" "$@" >>"$dir/$name.log" 2>&1 </dev/null &
	spawned=$!
}

# members NAME: sets $members, the service's processes, parent first. Postgres
# is many, each backend in a session of its own; all of them, also those that
# outlived their parent, sit in the data folder.
members() {
	members=()
	if own_pid "$1"; then members+=("$pid"); fi
	if [ "$1" != postgres ] || [ ! -e "$dir/postgres" ]; then return 0; fi
	local process
	for process in /proc/[0-9]*; do
		if [ "$process/cwd" -ef "$dir/postgres/" ] && [ "${process#/proc/}" != "$pid" ]; then
			members+=("${process#/proc/}")
		fi
	done
}

# signal SIGNAL NAME
signal() {
	members "$2"
	if [ ${#members[@]} -gt 0 ]; then kill "-$1" "${members[@]}" 2>/dev/null || true; fi
}

# gone NAME SECONDS: waits for the end of every process of the service.
gone() {
	local deadline=$((SECONDS + $2))
	while members "$1" && [ ${#members[@]} -gt 0 ]; do
		if [ $SECONDS -ge $deadline ]; then return 1; fi
		sleep 0.05
	done
}

end_process() {
	local name=$1 polite=TERM
	# Postgres takes TERM as "wait until every client has left".
	if [ "$name" = postgres ]; then polite=INT; fi
	if own_pid "$name"; then
		kill -$polite "$pid" 2>/dev/null || true
		signal CONT "$name" # a paused process gets no other signal
		gone "$name" 20 || true
	fi
	kill_process "$name"
}

kill_process() {
	signal KILL "$1"
	gone "$1" 10 || die "$1 (pid ${members[*]}) does not end, even killed"
	rm -f "$dir/$1.pid" "$dir/$1.born"
}

# answers NAME PORT: speaks the service's own protocol, since an open port is
# not yet a service: etcd may lack a leader, a broker that listens may still be
# fenced, Postgres may be recovering. Needs no client program of any of them.
answers() {
	local ask
	# shellcheck disable=SC2016 # expanded by the inner shell, on purpose
	case $1 in
	etcd-*) ask='printf "GET /health HTTP/1.0\r\n\r\n" >&3; grep -q "\"health\":\"true\"" <&3' ;;
	# A Metadata request (key 3, version 1, no topics): after the length and
	# the correlation id comes the number of live brokers.
	kafka) ask='printf "\0\0\0\x0e\0\x03\0\x01\0\0\0\0\xff\xff\0\0\0\0" >&3
		[ "$(head -c 12 <&3 | od -An -tx1 | tr -d " \n" | cut -c 9-)" = 0000000000000001 ]' ;;
	# A startup packet: R asks for the password, E says why not yet. Read to its
	# end, else Postgres logs a reset connection each time.
	postgres) ask='printf "\0\0\0\x25\0\x03\0\0user\0muster\0database\0muster\0\0" >&3
		[ "$(head -c 24 <&3 | head -c 1)" = R ]' ;;
	esac
	timeout 2 bash -c "exec 3<>/dev/tcp/127.0.0.1/$2 && { $ask; }" >/dev/null 2>&1 </dev/null
}
