#!/usr/bin/env bash
# Makes N hosts of this machine, n1 to nN, each with an sshd and a home directory of its own, runs
# COMMAND where ssh reaches them (mpirun-go -H n1,n2), and removes everything. Without COMMAND it
# runs a few jobs, which must succeed. Needs root, openssh-server and iproute2.
# Usage: hosts-netns.sh N [COMMAND…]
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
case "${1:-}" in
    -h | --help) help; exit ;;
    "" | *[!0-9]*) help >&2; exit 2 ;;
esac
isolate "$@"
n=$1
shift
hosts "$n"
sshds "$n"

if [ $# -gt 0 ]; then
    "$@"
    exit
fi

cd "$root"
go build -o "$out/" ./mpirun-go ./examples/ring ./scripts/jobs
list=$(seq -s, -f n%g:2 "$n") ranks=$((2 * n))
run() { timeout 60 "$out/mpirun-go" -H "$list" -n "$ranks" --oversubscribe "$@"; }
same "$(run hostname | sort -u | wc -l)" "$n" "ranks on $n hosts"
want=$(timeout 60 "$out/mpirun-go" -n "$ranks" --oversubscribe "$out/ring" | tail -n 1)
same "$(run --map-by node "$out/ring" | tail -n 1)" "$want" "a ring"
same "$(run --map-by node --btl self,tcp -v "$out/ring" 2>"$out/errors" | tail -n 1)" "$want" "a ring over TCP"
printed '^mpigo: rank 0: tcp(eth0 10\.77\.[0-9.]*) to '
status=0
# shellcheck disable=SC2016 # for the rank's shell
run sh -c '[ $MPIGO_RANK = 1 ] && exit 7; sleep 1000' 2>"$out/errors" || status=$?
same "$status" 7 "the exit status of a failing rank"
printed 'rank 1 (pid [0-9]*) on n1 exited with status 7'
# Ranks write to a local directory of their host, and the launcher fetches the files.
run --map-by node --profile "$out/local" --trace "$out/local" "$out/ring" >/dev/null 2>"$out/errors" || fail "records: $(cat "$out/errors")"
same "$(find "$out/local" -name '*.[0-9]*.json' | wc -l)" $((2 * ranks)) "profiles and traces of $n hosts"
printed "^mpirun-go: trace: $out/local/trace.html\$"
# The doctor, with working networks, and with firewalls.
doctor() {
    status=0
    timeout 60 "$out/mpirun-go" doctor --set tcp.ports=20000-20099 -H "$list" >"$out/found" 2>"$out/errors" || status=$?
}
# found STATUS PATTERN WHAT: what the doctor must find.
found() {
    doctor
    same "$status" "$1" "the doctor's exit status: $3"
    lines "$out/found" 1 "$2" || fail "the doctor does not find \"$2\": $(cat "$out/found" "$out/errors")"
}
# firewall HOST RULE…: makes a rule for incoming packets. no_firewall HOST: removes it.
firewall() {
    local host=$1
    shift
    ip netns exec "$host" nft "add table inet t; add chain inet t in { type filter hook input priority 0; }; add rule inet t in $*"
}
no_firewall() { ip netns exec "$1" nft delete table inet t; }
found 0 "^$n hosts: 0 broken" "hosts that are well"
if [ "$n" -gt 1 ]; then
    firewall n2 tcp dport 20000-20099 drop
    found 1 '^  broken   connections: 10\.77\.0\.3 port 20000 is silent from n1' "a firewall that drops"
    no_firewall n2
    firewall n2 ip saddr 10.77.0.2 tcp dport 20000-20099 reject with tcp reset
    found 1 '^  broken   connections: 10\.77\.0\.3 port 20000 is refused from n1,' "a firewall that rejects one host"
    no_firewall n2
    firewall n1 tcp dport 20000-20099 ip length '>' 1000 drop
    found 1 '^  broken   connections: 10\.77\.0\.2 takes short packets from n2' "a link that drops long packets"
    no_firewall n1
    ip -n n2 link set eth0 mtu 1400
    found 0 '^  warning  mtu: eth0 has MTU 1400, and n1 1500;' "different MTUs"
    ip -n n2 link set eth0 mtu 1500
fi
export XDG_RUNTIME_DIR=$out # for the job's socket
"$out/mpirun-go" -H "$list" -n "$ranks" --oversubscribe --metrics 127.0.0.1:9101 "$out/jobs" endless >"$out/up" 2>"$out/errors" &
launcher=$!
up "$ranks"
"$out/mpirun-go" top "$launcher" >"$out/top"
lines "$out/top" "$ranks" '^ *[0-9]* n[0-9].* main\.go:[0-9]* SendrecvReplace$' || fail "top: $(cat "$out/top")"
echo "ok: what ranks on $n hosts do"
exec 3<>/dev/tcp/127.0.0.1/9101
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
cat <&3 >"$out/metrics"
exec 3>&-
lines "$out/metrics" "$ranks" '^mpigo_sent_bytes_total{rank="[0-9]*"} [1-9]' || fail "metrics: $(cat "$out/metrics")"
echo "ok: metrics of ranks on $n hosts"
kill -KILL "$launcher"
wait "$launcher" 2>/dev/null || true # keeps the shell from reporting the kill
eventually gone "$endless" && echo "ok: no rank is left after the launcher was killed"
