/* Collectives. Each call is measured by itself, with a barrier after it, so that no rank is ahead by
 * more than one. Rank 0 is the root; reductions are sums of floats; all else moves bytes. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum kind { BCAST, REDUCE, ALLREDUCE, REDUCESCATTER, GATHER, SCATTER, ALLGATHER, ALLTOALL };
static const char *const names[] = {"bcast", "reduce", "allreduce", "reducescatter", "gather", "scatter", "allgather", "alltoall"};

static enum kind kind;
static int count;   /* elements of the size that is measured */
static int *shares; /* of each rank, when these are divided among all */
static struct pool in, out;
static unsigned turn;

static int reduces(void) { return kind <= REDUCESCATTER && kind != BCAST; }
static long in_bytes(long bytes) {
    switch (kind) {
    case BCAST:
        return job.rank ? 0 : bytes;
    case SCATTER:
        return job.rank ? 0 : bytes * job.ranks;
    case ALLTOALL:
        return bytes * job.ranks;
    default:
        return bytes;
    }
}

static long out_bytes(long bytes) {
    switch (kind) {
    case BCAST:
        return job.rank ? bytes : 0;
    case REDUCE:
        return job.rank ? 0 : bytes;
    case REDUCESCATTER:
        return shares[job.rank] * (long)sizeof(float);
    case GATHER:
        return job.rank ? 0 : bytes * job.ranks;
    case ALLGATHER:
    case ALLTOALL:
        return bytes * job.ranks;
    default:
        return bytes;
    }
}

static void measure(long bytes) {
    count = (int)(reduces() ? bytes / (long)sizeof(float) : bytes);
    for (int r = 0; r < job.ranks; r++)
        shares[r] = (count + job.ranks - 1 - r) / job.ranks;
}

void collective_open(void) {
    while (strcmp(names[kind], job.cfg.bench->name))
        kind++;
    shares = calloc(job.ranks, sizeof *shares);
    if (!shares)
        fail("no memory for the counts");
    measure(job.cfg.largest);
    pool_open(&in, in_bytes(job.cfg.largest));
    pool_open(&out, out_bytes(job.cfg.largest));
}

void collective_resize(long bytes) {
    measure(bytes);
    pool_resize(&in, in_bytes(bytes));
    pool_resize(&out, out_bytes(bytes));
}

void collective_close(void) {
    pool_close(&in);
    pool_close(&out);
    free(shares);
}

static void call(MPI_Comm c, void *from, void *to) {
    switch (kind) {
    case BCAST:
        MPI_Bcast(job.rank ? to : from, count, MPI_BYTE, 0, c);
        break;
    case REDUCE:
        MPI_Reduce(from, to, count, MPI_FLOAT, MPI_SUM, 0, c);
        break;
    case ALLREDUCE:
        MPI_Allreduce(from, to, count, MPI_FLOAT, MPI_SUM, c);
        break;
    case REDUCESCATTER:
        MPI_Reduce_scatter(from, to, shares, MPI_FLOAT, MPI_SUM, c);
        break;
    case GATHER:
        MPI_Gather(from, count, MPI_BYTE, to, count, MPI_BYTE, 0, c);
        break;
    case SCATTER:
        MPI_Scatter(from, count, MPI_BYTE, to, count, MPI_BYTE, 0, c);
        break;
    case ALLGATHER:
        MPI_Allgather(from, count, MPI_BYTE, to, count, MPI_BYTE, c);
        break;
    case ALLTOALL:
        MPI_Alltoall(from, count, MPI_BYTE, to, count, MPI_BYTE, c);
        break;
    }
}

double collective_run(long n) {
    double sum = 0;
    while (n-- > 0) {
        MPI_Comm c = job.comms[++turn & 1];
        void *from = pool_take(&in), *to = pool_take(&out);
        double began = seconds_now();
        call(c, from, to);
        sum += seconds_now() - began;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return sum;
}

/* The barrier has no data, and needs no barrier after it: the time of all calls is taken. */
double barrier_run(long n) {
    double began = seconds_now();
    for (long i = 0; i < n; i++)
        MPI_Barrier(job.comms[i & 1]);
    return seconds_now() - began;
}

static int fill(unsigned char *buf, long bytes, int seed) {
    if (reduces())
        for (long i = 0; i < bytes / (long)sizeof(float); i++)
            ((float *)buf)[i] = datum(seed, job.rank, i);
    else
        for (long i = 0; i < bytes; i++)
            buf[i] = datum(seed, job.rank, i);
    return 0;
}

static int spoil(unsigned char *buf, long bytes, int seed) {
    (void)seed;
    memset(buf, 0xff, bytes);
    return 0;
}

/* want is byte i of what a rank gets, of what is not a reduction. */
static unsigned char want(int seed, long i) {
    switch (kind) {
    case GATHER:
    case ALLGATHER:
        return datum(seed, (int)(i / count), i % count);
    case SCATTER:
        return datum(seed, 0, (long)job.rank * count + i);
    case ALLTOALL:
        return datum(seed, (int)(i / count), (long)job.rank * count + i % count);
    default:
        return datum(seed, 0, i);
    }
}

static int check(unsigned char *buf, long bytes, int seed) {
    if (!reduces()) {
        for (long i = 0; i < bytes; i++)
            if (buf[i] != want(seed, i))
                return 1;
        return 0;
    }
    long first = 0;
    for (int r = 0; kind == REDUCESCATTER && r < job.rank; r++)
        first += shares[r];
    for (long i = 0; i < bytes / (long)sizeof(float); i++) {
        float sum = 0;
        for (int r = 0; r < job.ranks; r++)
            sum += datum(seed, r, first + i);
        if (((float *)buf)[i] != sum)
            return 1;
    }
    return 0;
}

void collective_fill(int seed) {
    pool_mark(&in);
    pool_mark(&out);
    pool_since_mark(&in, 1, fill, seed);
    pool_since_mark(&out, 1, spoil, seed);
}

int collective_check(int seed) { return pool_since_mark(&out, 1, check, seed); }

/* report_collective is the average, the least and the most over all ranks. */
void report_collective(const struct measured *m, double values[3]) {
    double mine = m->seconds * 1e6 / m->iterations, sum = 0;
    MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine, &values[1], 1, MPI_DOUBLE, MPI_MIN, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mine, &values[2], 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    values[0] = sum / job.ranks;
}
