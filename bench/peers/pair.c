/* What all benchmarks of messages between two have in common. Of n ranks, rank i < n/2 and
 * rank i+n/2 are partners. */
#include "bench.h"

struct pair pair;

void pair_open(void) {
    int half = job.ranks / 2;
    pair.peer = (job.rank + half) % (2 * half);
    pair.leads = job.rank < half;
    pair.varied = job.cfg.fresh || job.cfg.two_comms || job.cfg.unexpected > 0;
    pool_open(&pair.send, job.cfg.largest);
    pool_open(&pair.recv, job.cfg.largest);
}

void pair_resize(long bytes) {
    pool_resize(&pair.send, bytes);
    pool_resize(&pair.recv, bytes);
}

void pair_close(void) {
    pool_close(&pair.send);
    pool_close(&pair.recv);
}

/* pair_comm is the communicator of the next message. */
MPI_Comm pair_comm(void) { return job.comms[++pair.turn & 1]; }

/* pair_late says whether the next message is to arrive before it is asked for. */
int pair_late(void) {
    pair.late_sum += job.cfg.unexpected;
    if (pair.late_sum < 100)
        return 0;
    pair.late_sum -= 100;
    return 1;
}

static int fill(unsigned char *buf, long bytes, int seed) {
    for (long i = 0; i < bytes; i++)
        buf[i] = datum(seed, job.rank, i);
    return 0;
}

static int spoil(unsigned char *buf, long bytes, int seed) {
    for (long i = 0; i < bytes; i++)
        buf[i] = ~datum(seed, pair.peer, i);
    return 0;
}

static int check(unsigned char *buf, long bytes, int seed) {
    for (long i = 0; i < bytes; i++)
        if (buf[i] != datum(seed, pair.peer, i))
            return 1;
    return 0;
}

void pair_fill(long n, int seed) {
    pool_mark(&pair.send);
    pool_mark(&pair.recv);
    pool_since_mark(&pair.send, n, fill, seed);
    pool_since_mark(&pair.recv, n, spoil, seed);
}

int pair_check(long n, int seed) { return pool_since_mark(&pair.recv, n, check, seed); }
