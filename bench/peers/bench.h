/* What the parts of the program share. The method, the flags, the numbers and the output are those of
 * the Go program in the directory above. */
#ifndef BENCH_H
#define BENCH_H

#include <mpi.h>
#include <stddef.h>

/* Held equal to the Go program's by a test of that. */
#define DEFAULT_WINDOW 64
#define DEFAULT_POOL_BYTES (128L << 20)
#define LARGE_BYTES (8L << 10)
#define LATENCY_COUNTS {10000, 1000, 1000, 100}
#define BANDWIDTH_COUNTS {1000, 100, 100, 10}
#define COLLECTIVE_COUNTS {10000, 1000, 1000, 100}
#define PAIR_BYTES (4L << 20)
#define COLLECTIVE_BYTES (1L << 20)
#define VALIDATIONS 3

#define MAX_BYTES (1L << 30)
#define MAX_SIZES 256
#define MAX_ITERATIONS (1L << 40)
#define MAX_WINDOW (1L << 16)

enum { TAG_DATA = 1, TAG_LATE = 2, TAG_DONE = 3 };

/* Flags that not every benchmark takes, as bits. */
enum {
    TAKES_SIZES = 1,
    TAKES_ALLOC = 2,
    TAKES_VALIDATE = 4,
    TAKES_FRESH = 8,
    TAKES_TWO_COMMS = 16,
    TAKES_UNEXPECTED = 32,
    TAKES_ISEND = 64,
    TAKES_WINDOW = 128,
    TAKES_COUNTS = 256, /* -i, -x, --json */
};

struct measured {
    long bytes, iterations;
    double seconds; /* of all iterations */
};

struct benchmark {
    const char *name;
    int min_ranks, max_ranks, even; /* no limit if max_ranks is 0 */
    long unit, max;                 /* sizes are multiples of unit; max is the default */
    long counts[4];                 /* iterations and warm-up of small sizes, of large ones */
    int flags;
    int columns; /* enum columns */

    void (*open)(void);
    void (*resize)(long bytes);
    double (*run)(long n);  /* the seconds that count */
    void (*fill)(int seed); /* what the next iteration sends; spoils what it overwrites */
    int (*check)(int seed); /* 0 if that iteration brought the right bytes */
    void (*close)(void);
    void (*report)(const struct measured *m, double values[3]); /* rank 0's count */
};

enum columns { LATENCY, BANDWIDTH, RATE, COLLECTIVE };

struct config {
    const struct benchmark *bench;
    long sizes[MAX_SIZES], largest;
    int size_count;
    long iterations, warm_up; /* 0 and -1: as many as are due */
    long window, pool_bytes, unexpected;
    int alloc, fresh, two_comms, isend, validate, json;
};

/* One job in a process; set in main before anything else runs. */
struct job {
    struct config cfg;
    int rank, ranks;
    MPI_Comm comms[2]; /* used in turn */
};
extern struct job job;

extern const struct benchmark table[];
const struct benchmark *find(const char *name);

/* flags.c */
enum { PARSED, HELP, MISTAKE };
int parse(int argc, char **argv, struct config *cfg, char *mistake, size_t length);
int check_ranks(const struct config *cfg, int ranks, char *mistake, size_t length);
void help(void);

/* pool.c: memory for the messages of one direction; the same buffer again and again, or, when
 * fresh ones are wanted, each in its turn. */
struct pool {
    unsigned char *mem, *now;
    long length, bytes, stride, at, marked;
    int fresh;
};
void pool_open(struct pool *p, long bytes);
void pool_resize(struct pool *p, long bytes);
void pool_close(struct pool *p);
void pool_advance(struct pool *p);
static inline unsigned char *pool_take(struct pool *p) {
    unsigned char *b = p->now;
    if (p->fresh)
        pool_advance(p);
    return b;
}
/* From the mark on, the next n buffers: f with each, each once. It stops when f is not 0. */
void pool_mark(struct pool *p);
int pool_since_mark(struct pool *p, long n, int (*f)(unsigned char *buf, long bytes, int seed), int seed);

/* Byte i of what a rank sends. It is small, so that sums of it are exact. */
static inline unsigned char datum(int seed, int rank, long i) { return (i + (i >> 7) + 31 * seed + 17 * rank) & 0x7f; }

double seconds_now(void);
void fail(const char *what);

/* latency.c */
void pingpong_open(void);
void pingpong_resize(long bytes);
double pingpong_run(long n);
void pingpong_fill(int seed);
int pingpong_check(int seed);
void pingpong_close(void);
void persistent_open(void);
void persistent_resize(long bytes);
double persistent_run(long n);
void persistent_close(void);
void report_latency(const struct measured *m, double values[3]);
void report_pairs_latency(const struct measured *m, double values[3]);

/* pair.c */
struct pair {
    int peer, leads, varied;
    struct pool send, recv;
    long late_sum;
    unsigned turn;
};
extern struct pair pair;
void pair_open(void);
void pair_resize(long bytes);
void pair_fill(long n, int seed);
int pair_check(long n, int seed);
void pair_close(void);
MPI_Comm pair_comm(void);
int pair_late(void);

/* bandwidth.c */
void windows_open(void);
double one_way_run(long n);
double both_ways_run(long n);
void windows_fill(int seed);
int one_way_check(int seed);
int both_ways_check(int seed);
void windows_close(void);
void report_bandwidth(const struct measured *m, double values[3]);
void report_both_ways(const struct measured *m, double values[3]);
void report_rate(const struct measured *m, double values[3]);

/* collective.c */
void collective_open(void);
void collective_resize(long bytes);
double collective_run(long n);
void collective_fill(int seed);
int collective_check(int seed);
void collective_close(void);
double barrier_run(long n);
void report_collective(const struct measured *m, double values[3]);

/* output.c */
void print_header(void);
void print_row(long bytes, const double values[3]);

#endif
