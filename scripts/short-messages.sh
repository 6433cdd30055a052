#!/usr/bin/env bash
# Measures the bandwidth of short messages between two hosts, which are network namespaces of this
# machine: by one rail, and by two. RATE bounds each rail (1gbit); with RATE=none the processors do.
# Needs root, openssh-server and iproute2.
# Usage: [RATE=1gbit] short-messages.sh
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
[ $# = 0 ] || { help >&2; exit 2; }
[ -n "${NETNS_HOSTS:-}" ] || exec scripts/hosts-netns.sh 2 "$self"

scratch
for n in 0 1; do
    ip link add "r$n" netns n1 type veth peer name "r$n" netns n2
    for h in 1 2; do
        ip -n n$h addr add "10.78.$n.$h/24" dev "r$n"
        ip -n n$h link set "r$n" up
        [ "${RATE:=1gbit}" = none ] ||
            tc -n n$h qdisc add dev "r$n" root tbf rate "$RATE" burst 128kb limit 1mb
    done
done
go build -o "$out/" ./mpirun-go ./bench
for rails in r0 r0,r1; do
    echo "rails $rails, $RATE:"
    "$out/mpirun-go" -H n1:1,n2:1 -n 2 --timeout 100s --btl self,tcp --set tcp.include=$rails \
        "$out/bench" bw -m 1K:64K -i 300
done
