#include "bench.h"

#include <stdlib.h>

static const long line_bytes = 64, page_bytes = 4096;

/* fresh_stride is how far apart fresh buffers are: each has pages of its own, and they do not all
 * begin at the same place of the cache. */
static long fresh_stride(long bytes) {
    long n = (bytes + line_bytes - 1) / line_bytes * line_bytes;
    return (n > page_bytes ? n : page_bytes) + line_bytes;
}

void pool_open(struct pool *p, long bytes) {
    p->fresh = job.cfg.fresh && bytes > 0;
    p->length = bytes;
    if (p->fresh) {
        long stride = fresh_stride(bytes);
        p->length = job.cfg.pool_bytes > stride ? job.cfg.pool_bytes : stride;
    }
    void *mem = NULL;
    if (job.cfg.alloc)
        MPI_Alloc_mem(p->length, MPI_INFO_NULL, &mem);
    else if (posix_memalign(&mem, page_bytes, p->length ? p->length : 1))
        fail("no memory for the buffers");
    p->mem = mem;
    for (long i = 0; i < p->length; i++)
        p->mem[i] = i & 0x3f; /* no page is touched for the first time later on */
    pool_resize(p, bytes);
}

void pool_close(struct pool *p) {
    if (job.cfg.alloc)
        MPI_Free_mem(p->mem);
    else
        free(p->mem);
}

/* pool_resize sets the length of the buffers. */
void pool_resize(struct pool *p, long bytes) {
    p->bytes = bytes;
    p->stride = fresh_stride(bytes);
    p->at = 0;
    p->now = p->mem;
}

void pool_advance(struct pool *p) {
    p->at += p->stride;
    if (p->at + p->bytes > p->length)
        p->at = 0;
    p->now = p->mem + p->at;
}

void pool_mark(struct pool *p) { p->marked = p->at; }

int pool_since_mark(struct pool *p, long n, int (*f)(unsigned char *buf, long bytes, int seed), int seed) {
    long was = p->at;
    int result = 0;
    p->at = p->marked;
    p->now = p->mem + p->at;
    while (n-- > 0 && !result) {
        result = f(pool_take(p), p->bytes, seed);
        if (p->at == p->marked)
            break;
    }
    p->at = was;
    p->now = p->mem + was;
    return result;
}
