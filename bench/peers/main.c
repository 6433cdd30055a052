/* The benchmarks of the Go program in the directory above, for another MPI library:
 *
 *     mpirun -n 2 ./peer latency [-m MIN:MAX] [-i ITERATIONS] [-x WARMUP] [-W WINDOW] [--alloc] [--json] ...
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct job job;

#define OF_BARRIER (TAKES_COUNTS | TAKES_TWO_COMMS)
#define OF_PERSISTENT (TAKES_COUNTS | TAKES_SIZES | TAKES_ALLOC | TAKES_VALIDATE)
#define OF_COLLECTIVES (OF_PERSISTENT | TAKES_FRESH | TAKES_TWO_COMMS)
#define OF_LATENCY (OF_COLLECTIVES | TAKES_UNEXPECTED | TAKES_ISEND)
#define OF_BANDWIDTH (OF_COLLECTIVES | TAKES_UNEXPECTED | TAKES_WINDOW)

#define PING_PONG pingpong_open, pingpong_resize, pingpong_run, pingpong_fill, pingpong_check, pingpong_close
#define PERSISTENT persistent_open, persistent_resize, persistent_run, pingpong_fill, pingpong_check, persistent_close
#define ONE_WAY windows_open, pair_resize, one_way_run, windows_fill, one_way_check, windows_close
#define BOTH_WAYS windows_open, pair_resize, both_ways_run, windows_fill, both_ways_check, windows_close
#define COLLECTIVES collective_open, collective_resize, collective_run, collective_fill, collective_check, collective_close
#define OF_ALL_RANKS(name, unit) \
    {name, 2, 0, 0, unit, COLLECTIVE_BYTES, COLLECTIVE_COUNTS, OF_COLLECTIVES, COLLECTIVE, COLLECTIVES, report_collective}

const struct benchmark table[] = {
    {"latency", 2, 2, 0, 1, PAIR_BYTES, LATENCY_COUNTS, OF_LATENCY, LATENCY, PING_PONG, report_latency},
    {"platency", 2, 2, 0, 1, PAIR_BYTES, LATENCY_COUNTS, OF_PERSISTENT, LATENCY, PERSISTENT, report_latency},
    {"multi_lat", 2, 0, 1, 1, PAIR_BYTES, LATENCY_COUNTS, OF_LATENCY, LATENCY, PING_PONG, report_pairs_latency},
    {"bw", 2, 2, 0, 1, PAIR_BYTES, BANDWIDTH_COUNTS, OF_BANDWIDTH, BANDWIDTH, ONE_WAY, report_bandwidth},
    {"bibw", 2, 2, 0, 1, PAIR_BYTES, BANDWIDTH_COUNTS, OF_BANDWIDTH, BANDWIDTH, BOTH_WAYS, report_both_ways},
    {"mbw_mr", 2, 0, 1, 1, PAIR_BYTES, BANDWIDTH_COUNTS, OF_BANDWIDTH, RATE, ONE_WAY, report_rate},
    {"barrier", 2, 0, 0, 0, 0, COLLECTIVE_COUNTS, OF_BARRIER, COLLECTIVE, NULL, NULL, barrier_run, NULL, NULL, NULL, report_collective},
    OF_ALL_RANKS("bcast", 1),
    OF_ALL_RANKS("reduce", 4),
    OF_ALL_RANKS("allreduce", 4),
    OF_ALL_RANKS("reducescatter", 4),
    OF_ALL_RANKS("gather", 1),
    OF_ALL_RANKS("scatter", 1),
    OF_ALL_RANKS("allgather", 1),
    OF_ALL_RANKS("alltoall", 1),
    {.name = "empty", .min_ranks = 1},
    {.name = NULL},
};

const struct benchmark *find(const char *name) {
    for (const struct benchmark *b = table; b->name; b++)
        if (!strcmp(b->name, name))
            return b;
    return NULL;
}

double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* fail ends the job. */
void fail(const char *what) {
    fprintf(stderr, "peer: rank %d: %s: %s\n", job.rank, job.cfg.bench->name, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void measure(long bytes) {
    const struct benchmark *b = job.cfg.bench;
    const long *counts = b->counts + (bytes > LARGE_BYTES ? 2 : 0);
    long iterations = job.cfg.iterations > 0 ? job.cfg.iterations : counts[0];
    long warm_up = job.cfg.warm_up >= 0 ? job.cfg.warm_up : counts[1];

    if (b->resize)
        b->resize(bytes);
    b->run(warm_up);
    MPI_Barrier(MPI_COMM_WORLD);
    struct measured m = {bytes, iterations, b->run(iterations)};
    for (int seed = 0; job.cfg.validate && seed < VALIDATIONS; seed++) {
        b->fill(seed);
        b->run(1);
        if (b->check(seed))
            fail("wrong bytes have arrived");
    }
    double values[3] = {0, 0, 0};
    b->report(&m, values);
    if (job.rank == 0)
        print_row(bytes, values);
}

static void run(void) {
    const struct config *cfg = &job.cfg;
    if (!cfg->bench->run)
        return;
    job.comms[0] = job.comms[1] = MPI_COMM_WORLD;
    if (cfg->two_comms)
        MPI_Comm_dup(MPI_COMM_WORLD, &job.comms[1]);
    if (cfg->bench->open)
        cfg->bench->open();
    if (job.rank == 0)
        print_header();
    for (int i = 0; i < cfg->size_count; i++)
        measure(cfg->sizes[i]);
    if (cfg->bench->close)
        cfg->bench->close();
    if (cfg->two_comms)
        MPI_Comm_free(&job.comms[1]);
}

int main(int argc, char **argv) {
    char mistake[512];
    int status = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job.ranks);
    switch (parse(argc, argv, &job.cfg, mistake, sizeof mistake)) {
    case HELP:
        if (job.rank == 0)
            help();
        break;
    case PARSED:
        if (!check_ranks(&job.cfg, job.ranks, mistake, sizeof mistake)) {
            run();
            break;
        }
        /* fall through */
    case MISTAKE:
        status = 2;
        if (job.rank == 0)
            fprintf(stderr, "peer: %s\n", mistake);
    }
    MPI_Finalize();
    return status;
}
