#!/usr/bin/env bash
# What takes too long for .ci/run, or judges by speed: every case of the failover scripts against its
# marks, what failover costs, the simulation with seeds that have not run yet, every fuzz target for
# longer, and the benchmarks beside Open MPI and MPICH. Takes about an hour on two cores. Needs what
# .ci/run needs, and installs it likewise. The marks are of a machine that does nothing else.
# Usage: nightly.sh [SEEDS] [STEP…]   SEEDS of the simulation over each transport (20000); with no STEP: all of them.
set -u
self=$(readlink -f "$0")
cd "$(dirname "$self")/.." || exit 2
seeds=20000
if [[ ${1:-} =~ ^[1-9][0-9]*$ ]]; then seeds=$1; shift; fi
. scripts/steps.sh

# simulate: from a random seed on. A seed that fails is named, and can be run again by its number.
simulate() {
    local first
    first=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
    go run ./scripts/simulate -seeds "$seeds" -first "$first" && echo "$seeds seeds from $first on, over each transport"
}

# compare: ours beside all peers. The tables are in its log if it fails.
compare() {
    mpich || return
    if ! { command -v mpirun.openmpi && command -v mpicc.openmpi; } >/dev/null; then
        apt_install openmpi-bin libopenmpi-dev gcc libc6-dev || return
    fi
    go run ./bench/compare -marks
}

step softroce     scripts/softroce.sh
step verbs        scripts/verbs.sh
step failover     scripts/failover-verbs.sh -marks
step tcp-failover hosts scripts/tcp-failover.sh -marks
step cost         scripts/failover-cost.sh -marks
step simulate     simulate
step fuzz         env FUZZTIME="${FUZZTIME:-500000x}" scripts/fuzz.sh
step compare      compare

summary
