#!/usr/bin/env bash
# Tests failover on soft-RoCE, in the guest of btl/ibverbs/internal/softroce: a job of two ranks
# with two rails exchanges and checks messages of all kinds while rails break and are mended. Prints
# a row for each case, in the order of the table in docs/evidence/failover-cases.md, and fails if a
# case does.
# Usage: failover-verbs.sh [-brief] [-v] [-marks] [CASE…]
#   -brief  traffic for 1 s, not 3 s, after all is mended; its bandwidth is then less exact
#   -v      print the job's output, and the bandwidth and the rails over time
#   -marks  fail if a figure is above its limit
# By default all cases run. A case may be followed by :copy, :get or :put, the protocol of long
# messages, or by :tcp, which adds a rail over TCP by which traffic must go on.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
all=(none down down-peer down-second down-shortly drop drop-oneway drop-otherway large silence flap alternate
    rkey error address mtu delete both both-drop both-recreated gone gone-large gone-middling drop-mute
    both-mute gone-mute crossed uneven beside absent absent-device absent-verbs down:copy down:get down:put drop:copy
    drop:get drop:put both:tcp both-drop:tcp)
variants='copy|get|put|tcp'
brief=""
if [ "${1:-}" = -brief ]; then brief='-after 1s'; shift; fi
failover_cases "$@"

scratch
go build -o "$out/" ./mpirun-go ./scripts/failover
cp scripts/failover/{fault-verbs,uneven} scripts/lib.sh "$out/"

# A timeout of 2^16 · 4.096 µs = 268 ms and 4 retries: a device gives up a peer after about 1.4 s.
# Emulated devices need that much.
cat >"$out/main" <<'SH'
. ./lib.sh
status=0

# switch: joins five ports by a switch, aN of rank 0 and bN of rank 1, with the RDMA devices xaN and
# xbN. Each port answers only for its own address.
switch() {
    [ ! -e /sys/class/net/switch ] || return 0
    modprobe bridge
    ip link add switch type bridge
    ip link set switch up
    echo 8 >/proc/sys/net/ipv4/conf/switch/arp_ignore # otherwise it answers for all ports
    local port number=0
    for port in a0 a1 a2 b0 b1; do
        number=$((number + 1))
        ip link add $port mtu 4200 type veth peer name $port-switch mtu 4200
        echo 1 >/proc/sys/net/ipv4/conf/$port/arp_ignore
        echo 2 >/proc/sys/net/ipv4/conf/$port/arp_announce
        ip address add 10.20.0.$number/24 dev $port
        ip link set $port-switch master switch up
        ip link set $port up
        rdma link add x$port type rxe netdev $port
    done
}

for label in $CASES; do
    case=${label%%:*} protocol=auto reads=auto btl=self,ibverbs flags=() beside=false
    devices='rxe0|prx0,rxe1|prx1' job=(./failover)
    case $label in
    *:tcp | absent-verbs) btl=self,ibverbs,tcp flags=(-goes-on) ;;
    *:get) protocol=get reads=on ;;
    *:*) protocol=${label#*:} ;;
    esac
    grace=10s
    case $case in
    gone*) grace=3s flags=(-lost -grace 3s) ;;
    none) flags=(-may-stay-up) ;;
    beside) btl=self,ibverbs,tcp beside=true flags=(-may-stay-up -goes-on -netdevs r0,r1,lo) ;;
    crossed) devices='xa0|xb0,xa1|xb1' flags=(-goes-on -retry 1s -netdevs a0,a1) ;;
    uneven) devices='xa0|xb0,xa1|xb1' job=(./uneven "${job[@]}") flags=(-may-stay-up -goes-on -netdevs a0,a1,a2,b0,b1) ;;
    esac
    case $case in *-mute) flags+=(-mute) ;; esac
    case $case in absent*) flags=(-may-stay-up -goes-on) ;; esac
    case $case in # before the job starts
    absent) ip link set r1 down ;;
    absent-device) ip link del r1 ;;
    absent-verbs) ip link del r0; ip link del r1 ;;
    crossed | uneven) switch ;;
    esac
    s=0
    timeout 120 ./mpirun-go --oversubscribe -n 2 --btl $btl --set "ibverbs.devices=$devices" \
        --set ibverbs.timeout=16 --set ibverbs.retry=4 --set ibverbs.deadline=3s \
        --set ibverbs.reads=$reads --set tcp.include=lo --set pml.protocol=$protocol --set pml.grace=$grace --set pml.beside=$beside \
        "${job[@]}" -fault ./fault-verbs -case $case -label $label -retry 1500ms $brief $verbose $marks "${flags[@]}" \
        >line 2>errors || s=$?
    ./fault-verbs heal
    failover_result "$label" $s || status=1
done
exit $status
SH
sed -i "1i CASES='${cases[*]}' brief='$brief' verbose='$verbose' marks='$marks'" "$out/main"
failover_header
btl/ibverbs/internal/softroce/run -t $((120 + 60 * ${#cases[@]})) -d "$out" 'bash ./main'
