/* An MPICH program, which scripts/interop.sh starts under mpirun-go.
 *
 *   mpich        sends small and large messages in a ring, and calls MPI_Allreduce
 *   mpich leave  the same; then rank 0 aborts with code 3, and no rank calls MPI_Finalize
 *   mpich abort  rank 1 (rank 0 of one) aborts with code 7
 *   mpich die    rank 1 (rank 0 of one) exits after MPI_Init without MPI_Finalize
 *   mpich spawn  MPI_Comm_spawn must fail, and must not hang
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const char *what)
{
    printf("mpich: %s\n", what);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 9);
}

static void ring(int rank, int size, int n)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    unsigned char *out = malloc(n + 1), *in = malloc(n + 1);
    for (int i = 0; i < n; i++)
        out[i] = (unsigned char) (i * 31 + rank);
    MPI_Sendrecv(out, n, MPI_BYTE, right, 5, in, n, MPI_BYTE, left, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < n; i++)
        if (in[i] != (unsigned char) (i * 31 + left))
            fail("ring: wrong bytes");
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int chosen = rank == (size > 1 ? 1 : 0);

    if (!strcmp(mode, "abort") && chosen)
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (!strcmp(mode, "die") && chosen)
        _exit(5);
    if (!strcmp(mode, "spawn")) {
        MPI_Comm child;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        int err = MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &child, MPI_ERRCODES_IGNORE);
        printf("rank %d spawn %s\n", rank, err == MPI_SUCCESS ? "succeeded" : "refused");
        MPI_Finalize();
        return 0;
    }
    ring(rank, size, 0);
    ring(rank, size, 64);
    ring(rank, size, 1 << 20);
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != size * (size - 1) / 2)
        fail("allreduce: wrong sum");

    MPI_Comm host;
    int hostsize;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &hostsize);
    MPI_Comm_free(&host);
    printf("rank %d of %d ok, %d on its node\n", rank, size, hostsize);
    fflush(stdout);
    if (!strcmp(mode, "leave")) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Abort(MPI_COMM_WORLD, 3);
        pause();
    }
    MPI_Finalize();
    return 0;
}
