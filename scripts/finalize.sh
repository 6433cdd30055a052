#!/usr/bin/env bash
# Correct programs whose rank 0 calls Finalize later than the others end well, although the others
# have told by then that they are finalized:
#   - 128 ranks over TCP on one machine, rank 0 1.02 s late, RUNS times; they connect for the barrier
#     before that, and no more;
#   - a master and two workers on three hosts, with a firewall between the workers, the master 1.5 s
#     late;
#   - 80 ranks over TCP that may have 64 files open, rank 0 1.02 s late.
# Each job has to end with status 0 and without a word. The hosts are network namespaces of this
# machine (netns.sh).
# Usage: finalize.sh [RUNS]   5 by default. Needs root, openssh-server, iproute2 and nftables. Takes
# about half a minute.
set -euo pipefail
case "${1:-5}" in
    -h | --help) sed -n '2,12s/^# //p' "$0"; exit ;;
    0* | *[!0-9]*) echo "usage: finalize.sh [RUNS]" >&2; exit 2 ;;
esac
. "$(dirname "$(readlink -f "$0")")/netns.sh"
alone "$0" "$@"
runs=${1:-5}
cd "$(dirname "$(readlink -f "$0")")/.."
go build -o "$out/" ./mpirun-go ./scripts/finalize

# well WHAT COMMAND…: the command has to end with status 0 and no output.
well() {
    local what=$1 status=0 begin=${EPOCHREALTIME/./}
    shift
    timeout 120 "$@" >"$out/said" 2>&1 || status=$?
    [ "$status" = 0 ] && [ ! -s "$out/said" ] || fail "$what: status $status: $(head -n 20 "$out/said")"
    echo "ok: $what, $(((${EPOCHREALTIME/./} - begin) / 1000)) ms"
}
here=("$out/mpirun-go" --oversubscribe --btl self,tcp --set tcp.include=lo)

# connects: how many TCP connections were begun in this namespace.
connects() { awk '/^Tcp: [0-9]/ { print $6 }' /proc/net/snmp; }

for run in $(seq "$runs"); do
    before=$(connects)
    well "128 ranks, rank 0 late, run $run" "${here[@]}" -n 128 "$out/finalize" -late 1020ms
    made=$(($(connects) - before))
    [ "$made" -lt 2000 ] || fail "128 ranks made $made connections" # all pairs would be 8128
done
echo "ok: the last 128 ranks made $made connections"

# shellcheck disable=SC2016 # for the rank's shell
well "80 ranks with 64 open files each, rank 0 late" "${here[@]}" -n 80 sh -c 'ulimit -n 64; exec "$0" -late 1020ms' "$out/finalize"

hosts 3
sshds 3
for pair in "n2 10.77.0.4" "n3 10.77.0.3"; do
    read -r host other <<<"$pair"
    ip netns exec "$host" nft -f - <<RULES
table inet wall {
    chain in { type filter hook input priority 0; ip saddr $other drop; }
    chain out { type filter hook output priority 0; ip daddr $other drop; }
}
RULES
done
ip netns exec n2 timeout 1 bash -c ': </dev/tcp/10.77.0.4/22' 2>/dev/null && fail "there is no firewall between the workers"
well "a master 1.5 s late, and a firewall between its workers" \
    "$out/mpirun-go" -H n1:1,n2:1,n3:1 -n 3 --btl self,tcp "$out/finalize" -master -late 1500ms
