# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # variables of `services` and for it
# Where each service comes from. Sourced by `services`, which sets $here,
# $cache, $regions and defines die and say.
#
# find_X sets the place of something that can be started at once (etcd_bin,
# kafka_libs, postgres_bin) or fails; provision_X makes find_X succeed.

etcd_version=3.7.3
kafka_version=4.1.0
postgres_version=15

# at_least WANTED FOUND
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# keyed NAME VERSION FILE...: the cache folder for what these files build. The
# sum of the files is part of it: a changed dependency is a new folder, not a
# stale one.
keyed() {
	local name=$1 version=$2
	shift 2
	echo "$cache/$name-$version-$({ uname -sm && cat "$@"; } | cksum | cut -d ' ' -f 1)"
}
etcd_cache=$(keyed etcd $etcd_version "$here"/etcd/go.mod "$here"/etcd/go.sum "$here"/etcd/main.go)
kafka_cache=$(keyed kafka $kafka_version "$here/kafka/pom.xml")

# build_once FOLDER COMMAND...: the command gets an empty folder to fill, which
# becomes FOLDER by a rename once it succeeded, so that an interrupted build is
# never taken for a finished one. The lock makes a second run wait, not build
# the same again; the rename would keep it right without.
build_once() {
	local folder=$1 temporary
	shift
	mkdir -p "$cache"
	(
		flock 8
		if [ -d "$folder" ]; then exit 0; fi
		rm -rf "$folder".new.*
		temporary=$(mktemp -d "$folder.new.XXXXXX")
		"$@" "$temporary" || exit 1
		chmod 755 "$temporary" # the broker may be run by another user than the builder
		mv -T "$temporary" "$folder"
	) 8>"$folder.lock"
}

# docker_has SERVICE: compose can run it here. `docker info` asks the daemon;
# the client alone says nothing. Not asked twice, it takes a while.
docker_has() {
	if [ -z "${docker_runs:-}" ]; then
		docker_runs=no
		if timeout 10 docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; then docker_runs=yes; fi
	fi
	[ "$docker_runs" = yes ] || return 1
	if [ "$1" = kafka ] && [ ${#listeners[@]} -gt 0 ]; then return 1; fi
	local region # the compose file knows its own regions only
	if [ "$1" != etcd ]; then return 0; fi
	# One member, on the disk and with the quota that the file gives it.
	if [ "$etcd_members" != 1 ] || [ "$etcd_quota" != "$etcd_quota_default" ] || [ -n "$etcd_disk" ]; then return 1; fi
	for region in "${regions[@]}"; do
		grep -q "^  etcd-$region:" "$here/../compose.yaml" || return 1
	done
}

find_etcd() {
	local version
	etcd_bin=$(command -v etcd) || etcd_bin=
	if [ -n "$etcd_bin" ]; then
		version=$("$etcd_bin" --version 2>/dev/null | sed -n 's/^etcd Version: //p')
		# Distributions still carry 3.4, whose watches and leases have bugs
		# that later tests would blame on us.
		if [ -n "$version" ] && at_least $etcd_version "$version"; then return 0; fi
	fi
	etcd_bin=$etcd_cache/etcd
	[ -x "$etcd_bin" ]
}
build_etcd() { (cd "$here/etcd" && CGO_ENABLED=0 GOWORK=off go build -trimpath -o "$1/etcd" .); }
provision_etcd() {
	command -v go >/dev/null || die "etcd: neither etcd $etcd_version or newer, docker nor Go is here; or give MUSTER_TEST_ETCD"
	say "etcd: building $etcd_version with Go, about a minute, once"
	build_once "$etcd_cache" build_etcd
	find_etcd
}

find_kafka() {
	local script jar version
	command -v java >/dev/null || return 1
	script=$(command -v kafka-server-start.sh || command -v kafka-server-start) || script=
	if [ -n "$script" ]; then
		kafka_libs=$(dirname "$(dirname "$(readlink -f "$script")")")/libs
		# The name of the jar tells the version without starting a JVM for it.
		for jar in "$kafka_libs"/kafka_2.13-*.jar; do
			version=${jar##*/kafka_2.13-}
			version=${version%.jar}
			if [ -e "$jar" ] && at_least $kafka_version "$version"; then return 0; fi
		done
	fi
	kafka_libs=$kafka_cache
	[ -d "$kafka_libs" ]
}
build_kafka() {
	local output
	output=$(mvn -B -q -f "$here/kafka/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$1" 2>&1) ||
		die "kafka: Maven failed: $output"
	[ -e "$1/kafka_2.13-$kafka_version.jar" ] || die "kafka: Maven brought no kafka_2.13-$kafka_version.jar"
}
provision_kafka() {
	command -v java >/dev/null || die "kafka: neither docker nor Java (17 or newer) is here; or give MUSTER_TEST_KAFKA"
	command -v mvn >/dev/null || die "kafka: neither Kafka $kafka_version or newer, docker nor Maven is here; or give MUSTER_TEST_KAFKA"
	say "kafka: fetching the jars of $kafka_version with Maven, once"
	build_once "$kafka_cache" build_kafka
	find_kafka
}

# On PATH there may be a link (followed), or a wrapper script of a distribution,
# which is no good: the pid we keep must be the server's. Then the places of
# Debian and of the Postgres project's own packages, newest first.
find_postgres() {
	local candidate version
	while read -r candidate; do
		if [ ! -x "$candidate/initdb" ] || [ ! -x "$candidate/postgres" ]; then continue; fi
		if [ "$(head -c 2 "$candidate/postgres")" = '#!' ]; then continue; fi
		version=$("$candidate/postgres" --version | grep -oE '[0-9]+' | head -n 1)
		if at_least $postgres_version "$version"; then
			postgres_bin=$candidate
			return 0
		fi
	done < <(
		candidate=$(command -v postgres) && dirname "$(readlink -f "$candidate")"
		for candidate in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do echo "$candidate"; done | sort -Vr
	)
	return 1
}
provision_postgres() {
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		die "postgres: neither Postgres $postgres_version or newer nor docker is here; install the package (Debian: postgresql), or give MUSTER_TEST_POSTGRES"
	fi
	say "postgres: installing the package"
	(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql) >&2
	find_postgres || die "postgres: the package of this system is older than $postgres_version"
}

# provision NAME (etcd, kafka, postgres): makes it startable, sets $source to
# given (an address we were told), native or docker.
provision() {
	local variable=MUSTER_TEST_${1^^}
	if [ -n "${!variable:-}" ]; then
		source=given
	elif "find_$1"; then
		source=native
	elif docker_has "$1"; then
		prepare_containers "$1" || die "$1: docker compose could not bring its image"
		source=docker
	else
		"provision_$1" || die "$1: could not be provisioned, see above"
		source=native
	fi
}
