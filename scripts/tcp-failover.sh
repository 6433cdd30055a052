#!/usr/bin/env bash
# Failover over TCP: two hosts, which are network namespaces of this machine, are joined by two cables (veth), two rails, besides the network by which
# mpirun-go reaches them. A job of two ranks exchanges and checks messages of all kinds while rails break and are mended. One line for each case, in the order
# of docs/tcp.md's table; not zero if one fails. Needs root, openssh-server, iproute2 and nftables.
# Usage: tcp-failover.sh [-v] [-marks] [CASE…]   the cases are those below; with none: all. -v prints what the ranks say of their rails;
# with -marks a case that is slower than it should be has failed.
set -euo pipefail
here=$(readlink -f "$0")
cd "$(dirname "$here")/.."
all=(none down down-peer down-second down-shortly drop drop-oneway drop-otherway large reject flap alternate address both both-drop
    drop-mute both-mute loss loss-much slow delay stop kills strangers gone gone-mute gone-large gone-unheeded kill-rank kill-daemon kill-launcher)
case "${1:-}" in
    -h | --help) echo "usage: tcp-failover.sh [-v] [-marks] [CASE…]; the cases are ${all[*]}"; exit ;;
esac
[ -n "${NETNS_HOSTS:-}" ] || exec scripts/hosts-netns.sh 2 "$here" "$@"

verbose="" marks=""
if [ "${1:-}" = -v ]; then verbose=1; shift; fi
if [ "${1:-}" = -marks ]; then marks=-marks; shift; fi
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=("${all[@]}")
for c in "${cases[@]}"; do
    case " ${all[*]} " in *" $c "*) ;; *) echo "no case $c; there are ${all[*]}" >&2; exit 2 ;; esac
done
a=n1 b=n2 out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for n in 0 1; do
    ip link add "r$n" netns "$a" type veth peer name "r$n" netns "$b"
    ip -n "$a" addr add "10.78.$n.1/24" dev "r$n"
    ip -n "$b" addr add "10.78.$n.2/24" dev "r$n"
    ip -n "$a" link set "r$n" up
    ip -n "$b" link set "r$n" up
done
go build -o "$out/" ./mpirun-go ./scripts/failover ./scripts/strangers
cp scripts/failover/fault-tcp "$out/"
cd "$out"

has_netem() { tc -n "$a" qdisc add dev r0 root netem delay 1ms 2>/dev/null && tc -n "$a" qdisc del dev r0 root; }

deadline=2s
job=(./mpirun-go -H "n1:1,n2:1" -n 2 --timeout 90s --btl "self,tcp" --set "tcp.include=r0,r1" --set "tcp.deadline=$deadline" --set tcp.keepalive=1s)
carried() { ip netns exec "$a" cat /sys/class/net/r0/statistics/tx_bytes; }

# killed CASE: kills a part of a job that is busy. The job ends with one line of the launcher that says who, and nothing is left of it.
killed() {
    local victim begin ms left launcher status=0 before wrong=
    before=$(carried)
    "${job[@]}" ./failover -calm 80s >line 2>errors &
    launcher=$!
    for _ in $(seq 200); do
        [ "$(carried)" -gt $((before + 5000000)) ] && break
        sleep 0.05
    done
    victim=$(ip netns pids "$b" | while read -r pid; do
        case $1-$(cat "/proc/$pid/comm") in kill-rank-failover | kill-daemon-mpirun-go) echo "$pid" ;; esac
    done)
    [ "$1" != kill-launcher ] || victim=$launcher
    begin=${EPOCHREALTIME/./}
    kill -KILL "$victim"
    wait $launcher 2>/dev/null || status=$?
    ms=$(((${EPOCHREALTIME/./} - begin) / 1000))
    left=1
    for _ in $(seq 200); do
        left=$(for ns in "$a" "$b"; do ip netns pids "$ns"; done | xargs -r ps -o comm= -p | grep -cE '^(failover|mpirun-go|exe)$' || true)
        [ "$left" = 0 ] && break
        sleep 0.05
    done
    echo "| $1 | ended after $ms ms, status $status, nothing left after $(((${EPOCHREALTIME/./} - begin) / 1000)) ms: $(grep '^mpirun-go: ' errors) |"
    if [ "$left" != 0 ]; then echo "| $1 | FAIL: $left processes are left |"; return 1; fi
    case $1 in # what can be said by whoever is left
    kill-rank) [ $status = 137 ] && grep -q '^mpirun-go: rank 1 .* on n2 was killed by signal 9' errors || wrong=1 ;;
    kill-daemon) [ $status = 1 ] && grep -q '^mpirun-go: host n2 was lost' errors || wrong=1 ;;
    esac
    if [ -n "$wrong" ] || [ "$(grep -c '^mpirun-go: ' errors)" -gt 1 ]; then
        echo "| $1 | FAIL |"
        cat errors
        return 1
    fi
}

echo '| case | detected after, ms | switch, ms | longest stall, ms | longest gap before, ms | and then | MB/s before | during | after | back after, ms | failures | sent again | begun anew | |'
status=0
for case in "${cases[@]}"; do
    grace=10s flags='' recorder=
    case $case in
    kill-*) killed "$case" || status=1; continue ;;
    gone-unheeded) grace=3s ;;
    gone*) grace=3s flags='-lost -grace 3s' ;;
    none | loss* | slow | delay | stop* | strangers) flags=-unhurt ;;
    kills) flags='-back 45s' ;; # who fails that often is tried again only after 30 s
    esac
    if [ "$case" = strangers ]; then
        ip netns exec "$b" ./strangers -record recorded -on r0 &
        recorder=$!
    fi
    case $case in *-mute) flags="$flags -mute" ;; esac
    if [ "$case" = delay ] && ! has_netem; then
        echo "| delay | not tried: this kernel has no netem |"
        continue
    fi
    s=0
    # shellcheck disable=SC2086 # words
    FAILOVER_VERBOSE=$verbose "${job[@]}" --set pml.grace=$grace ./failover -fault ./fault-tcp -case "$case" -label "$case" -calm 1500ms -retry $deadline $marks $flags >line 2>errors || s=$?
    ./fault-tcp heal
    if [ -n "$recorder" ]; then # it may still wait for a greeting
        kill "$recorder" 2>/dev/null || true
        wait "$recorder" || true
    fi
    cat line
    [ "$case" != strangers ] || cat said
    [ -z "$verbose" ] || cat errors
    if [ "$case" = gone-unheeded ]; then # the program ends with its error, and so the job
        said=$(grep '^case ' errors | head -n 1)
        echo "| $case | $said; $(grep '^mpirun-go: ' errors) |"
        if [ $s != 1 ] || [ "$(grep -c '^mpirun-go: ' errors)" != 1 ] || ! [[ $said =~ peer\ [01].*peer\ unreachable:\ rail\ tcp:r ]]; then
            echo "| $case | FAIL: status $s |"
            status=1
        fi
        continue
    fi
    if [ $s -ne 0 ] || ! grep -q ' ok' line || grep -q FAIL line; then
        status=1
        [ $s -eq 0 ] || { echo "| $case | FAIL: status $s |"; tail -n 60 errors; }
    fi
done
exit $status
