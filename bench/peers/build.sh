#!/usr/bin/env bash
# Builds the program for a library, or for each whose compiler wrapper is installed (Debian: mpich and
# libmpich-dev, openmpi-bin and libopenmpi-dev): build.sh DIR [openmpi|mpich]… makes DIR/peer-openmpi and DIR/peer-mpich.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: build.sh DIR [openmpi|mpich]..." >&2; exit 2; }
dir=$(realpath -m "$1"); shift
cd "$(dirname "$(readlink -f "$0")")"
mkdir -p "$dir"
[ $# -gt 0 ] || set -- openmpi mpich
for library; do
    if ! command -v "mpicc.$library" >/dev/null; then
        echo "mpicc.$library is not installed" >&2
        continue
    fi
    # MPICH's MPI_STATUSES_IGNORE is no array.
    "mpicc.$library" -std=gnu11 -O2 -Wall -Wextra -Wno-stringop-overflow -o "$dir/peer-$library" ./*.c
    echo "$dir/peer-$library"
done
