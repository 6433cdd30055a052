/* The benchmarks that bench/compare runs, for another MPI library: the same loops, iterations and
 * flags as the Go program in the directory above, which follow the OSU micro-benchmarks.
 *
 *     mpirun -n 2 ./peer latency -m 8,1K:64K [-i ITERATIONS] [-x WARMUP] [--fresh] [--isend] ...
 *
 * Rank 0 prints a JSON object for each size. The allreduce is a sum of floats.
 */
#include <mpi.h>
#ifdef OMPI_MAJOR_VERSION
#include <mpi-ext.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* bench/config_test.go holds these equal to the Go program's. */
#define WINDOW 64
#define POOL_BYTES (128L << 20)
#define LARGE_BYTES (8L << 10)
#define LATENCY_COUNTS {10000, 100, 1000, 10}
#define BANDWIDTH_COUNTS {100, 10, 20, 2}
#define COLLECTIVE_COUNTS {1000, 100, 100, 10}
#define MAX_SIZES 256

enum { TAG_DATA = 1, TAG_LATE = 2, TAG_DONE = 3 };
enum { LINE_BYTES = 64, PAGE_BYTES = 4096 };

static int rank, ranks;
static MPI_Comm comms[2]; /* used in turn; the world twice without --two-comms */

static struct {
    long sizes[MAX_SIZES], largest;
    int size_count;
    long iterations, warm_up; /* 0 and -1: as many as the benchmark's counts say */
    long unexpected;          /* percent of messages that arrive before their receive is posted */
    int fresh, two_comms, isend;
} cfg = {.warm_up = -1};

static void fail(const char *what, const char *arg) {
    fprintf(stderr, "peer: rank %d: %s %s\n", rank, what, arg);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* The collective that is measured. */
enum op { NONE, BARRIER, BCAST, REDUCE, ALLREDUCE, ALLGATHER, ALLTOALL };
static enum op op;

/* A pool is memory for the messages of one direction. It gives the same buffer again and again, or,
 * with --fresh, another one each time. Fresh buffers do not share pages, and begin at different
 * places of the cache. */
struct pool {
    char *mem, *now;
    long length, bytes, stride;
};
static struct pool out, in;

static long fresh_stride(long bytes) {
    long n = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    return (n > PAGE_BYTES ? n : PAGE_BYTES) + LINE_BYTES;
}

static void pool_open(struct pool *p) {
    long most = cfg.largest * (op == ALLGATHER || op == ALLTOALL ? ranks : 1);
    p->length = cfg.fresh && POOL_BYTES > fresh_stride(most) ? POOL_BYTES : fresh_stride(most);
    void *mem;
    if (posix_memalign(&mem, PAGE_BYTES, p->length))
        fail("no memory for", "the buffers");
    p->mem = p->now = mem;
    memset(p->mem, 1, p->length); /* so no page is touched for the first time while time is taken */
}

static void pool_resize(struct pool *p, long bytes) {
    p->bytes = bytes;
    p->stride = fresh_stride(bytes);
    p->now = p->mem;
}

static char *pool_take(struct pool *p) {
    char *b = p->now;
    if (cfg.fresh) {
        p->now += p->stride;
        if (p->now + p->bytes > p->mem + p->length)
            p->now = p->mem;
    }
    return b;
}

/* Between two ranks. Of n ranks, rank i < n/2 and rank i+n/2 are partners. */
static int peer, leads; /* leads: this rank sends first */
static int varied;      /* buffers, communicators or the order of calls change between messages */
static unsigned turn;   /* counts messages, for communicators in turn */
static long late_sum;

static MPI_Comm next_comm(void) { return comms[++turn & 1]; }

/* is_late spreads the unexpected messages evenly. */
static int is_late(void) {
    if ((late_sum += cfg.unexpected) < 100)
        return 0;
    late_sum -= 100;
    return 1;
}

static void send_one(char *b, MPI_Comm c) {
    if (cfg.isend) {
        MPI_Request r;
        MPI_Isend(b, (int)out.bytes, MPI_BYTE, peer, TAG_DATA, c, &r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
    } else {
        MPI_Send(b, (int)out.bytes, MPI_BYTE, peer, TAG_DATA, c);
    }
}

static void recv_one(char *b, MPI_Comm c) {
    if (varied && is_late())
        MPI_Probe(peer, TAG_DATA, c, MPI_STATUS_IGNORE);
    if (cfg.isend) {
        MPI_Request r;
        MPI_Irecv(b, (int)in.bytes, MPI_BYTE, peer, TAG_DATA, c, &r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(b, (int)in.bytes, MPI_BYTE, peer, TAG_DATA, c, MPI_STATUS_IGNORE);
    }
}

/* Each run function does n iterations and returns the seconds that count. */

static double ping_pong(long n) {
    MPI_Comm c = MPI_COMM_WORLD;
    char *to = out.now, *from = in.now;
    double began = MPI_Wtime();
    while (n-- > 0) {
        if (varied) {
            c = next_comm();
            to = pool_take(&out);
            from = pool_take(&in);
        }
        if (leads)
            send_one(to, c);
        recv_one(from, c);
        if (!leads)
            send_one(to, c);
    }
    return MPI_Wtime() - began;
}

static double persistent(long n) {
    MPI_Request requests[2];
    MPI_Send_init(out.now, (int)out.bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(in.now, (int)in.bytes, MPI_BYTE, peer, TAG_DATA, MPI_COMM_WORLD, &requests[1]);
    MPI_Request *first = &requests[!leads], *second = &requests[leads];
    double began = MPI_Wtime();
    while (n-- > 0) {
        MPI_Start(first);
        MPI_Wait(first, MPI_STATUS_IGNORE);
        MPI_Start(second);
        MPI_Wait(second, MPI_STATUS_IGNORE);
    }
    double seconds = MPI_Wtime() - began;
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    return seconds;
}

static MPI_Request sends[WINDOW], recvs[WINDOW];

static void isends(void) {
    MPI_Comm c = MPI_COMM_WORLD;
    char *b = out.now;
    int tag = TAG_DATA;
    for (int k = 0; k < WINDOW; k++) {
        if (varied) {
            c = next_comm();
            b = pool_take(&out);
            tag = TAG_DATA;
            if (is_late()) {
                c = MPI_COMM_WORLD;
                tag = TAG_LATE;
            }
        }
        MPI_Isend(b, (int)out.bytes, MPI_BYTE, peer, tag, c, &sends[k]);
    }
}

/* irecvs posts all receives of a window but the late ones, and returns how many it has posted. */
static int irecvs(void) {
    MPI_Comm c = MPI_COMM_WORLD;
    char *b = in.now;
    int posted = 0;
    for (int k = 0; k < WINDOW; k++) {
        if (varied) {
            c = next_comm();
            if (is_late())
                continue;
            b = pool_take(&in);
        }
        MPI_Irecv(b, (int)in.bytes, MPI_BYTE, peer, TAG_DATA, c, &recvs[posted++]);
    }
    return posted;
}

/* late_irecvs posts each remaining receive once its message has arrived. */
static void late_irecvs(int posted) {
    for (; posted < WINDOW; posted++) {
        MPI_Probe(peer, TAG_LATE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Irecv(pool_take(&in), (int)in.bytes, MPI_BYTE, peer, TAG_LATE, MPI_COMM_WORLD, &recvs[posted]);
    }
}

static double one_way(long n) {
    static char done[4];
    double began = MPI_Wtime();
    while (n-- > 0) {
        if (leads) {
            isends();
            MPI_Waitall(WINDOW, sends, MPI_STATUSES_IGNORE);
            MPI_Recv(done, sizeof done, MPI_CHAR, peer, TAG_DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            late_irecvs(irecvs());
            MPI_Waitall(WINDOW, recvs, MPI_STATUSES_IGNORE);
            MPI_Send(done, sizeof done, MPI_CHAR, peer, TAG_DONE, MPI_COMM_WORLD);
        }
    }
    return MPI_Wtime() - began;
}

static double both_ways(long n) {
    double began = MPI_Wtime();
    while (n-- > 0) {
        /* A message is late at its sender and at its receiver: both count from the same state. */
        unsigned turn_before = turn;
        long late_before = late_sum;
        int posted = irecvs();
        turn = turn_before;
        late_sum = late_before;
        isends();
        late_irecvs(posted);
        MPI_Waitall(WINDOW, sends, MPI_STATUSES_IGNORE);
        MPI_Waitall(WINDOW, recvs, MPI_STATUSES_IGNORE);
    }
    return MPI_Wtime() - began;
}

/* The collectives, each in three forms. A size is that of one rank's buffer; where a buffer has a
 * part for each rank, it is that of a part. Rank 0 is the root. */

static int count(void) { return (int)(out.bytes / (long)sizeof(float)); }

static void call(void) {
    int n = (int)out.bytes;
    MPI_Comm c = MPI_COMM_WORLD;
    switch (op) {
    case BARRIER: MPI_Barrier(c); break;
    case BCAST: MPI_Bcast(out.now, n, MPI_BYTE, 0, c); break;
    case REDUCE: MPI_Reduce(out.now, in.now, count(), MPI_FLOAT, MPI_SUM, 0, c); break;
    case ALLREDUCE: MPI_Allreduce(out.now, in.now, count(), MPI_FLOAT, MPI_SUM, c); break;
    case ALLGATHER: MPI_Allgather(out.now, n, MPI_BYTE, in.now, n, MPI_BYTE, c); break;
    case ALLTOALL: MPI_Alltoall(out.now, n, MPI_BYTE, in.now, n, MPI_BYTE, c); break;
    default: break;
    }
}

static void begin(MPI_Request *r) {
    int n = (int)out.bytes;
    MPI_Comm c = MPI_COMM_WORLD;
    switch (op) {
    case BARRIER: MPI_Ibarrier(c, r); break;
    case BCAST: MPI_Ibcast(out.now, n, MPI_BYTE, 0, c, r); break;
    case REDUCE: MPI_Ireduce(out.now, in.now, count(), MPI_FLOAT, MPI_SUM, 0, c, r); break;
    case ALLREDUCE: MPI_Iallreduce(out.now, in.now, count(), MPI_FLOAT, MPI_SUM, c, r); break;
    case ALLGATHER: MPI_Iallgather(out.now, n, MPI_BYTE, in.now, n, MPI_BYTE, c, r); break;
    case ALLTOALL: MPI_Ialltoall(out.now, n, MPI_BYTE, in.now, n, MPI_BYTE, c, r); break;
    default: break;
    }
}

/* Open MPI 4 has the persistent collectives of MPI 4 as an extension, with another prefix. */
#if MPI_VERSION >= 4
#define INIT(name) MPI_##name##_init
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define INIT(name) MPIX_##name##_init
#endif

#ifdef INIT
static void prepare(MPI_Request *r) {
    int n = (int)out.bytes;
    MPI_Comm c = MPI_COMM_WORLD;
    MPI_Info i = MPI_INFO_NULL;
    switch (op) {
    case BARRIER: INIT(Barrier)(c, i, r); break;
    case BCAST: INIT(Bcast)(out.now, n, MPI_BYTE, 0, c, i, r); break;
    case REDUCE: INIT(Reduce)(out.now, in.now, count(), MPI_FLOAT, MPI_SUM, 0, c, i, r); break;
    case ALLREDUCE: INIT(Allreduce)(out.now, in.now, count(), MPI_FLOAT, MPI_SUM, c, i, r); break;
    case ALLGATHER: INIT(Allgather)(out.now, n, MPI_BYTE, in.now, n, MPI_BYTE, c, i, r); break;
    case ALLTOALL: INIT(Alltoall)(out.now, n, MPI_BYTE, in.now, n, MPI_BYTE, c, i, r); break;
    default: break;
    }
}
#endif

/* A barrier after each call keeps a rank from being ahead by more than one. */
static void separate(void) {
    if (op != BARRIER)
        MPI_Barrier(MPI_COMM_WORLD);
}

static double barrier(long n) {
    double began = MPI_Wtime();
    while (n-- > 0)
        call();
    return MPI_Wtime() - began;
}

static double blocking(long n) {
    double sum = 0;
    while (n-- > 0) {
        double began = MPI_Wtime();
        call();
        sum += MPI_Wtime() - began;
        separate();
    }
    return sum;
}

#ifdef INIT
static double started(long n) {
    MPI_Request r;
    double sum = 0;
    prepare(&r);
    while (n-- > 0) {
        double began = MPI_Wtime();
        MPI_Start(&r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        sum += MPI_Wtime() - began;
        separate();
    }
    MPI_Request_free(&r);
    return sum;
}
#endif

/* The computation, as internal/bench/nonblocking.go has it. */
#define SIDE 25
static float a[SIDE][SIDE], x[SIDE], y[SIDE];

static void compute(double target) {
    for (double elapsed = 0; elapsed < target;) {
        double began = MPI_Wtime();
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j < SIDE; j++)
                x[i] += a[i][j] * a[j][i] + y[j];
        __asm__ volatile("" ::: "memory"); /* so the loops are not removed */
        elapsed += MPI_Wtime() - began;
    }
}

static double pure, computed; /* seconds of the last run of nonblocking */

/* First pure calls, which are waited for at once, and then calls with a computation before the
 * wait, which takes as long as a pure call. The time is that of the latter. */
static double nonblocking(long n) {
    MPI_Request r;
    double sum = 0;
    pure = computed = 0;
    for (long i = 0; i < n; i++) {
        double began = MPI_Wtime();
        begin(&r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        pure += MPI_Wtime() - began;
        separate();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (long i = 0; i < n; i++) {
        double began = MPI_Wtime();
        begin(&r);
        double computes = MPI_Wtime();
        compute(pure / n);
        computed += MPI_Wtime() - computes;
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        sum += MPI_Wtime() - began;
        separate();
    }
    return sum;
}

/* Each report function prints the results of one size at rank 0. */

static void print(long bytes, double value, const char *unit) {
    if (rank == 0)
        printf("{\"size\":%ld,\"value\":%.6g,\"unit\":\"%s\",\"ranks\":%d}\n", bytes, value, unit, ranks);
}

static double sum_of(double mine) {
    double sum = 0;
    MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    return sum;
}

static void latency(long bytes, long n, double seconds) { print(bytes, seconds * 1e6 / n / 2, "us"); }
static void mean(long bytes, long n, double seconds) { print(bytes, sum_of(seconds) * 1e6 / n / ranks, "us"); }

/* The second value is the share of the pure calls' time that the computation hides. */
static void overlap(long bytes, long n, double seconds) {
    double all = sum_of(seconds), busy = sum_of(computed), alone = sum_of(pure);
    print(bytes, alone * 1e6 / n / ranks, "us");
    double hidden = 100 * (1 - (all - busy) / alone);
    print(bytes, hidden > 0 ? hidden : 0, "%");
}

static void rate(long bytes, long n, double seconds) { print(bytes, 1.0 * bytes * WINDOW * n / seconds / 1e6, "MB/s"); }
static void rate_both(long bytes, long n, double seconds) { rate(bytes, 2 * n, seconds); }

/* The rates of all pairs are added up, with the mean time of their senders. */
static void rate_of_pairs(long bytes, long n, double seconds) {
    double pairs = ranks / 2, messages = pairs * n * WINDOW / (sum_of(leads ? seconds : 0) / pairs);
    print(bytes, messages * bytes / 1e6, "MB/s");
    print(bytes, messages, "msg/s");
}

static const struct benchmark {
    const char *name;
    long counts[4]; /* iterations and warm-up of sizes up to LARGE_BYTES, and of larger ones */
    double (*run)(long n);
    void (*report)(long bytes, long n, double seconds);
    enum op op; /* of a collective */
} table[] = {
    {"latency", LATENCY_COUNTS, ping_pong, latency, NONE},
    {"platency", LATENCY_COUNTS, persistent, latency, NONE},
    {"bw", BANDWIDTH_COUNTS, one_way, rate, NONE},
    {"bibw", BANDWIDTH_COUNTS, both_ways, rate_both, NONE},
    {"mbw_mr", BANDWIDTH_COUNTS, one_way, rate_of_pairs, NONE},
    {"barrier", COLLECTIVE_COUNTS, barrier, mean, BARRIER},
    {"bcast", COLLECTIVE_COUNTS, blocking, mean, BCAST},
    {"reduce", COLLECTIVE_COUNTS, blocking, mean, REDUCE},
    {"allreduce", COLLECTIVE_COUNTS, blocking, mean, ALLREDUCE},
    {"allgather", COLLECTIVE_COUNTS, blocking, mean, ALLGATHER},
    {"alltoall", COLLECTIVE_COUNTS, blocking, mean, ALLTOALL},
    {"ibarrier", COLLECTIVE_COUNTS, nonblocking, overlap, BARRIER},
    {"ibcast", COLLECTIVE_COUNTS, nonblocking, overlap, BCAST},
    {"ireduce", COLLECTIVE_COUNTS, nonblocking, overlap, REDUCE},
    {"iallreduce", COLLECTIVE_COUNTS, nonblocking, overlap, ALLREDUCE},
    {"iallgather", COLLECTIVE_COUNTS, nonblocking, overlap, ALLGATHER},
    {"ialltoall", COLLECTIVE_COUNTS, nonblocking, overlap, ALLTOALL},
#ifdef INIT
    {"barrier_persistent", COLLECTIVE_COUNTS, started, mean, BARRIER},
    {"bcast_persistent", COLLECTIVE_COUNTS, started, mean, BCAST},
    {"reduce_persistent", COLLECTIVE_COUNTS, started, mean, REDUCE},
    {"allreduce_persistent", COLLECTIVE_COUNTS, started, mean, ALLREDUCE},
    {"allgather_persistent", COLLECTIVE_COUNTS, started, mean, ALLGATHER},
    {"alltoall_persistent", COLLECTIVE_COUNTS, started, mean, ALLTOALL},
#endif
    {"empty", {0}, NULL, NULL, NONE},
};

static long parse_size(const char *text, char **end) {
    static const char units[] = "KMG";
    long n = strtol(text, end, 10);
    const char *unit = **end ? strchr(units, **end) : NULL;
    if (*end == text || n < 0)
        fail("no size:", text);
    if (unit) {
        n <<= 10 * (unit - units + 1);
        ++*end;
    }
    return n;
}

/* parse_sizes reads sizes and ranges with commas between them: 8,1K:64K. */
static void parse_sizes(const char *text) {
    for (char *end;; text = end + 1) {
        long min = parse_size(text, &end), max = min;
        if (*end == ':')
            max = parse_size(end + 1, &end);
        for (; min <= max && cfg.size_count < MAX_SIZES; min = min ? 2 * min : 1)
            cfg.sizes[cfg.size_count++] = min;
        cfg.largest = max > cfg.largest ? max : cfg.largest;
        if (!*end)
            return;
        if (*end != ',')
            fail("no sizes:", text);
    }
}

static void parse_flags(char **argv) {
    for (; *argv; argv++) {
        const char *flag = *argv, *value = argv[1];
        if (!strcmp(flag, "--json"))
            continue; /* there is no other format */
        if (!strcmp(flag, "--fresh"))
            cfg.fresh = 1;
        else if (!strcmp(flag, "--two-comms"))
            cfg.two_comms = 1;
        else if (!strcmp(flag, "--isend"))
            cfg.isend = 1;
        else if (!value)
            fail("flag unknown, or without a value:", flag);
        else {
            argv++;
            if (!strcmp(flag, "-m"))
                parse_sizes(value);
            else if (!strcmp(flag, "-i"))
                cfg.iterations = atol(value);
            else if (!strcmp(flag, "-x"))
                cfg.warm_up = atol(value);
            else if (!strcmp(flag, "--unexpected"))
                cfg.unexpected = atol(value);
            else
                fail("unknown flag:", flag);
        }
    }
    if (!cfg.size_count)
        cfg.size_count = 1; /* of 0 bytes */
    varied = cfg.fresh || cfg.two_comms || cfg.unexpected > 0;
}

static void measure(const struct benchmark *b, long bytes) {
    const long *counts = b->counts + (bytes > LARGE_BYTES ? 2 : 0);
    long iterations = cfg.iterations > 0 ? cfg.iterations : counts[0];
    pool_resize(&out, bytes);
    pool_resize(&in, bytes);
    b->run(cfg.warm_up >= 0 ? cfg.warm_up : counts[1]);
    MPI_Barrier(MPI_COMM_WORLD);
    b->report(bytes, iterations, b->run(iterations));
    fflush(stdout);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const struct benchmark *b = table, *end = table + sizeof table / sizeof *table;
    while (b < end && (argc < 2 || strcmp(b->name, argv[1])))
        b++;
    if (b == end)
        fail("unknown benchmark:", argc < 2 ? "none given" : argv[1]);
    if (b->run) {
        op = b->op;
        parse_flags(argv + 2);
        peer = (rank + ranks / 2) % ranks;
        leads = rank < ranks / 2;
        comms[0] = comms[1] = MPI_COMM_WORLD;
        if (cfg.two_comms)
            MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
        pool_open(&out);
        pool_open(&in);
        for (int i = 0; i < cfg.size_count; i++)
            measure(b, cfg.sizes[i]);
    }
    MPI_Finalize();
    return 0;
}
