#include "bench.h"

#include <stdio.h>

#if defined(OPEN_MPI)
static const char library[] = "openmpi";
#elif defined(MPICH_VERSION)
static const char library[] = "mpich";
#else
static const char library[] = "mpi";
#endif

void print_header(void) {
    const struct config *cfg = &job.cfg;
    if (cfg->json)
        return;
    printf("# %s %s, %d ranks\n%-10s", library, cfg->bench->name, job.ranks, "# Size");
    switch (cfg->bench->columns) {
    case LATENCY:
        printf("%18s\n", "Latency (us)");
        break;
    case BANDWIDTH:
        printf("%18s\n", "Bandwidth (MB/s)");
        break;
    case RATE:
        printf("%18s%18s\n", "MB/s", "Messages/s");
        break;
    case COLLECTIVE:
        printf("%18s%18s%18s\n", "Avg Latency(us)", "Min Latency(us)", "Max Latency(us)");
    }
    fflush(stdout);
}

static void object(long bytes, double value, const char *unit, const double *least_most) {
    printf("{\"bench\":\"%s\",\"size\":%ld,\"value\":%.6g,", job.cfg.bench->name, bytes, value);
    if (least_most)
        printf("\"min\":%.6g,\"max\":%.6g,", least_most[0], least_most[1]);
    printf("\"unit\":\"%s\",\"ranks\":%d,\"btl\":\"%s\"}\n", unit, job.ranks, library);
}

void print_row(long bytes, const double v[3]) {
    int columns = job.cfg.bench->columns;
    if (!job.cfg.json) {
        printf(columns == LATENCY || columns == COLLECTIVE ? "%-10ld%18.3f" : "%-10ld%18.2f", bytes, v[0]);
        if (columns == RATE)
            printf("%18.2f", v[1]);
        else if (columns == COLLECTIVE)
            printf("%18.3f%18.3f", v[1], v[2]);
        printf("\n");
    } else if (columns == LATENCY) {
        object(bytes, v[0], "us", NULL);
    } else if (columns == COLLECTIVE) {
        object(bytes, v[0], "us", v + 1);
    } else {
        object(bytes, v[0], "MB/s", NULL);
        if (columns == RATE)
            object(bytes, v[1], "msg/s", NULL);
    }
    fflush(stdout);
}
