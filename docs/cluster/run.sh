#!/usr/bin/env bash
# Runs a cluster on this machine for a try: etcd, three gateways, a balancer and a
# connector. Everything listens on loopback, and ends with Ctrl-C. Put caddy with Postern,
# connector, curl, and etcd 3.6 or later into PATH.
#
#   ./run.sh                                     a model that always gives the same answer
#   ./run.sh http://localhost:11434 llama3.2:3b  a model of your own server
#
# PORT (8080) is the port of the balancer. The script also uses the next six ports.
set -euo pipefail
set -m # each process gets its own group, so that Ctrl-C reaches only this script
cd "$(dirname "$0")"
port=${PORT:-8080}
etcd=http://127.0.0.1:$((port + 4))
members=https://127.0.0.1:$((port + 5)) # for members of etcd; this cluster has one
server=${1:-http://127.0.0.1:$((port + 6))}
model=${2:-scripted}

if ! type caddy connector curl etcd >/dev/null; then
	echo "Put them into PATH. etcd: https://github.com/etcd-io/etcd/releases; the others: docs/install.md" >&2
	exit 1
fi
dir=$(mktemp -d) # data and logs

# start NAME COMMAND...: starts a program and writes its output to a file.
start() {
	"${@:2}" >"$dir/$1.log" 2>&1 &
	echo "started $1 (pid $!)"
}

# await NAME URL: waits until the program answers.
await() {
	for _ in {1..150}; do
		if curl --silent --fail --max-time 2 --output /dev/null "$2"; then return; fi
		sleep 0.2
	done
	{ echo "$1 does not answer at $2. Its log:" && tail "$dir/$1.log"; } >&2
	exit 1
}

# end stops all processes in reverse order, so that the gateways leave the cluster while
# etcd runs. It kills a process that has not exited after 15 seconds.
end() {
	set +eu; pids=()
	for pid in $(jobs -p); do pids=("$pid" "${pids[@]}"); done
	for pid in "${pids[@]}"; do
		kill "$pid"
		for _ in {1..75}; do kill -0 "$pid" && sleep 0.2; done
		kill -9 "$pid"
	done 2>/dev/null
	rm -r "$dir"
}
trap end EXIT
trap exit INT TERM

# The last three flags stop web pages in a local browser from using the ports of etcd.
start etcd etcd --data-dir "$dir/etcd" --log-level warn --listen-client-urls "$etcd" --advertise-client-urls "$etcd" \
	--listen-peer-urls "$members" --initial-advertise-peer-urls "$members" --initial-cluster "default=$members" \
	--enable-grpc-gateway=false --host-whitelist 127.0.0.1,localhost --peer-auto-tls
await etcd "$etcd/health"

# Each edge has a name, a port (TCP for requests, UDP for tunnels), a data folder, and a
# socket for its admin API.
for n in 1 2 3; do
	edge=(env "EDGE=edge-$n" "EDGE_PORT=$((port + n))" "PUBLIC_PORT=$((port + 1))" "ETCD=$etcd"
		"CADDY_ADMIN=unix/$dir/edge-$n.sock|0600" "XDG_DATA_HOME=$dir/edge-$n" caddy run --config "$PWD/edge/Caddyfile")
	start "edge-$n" "${edge[@]}"
	await "edge-$n" "http://localhost:$((port + n))/.well-known/postern/ready"
done

if [ $# = 0 ]; then
	start model env "MODEL_PORT=$((port + 6))" caddy run --config model/Caddyfile
	await model "$server/v1/models"
fi
start balancer env "PORT=$port" "EDGES=127.0.0.1:$((port + 1)) 127.0.0.1:$((port + 2)) 127.0.0.1:$((port + 3))" \
	caddy run --config balancer/Caddyfile
await balancer "http://localhost:$port/.well-known/postern/ready"

# gateway manages the cluster through the first edge; field prints a field of JSON.
gateway() { CADDY_ADMIN="unix/$dir/edge-1.sock" caddy gateway "$@"; }
field() { sed -n "s/^  \"$1\": \"\(.*\)\",*$/\1/p"; }
token=$(gateway connector create --name local --json | field tunnel_token)
printf '{ "tunnel_token": "%s", "upstream": "%s" }\n' "$token" "$server" >"$dir/connector.json"
start connector connector run --config "$dir/connector.json"
connector wait --config "$dir/connector.json"
# That is one tunnel; those to the other edges follow. The first line is the state of the connector.
tunnels() { connector status --config "$dir/connector.json" --json | grep '"state": "online"' | tail -n +2 | wc -l; }
for _ in {1..150}; do
	if [ "$(tunnels)" = 3 ]; then break; fi
	sleep 0.2
done
gateway deployment set "$model" --connector local >/dev/null
key=$(gateway key create --name try --json | field key)

cat <<END

Send a request:

  curl -N http://localhost:$port/v1/chat/completions -H "Authorization: Bearer $key" \\
    -H "Content-Type: application/json" \\
    -d '{"model":"$model","stream":true,"messages":[{"role":"user","content":"Say hello."}]}'

List the gateways:  caddy gateway edge list --address unix/$dir/edge-1.sock
Start edge-3 again: $(printf '%q ' "${edge[@]}")
Logs are in $dir. Ctrl-C ends everything.
END
wait
