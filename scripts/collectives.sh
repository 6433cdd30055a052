#!/usr/bin/env bash
# Runs random programs of blocking, nonblocking and persistent collectives, mixed with messages, and
# checks every result (internal/collprogram): in one process, and between processes over shared
# memory and over TCP, with 3 and 8 ranks, also with limits that make the messages use every
# protocol.
# Usage: collectives.sh [LOCAL [LAUNCHED [FIRST]]]
# LOCAL seeds run in one process, LAUNCHED in each job; the first is FIRST. By default 2000, 200, 1.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
scratch
local=${1:-2000} launched=${2:-200} first=${3:-1}
go build -o "$out/" ./mpirun-go ./scripts/collprogram
"$out/collprogram" -local -seeds "$local" -first "$first"
# With the limits, messages of some hundred bytes count as long, and a rank has few slots.
for transport in sm tcp; do
    for ranks in 3 8; do
        for limits in '' '--set pml.eager.bytes=100 --set sm.ring.slots=2 --set sm.frag.bytes=4K'; do
            echo "over $transport${limits:+, with small limits}:"
            # shellcheck disable=SC2086 # several flags
            "$out/mpirun-go" -n "$ranks" --oversubscribe --btl "self,$transport" $limits "$out/collprogram" \
                -seeds "$launched" -first "$first"
        done
    done
done
