#!/usr/bin/env bash
# Checked mode between processes: each mistake of "jobs mismatch" must be an error at every rank, in
# the same words, over shared memory and over TCP; and a program without mistakes must run.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
scratch
go build -o "$out/" ./mpirun-go ./scripts/jobs ./scripts/collprogram ./examples/...

# run TRANSPORT COMMAND…: three ranks in checked mode.
run() {
    local transport=$1
    shift
    timeout 60 "$out/mpirun-go" -n 3 --oversubscribe --btl "self,$transport" --set check=true "$@" 2>"$out/errors" >"$out/printed" ||
        fail "$*: exit status $?: $(cat "$out/printed" "$out/errors")"
}

# mistake NAME TEXT…: the error of each rank must contain a text: the one for all, or its own.
mistake() {
    local name=$1 rank text transport
    shift
    for transport in sm tcp; do
        run "$transport" "$out/jobs" mismatch "$name"
        for rank in 0 1 2; do
            text=$1
            [ $# = 1 ] || { rank_text=$((rank + 1)); text=${!rank_text}; }
            grep -qF "$text" <(grep "^rank $rank: " "$out/printed") ||
                fail "$name over $transport: rank $rank does not say \"$text\": $(cat "$out/printed" "$out/errors")"
        done
    done
    echo "ok: $name: $(head -1 "$out/printed")"
}

mistake types "rank 1 calls Allreduce of []int64, rank 0 of []float64"
mistake operations "rank 1 calls Allreduce with comm.Max, rank 0 with comm.Sum"
mistake roots "rank 1 calls Bcast with root 1, rank 0 with root 0"
mistake calls "rank 1 calls Bcast, rank 0 Barrier"
mistake forms "rank 1 calls Bcast, rank 0 Ibcast"
mistake lengths "rank 1 calls Bcast of 4 elements, rank 0 of 3"
mistake parts "in Gatherv, rank 1 sends 2 elements to rank 0, which expects 1"
for message in "message" "long message"; do
    mistake "$message" "rank 2 sent []int64, this rank receives []float64" \
        "rank 0 sent []int64, this rank receives []float64" "rank 1 sent []int64, this rank receives []float64"
done
mistake "send buffer" "it was written to before a call reported the operation as complete"
mistake "receive buffer" "it was written to before a message arrived, by the program or by another receive"

run sm "$out/jobs" mismatch "lost request"
for rank in 0 1 2; do
    printed "^mpigo: rank $rank: warning: world: irecv (peer [012], tag 0): the request is lost: it was started at mismatch.go:[0-9]*,"
done
echo "ok: lost request: $(head -1 "$out/errors")"

# All ranks have to agree on the mode.
if timeout 60 "$out/mpirun-go" -n 2 --oversubscribe sh -c "MPIGO_CHECK=\$([ \$PMI_RANK = 1 ] && echo true || echo false) exec '$out/jobs' bytes" \
    >"$out/printed" 2>"$out/errors"; then
    fail "ranks that disagree on check run"
fi
grep -q "rank [01] runs with check=\(true\|false\), this rank with check=\(true\|false\): set it for all ranks" "$out/errors" ||
    fail "ranks that disagree on check: $(cat "$out/errors")"
echo "ok: $(grep -m 1 "runs with check" "$out/errors")"

for transport in sm tcp; do
    run "$transport" "$out/collprogram" -seeds 50
    run "$transport" "$out/jobs" bytes
    [ ! -s "$out/errors" ] || fail "a program without mistakes: $(cat "$out/errors")"
done
echo "ok: programs without mistakes"
