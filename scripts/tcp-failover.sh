#!/usr/bin/env bash
# Tests failover over TCP: two hosts, which are network namespaces of this machine, are joined by
# two cables (veth), the rails, besides the network by which mpirun-go reaches them. A job of two
# ranks exchanges and checks messages of all kinds while rails break and are mended. Prints a row
# for each case, in the order of the table in docs/evidence/failover-cases.md, and fails if a case
# does. Needs root, openssh-server, iproute2 and nftables.
# Usage: tcp-failover.sh [-v] [-marks] [CASE…]
#   -v      print the job's output, and the bandwidth and the rails over time
#   -marks  fail if a figure is above its limit
# By default all cases run.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
all=(none down down-peer down-second down-shortly drop drop-oneway drop-otherway large reject flap alternate
    address both both-drop drop-mute both-mute loss loss-much slow delay stop kills unauthenticated
    gone gone-mute gone-large gone-unhandled kill-rank kill-daemon kill-launcher crossed routed
    absent absent-address absent-device absent-all absent-forever both-address both-recreated)
failover_cases "$@"
[ -n "${NETNS_HOSTS:-}" ] || exec scripts/hosts-netns.sh 2 "$self" "$@"

a=n1 b=n2
scratch
cable 0
cable 1
# For the case crossed: a switch, in the namespace of n2, to which each host has two cables. Each
# address has its own route, so that packets from it leave by its cable.
ip -n "$b" link add switch type bridge
ip -n "$b" link set switch up
for h in 1 2; do
    for n in 0 1; do
        ip link add "s$n" netns "n$h" type veth peer name "n${h}s$n" netns "$b"
        ip -n "$b" link set "n${h}s$n" master switch up
        ip -n "n$h" addr add "10.79.0.$h$n/24" dev "s$n" noprefixroute
        ip -n "n$h" link set "s$n" up
        ip -n "n$h" route add 10.79.0.0/24 dev "s$n" table "10$n"
        ip -n "n$h" rule add from "10.79.0.$h$n" table "10$n"
        for setting in arp_ignore=1 arp_announce=2 rp_filter=0; do
            ip netns exec "n$h" sysctl -qw "net.ipv4.conf.s$n.$setting"
        done
    done
done
# For the case routed: a router joins networks of the two hosts.
ip netns add router
trap 'ip netns del router; rm -rf "$out"' EXIT
ip -n router link set lo up
ip netns exec router sysctl -qw net.ipv4.ip_forward=1
for h in 1 2; do
    ip link add q netns "n$h" type veth peer name "q$h" netns router
    ip -n router addr add "10.81.$h.1/24" dev "q$h"
    ip -n router link set "q$h" up
    ip -n "n$h" addr add "10.81.$h.2/24" dev q
    ip -n "n$h" link set q up
    ip -n "n$h" route add 10.81.0.0/16 via "10.81.$h.1"
done
go build -o "$out/" ./mpirun-go ./scripts/failover ./scripts/unauthenticated
cp scripts/failover/fault-tcp "$out/"
cd "$out"

has_netem() {
    tc -n "$a" qdisc add dev r0 root netem delay 1ms 2>/dev/null && tc -n "$a" qdisc del dev r0 root
}

deadline=2s
job=(./mpirun-go -H "n1:1,n2:1" -n 2 --timeout 90s --btl self,tcp
    --set tcp.include=r0,r1 --set "tcp.deadline=$deadline" --set tcp.keepalive=1s)
sent() { ip netns exec "$a" cat /sys/class/net/r0/statistics/tx_bytes; }
ms_since() { echo $((($(now) - $1) / 1000)); }

# kill_part CASE: kills a part of a busy job. The job must end with one line of the launcher that
# names the part, and leave no process.
kill_part() {
    local victim begin ms left launcher status=0 before wrong=
    before=$(sent)
    "${job[@]}" ./failover -calm 80s >line 2>errors &
    launcher=$!
    for _ in $(seq 200); do
        [ "$(sent)" -gt $((before + 5000000)) ] && break
        sleep 0.05
    done
    victim=$(ip netns pids "$b" | while read -r pid; do
        case $1-$(cat "/proc/$pid/comm") in kill-rank-failover | kill-daemon-mpirun-go) echo "$pid" ;; esac
    done)
    [ "$1" != kill-launcher ] || victim=$launcher
    begin=$(now)
    kill -KILL "$victim"
    wait $launcher 2>/dev/null || status=$?
    ms=$(ms_since "$begin")
    left=1
    for _ in $(seq 200); do
        left=$(for ns in "$a" "$b"; do ip netns pids "$ns"; done | xargs -r ps -o comm= -p |
            grep -cE '^(failover|mpirun-go|exe)$' || true)
        [ "$left" = 0 ] && break
        sleep 0.05
    done
    echo "| $1 | ended after $ms ms, status $status, nothing left after $(ms_since "$begin") ms: $(grep '^mpirun-go: ' errors) |"
    if [ "$left" != 0 ]; then echo "| $1 | FAIL: $left processes are left |"; return 1; fi
    case $1 in # a killed launcher prints nothing
    kill-rank) [ $status = 137 ] && grep -q '^mpirun-go: rank 1 .* on n2 was killed by signal 9' errors || wrong=1 ;;
    kill-daemon) [ $status = 1 ] && grep -q '^mpirun-go: host n2 was lost' errors || wrong=1 ;;
    esac
    if [ -n "$wrong" ] || [ "$(grep -c '^mpirun-go: ' errors)" -gt 1 ]; then
        echo "| $1 | FAIL |"
        cat errors
        return 1
    fi
}

# unhandled STATUS: the program has ended with the error of the lost peer, and so has the job.
unhandled() {
    local error
    error=$(grep '^case ' errors | head -n 1)
    echo "| gone-unhandled | $error; $(grep '^mpirun-go: ' errors) |"
    [ "$1" = 1 ] && [ "$(grep -c '^mpirun-go: ' errors)" = 1 ] &&
        [[ $error =~ peer\ [01].*peer\ unreachable:\ rail\ tcp:r ]] && return
    echo "| gone-unhandled | FAIL: exit status $1 |"
    cat errors
    return 1
}

# absent CASE: removes the second rail, or both, before the job starts. The fault program or this
# function brings them back.
absent() {
    case $1 in
    absent) ip -n "$a" link set r1 down ;;
    absent-address) ip -n "$b" addr flush dev r1 ;;
    absent-device) ip -n "$a" link del r1 ;;
    absent-all | absent-forever)
        ip -n "$a" link set r0 down
        ip -n "$a" link set r1 down
        [ "$1" = absent-forever ] || { sleep 4 && ip -n "$a" link set r0 up; } &
        ;;
    esac
}

# warned CASE: each host has warned once that the second rail is absent, or that it waits for a
# rail, and reported no failure.
warned() {
    local said='warning: left out: rail tcp:r1' times=2
    case $1 in
    absent-address) times=1 ;; # the other host has its end
    absent-all) said='waiting for a rail, for up to 10s (pml.grace): .*rail tcp:r0: .*rail tcp:r1: ' ;;
    esac
    [ "$(grep -c "^mpigo: rank [01]: $said" errors)" = $times ] && ! grep 'failed:' errors && return
    echo "| $1 | FAIL: the warnings are not as expected |"
    cat errors
    return 1
}

# never STATUS MS: the job has ended with the error that no rail was there.
never() {
    local error
    error=$(grep -m 1 '^failover: ' errors)
    echo "| absent-forever | after $2 ms: $error |"
    [ "$1" = 1 ] && [ "$2" -gt 3000 ] && [ "$2" -lt 9000 ] &&
        [[ $error =~ waited\ 3s\ for\ a\ rail\ .pml.grace.:\ tcp.include=r0,r1:\ rail\ tcp:r0:.*rail\ tcp:r1: ]] && return
    echo "| absent-forever | FAIL: exit status $1 |"
    cat errors
    return 1
}

failover_header
status=0
for case in "${cases[@]}"; do
    grace=10s flags=() recorder=
    case $case in
    kill-*) kill_part "$case" || status=1; continue ;;
    gone-unhandled) grace=3s ;;
    gone*) grace=3s flags=(-lost -grace 3s) ;;
    none | loss* | slow | delay | stop* | unauthenticated) flags=(-may-stay-up) ;;
    kills) flags=(-back 45s) ;; # a rail that fails that often is tried again only after 30 s
    esac
    case $case in *-mute) flags+=(-mute) ;; esac
    case $case in
    absent-forever) grace=3s ;;
    absent*) flags=(-may-stay-up -goes-on) ;;
    esac
    absent "$case"
    rails=r0,r1
    if [ "$case" = crossed ]; then rails=s0,s1 flags=(-netdevs "$rails" -goes-on); fi
    if [ "$case" = routed ]; then rails=r0,q flags=(-netdevs r0 -goes-on); fi
    if [ "$case" = unauthenticated ]; then
        ip netns exec "$b" ./unauthenticated -record greeting -on r0 &
        recorder=$!
    fi
    if [ "$case" = delay ] && ! has_netem; then
        echo "| delay | skipped: this kernel has no netem |"
        continue
    fi
    s=0 begin=$(now)
    # shellcheck disable=SC2086 # verbose and marks may be empty
    "${job[@]}" --set "tcp.include=$rails" --set pml.grace=$grace ./failover -fault ./fault-tcp -case "$case" \
        -label "$case" -calm 1500ms -retry $deadline $verbose $marks "${flags[@]}" >line 2>errors || s=$?
    ms=$(ms_since "$begin")
    ./fault-tcp heal
    if [ -n "$recorder" ]; then # it may still wait for a greeting
        kill "$recorder" 2>/dev/null || true
        wait "$recorder" || true
    fi
    if [ "$case" = gone-unhandled ]; then
        unhandled $s || status=1
        continue
    fi
    if [ "$case" = absent-forever ]; then
        never $s "$ms" || status=1
        continue
    fi
    failover_result "$case" $s || status=1
    case $case in absent*) warned "$case" || status=1 ;; esac
    [ "$case" != unauthenticated ] || cat connections
done
exit $status
