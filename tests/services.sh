# shellcheck shell=bash
# Real services for one run of tests, in a fresh folder and on free ports, so
# that runs beside each other do not meet. Sourced: the services run when it
# returns, MUSTER_TEST_ETCD, MUSTER_TEST_KAFKA and MUSTER_TEST_POSTGRES name
# them, and they end with the script. Services that these name already are used
# instead.
# shellcheck disable=SC2329 # functions called by a trap, or by name

services=deploy/services/services
target=$(cargo metadata --locked --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
log=$target/test.log
mkdir -p "$target"

"$services" provision

# in_group COMMAND...: in a process group of its own, which `end` ends: bash
# would let a signal wait until cargo and all its tests are through.
group=''
in_group() {
	local status=0
	set -m
	"$@" &
	group=$!
	set +m
	wait "$group" || status=$?
	group=''
	return "$status"
}

end() {
	local status=$1
	trap '' INT TERM
	if [ -n "$group" ]; then kill -- "-$group" 2>/dev/null || true; fi
	if [ "$status" != 0 ]; then
		# The folders of what failed are still there.
		rm -rf "$target/test-services"
		mkdir -p "$target/test-services"
		cp -r "$dir"/services/*.log "$dir"/tmp/muster-history-* "$dir"/tmp/muster_test_* "$dir"/logs "$target/test-services/" 2>/dev/null || true
		echo "test: failed; output in $log, histories and all logs in $target/test-services" >&2
	fi
	# A test that was killed could not end the services of its own.
	for set in "$dir"/services "$dir"/tmp/muster-services-*; do
		if [ -d "$set" ]; then "$services" stop --dir "$set" --wipe || status=1; fi
	done
	rm -rf "$dir"
	exit "$status"
}

dir=$(mktemp -d "${TMPDIR:-/tmp}/muster-test.XXXXXX")
trap 'end $?' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"$services" start --dir "$dir/services"
# What tests leave behind goes with the run's folder.
mkdir "$dir/tmp" "$dir/logs"
export TMPDIR=$dir/tmp MUSTER_TEST_LOGS=$dir/logs
set -a
# shellcheck source=/dev/null
. "$dir/services/env"
set +a
