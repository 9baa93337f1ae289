/* SPDX-License-Identifier: MIT */
/*
 * The limits of the loaders hold for what they keep; this one is for everything.
 */
#include "program/memory.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { N_ROOM = 512 << 20 };

static rlim_t n_bytes_of(const char *const *limits, size_t n_limits)
{
    static const char name[] = "index_memory=";
    uint64_t n_bytes = 2ull << 30;
    for (size_t i = 0; i < n_limits; i++) {
        if (strncmp(limits[i], name, strlen(name)) == 0)
            n_bytes = strtoull(limits[i] + strlen(name), NULL, 10);
    }
    return n_bytes < RLIM_INFINITY - N_ROOM ? n_bytes + N_ROOM : RLIM_INFINITY;
}

/*
 * All threads allocate from one arena: for another one, the C library takes 128 MiB of address
 * space for a moment and keeps 64 MiB, and whatever else needs some at that moment gets ENOMEM.
 */
void memory_limit(const char *const *limits, size_t n_limits)
{
    struct rlimit limit;
    const rlim_t n_bytes = n_bytes_of(limits, n_limits);
    mallopt(M_ARENA_MAX, 1);
    if (WFS_INSTRUMENTED || getrlimit(RLIMIT_AS, &limit) < 0 || n_bytes >= limit.rlim_cur)
        return;
    limit.rlim_cur = n_bytes;
    setrlimit(RLIMIT_AS, &limit);
}
