#!/usr/bin/env bash
# Measures what a failure costs a long message, as cut-bytes.sh does, on soft-RoCE in the guest of
# btl/ibverbs/internal/softroce. Prints a row for each case, protocol and part.
# Usage: cut-bytes-verbs.sh [-marks] [CASE[:PROTOCOL]…]
#   -marks  fail if the rails carry more than 1.05 of the message, also by the devices' counters
#           except for get. The pauses of an emulated machine are no failure.
# The cases are none, down, down-peer and drop, the protocols copy, put and get. By default all run.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
marks=''
case "${1:-}" in
-h | --help) help; exit ;;
-marks) marks=-marks; shift ;;
-*) help >&2; exit 2 ;;
esac
[ $# -gt 0 ] || set -- {none,down,down-peer,drop}:{copy,put,get}

scratch
go build -o "$out/" ./mpirun-go ./scripts/cutbytes
cp scripts/cutbytes/fault-verbs "$out/"
# The settings of ibverbs are those of failover-verbs.sh.
cat >"$out/main" <<'SH'
status=0
for label in $CASES; do
    case=${label%%:*} protocol=auto reads=auto parts='0.1 0.5 0.9' silent=''
    [ $case != drop ] || silent=-silent
    case $label in *:*) protocol=${label#*:} ;; esac
    # Even without a failure, soft-RoCE retransmits up to a sixth of the data of reads.
    wire=1.05
    [ $protocol != get ] || { reads=on; wire=0; }
    [ $case != none ] || parts=0.5
    for part in $parts; do
        s=0
        timeout 120 ./mpirun-go --oversubscribe -n 2 --btl self,ibverbs --set 'ibverbs.devices=rxe0|prx0,rxe1|prx1' \
            --set ibverbs.timeout=16 --set ibverbs.retry=4 --set ibverbs.deadline=3s --set ibverbs.reads=$reads \
            --set pml.protocol=$protocol --set pml.notices=false \
            ./cutbytes -fault ./fault-verbs -case $case -label $label -mib 128 $silent -at $part -pause 1h -wire $wire $marks 2>errors || s=$?
        if [ $s != 0 ]; then echo "| $label | FAIL: exit status $s |"; cat errors; status=1; fi
        nft delete table ip faults 2>/dev/null || :
        for d in r0 p0; do ip link set $d up; done
    done
done
exit $status
SH
sed -i "1i CASES='$*' marks='$marks'" "$out/main"
echo '| case | cut at | by the rails | by the devices | sent again, MB | sent twice, MB | failures | longest pause before, ms | after, ms | of it the machine, ms | return after the last byte, ms | in all, ms | result |'
echo '|---|---|---|---|---|---|---|---|---|---|---|---|---|'
btl/ibverbs/internal/softroce/run -t $((120 + 60 * $#)) -d "$out" 'bash ./main'
