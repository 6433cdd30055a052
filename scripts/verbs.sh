#!/usr/bin/env bash
# Real verbs held to the tables: builds the tests of btl/ibverbs/libibverbs and runs them on soft-RoCE, in the
# guest of btl/ibverbs/internal/softroce. What came there has to be what docs/evidence/verbs-conformance.md says. Prints what differs or cannot be had, and why;
# if tests fail, only what these said.
# Usage: verbs.sh [PATTERN]   of tests; with none: all that need devices.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
. scripts/failures.sh
pattern=${1:-TestDevice}
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT

mkdir "$out/job"
go test -tags ibverbs -c -o "$out/job/libibverbs.test" ./btl/ibverbs/libibverbs
cp docs/evidence/verbs-conformance.md "$out/job/"
cat >"$out/job/run" <<'SH'
export MPIGO_TEST_VERBS_DEVICES=rxe0,prx0 MPIGO_TEST_VERBS_TABLE=verbs-conformance.md,rxe
exec ./libibverbs.test -test.v -test.timeout=15m -test.run="$(cat pattern)"
SH
printf '%s' "$pattern" >"$out/job/pattern"
status=0
btl/ibverbs/internal/softroce/run -t 900 -d "$out/job" 'sh ./run' >"$out/log" 2>&1 || status=$?
if [ "$status" != 0 ]; then
    failures "$out/log"
    echo "FAIL: exit status $status"
    exit 1
fi
grep -E '^ +verbstest.go:[0-9]+: (cannot|differs): ' "$out/log" | sed 's/^[^:]*:[0-9]*: //' | sort | uniq -c
differ=$(grep -cE '^ +verbstest.go:[0-9]+: differs' "$out/log" || true)
cannot=$(grep -cE '^ +verbstest.go:[0-9]+: cannot' "$out/log" || true)
passed=$(grep -cE '^ +--- PASS.*/.*/' "$out/log" || true)
echo "$((passed - differ - cannot)) cases hold, $differ differ as listed, $cannot cannot be had"
