#!/usr/bin/env bash
# What waiting costs: a rank blocked in Recv for 2 s uses under 5 % of a core, and ranks that wait
# do not keep one that computes from running.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
go build -o "$out/mpirun-go" ./mpirun-go
go build -o "$out/idle" ./scripts/idle
"$out/mpirun-go" -n 2 "$out/idle" | tee "$out/two"
awk '{ if ($4 + 0 >= 5) exit 1 }' "$out/two"
"$out/mpirun-go" -n 8 --oversubscribe "$out/idle" | tee "$out/eight"
# More than twice its processor time would mean that the waiting ranks run too. The machine
# may be busy with other things: the best of three counts.
for try in 1 2 3; do
    awk '{ if ($6 + 0 >= 2) exit 1 }' "$out/eight" && break
    [ "$try" -lt 3 ]
    "$out/mpirun-go" -n 8 --oversubscribe "$out/idle" | tee "$out/eight"
done
cat "$out/two" "$out/eight" | paste -sd ';'
