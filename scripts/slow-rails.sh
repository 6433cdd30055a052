#!/usr/bin/env bash
# Measures the cost of a slow rail: two hosts, which are network namespaces of this machine, are
# joined by two cables of 1 Gbit/s, the rails. One rail loses packets, is slow, or delays packets;
# then it is mended. Prints a row for each case. Needs root, openssh-server, iproute2 and nftables.
# Usage: slow-rails.sh [-v] [-marks] [CASE…]
#   -v      print the figures over time
#   -marks  fail if a figure is beyond its limit
# The cases are loss, hundredth, narrow and delay. By default all run.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
verbose='' marks=''
while [ $# -gt 0 ]; do
    case $1 in
    -v) verbose=-v ;;
    -marks) marks=-marks ;;
    -*) help >&2; exit 2 ;;
    *) break ;;
    esac
    shift
done
[ -n "${NETNS_HOSTS:-}" ] || exec scripts/hosts-netns.sh 2 "$self" $verbose $marks "$@"
[ $# -gt 0 ] || set -- loss hundredth narrow delay

scratch
go build -o "$out/" ./mpirun-go ./scripts/slowrails ./scripts/cable
cp scripts/slowrails/fault "$out/"
cd "$out"

# cables CASE: makes the rails r0 and r1. In the case delay, a program is the cable.
cables() {
    cable 1 1gbit
    if [ "$1" != delay ]; then
        cable 0 1gbit
        return
    fi
    mkfifo cable
    ./cable.bin r0 n1 n2 <cable >cable.out &
    exec 9>cable
    eventually grep -q ready cable.out
    rail 0 1gbit
}

uncable() {
    exec 9>&-
    wait
    rm -f cable cable.out
    for n in 0 1; do ip -n n1 link del "r$n" 2>/dev/null || :; done
}
mv cable cable.bin

echo "| case | two rails, MB/s | µs | one, MB/s | µs | one and a slow one, MB/s | of one | µs | of one | longest, ms | mended, MB/s | of two |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
status=0
for case; do
    cables "$case"
    s=0
    SLOW=$case ./mpirun-go -H n1:1,n2:1 -n 2 --timeout 120s --btl self,tcp --set tcp.include=r0,r1 \
        --set tcp.deadline=2s --set tcp.keepalive=1s ./slowrails -label "$case" $verbose $marks 2>errors || s=$?
    if [ $s != 0 ] || [ -n "$verbose" ]; then cat errors; fi
    [ $s = 0 ] || { echo "| $case | FAIL: exit status $s |"; status=1; }
    uncable
done
exit $status
