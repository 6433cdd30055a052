#!/usr/bin/env bash
# Runs random programs of collectives and messages (internal/collprogram) on soft-RoCE, in the guest
# of btl/ibverbs/internal/softroce, and checks every result. Two ranks have two rails over verbs,
# which go down and come up again in turn all the time.
# Usage: collectives-verbs.sh [SEEDS [FIRST]]
# SEEDS (50) is the number of programs, FIRST (1) the first seed.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
scratch
seeds=${1:-50} first=${2:-1}
go build -o "$out/" ./mpirun-go ./scripts/collprogram
cp scripts/failover/fault-verbs "$out/"
# The timeouts are the same as in failover-verbs.sh. The rails flap as long as the job runs.
cat >"$out/main" <<SH
while true; do ./fault-verbs alternate; done >faults 2>&1 &
status=0
timeout $((60 + 6 * seeds)) ./mpirun-go --oversubscribe -n 2 --btl self,ibverbs --set 'ibverbs.devices=rxe0|prx0,rxe1|prx1' \\
    --set ibverbs.timeout=16 --set ibverbs.retry=4 --set ibverbs.deadline=3s --set pml.grace=20s \\
    ./collprogram -seeds $seeds -first $first -limit 2m || status=\$?
kill %1
echo "rails went down \$(grep -c broken faults) times"
exit \$status
SH
btl/ibverbs/internal/softroce/run -t $((120 + 7 * seeds)) -d "$out" 'bash ./main'
