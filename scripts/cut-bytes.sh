#!/usr/bin/env bash
# Measures what a failure costs a long message: two hosts, which are network namespaces of this
# machine, are joined by two cables of 1 Gbit/s, the rails. One rail is cut when a part of a message
# of 512 MiB is there. Prints a row for each case and part. Needs root, openssh-server, iproute2 and
# nftables.
# Usage: cut-bytes.sh [-marks] [CASE…]
#        cut-bytes.sh -picture FILE
#   -marks    fail if the rails carry more than 1.05 of the message, or if nothing arrives for
#             longer than 5 ms, or tcp.deadline where the failure is silent, in three runs in a row
#   -picture  draw docs/failover.svg instead, by scripts/failover, while the rails go down: one, the
#             other one, and both
# The cases are none, down, down-peer, reset, reject and drop. By default all run.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
marks='' picture=''
case "${1:-}" in
-h | --help) help; exit ;;
-marks) marks=-marks; shift ;;
-picture) picture=$(readlink -f "${2:?needs a file}") ;;
-*) help >&2; exit 2 ;;
esac
[ -n "${NETNS_HOSTS:-}" ] || exec scripts/hosts-netns.sh 2 "$self" $marks "$@"
[ $# -gt 0 ] || set -- none down down-peer reset reject drop

scratch
go build -o "$out/" ./mpirun-go ./scripts/cutbytes ./scripts/failover
cp scripts/cutbytes/{fault,first} "$out/"
cd "$out"
deadline=2s
job=(./mpirun-go -H n1:1,n2:1 -n 2 --timeout 60s --btl self,tcp --set tcp.include=r0,r1
    --set tcp.deadline=$deadline --set tcp.keepalive=1s --set pml.notices=false ./first)

cables() { cable 0 1gbit; cable 1 1gbit; }

uncable() {
    local n
    for n in 0 1; do ip -n n1 link del "r$n"; done
    for n in n1 n2; do ip netns exec $n nft delete table ip faults 2>/dev/null || :; done
}

if [ -n "$picture" ]; then
    cables
    cat >pull <<'SH'
#!/bin/bash
echo broken
for rails in r0 r1 'r0 r1'; do
    for way in down up; do
        for r in $rails; do for n in n1 n2; do ip -n $n link set $r $way; done; done
        [ $way = up ] && sleep 1.5 || sleep 0.7
    done
done
echo mended
SH
    chmod +x pull
    "${job[@]}" ./failover -fault ./pull -calm 1s -after 100ms -rate 60 -every 200ms -o picture.svg >row
    mv picture.svg "$picture"
    exit
fi
echo '| case | cut at | by the rails | by the devices | sent again, MB | sent twice, MB | failures | longest pause before, ms | after, ms | of it the machine, ms | return after the last byte, ms | in all, ms | result |'
echo '|---|---|---|---|---|---|---|---|---|---|---|---|---|'
status=0
for case; do
    parts='0.1 0.3 0.5 0.7 0.9' pause=5ms silent=''
    [ "$case" != none ] || parts=0.5
    [ "$case" != drop ] || { pause=$deadline; silent=-silent; }
    for part in $parts; do
        for _ in 1 2 3; do # other work of the machine does not pause every one of them
            cables
            s=0
            # shellcheck disable=SC2086 # silent and marks may be empty
            "${job[@]}" ./cutbytes -case "$case" $silent -at $part -pause $pause $marks >row 2>errors || s=$?
            uncable
            cat row
            grep -q 'limit: a pause' row || break
        done
        if [ $s != 0 ]; then echo "| $case | FAIL: exit status $s |"; cat errors; status=1; fi
    done
done
exit $status
