#!/usr/bin/env bash
# What failover costs while all is well: the time of small messages between two ranks of a process, both together on one core, beside that of a
# commit without it, in turns. Prints how the fastest turns compare, and the medians; the mark is 1.01. A noisy machine needs many rounds.
# Usage: failover-cost.sh [COMMIT [ROUNDS]]   by default the last commit before there was failover, 40 rounds of two turns each
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
commit=${1:-$(git log --diff-filter=A --format=%H -- pml/failover.go | tail -n 1)^} rounds=${2:-40}
out=$(mktemp -d)
trap 'git worktree remove --force "$out/tree" 2>/dev/null; rm -rf "$out"' EXIT
git worktree add -q --detach "$out/tree" "$commit"
(cd "$out/tree" && go test -c -o "$out/without" ./comm)
go test -c -o "$out/with" ./comm
for _ in $(seq "$rounds"); do
    for v in with without without with; do
        taskset -c 0 "$out/$v" -test.run '^$' -test.bench Path -test.benchtime 40ms | awk -v v=$v '/^Benchmark/ { print $1, v, $3 }'
    done
done | sort -k1,2 -k3n | awk '
    { k = $1 SUBSEP $2; a[k, ++n[k]] = $3; names[$1] }
    END {
        for (b in names) {
            i = b SUBSEP "with"; o = b SUBSEP "without"; h = int((n[i] + 1) / 2)
            printf "%-26s fastest %.1f ns with, %.1f without: %.3f; median %.1f, %.1f: %.3f\n", b, a[i, 1], a[o, 1], a[i, 1] / a[o, 1], a[i, h], a[o, h], a[i, h] / a[o, h]
        }
    }' | sort
