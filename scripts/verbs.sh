#!/usr/bin/env bash
# Tests real verbs: runs the tests of btl/ibverbs/libibverbs on soft-RoCE, in the guest of
# btl/ibverbs/internal/softroce. The results must be those in docs/evidence/verbs.md.
# Prints each case that differs from the tables or cannot be tested, and why; if tests fail, only
# their output.
# Usage: verbs.sh [PATTERN]
# By default all tests that need devices.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
pattern=${1:-TestDevice}
scratch

mkdir "$out/job"
go test -c -o "$out/job/libibverbs.test" ./btl/ibverbs/libibverbs
cp docs/evidence/verbs.md "$out/job/"
cat >"$out/job/run" <<'SH'
export MPIGO_TEST_VERBS_DEVICES=rxe0,prx0 MPIGO_TEST_VERBS_TABLE=verbs.md,rxe
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
echo "$((passed - differ - cannot)) cases hold, $differ differ as listed, $cannot cannot be tested"
