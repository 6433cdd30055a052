#include "bench.h"

void pingpong_open(void) { pair_open(); }
void pingpong_resize(long bytes) { pair_resize(bytes); }
void pingpong_fill(int seed) { pair_fill(1, seed); }
int pingpong_check(int seed) { return pair_check(1, seed); }
void pingpong_close(void) { pair_close(); }

static void blocking(long n) {
    MPI_Comm c = MPI_COMM_WORLD;
    int peer = pair.peer, bytes = (int)pair.send.bytes;
    unsigned char *out = pair.send.now, *in = pair.recv.now;
    while (n-- > 0) {
        if (pair.varied) {
            c = pair_comm();
            out = pool_take(&pair.send);
            in = pool_take(&pair.recv);
        }
        if (pair.leads)
            MPI_Send(out, bytes, MPI_BYTE, peer, TAG_DATA, c);
        if (pair.varied && pair_late())
            MPI_Probe(peer, TAG_DATA, c, MPI_STATUS_IGNORE);
        MPI_Recv(in, bytes, MPI_BYTE, peer, TAG_DATA, c, MPI_STATUS_IGNORE);
        if (!pair.leads)
            MPI_Send(out, bytes, MPI_BYTE, peer, TAG_DATA, c);
    }
}

static void isend_wait(unsigned char *out, int bytes, MPI_Comm c) {
    MPI_Request r;
    MPI_Isend(out, bytes, MPI_BYTE, pair.peer, TAG_DATA, c, &r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
}

static void nonblocking(long n) {
    MPI_Comm c = MPI_COMM_WORLD;
    int peer = pair.peer, bytes = (int)pair.send.bytes;
    unsigned char *out = pair.send.now, *in = pair.recv.now;
    while (n-- > 0) {
        if (pair.varied) {
            c = pair_comm();
            out = pool_take(&pair.send);
            in = pool_take(&pair.recv);
        }
        if (pair.leads)
            isend_wait(out, bytes, c);
        if (pair.varied && pair_late())
            MPI_Probe(peer, TAG_DATA, c, MPI_STATUS_IGNORE);
        MPI_Request r;
        MPI_Irecv(in, bytes, MPI_BYTE, peer, TAG_DATA, c, &r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        if (!pair.leads)
            isend_wait(out, bytes, c);
    }
}

double pingpong_run(long n) {
    double began = seconds_now();
    if (job.cfg.isend)
        nonblocking(n);
    else
        blocking(n);
    return seconds_now() - began;
}

/* By persistent requests, inactive between iterations. */
static MPI_Request sends = MPI_REQUEST_NULL, recvs = MPI_REQUEST_NULL;

static void free_requests(void) {
    if (sends == MPI_REQUEST_NULL)
        return;
    MPI_Request_free(&sends);
    MPI_Request_free(&recvs);
}

void persistent_open(void) { pair_open(); }

void persistent_resize(long bytes) {
    free_requests();
    pair_resize(bytes);
    MPI_Send_init(pair.send.now, (int)bytes, MPI_BYTE, pair.peer, TAG_DATA, MPI_COMM_WORLD, &sends);
    MPI_Recv_init(pair.recv.now, (int)bytes, MPI_BYTE, pair.peer, TAG_DATA, MPI_COMM_WORLD, &recvs);
}

void persistent_close(void) {
    free_requests();
    pair_close();
}

double persistent_run(long n) {
    MPI_Request *first = pair.leads ? &sends : &recvs, *second = pair.leads ? &recvs : &sends;
    double began = seconds_now();
    while (n-- > 0) {
        MPI_Start(first);
        MPI_Wait(first, MPI_STATUS_IGNORE);
        MPI_Start(second);
        MPI_Wait(second, MPI_STATUS_IGNORE);
    }
    return seconds_now() - began;
}

/* report_latency halves the time of a round. */
void report_latency(const struct measured *m, double values[3]) { values[0] = m->seconds * 1e6 / m->iterations / 2; }

void report_pairs_latency(const struct measured *m, double values[3]) {
    double mine = m->seconds * 1e6 / m->iterations / 2, sum = 0;
    MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    values[0] = sum / job.ranks;
}
