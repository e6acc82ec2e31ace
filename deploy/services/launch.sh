# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # variables of `services` and for it
# Ports, first data and command line of each service, and how it is started and
# stopped. Sourced by `services`, which sets $dir, $cache, $regions, $fixed,
# $etcd_members, $etcd_quota and $etcd_disk, and defines die and source_of.

# port NAME [N]: the N-th of its ports; the first is the one clients use.
port() { cut -d ' ' -f "${2:-1}" "$dir/$1.ports"; }

listens() { timeout 2 bash -c "exec 3<>/dev/tcp/127.0.0.1/$1" 2>/dev/null; }

# reserved PORT NAME: by another set, also if its service is down at the moment: it
# wants to find its port free when it is restarted. A reservation counts as
# long as the file it names holds the port, so a deleted folder frees its own.
reserved() {
	local owner
	{ read -r owner <"$cache/ports/$1"; } 2>/dev/null || return 1
	[ "$owner" != "$dir/$2.ports" ] && grep -qw "$1" "$owner" 2>/dev/null
}

# choose_ports NAME: keeps those of the last time if nobody took them, else
# picks new ones. Picked below the range from which the kernel gives ports to
# outgoing connections, so that none of those sits on it during a restart.
choose_ports() {
	local name=$1 ports=() try number=0 region
	if [ -n "$fixed" ]; then
		for region in "${regions[@]}"; do
			number=$((number + 1))
			if [ "$name" = "etcd-$region" ]; then ports=($((23790 + number)) $((23820 + number))); fi
		done
		case $name in kafka) ports=(24092 24093) ;; postgres) ports=(25432) ;; esac
		for try in "${ports[@]}"; do
			if listens "$try"; then die "port $try, for $name, is taken; free it, or start without --fixed-ports"; fi
		done
	else
		{ read -ra ports <"$dir/$name.ports"; } 2>/dev/null || true
		for try in "${ports[@]}"; do
			if reserved "$try" "$name" || listens "$try"; then ports=(); fi
		done
		while [ ${#ports[@]} -lt 2 ]; do
			try=$((26000 + RANDOM % 6000))
			if [[ " ${ports[*]} " != *" $try "* ]] && ! reserved "$try" "$name" && ! listens "$try"; then ports+=("$try"); fi
		done
	fi
	for try in "${ports[@]}"; do echo "$dir/$name.ports" >"$cache/ports/$try"; done
	echo "${ports[*]}" >"$dir/$name.ports"
}

# etcd_names REGION: of all members of its etcd.
etcd_names() {
	local number
	echo "etcd-$1"
	for ((number = 2; number <= etcd_members; number++)); do echo "etcd-$1@$number"; done
}

launch_etcd() {
	local name=$1 region=${1#etcd-} client peer member cluster='' inside=()
	client=http://127.0.0.1:$(port "$name") peer=http://127.0.0.1:$(port "$name" 2)
	for member in $(etcd_names "${region%@*}"); do cluster+=,$member=http://127.0.0.1:$(port "$member" 2); done
	if [ -n "$etcd_disk" ]; then make_disk "$name" "$etcd_disk" || return 1; fi
	spawn "$name" / "${inside[@]}" "$etcd_bin" --name "$name" --data-dir "$dir/$name" \
		--listen-client-urls "$client" --advertise-client-urls "$client" \
		--listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "${cluster#,}" \
		--auto-compaction-mode=periodic --auto-compaction-retention=10m \
		--quota-backend-bytes="$etcd_quota" --log-level=warn
}

# The broker runs inside $dir and names its data by a relative path: log.dirs
# is a list, a comma in the path would cut it in two. Kafka's own flush
# settings are left alone: it answers from the page cache, which survives the
# death of the process, as it does in production. After a kill -9 a broker is
# let in again only when its former session has run out: 3 s instead of 9.
launch_kafka() {
	# What becomes of the group is what tests ask about.
	local log=-Dorg.slf4j.simpleLogger
	local java=(java "$log.defaultLogLevel=warn" "$log.log.org.apache.kafka.coordinator.group=info" -cp "$kafka_libs/*")
	local listen=PLAINTEXT://127.0.0.1:$(port kafka),CONTROLLER://127.0.0.1:$(port kafka 2)
	local told=PLAINTEXT://127.0.0.1:$(port kafka) protocols=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
	local listener name
	# Kept for the next start, which is told of none.
	if [ ${#listeners[@]} -gt 0 ]; then printf '%s\n' "${listeners[@]}" >"$dir/kafka.listeners"; fi
	while IFS= read -r listener; do
		name=BEHIND_${listener%%=*}
		listen+=,$name://127.0.0.1:${listener%%=*} told+=,$name://${listener#*=} protocols+=,$name:PLAINTEXT
	done < <(cat "$dir/kafka.listeners" 2>/dev/null)
	cat >"$dir/kafka.properties" <<-CONF
		process.roles=broker,controller
		node.id=1
		controller.quorum.voters=1@127.0.0.1:$(port kafka 2)
		listeners=$listen
		advertised.listeners=$told
		listener.security.protocol.map=$protocols
		inter.broker.listener.name=PLAINTEXT
		controller.listener.names=CONTROLLER
		log.dirs=kafka
		auto.create.topics.enable=false
		broker.session.timeout.ms=3000
		broker.heartbeat.interval.ms=500
		group.initial.rebalance.delay.ms=0
		offsets.topic.num.partitions=3
		offsets.topic.replication.factor=1
		transaction.state.log.num.partitions=3
		transaction.state.log.replication.factor=1
		transaction.state.log.min.isr=1
		share.coordinator.state.topic.replication.factor=1
		share.coordinator.state.topic.min.isr=1
	CONF
	if [ ! -d "$dir/kafka" ]; then
		# Formatted under another name, as every first data here: what an
		# interrupted run left is thrown away and not started on.
		rm -rf "$dir/kafka.new"
		sed 's/^log.dirs=.*/log.dirs=kafka.new/' "$dir/kafka.properties" >"$dir/kafka.format"
		(cd "$dir" && "${java[@]}" -Xshare:auto -XX:TieredStopAtLevel=1 -XX:+UseSerialGC kafka.tools.StorageTool \
			format -t "$(head -c 16 /dev/urandom | base64 | tr '+/' 'ab' | cut -c 1-22)" -c kafka.format) \
			>>"$dir/kafka.log" 2>&1 </dev/null || return 1
		mv -T "$dir/kafka.new" "$dir/kafka" || return 1
	fi
	spawn kafka "$dir" "${java[@]}" -Xmx512m kafka.Kafka "$dir/kafka.properties"
}

# Postgres refuses root; setpriv, unlike su and runuser, becomes the command
# instead of waiting for it, so the pid stays the one we know.
as_postgres() {
	if [ "$(id -u)" != 0 ]; then "$@"; else
		setpriv --reuid=postgres --regid="$(id -g postgres)" --init-groups "$@"
	fi
}

# remove_data PATH: and what it points to, see init_postgres.
remove_data() {
	local target
	target=$(readlink "$1") || target=
	case $target in /var/tmp/muster-postgres.*) rm -rf "$target" ;; esac
	rm -rf "$1"
}

init_postgres() {
	local new=$dir/postgres.new
	remove_data "$new"
	if [ "$(id -u)" = 0 ] && ! id postgres >/dev/null 2>&1; then
		useradd --system --user-group --no-create-home --shell /usr/sbin/nologin postgres
	fi
	# Root's folders, and temporary ones of tests, are often closed to the user
	# postgres: then its data is elsewhere, and a link in the folder tells where.
	if as_postgres test -x "$dir"; then mkdir "$new"; else ln -s "$(mktemp -d /var/tmp/muster-postgres.XXXXXX)" "$new"; fi
	if [ "$(id -u)" = 0 ]; then chown postgres "$new/"; fi
	chmod 700 "$new/"
	local data
	data=$(readlink -f "$new")
	cd /
	as_postgres "$postgres_bin/initdb" -D "$data" -U muster -A trust -E UTF8 --locale=C || return 1
	as_postgres "$postgres_bin/postgres" --single -D "$data" postgres <<-SQL || return 1
		CREATE DATABASE muster;
		ALTER ROLE muster PASSWORD 'muster';
	SQL
	echo 'host all all 127.0.0.1/32 scram-sha-256' >"$data/pg_hba.conf"
	mv -T "$new" "$dir/postgres"
}

launch_postgres() {
	local data holder become=()
	if [ ! -d "$dir/postgres" ]; then
		(init_postgres) >>"$dir/postgres.log" 2>&1 </dev/null || return 1
	fi
	data=$(readlink -f "$dir/postgres")
	# After a kill -9 of the parent alone its backends linger, and Postgres
	# would refuse the folder; and after a reused pid it would refuse for ever.
	kill_process postgres
	if { read -r holder <"$data/postmaster.pid"; } 2>/dev/null && [ -n "$holder" ] && ! [ "/proc/$holder/cwd" -ef "$data" ] && [ -d "/proc/$holder" ]; then
		rm -f "$data/postmaster.pid"
	fi
	if [ "$(id -u)" = 0 ]; then become=(setpriv --reuid=postgres --regid="$(id -g postgres)" --init-groups); fi
	# No socket file: its path would have to be shorter than ours may be.
	spawn postgres / "${become[@]}" "$postgres_bin/postgres" -D "$data" -h 127.0.0.1 -p "$(port postgres)" -k '' -c max_connections=200
}

# is_up NAME: as a process or a container, whether or not it answers.
is_up() {
	pid=''
	case $(source_of "$1") in
	native) own_pid "$1" ;;
	docker) container_up "$1" ;;
	*) return 1 ;;
	esac
}

# start_service NAME: returns once it answers.
start_service() {
	local name=$1 begun=${EPOCHREALTIME/[.,]/} source limit=${MUSTER_START_TIMEOUT:-60} failed='' spawned=''
	source=$(source_of "$name")
	if is_up "$name"; then
		if [ "$source" = docker ]; then compose unpause "$name" || true; else signal CONT "$name"; fi
	elif [ "$source" = docker ]; then
		compose up -d "$name" || failed="docker compose did not start it"
	elif listens "$(port "$name")"; then
		failed="somebody else listens on port $(port "$name")" # whose answer would pass for ours
	else
		"launch_${name%%-*}" "$name" || failed="its first data could not be made"
	fi
	local deadline=$((SECONDS + limit))
	while [ -z "$failed" ] && ! answers "$name" "$(port "$name")"; do
		if [ -n "$spawned" ] && ! kill -0 "$spawned" 2>/dev/null; then failed="it ended"; fi
		if [ $SECONDS -ge $deadline ]; then failed="no answer on port $(port "$name") within $limit s"; fi
		sleep 0.05
	done
	if [ -n "$failed" ]; then
		if [ "$source" = docker ]; then container_log "$name" >"$dir/$name.log"; fi
		{ echo "services: $name did not start: $failed; the end of $dir/$name.log:" && tail -n 30 "$dir/$name.log"; } >&2 || true
		return 1
	fi
	printf '%-18s up on port %s, %d ms\n' "$name" "$(port "$name")" $(((${EPOCHREALTIME/[.,]/} - begun) / 1000))
}

stop_service() {
	case $(source_of "$1") in
	native) end_process "$1" ;;
	docker) compose stop "$1" || die "docker compose could not stop $1, see $dir/compose.log" ;;
	esac
}

# in_data NAME SCRIPT: in its data folder, with this set's folder as $1.
in_data() {
	if [ "$(source_of "$1")" = docker ]; then in_volume "$@"; else
		(cd "$(readlink -f "$dir/$1")" && sh -euc "$2" - "$dir")
	fi
}

save_data() {
	in_data "$1" "tar -cpf \"\$1/$1.saved\" ." || die "the data of $1 could not be saved"
}

restore_data() {
	[ -s "$dir/$1.saved" ] || die "nothing was saved of $1"
	local then=:
	# Postgres comes back as a replica that may be promoted, which begins
	# another timeline, as a failover or a restore by its own tools does.
	if [ "$1" = postgres ]; then then='touch standby.signal'; fi
	in_data "$1" "find . -mindepth 1 -delete; tar -xpf \"\$1/$1.saved\"; $then" || die "the data of $1 could not be restored"
}

empty_data() {
	case $(source_of "$1") in
	native) remove_data "$dir/$1" ;;
	docker) in_volume "$1" 'find . -mindepth 1 -delete' || die "the data of $1 could not be deleted" ;;
	esac
}
