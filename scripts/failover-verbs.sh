#!/usr/bin/env bash
# Failover on soft-RoCE, in the guest of btl/ibverbs/internal/softroce: a job of two ranks with two rails exchanges and checks messages of all kinds
# while rails break and are mended; with :tcp there is a way by TCP besides, by which traffic has to go on. One line for each case, in the order of docs/failover.md's table; not zero if one fails.
# Usage: failover-verbs.sh [-v] [-marks] [CASE…]   the cases are those below; with none: all. -v prints what the ranks say of their rails;
# with -marks a case that is slower than it should be has failed.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
verbose="" marks=""
all=(none down down-peer down-second down-shortly drop drop-oneway drop-otherway large silence flap alternate
    rkey error address mtu delete both both-drop gone gone-large gone-middling drop-mute both-mute gone-mute down:copy down:get down:put drop:copy drop:get drop:put
    both:tcp both-drop:tcp)
usage() { echo "usage: failover-verbs.sh [-v] [-marks] [CASE…]; the cases are ${all[*]}, and others with :copy, :get, :put, or :tcp"; }
if [ "${1:-}" = -h ]; then usage; exit; fi
if [ "${1:-}" = -v ]; then verbose=1; shift; fi
if [ "${1:-}" = -marks ]; then marks=-marks; shift; fi

cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=("${all[@]}")
for arg in "${cases[@]}"; do
    case " ${all[*]} " in *" ${arg%%:*} "*) ;; *) arg=: ;; esac
    [[ $arg =~ ^[a-z-]+(:(copy|get|put|tcp))?$ ]] || { usage >&2; exit 2; }
done

out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
go build -tags ibverbs -o "$out/" ./mpirun-go ./scripts/failover
cp scripts/failover/fault "$out/"

# With 2^16 · 4.096 µs = 268 ms and 4 more tries a device gives up a peer after some 1.4 s; emulated ones need the patience.
cat >"$out/main" <<'SH'
status=0
for arg in $CASES; do
    case=${arg%%:*} protocol=auto btl=self,ibverbs flags=
    case $arg in
    *:tcp) btl=self,ibverbs,tcp flags=-goes-on ;;
    *:*) protocol=${arg#*:} ;;
    esac
    set -- --btl $btl --set tcp.include=lo --set pml.protocol=$protocol --set pml.grace=10s
    case $case in
    gone*) set -- "$@" --set pml.grace=3s; flags='-lost -grace 3s' ;;
    none) flags=-unhurt ;;
    esac
    case $case in *-mute) flags="$flags -mute" ;; esac
    timeout 120 ./mpirun-go --oversubscribe -n 2 --set 'ibverbs.devices=rxe0|prx0,rxe1|prx1' \
        --set ibverbs.timeout=16 --set ibverbs.retry=4 --set ibverbs.deadline=3s "$@" \
        ./failover -case $case -label $arg -retry 1500ms $MARKS $flags >line 2>errors
    s=$?
    ./fault heal
    cat line
    [ -z "$VERBOSE" ] || cat errors
    if [ $s -ne 0 ] || ! grep -q ' ok' line || grep -q FAIL line; then
        status=1
        [ $s -eq 0 ] || { echo "| $arg | FAIL: status $s |"; tail -n 60 errors; }
    fi
done
exit $status
SH
sed -i "1i CASES='${cases[*]}' VERBOSE='$verbose' MARKS='$marks' FAILOVER_VERBOSE='$verbose'; export FAILOVER_VERBOSE" "$out/main"
echo '| case | detected after, ms | switch, ms | longest stall, ms | longest gap before, ms | and then | MB/s before | during | after | back after, ms | failures | sent again | begun anew | |'
btl/ibverbs/internal/softroce/run -t $((120 + 60 * ${#cases[@]})) -d "$out" 'sh ./main'
