#!/usr/bin/env bash
# What failover costs while all is well: the time of small messages between two ranks of a process, both together on one core, beside that of a
# commit without it, in turns. Prints the median of the ratios, pair by pair; the mark is 1.01.
# Usage: failover-cost.sh [COMMIT [ROUNDS]]   by default the last commit before there was failover, 20 rounds
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
commit=${1:-$(git log --diff-filter=A --format=%H -- pml/failover.go | tail -n 1)^} rounds=${2:-20}
out=$(mktemp -d)
trap 'git worktree remove --force "$out/tree" 2>/dev/null; rm -rf "$out"' EXIT
git worktree add -q --detach "$out/tree" "$commit"
(cd "$out/tree" && go test -c -o "$out/without" ./comm)
go test -c -o "$out/with" ./comm
for _ in $(seq "$rounds"); do
    for v in without with; do
        taskset -c 0 "$out/$v" -test.run '^$' -test.bench Path -test.benchtime 150ms | awk -v v=$v '/^Benchmark/ { print v, $1, $3 }'
    done
done | awk '
    $1 == "without" { base[$2] = $3 }
    $1 == "with" && $2 in base { n[$2]++; ratio[$2, n[$2]] = $3 / base[$2] }
    END {
        for (b in n) {
            m = n[b]
            for (i = 1; i <= m; i++) a[i] = ratio[b, i]
            for (i = 2; i <= m; i++) { x = a[i]; for (j = i - 1; j > 0 && a[j] > x; j--) a[j + 1] = a[j]; a[j + 1] = x }
            printf "%-28s %.3f of the time without (median of %d)\n", b, a[int((m + 1) / 2)], m
        }
    }' | sort
