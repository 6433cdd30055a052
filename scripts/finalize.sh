#!/usr/bin/env bash
# Runs correct programs whose rank 0 calls Finalize later than the others. Each job must end with
# status 0 and print nothing, although the other ranks have announced by then that they finalize:
#   - 128 ranks over TCP on one machine, rank 0 1.02 s late, RUNS times. They connect for the
#     barrier before that, and open no further connections;
#   - 80 ranks over TCP that may have 64 files open, rank 0 1.02 s late;
#   - a master and two workers on three hosts, with a firewall between the workers, the master 1.5 s
#     late.
# The hosts are network namespaces of this machine.
# Usage: finalize.sh [RUNS]
# 5 runs by default. Needs root, openssh-server, iproute2 and nftables. Takes about half a minute.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
case "${1:-5}" in
    -h | --help) help; exit ;;
    0* | *[!0-9]*) help >&2; exit 2 ;;
esac
isolate "$@"
runs=${1:-5}
cd "$root"
go build -o "$out/" ./mpirun-go ./scripts/jobs

# succeeds WHAT COMMAND…: the command must end with status 0 and print nothing.
succeeds() {
    local what=$1 status=0 begin
    begin=$(now)
    shift
    timeout 120 "$@" >"$out/printed" 2>&1 || status=$?
    [ "$status" = 0 ] && [ ! -s "$out/printed" ] ||
        fail "$what: exit status $status: $(head -n 20 "$out/printed")"
    echo "ok: $what, $((($(now) - begin) / 1000)) ms"
}
here=("$out/mpirun-go" --oversubscribe --btl self,tcp --set tcp.include=lo)

# opened: the number of TCP connections opened so far in this namespace.
opened() { awk '/^Tcp: [0-9]/ { print $6 }' /proc/net/snmp; }

for run in $(seq "$runs"); do
    before=$(opened)
    succeeds "128 ranks, rank 0 late, run $run" "${here[@]}" -n 128 "$out/jobs" finalize -late 1020ms
    made=$(($(opened) - before))
    [ "$made" -lt 2000 ] || fail "128 ranks opened $made connections" # all pairs would be 8128
done
echo "ok: the last 128 ranks opened $made connections"

# shellcheck disable=SC2016 # for the rank's shell
succeeds "80 ranks with 64 open files each, rank 0 late" \
    "${here[@]}" -n 80 sh -c 'ulimit -n 64; exec "$0" finalize -late 1020ms' "$out/jobs"

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
ip netns exec n2 timeout 1 bash -c ': </dev/tcp/10.77.0.4/22' 2>/dev/null &&
    fail "the firewall between the workers lets connections through"
succeeds "a master 1.5 s late, and a firewall between its workers" \
    "$out/mpirun-go" -H n1:1,n2:1,n3:1 -n 3 --btl self,tcp "$out/jobs" finalize -master -late 1500ms
