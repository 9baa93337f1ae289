/* SPDX-License-Identifier: MIT */
/*
 * A band is made when a reader is at its start, comes from the one before, or has been in it
 * already; the first read at a random place is served by itself. Two readers that need the same
 * band make it once. The next one is made ahead when a thread is lent for that.
 */
#include "tensor/band.h"

#include <weightfs/interruption.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/hash.h"
#include "base/source.h"
#include "base/unfetched.h"
#include "tensor/gather.h"

enum {
    N_BANDS = 64,
    N_BANDS_EACH = 2,  /* of one tensor, while it is read forward */
    BUDGET = 64 << 20, /* bytes of all bands together */
    HUGE_PAGE = 2 << 20,
    PART_BEFORE_NEXT = 8, /* the next band is made ahead after this part of the one before */
};

enum state { FREE, NOTED, MAKING, READY };

struct band {
    enum state state;
    uint64_t tensor; /* see identify */
    uint64_t index;
    uint64_t used; /* when last: larger is later */
    unsigned n_users;
    size_t n_bytes;
    char *bytes; /* NULL unless MAKING or READY */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t made;
    struct band bands[N_BANDS];
    uint64_t n_uses;
    size_t n_bytes;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER, .made = PTHREAD_COND_INITIALIZER};

/* A hash of all that the shown content depends on. The id of a source is never used again. */
static uint64_t identify(const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    const uint64_t parts[] = {stored->source->id,  stored->offset,        stored->dtype,
                              tensor->dtype,       stored->is_big_endian, stored->is_conjugate,
                              stored->is_negative, tensor->shape.rank};
    const size_t n_dims = tensor->shape.rank * sizeof(uint64_t);
    uint64_t hash = hash_bytes(parts, sizeof(parts), hash_seed());
    if (n_dims > 0)
        hash = hash_bytes(tensor->shape.dims, n_dims, hash);
    return n_dims > 0 && stored->strides != NULL ? hash_bytes(stored->strides, n_dims, hash) : hash;
}

static struct band *find(uint64_t tensor, uint64_t index)
{
    for (size_t i = 0; i < N_BANDS; i++) {
        struct band *band = &cache.bands[i];
        if (band->state != FREE && band->tensor == tensor && band->index == index)
            return band;
    }
    return NULL;
}

static void forget(struct band *band)
{
    free(band->bytes);
    cache.n_bytes -= band->bytes != NULL ? band->n_bytes : 0;
    *band = (struct band){.state = FREE};
}

/* The free one, else the one not in use that was used longest ago; NULL when all are in use. */
static struct band *oldest(bool with_bytes)
{
    struct band *best = NULL;
    for (size_t i = 0; i < N_BANDS; i++) {
        struct band *band = &cache.bands[i];
        if (band->state == MAKING || band->n_users > 0 || (with_bytes && band->bytes == NULL))
            continue;
        if (best == NULL || band->used < best->used)
            best = band;
    }
    return best;
}

static struct band *note(uint64_t tensor, uint64_t index)
{
    struct band *band = oldest(false);
    if (band == NULL)
        return NULL;
    forget(band);
    *band = (struct band){NOTED, tensor, index, ++cache.n_uses, 0, 0, NULL};
    return band;
}

/* A reader who goes forward leaves bands behind: the oldest of the tensor's, when it has several.
 */
static struct band *left_behind(uint64_t tensor, size_t n_bytes)
{
    struct band *best = NULL;
    size_t n_bands = 0;
    for (size_t i = 0; i < N_BANDS; i++) {
        struct band *band = &cache.bands[i];
        if (band->bytes == NULL || band->tensor != tensor)
            continue;
        n_bands++;
        if (band->state == READY && band->n_users == 0 && band->n_bytes == n_bytes &&
            (best == NULL || band->used < best->used))
            best = band;
    }
    return n_bands < N_BANDS_EACH ? NULL : best;
}

/* Bands are written across: fewer pages are fewer misses. */
static char *allocate(size_t n_bytes)
{
    if (n_bytes < HUGE_PAGE)
        return malloc(n_bytes);
    const size_t n_room = (n_bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    char *bytes = aligned_alloc(HUGE_PAGE, n_room);
    if (bytes != NULL)
        (void)madvise(bytes, n_room, MADV_HUGEPAGE);
    return bytes;
}

/* Room for the bytes of a band of the tensor, or NULL. */
static char *take_room(uint64_t tensor, size_t n_bytes)
{
    struct band *behind = left_behind(tensor, n_bytes);
    if (behind != NULL) {
        char *bytes = behind->bytes;
        *behind = (struct band){.state = FREE};
        return bytes;
    }
    while (cache.n_bytes + n_bytes > BUDGET) {
        struct band *band = oldest(true);
        if (band == NULL)
            return NULL;
        forget(band);
    }
    char *bytes = allocate(n_bytes);
    cache.n_bytes += bytes != NULL ? n_bytes : 0;
    return bytes;
}

/* Under the lock, which is released while the bytes are made. */
static void make(struct band *band, const struct wfs_tensor *tensor, uint64_t n_band)
{
    const uint64_t start = band->index * n_band, n_left = tensor->n_bytes - start;
    const size_t n_bytes = n_left < n_band ? (size_t)n_left : (size_t)n_band;
    char *bytes = take_room(band->tensor, n_bytes);
    if (bytes == NULL)
        return;
    band->state = MAKING;
    band->bytes = bytes;
    band->n_bytes = n_bytes;
    pthread_mutex_unlock(&cache.lock);
    const int code = gather(tensor, start, bytes, n_bytes);
    pthread_mutex_lock(&cache.lock);
    band->state = READY;
    if (code < 0)
        forget(band);
    pthread_cond_broadcast(&cache.made);
}

/* Waits a little for a band that another thread makes. Returns false when nobody waits for this one
 * any more. */
static bool wait_for_news(void)
{
    enum { NS_TO_ASK = 50000000, NS = 1000000000 };
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += NS_TO_ASK;
    until.tv_sec += until.tv_nsec / NS;
    until.tv_nsec %= NS;
    pthread_cond_timedwait(&cache.made, &cache.lock, &until);
    return wfs_interruption_check() == 0;
}

/* The band with its bytes and one more user, or NULL when the caller should gather for himself. */
static struct band *acquire(const struct wfs_tensor *tensor, uint64_t index, uint64_t n_band,
                            bool at_start)
{
    const uint64_t id = identify(tensor);
    struct band *band = find(id, index);
    while (band != NULL && band->state == MAKING) {
        if (unfetched_is_refused() || !wait_for_news())
            return NULL;
        band = find(id, index);
    }
    const struct band *before = index == 0 ? NULL : find(id, index - 1);
    const bool is_wanted = at_start || band != NULL || (before != NULL && before->state == READY);
    if (band == NULL)
        band = note(id, index);
    if (band != NULL && band->state == NOTED && is_wanted)
        make(band, tensor, n_band);
    if (band == NULL || band->state != READY)
        return NULL;
    band->used = ++cache.n_uses;
    band->n_users++;
    return band;
}

static void release(struct band *band)
{
    pthread_mutex_lock(&cache.lock);
    band->n_users--;
    pthread_mutex_unlock(&cache.lock);
}

/* A piece inside of one band. */
static int read_piece(const struct wfs_tensor *tensor, uint64_t offset, char *buf, size_t n_bytes,
                      uint64_t n_band)
{
    pthread_mutex_lock(&cache.lock);
    struct band *band = acquire(tensor, offset / n_band, n_band, offset % n_band == 0);
    pthread_mutex_unlock(&cache.lock);
    if (band == NULL)
        return gather(tensor, offset, buf, n_bytes);
    memcpy(buf, band->bytes + offset % n_band, n_bytes);
    release(band);
    return source_check(tensor->stored.source);
}

int band_read(const struct wfs_tensor *tensor, uint64_t offset, void *buf, size_t n_bytes)
{
    const uint64_t n_band = gather_band_bytes(tensor);
    if (n_band == 0)
        return gather(tensor, offset, buf, n_bytes);
    char *out = buf;
    while (n_bytes > 0) {
        const uint64_t n_left = n_band - offset % n_band;
        const size_t n = n_bytes < n_left ? n_bytes : (size_t)n_left;
        const bool is_whole =
            offset % n_band == 0 && (n == n_left || offset + n == tensor->n_bytes);
        const int code =
            is_whole ? gather(tensor, offset, out, n) : read_piece(tensor, offset, out, n, n_band);
        if (code < 0)
            return code;
        out += n;
        offset += n;
        n_bytes -= n;
    }
    return 0;
}

void band_read_ahead(const struct wfs_tensor *tensor, uint64_t offset)
{
    const uint64_t n_band = gather_band_bytes(tensor);
    if (n_band == 0 || offset % n_band < n_band / PART_BEFORE_NEXT ||
        tensor->n_bytes - offset <= n_band - offset % n_band)
        return;
    const uint64_t id = identify(tensor), index = offset / n_band;
    pthread_mutex_lock(&cache.lock);
    const struct band *here = find(id, index);
    const bool is_here = here != NULL && here->state == READY;
    struct band *next = find(id, index + 1);
    if (is_here && next == NULL)
        next = note(id, index + 1);
    if (is_here && next != NULL && next->state == NOTED)
        make(next, tensor, n_band);
    pthread_mutex_unlock(&cache.lock);
}
