#!/usr/bin/env bash
# Runs every fuzz target for a moment, as many at a time as there are processors:
# FUZZTIME=500000x scripts/fuzz.sh [PATTERN]
# The budget is a count for each target, because a budget in time may end a good run with "context
# deadline exceeded" (go.dev/issue/75804). Slow targets get a tenth of it. PATTERN chooses
# targets by name; by default all run.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
case "${1:-}" in -h | --help) help; exit ;; esac
scratch
cache=$(go env GOCACHE)/fuzz # where go test keeps the inputs that it found
module=$(go list -m)
budget=${FUZZTIME:-20000x}
[[ $budget =~ ^[1-9][0-9]+x$ ]] || fail "FUZZTIME is $budget: it must be a count of two digits or more, like 20000x"
slow=$((${budget%x} / 10))x
export out root cache module budget slow

# compile DIR: builds the tests of a package once for all its targets, in $out/DIR/test.
compile() {
    mkdir -p "$out/$1"
    go test -vet=off -c -fuzz . -o "$out/$1/test" "./$1"
}

# run DIR NAME: runs a target with one worker. Its output follows only if it fails.
run() {
    local begin=$SECONDS runs=$budget
    # These targets make a pair of ends for each input, which takes milliseconds.
    case $2 in FuzzPeer | FuzzWorkRequests) runs=$slow ;; esac
    cd "$root/$1"
    if "$out/$1/test" -test.run '^$' -test.fuzz "^$2\$" -test.fuzztime "$runs" -test.fuzzminimizetime 100x \
        -test.fuzzcachedir "$cache/$module/$1" -test.parallel 1 >"$out/$1/$2" 2>&1 </dev/null; then
        echo "ok: $1 $2, $((SECONDS - begin)) s"
    else
        echo "FAIL: $1 $2"
        cat "$out/$1/$2"
        return 1
    fi
}
export -f compile run

{ git grep -nE "^func Fuzz[A-Za-z0-9_]*${1:-}" -- '*_test.go' || true; } |
    sed -nE 's,^,./,; s,^(.*)/[^/]*:[0-9]+:func (Fuzz[A-Za-z0-9_]*).*,\1 \2,p' >"$out/targets"
[ -s "$out/targets" ] || fail "no fuzz target matches"
each() { xargs -P "$(nproc)" -L 1 bash -euo pipefail -c "$1"' "$@"' "$1"; }
cut -d' ' -f1 "$out/targets" | sort -u | each compile
each run <"$out/targets"
echo "$(wc -l <"$out/targets") fuzz targets"
