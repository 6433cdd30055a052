#!/usr/bin/env bash
# Runs every fuzz target for a moment: FUZZTIME=500000x scripts/fuzz.sh The budget is a count,
# because a budget in time may end a good run with "context deadline exceeded" (go.dev/issue/75804).
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
n=0
while IFS=: read -r file _ line; do
    name=$(sed 's/.*func \(Fuzz[A-Za-z0-9_]*\).*/\1/' <<<"$line")
    echo "$(dirname "$file") $name"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-20000x}" -fuzzminimizetime 100x "./$(dirname "$file")"
    n=$((n + 1))
done < <(git grep -n '^func Fuzz' -- '*_test.go')
[ "$n" -gt 0 ]
echo "$n fuzz targets"
