#!/usr/bin/env bash
# One message of more than 2 GiB between two processes, checked byte for byte. Needs 5 GiB of memory.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
go run ./mpirun-go -n 2 ./scripts/big
