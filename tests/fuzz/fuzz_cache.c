/* SPDX-License-Identifier: MIT */
/*
 * The cache that is kept, as another run has left it: the input is a byte that says whether the
 * entries get the sums that they should have and whether it is trimmed, a few entries, and what is
 * behind them. It is listed and verified, and an object is put into it.
 */
#include <weightfs/cachestore.h>
#include <weightfs/io.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* As cachestore.h draws it. */
enum {
    N_ENTRIES = 6,
    ENTRY = 64,
    N_HASHED = 56,
    HASH_SEED = 18,
    ENTRIES_AT = 4096,
    TEXTS_AT = ENTRIES_AT + CACHESTORE_ENTRIES * ENTRY,
    OBJECTS_AT = TEXTS_AT + CACHESTORE_ENTRIES * CACHESTORE_TEXT,
    N_OBJECT = 3 * CACHEFILE_PIECE + 100,
};

static void put(int fd, const void *bytes, size_t n_bytes, uint64_t offset)
{
    size_t n_written;
    if (n_bytes > 0 && io_write_at(fd, bytes, n_bytes, offset, &n_written) < 0)
        abort();
}

/* Makes the store that the input describes. */
static int make(const uint8_t *data, size_t n_bytes)
{
    static int fd;
    uint8_t entries[(N_ENTRIES + 1) * ENTRY] = {0}; /* the last one is that of the run before */
    if (fd == 0 && ((fd = memfd_create("cache", 0)) < 0 || cachestore_make(fd) < 0))
        abort();
    if (ftruncate(fd, OBJECTS_AT) < 0)
        abort();
    const bool has_sums = n_bytes > 0 && (data[0] & 1) != 0;
    data += n_bytes > 0;
    n_bytes -= n_bytes > 0;
    const size_t n = n_bytes < N_ENTRIES * ENTRY ? n_bytes : N_ENTRIES * ENTRY;
    memcpy(entries, data, n);
    for (size_t i = 0; has_sums && (i + 1) * ENTRY <= n; i++) {
        uint8_t *entry = entries + i * ENTRY;
        store_le64(entry + N_HASHED, hash_bytes(entry, N_HASHED, HASH_SEED));
    }
    put(fd, entries, sizeof(entries), ENTRIES_AT);
    put(fd, data + n, n_bytes - n, OBJECTS_AT);
    return fd;
}

/* Looks at all objects; returns how many of them have a byte in common with *cache. */
static unsigned look(int fd, const struct cachefile *cache)
{
    unsigned n_shared = 0;
    for (unsigned i = 0; i < N_ENTRIES + 1; i++) {
        char text[CACHESTORE_TEXT];
        uint8_t byte;
        uint64_t opened;
        struct cachefile other;
        if (cachestore_entry(fd, i, &other, &opened, text) != 1)
            continue;
        if (cachefile_count(&other) > other.n_bytes)
            abort();
        (void)cachefile_read(&other, 0, &byte, other.n_bytes > 0 ? 1 : 0);
        if (cachefile_verify(&other, 0, other.n_bytes) >= 0 &&
            cachefile_verify(&other, 0, other.n_bytes) > 0)
            abort(); /* what was damaged is gone */
        n_shared += cache->base < cachefile_end(&other) && other.base < cachefile_end(cache);
    }
    return n_shared;
}

/* Puts an object in, and reads it back. */
static void use(int fd)
{
    uint8_t bytes[N_OBJECT], again[N_OBJECT];
    struct cachefile cache = {0};
    memset(bytes, 'x', sizeof(bytes));
    if (cachestore_place(fd, "http://host.example/x", 1, N_OBJECT, 2, &cache) < 0)
        return;
    if (cache.n_bytes != N_OBJECT || cache.base < OBJECTS_AT || look(fd, &cache) != 1)
        abort();
    if (cachefile_write(&cache, 0, bytes, N_OBJECT) < 0 ||
        cachefile_mark(&cache, 0, N_OBJECT, bytes, N_OBJECT) < 0)
        return;
    if (cachefile_read(&cache, 0, again, N_OBJECT) != 1 || memcmp(bytes, again, N_OBJECT) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const struct cachefile nothing = {0};
    const int fd = make(data, n_bytes);
    (void)look(fd, &nothing);
    use(fd);
    if (n_bytes > 0 && (data[0] & 2) != 0)
        (void)cachestore_trim(fd, CACHEFILE_PIECE);
    return 0;
}
