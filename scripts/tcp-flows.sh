#!/usr/bin/env bash
# Measures the gain of several TCP connections per interface (tcp.connections) on a network that
# limits a single flow: two hosts, which are network namespaces of this machine, are joined by a
# cable on which each flow gets at most 100 Mbit/s. Prints a row for each number of connections: the
# median of five runs, in turns. Fails if four connections have less than three times the bandwidth
# of one. Needs root, openssh-server, iproute2 and nftables.
# Usage: tcp-flows.sh
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
case "${1:-}" in -h | --help) help; exit ;; esac
cd "$root"
[ -n "${NETNS_HOSTS:-}" ] || exec scripts/hosts-netns.sh 2 "$self"

counts=(1 2 4 8) runs=5 port=20000 mbit=100
scratch
go build -o "$out/" ./mpirun-go ./bench

# Connection k listens at the k-th port. A class of packets belongs to each such port, and its rate
# is limited.
cable 0
map=''
for ((k = 0; k < 8; k++)); do map+="$((port + k)) : 1:$((k + 1)), "; done
for h in 1 2; do
    tc -n "n$h" qdisc add dev r0 root handle 1: htb
    for ((k = 1; k <= 8; k++)); do
        tc -n "n$h" class add dev r0 parent 1: classid "1:$k" htb rate "${mbit}mbit" quantum 60000
    done
    ip netns exec "n$h" nft -f - <<NFT
table inet flows {
    chain out {
        type filter hook postrouting priority 0;
        oifname r0 meta priority set tcp dport map { ${map%, } };
        oifname r0 meta priority set tcp sport map { ${map%, } };
    }
}
NFT
done

# megabytes CONNECTIONS: the bandwidth of a job, in MB/s.
megabytes() {
    "$out/mpirun-go" -H n1:1,n2:1 -n 2 --timeout 60s --btl self,tcp --set tcp.include=r0 \
        --set "tcp.ports=$port-$((port + 7))" --set "tcp.connections=$1" \
        "$out/bench" bw -m 1M -i "$((2 * $1))" -x "$1" -W 8 | awk '!/^#/ && NF { print $2 }'
}

for ((run = 0; run < runs; run++)); do
    for n in "${counts[@]}"; do megabytes "$n" >>"$out/of.$n"; done
done
echo "| connections | MB/s | of one | at most |"
echo "|---|---|---|---|"
declare -A ratio
for n in "${counts[@]}"; do
    median=$(sort -n "$out/of.$n" | sed -n "$(((runs + 1) / 2))p")
    [ "$n" != 1 ] || one=$median
    ratio[$n]=$(awk -v a="$median" -v b="$one" 'BEGIN { printf "%.2f", a / b }')
    awk -v n="$n" -v mb="$median" -v r="${ratio[$n]}" -v mbit="$mbit" 'BEGIN { printf "| %d | %.1f | %s | %.1f |\n", n, mb, r, n * mbit / 8 }'
done
awk -v r="${ratio[4]}" 'BEGIN { exit !(r >= 3) }' || fail "four connections carry ${ratio[4]} times what one does, want 3"
