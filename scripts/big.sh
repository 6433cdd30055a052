#!/usr/bin/env bash
# Sends one message of more than 2 GiB between two processes and checks every byte. Needs 5 GiB of
# memory.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
scratch
go build -o "$out/" ./mpirun-go ./scripts/jobs
"$out/mpirun-go" -n 2 "$out/jobs" large
