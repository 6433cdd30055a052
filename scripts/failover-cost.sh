#!/usr/bin/env bash
# Measures the cost of failover while no rail fails: compares small messages between two ranks of a
# process, on one core, with a commit without failover. It counts the instructions of each message
# in a virtual machine whose clock counts instructions, so the figures are the same in every run.
# The limit is a ratio of 1.01; with -marks a benchmark above it fails.
# Usage: failover-cost.sh [-marks] [COMMIT [ROUNDS]]
# COMMIT is by default the last one without failover. With ROUNDS the messages are timed on this
# machine instead, in that many rounds of two turns each, and the fastest and the median of each
# compared. A noisy machine needs many rounds.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
case "${1:-}" in -h | --help) help; exit ;; esac
marks=0
if [ "${1:-}" = -marks ]; then marks=1; shift; fi
commit=${1:-$(git log --diff-filter=A --format=%H -- pml/failover.go | tail -n 1)^} rounds=${2:-}
out=$(mktemp -d)
trap 'git worktree remove --force "$out/tree" 2>/dev/null; rm -rf "$out"' EXIT
mkdir "$out/job"
export CGO_ENABLED=0
git worktree add -q --detach "$out/tree" "$commit"
(cd "$out/tree" && go test -c -o "$out/job/without" ./comm)
go test -c -o "$out/job/with" ./comm

bench='-test.run ^$ -test.bench Path -test.benchtime'
turns() {
    if [ -z "$rounds" ]; then
        btl/ibverbs/internal/softroce/run -i -m 1024 -d "$out/job" "export GOMAXPROCS=1
            for v in with without; do ./\$v $bench 20000x | sed \"s/^/\$v /\"; done"
        return
    fi
    for _ in $(seq "$rounds"); do
        # shellcheck disable=SC2086 # words
        for v in with without without with; do taskset -c 0 "$out/job/$v" $bench 40ms | sed "s/^/$v /"; done
    done
}
unit=ns
[ -n "$rounds" ] || unit=instructions
turns | awk '$2 ~ /^Benchmark/ { print $2, $1, $4 }' | sort -k1,2 -k3n | awk -v marks=$marks -v unit=$unit '
    { k = $1 SUBSEP $2; a[k, ++n[k]] = $3; names[$1] }
    END {
        for (b in names) {
            i = b SUBSEP "with"; o = b SUBSEP "without"; h = int((n[i] + 1) / 2)
            printf "%-26s %.1f %s with, %.1f without: %.3f", b, a[i, 1], unit, a[o, 1], a[i, 1] / a[o, 1]
            if (n[i] > 1) printf "; median %.1f, %.1f: %.3f", a[i, h], a[o, h], a[i, h] / a[o, h]
            over = a[i, 1] > 1.01 * a[o, 1]
            print over ? "; above the limit" : ""
            failed = failed || marks && over
            count++
        }
        exit failed || !count
    }' | sort
