#!/usr/bin/env bash
# Runs the checks that take too long for .ci/run or have limits for speed: every case of the
# failover scripts against its limits, the cost of failover, the simulation with new seeds, all
# tests with the race detector, every fuzz target for longer, and the benchmarks beside Open MPI and
# MPICH. Takes more than an hour on two cores. Needs what .ci/run needs, and installs it likewise.
# The limits are for an otherwise idle machine.
# Usage: nightly.sh [SEEDS] [STEP…]
# SEEDS (20000) is the number of simulations over each transport. By default all steps run.
set -u
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root" || exit 2
seeds=20000
if [[ ${1:-} =~ ^[1-9][0-9]*$ ]]; then seeds=$1; shift; fi
steps "$@"

# simulate: starts from a random seed. A failing seed is printed, and can be run again by its
# number.
simulate() {
    local first
    first=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
    go run ./scripts/simulate -seeds "$seeds" -first "$first" && echo "$seeds seeds from $first on, over each transport" &&
        go run ./scripts/simulate -rails -seeds "$((seeds / 10))" -first "$first" && echo "$((seeds / 10)) seeds of rails"
}

# compare: after a failure the log has the tables.
compare() {
    mpich || return
    installed mpirun.openmpi mpicc.openmpi || apt_install openmpi-bin libopenmpi-dev gcc libc6-dev || return
    go run ./bench/compare -marks
}

step_once race         env MPIGO_TEST_ALL=true go test -race -shuffle=on -timeout 60m ./...
step softroce     scripts/softroce.sh
step verbs        scripts/verbs.sh
step verbs-jobs   scripts/verbs-jobs.sh
step failover     scripts/failover-verbs.sh -marks
step tcp-failover with_hosts scripts/tcp-failover.sh -marks
step slow-rails   with_hosts scripts/slow-rails.sh -marks
step cut-bytes    with_hosts scripts/cut-bytes.sh -marks
step cut-verbs    scripts/cut-bytes-verbs.sh -marks
step tcp-flows    with_hosts scripts/tcp-flows.sh
step collectives-verbs scripts/collectives-verbs.sh
step_once cost         scripts/failover-cost.sh -marks
step_once docs         scripts/docs.sh
step_once simulate     simulate
step_once fuzz         env FUZZTIME="${FUZZTIME:-500000x}" scripts/fuzz.sh
step_once compare      compare

summary
