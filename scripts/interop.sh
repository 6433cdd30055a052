#!/usr/bin/env bash
# Runs mpigo's programs under MPICH's launcher and MPICH's programs under mpirun-go. Needs Debian's
# mpich, libmpich-dev and gcc.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
scratch
go build -o "$out/" ./mpirun-go ./examples/{ring,pi,heat2d}
mpicc.mpich -o "$out/mpich" internal/wireup/interop/mpich.c
cd "$out"
for e in ring pi "heat2d -o hydra.png"; do
    echo "\$ mpiexec.hydra -n 4 ./$e"
    # shellcheck disable=SC2086 # words
    mpiexec.hydra -n 4 ./$e | tee hydra.txt
    echo "\$ mpirun-go -n 4 ./$e"
    # shellcheck disable=SC2086 # words
    ./mpirun-go -n 4 ./${e/hydra.png/mpigo.png} | tee mpigo.txt
    [ -s hydra.txt ]
done
cmp hydra.png mpigo.png
for n in 2 4; do
    echo "\$ mpirun-go -n $n ./mpich"
    ./mpirun-go -n $n --oversubscribe ./mpich | sort | tee mpich.txt
    [ "$(grep -c "^rank [0-9] of $n ok, $n on its node$" mpich.txt)" = $n ]
done
"$root/internal/wireup/interop/run.sh"
