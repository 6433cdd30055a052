#!/usr/bin/env bash
# Measures what mpirun-go --profile costs: the latency of messages with and without it, in pairs of
# short runs that alternate, so that what else the machine does meets both alike.
# Usage: profile-overhead.sh [PAIRS [BYTES [ITERATIONS]]]   default: 15 pairs, 8 bytes, 300000
# It prints each pair in microseconds, and the median of the ratios.
set -euo pipefail
pairs=${1:-15} bytes=${2:-8} iterations=${3:-300000}
cd "$(dirname "$(readlink -f "$0")")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -o "$dir/mpirun-go" ./mpirun-go
go build -o "$dir/bench" ./bench

# latency FLAG...: the latency of a run, in microseconds.
latency() {
    "$dir/mpirun-go" -n 2 --bind-to core "$@" "$dir/bench" latency -m "$bytes:$bytes" -i "$iterations" -x 10000 2> /dev/null |
        awk -v bytes="$bytes" '$1 == bytes { print $2 }'
}

latency > /dev/null # warms up
for ((i = 0; i < pairs; i++)); do
    if ((i % 2)); then
        with=$(latency --profile "$dir/profile") without=$(latency)
    else
        without=$(latency) with=$(latency --profile "$dir/profile")
    fi
    echo "$without $with $(awk -v a="$without" -v b="$with" 'BEGIN { print b / a }')" | tee -a "$dir/ratios"
done
sort -n -k3 "$dir/ratios" | awk '{ r[NR] = $3 } END { printf "median of the ratios: %.4f\n", r[int((NR + 1) / 2)] }'
