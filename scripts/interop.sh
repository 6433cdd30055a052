#!/usr/bin/env bash
# Runs mpigo's programs under MPICH's launcher and MPICH's programs under mpirun-go. Needs Debian's
# mpich, libmpich-dev and gcc.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
scratch
go build -o "$out/" ./mpirun-go ./examples/{ring,pi,heat2d}
cat >"$out/hello.c" <<'C'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("hello from rank %d of %d, sum %d\n", rank, size, sum);
    MPI_Finalize();
    return 0;
}
C
mpicc.mpich -o "$out/hello" "$out/hello.c"
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
    echo "\$ mpirun-go -n $n ./hello"
    ./mpirun-go -n $n --oversubscribe ./hello | sort | tee hello.txt
    [ "$(grep -c "of $n, sum $((n * (n - 1) / 2))" hello.txt)" = $n ]
done
"$root/internal/wireup/interop/run.sh"
