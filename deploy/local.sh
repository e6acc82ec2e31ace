# What deploy/up, deploy/down and deploy/demo-real share. Sourced, not run.
# shellcheck shell=bash

here=$(cd -P "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
cd "$here/.."
dir=$PWD/.muster/up
mkdir -p "$dir"
# shellcheck disable=SC2034 # used by those who source this
regions=(us-east eu-west ap-south)
# shellcheck disable=SC2034
ports=(7170 7171 7172 7173)

target_dir() {
	cargo metadata --locked --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}

# Whether the process of a name is alive and is ours: a pid may be reused.
running() {
	local pid
	pid=$(cat "$dir/$1.pid" 2>/dev/null) || return 1
	[ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$dir/bin/muster" ] ||
		[ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$dir/bin/muster (deleted)" ]
}

# start NAME COMMAND...: unless it runs; it outlives this shell.
start() {
	local name=$1
	shift
	if running "$name"; then return; fi
	setsid nohup "$@" >>"$dir/$name.log" 2>&1 </dev/null &
	echo $! >"$dir/$name.pid"
}

# stop NAME: asks, waits, then ends it.
stop() {
	local pid
	if running "$1"; then
		pid=$(cat "$dir/$1.pid")
		kill -TERM "$pid" 2>/dev/null || true
		for _ in $(seq 150); do
			running "$1" || break
			sleep 0.1
		done
		if running "$1"; then kill -KILL "$pid" 2>/dev/null || true; fi
	fi
	rm -f "$dir/$1.pid"
}

# wait_ready PORT: until what listens there says that it is ready for all work.
wait_ready() {
	local url="http://127.0.0.1:$1/readyz?need=global"
	for _ in $(seq 300); do
		if curl --fail --silent --max-time 5 --output /dev/null "$url"; then return; fi
		sleep 0.2
	done
	echo "up: nothing on port $1 became ready; it says:" >&2
	curl --silent --max-time 5 "$url&verbose=1" >&2 || tail -n 20 "$dir"/*.log >&2
	exit 1
}
