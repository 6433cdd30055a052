#!/usr/bin/env bash
# Our programs under MPICH's launcher, MPICH's programs under ours. Needs Debian's mpich, libmpich-dev and gcc.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
go build -o "$out/mpirun-go" ./mpirun-go
for e in ring pi heat2d; do go build -o "$out/$e" "./examples/$e"; done
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
    mpiexec.hydra -n 4 ./$e | tee hydra.txt
    echo "\$ mpirun-go -n 4 ./$e"
    ./mpirun-go -n 4 ./${e/hydra.png/ours.png} | tee ours.txt
    [ -s hydra.txt ]
done
cmp hydra.png ours.png
for n in 2 4; do
    echo "\$ mpirun-go -n $n ./hello"
    ./mpirun-go -n $n --oversubscribe ./hello | sort | tee hello.txt
    [ "$(grep -c "of $n, sum $((n * (n - 1) / 2))" hello.txt)" = $n ]
done
cd - >/dev/null
internal/wireup/interop/run.sh
