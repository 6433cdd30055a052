#include "bench.h"

#include <stdlib.h>

static MPI_Request *sends, *recvs;
static char done[4];

void windows_open(void) {
    pair_open();
    sends = calloc(job.cfg.window, sizeof *sends);
    recvs = calloc(job.cfg.window, sizeof *recvs);
    if (!sends || !recvs)
        fail("no memory for the requests");
}

void windows_close(void) {
    free(sends);
    free(recvs);
    pair_close();
}

void windows_fill(int seed) { pair_fill(job.cfg.window, seed); }
int one_way_check(int seed) { return pair.leads ? 0 : pair_check(job.cfg.window, seed); }
int both_ways_check(int seed) { return pair_check(job.cfg.window, seed); }

static void isends(void) {
    MPI_Comm c = MPI_COMM_WORLD;
    unsigned char *out = pair.send.now;
    int tag = TAG_DATA;
    for (long k = 0; k < job.cfg.window; k++) {
        if (pair.varied) {
            c = pair_comm();
            out = pool_take(&pair.send);
            tag = TAG_DATA;
            if (pair_late()) {
                c = MPI_COMM_WORLD;
                tag = TAG_LATE;
            }
        }
        MPI_Isend(out, (int)pair.send.bytes, MPI_BYTE, pair.peer, tag, c, &sends[k]);
    }
}

/* irecvs asks for all messages of a window but those that are to arrive before they are asked
 * for, and says how many it has asked for. */
static long irecvs(void) {
    MPI_Comm c = MPI_COMM_WORLD;
    unsigned char *in = pair.recv.now;
    long asked = 0;
    for (long k = 0; k < job.cfg.window; k++) {
        if (pair.varied) {
            c = pair_comm();
            if (pair_late())
                continue;
            in = pool_take(&pair.recv);
        }
        MPI_Irecv(in, (int)pair.recv.bytes, MPI_BYTE, pair.peer, TAG_DATA, c, &recvs[asked++]);
    }
    return asked;
}

/* irecvs_late waits until a message is there before it asks for it, for each that irecvs has left. */
static void irecvs_late(long asked) {
    for (; asked < job.cfg.window; asked++) {
        MPI_Probe(pair.peer, TAG_LATE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Irecv(pool_take(&pair.recv), (int)pair.recv.bytes, MPI_BYTE, pair.peer, TAG_LATE, MPI_COMM_WORLD, &recvs[asked]);
    }
}

double one_way_run(long n) {
    int window = (int)job.cfg.window;
    double began = seconds_now();
    while (n-- > 0) {
        if (pair.leads) {
            isends();
            MPI_Waitall(window, sends, MPI_STATUSES_IGNORE);
            MPI_Recv(done, sizeof done, MPI_CHAR, pair.peer, TAG_DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            irecvs_late(irecvs());
            MPI_Waitall(window, recvs, MPI_STATUSES_IGNORE);
            MPI_Send(done, sizeof done, MPI_CHAR, pair.peer, TAG_DONE, MPI_COMM_WORLD);
        }
    }
    return seconds_now() - began;
}

double both_ways_run(long n) {
    int window = (int)job.cfg.window;
    double began = seconds_now();
    while (n-- > 0) {
        /* What is sent late and what is received late is the same by count: both take turns. */
        unsigned turn = pair.turn;
        long late_sum = pair.late_sum;
        long asked = irecvs();
        pair.turn = turn;
        pair.late_sum = late_sum;
        isends();
        irecvs_late(asked);
        MPI_Waitall(window, sends, MPI_STATUSES_IGNORE);
        MPI_Waitall(window, recvs, MPI_STATUSES_IGNORE);
    }
    return seconds_now() - began;
}

void report_bandwidth(const struct measured *m, double values[3]) {
    values[0] = (double)job.cfg.window * m->iterations * m->bytes / m->seconds / 1e6;
}

void report_both_ways(const struct measured *m, double values[3]) {
    report_bandwidth(m, values);
    values[0] *= 2;
}

/* report_rate adds the pairs up, by the average time of their senders. */
void report_rate(const struct measured *m, double values[3]) {
    double pairs = job.ranks / 2, seconds = pair.leads ? m->seconds : 0, sum = 0;
    MPI_Reduce(&seconds, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    values[1] = pairs * m->iterations * job.cfg.window / (sum / pairs);
    values[0] = values[1] * m->bytes / 1e6;
}
