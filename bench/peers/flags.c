#include "bench.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *mistake;
static size_t mistake_length;

static int complain(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(mistake, mistake_length, format, args);
    va_end(args);
    return MISTAKE;
}

/* parse_number reads a number and, if sizes are wanted, K, M or G after it. */
static int parse_number(const char *text, size_t length, int is_size, long *number) {
    static const char units[] = "KMG";
    char digits[32], *end;
    int shift = 0;
    if (is_size && length > 0) {
        const char *unit = strchr(units, toupper((unsigned char)text[length - 1]));
        if (unit && *unit) {
            shift = 10 * (int)(unit - units + 1);
            length--;
        }
    }
    if (length == 0 || length >= sizeof digits)
        return 0;
    memcpy(digits, text, length);
    digits[length] = 0;
    if (!isdigit((unsigned char)digits[0]))
        return 0;
    errno = 0;
    long n = strtol(digits, &end, 10);
    if (errno || *end || n > LONG_MAX >> shift)
        return 0;
    *number = n << shift;
    return 1;
}

/* parse_span reads MIN:MAX, MIN:, :MAX, or one size, and adds the sizes. */
static int parse_span(const char *text, size_t length, struct config *cfg) {
    const char *name = cfg->bench->name, *end = text + length, *colon = memchr(text, ':', length);
    long unit = cfg->bench->unit, min = unit, max = cfg->bench->max;
    const char *lo_end = colon ? colon : end, *hi = colon ? colon + 1 : end;
    int ok = (colon && text == colon) || parse_number(text, lo_end - text, 1, &min);
    if (!colon)
        max = min;
    else if (hi < end)
        ok = ok && parse_number(hi, end - hi, 1, &max);
    if (!ok)
        return complain("%s: -m \"%.*s\": no size and no range of sizes: 64K, 8:64K", name, (int)length, text);
    if (max > MAX_BYTES)
        return complain("%s: -m \"%.*s\": the largest size is 1G", name, (int)length, text);
    if (min > max)
        return complain("%s: -m \"%.*s\": from %ld to %ld bytes is no range", name, (int)length, text, min, max);
    if (min % unit)
        return complain("%s: -m \"%.*s\": sizes are multiples of %ld bytes, an element", name, (int)length, text, unit);
    for (long bytes = min; bytes <= max; bytes = bytes ? 2 * bytes : unit) {
        if (cfg->size_count == MAX_SIZES)
            return complain("%s: -m: at most %d sizes", name, MAX_SIZES);
        cfg->sizes[cfg->size_count++] = bytes;
        cfg->largest = bytes > cfg->largest ? bytes : cfg->largest;
    }
    return PARSED;
}

static int parse_sizes(const char *text, struct config *cfg) {
    for (;;) {
        size_t length = strcspn(text, ",");
        int parsed = parse_span(text, length, cfg);
        if (parsed != PARSED || !text[length])
            return parsed;
        text += length + 1;
    }
}

struct flag {
    const char *name; /* with one dash; two will do */
    int takes;        /* which benchmarks do */
    int *on;          /* of a flag without a value */
    long *number;     /* of one with a value, with its range */
    long min, max;
    int is_size;
};

int parse(int argc, char **argv, struct config *cfg, char *text, size_t length) {
    mistake = text;
    mistake_length = length;
    *cfg = (struct config){.warm_up = -1, .window = DEFAULT_WINDOW, .pool_bytes = DEFAULT_POOL_BYTES};
    if (argc < 2)
        return complain("which benchmark? -h lists them");
    if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))
        return HELP;
    cfg->bench = find(argv[1]);
    if (!cfg->bench)
        return complain("there is no benchmark \"%s\": -h lists them", argv[1]);
    const struct flag flags[] = {
        {"-i", TAKES_COUNTS, NULL, &cfg->iterations, 1, MAX_ITERATIONS, 0},
        {"-x", TAKES_COUNTS, NULL, &cfg->warm_up, 0, MAX_ITERATIONS, 0},
        {"-W", TAKES_WINDOW, NULL, &cfg->window, 1, MAX_WINDOW, 0},
        {"-unexpected", TAKES_UNEXPECTED, NULL, &cfg->unexpected, 0, 100, 0},
        {"-pool", TAKES_FRESH, NULL, &cfg->pool_bytes, 0, LONG_MAX, 1},
        {"-alloc", TAKES_ALLOC, &cfg->alloc, NULL, 0, 0, 0},
        {"-json", TAKES_COUNTS, &cfg->json, NULL, 0, 0, 0},
        {"-fresh", TAKES_FRESH, &cfg->fresh, NULL, 0, 0, 0},
        {"-two-comms", TAKES_TWO_COMMS, &cfg->two_comms, NULL, 0, 0, 0},
        {"-isend", TAKES_ISEND, &cfg->isend, NULL, 0, 0, 0},
        {"-validate", TAKES_VALIDATE, &cfg->validate, NULL, 0, 0, 0},
        {"-m", TAKES_SIZES, NULL, NULL, 0, 0, 0},
    };
    const char *sizes = NULL;
    for (int i = 2; i < argc; i++) {
        const char *arg = argv[i];
        if (!strcmp(arg, "-h") || !strcmp(arg, "--help"))
            return HELP;
        const char *name = arg[0] == '-' && arg[1] == '-' ? arg + 1 : arg;
        const struct flag *f = flags, *end = flags + sizeof flags / sizeof *flags;
        while (f < end && strcmp(f->name, name))
            f++;
        if (f == end)
            return complain("%s: unexpected argument \"%s\"", cfg->bench->name, arg);
        if (!(f->takes & cfg->bench->flags))
            return complain("%s: %s is not for it", cfg->bench->name, arg);
        if (f->on) {
            *f->on = 1;
            continue;
        }
        if (++i == argc)
            return complain("%s: flag needs an argument: %s", cfg->bench->name, arg);
        if (!f->number) {
            sizes = argv[i];
            continue;
        }
        long n;
        if (!parse_number(argv[i], strlen(argv[i]), f->is_size, &n) || n < f->min || n > f->max)
            return complain("%s: %s %s: it must be a number from %ld to %ld", cfg->bench->name, arg, argv[i], f->min, f->max);
        *f->number = n;
    }
    if (cfg->bench->flags & TAKES_SIZES)
        return parse_sizes(sizes ? sizes : ":", cfg);
    cfg->size_count = 1; /* of 0 bytes */
    return PARSED;
}

/* check_ranks: not 0 if the benchmark is not for so many. */
int check_ranks(const struct config *cfg, int ranks, char *text, size_t length) {
    const struct benchmark *b = cfg->bench;
    mistake = text;
    mistake_length = length;
    if (ranks < b->min_ranks || (b->max_ranks && ranks > b->max_ranks))
        return complain("%s: it takes %s%d ranks, not %d", b->name, b->max_ranks ? "" : "at least ", b->min_ranks, ranks);
    if (b->even && ranks % 2)
        return complain("%s: it takes an even number of ranks, not %d", b->name, ranks);
    return 0;
}

void help(void) {
    printf("Usage: mpirun -n RANKS peer NAME [-m MIN:MAX] [-i ITERATIONS] [-x WARMUP] [-W WINDOW] [--alloc] [--json]\n"
           "       [--fresh] [--pool SIZE] [--unexpected P] [--two-comms] [--isend] [--validate]\n\nNAME:");
    for (const struct benchmark *b = table; b->name; b++)
        printf(" %s", b->name);
    printf("\n");
}
