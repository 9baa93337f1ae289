/* SPDX-License-Identifier: MIT */
/*
 * Readers beside one that waits for the network with what they all need.
 */
#include "archive/derived.h"
#include "base/reader_lock.h"
#include "compute/patch.h"

#include "check.h"

#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

enum { N = 300000, N_DOUBLES = 1000 };

static atomic_bool is_stalled, is_waiting;
static uint8_t plain[N], packed[N];

static bool is_stopped(void *ctx)
{
    return atomic_load((atomic_bool *)ctx);
}

/* As a read of what has not been fetched: who can be stopped waits, others never do. */
static void read_slowly(const struct wfs_io *io)
{
    while (wfs_io_can_stop(io) && atomic_load(&is_stalled)) {
        atomic_store(&is_waiting, true);
        usleep(1000);
    }
}

static int read_packed(const struct source *source, const struct wfs_io *io, uint64_t offset,
                       void *buf, size_t n_bytes)
{
    read_slowly(io);
    memcpy(buf, packed + offset, n_bytes);
    return 0;
}

static int fill(void *ctx, double *to)
{
    read_slowly(ctx);
    for (size_t i = 0; i < N_DOUBLES; i++)
        to[i] = (double)i;
    return 0;
}

/* What readers share. Each takes it and returns 0 when it is right. */
static struct source *derived;
static uint64_t at_derived;
static struct reader_lock lock;

static int take_inflated(const struct wfs_io *io)
{
    static const size_t at = 12345, n = 1000;
    uint8_t bytes[1000];
    const int code = source_read_for(io, derived, at_derived + at, bytes, n);
    return code < 0 ? code : memcmp(bytes, plain + at, n);
}

static int take_shelf(const struct wfs_io *io)
{
    const struct shelf_key key = {1, 2, 3};
    const double *array;
    int code = shelf_take(io, &key, N_DOUBLES, fill, (void *)io, &array);
    if (code < 0)
        return code;
    code = array[N_DOUBLES - 1] == N_DOUBLES - 1 ? 0 : 1;
    shelf_give_back(array);
    return code;
}

static int take_lock(const struct wfs_io *io)
{
    const int code = reader_lock_take(&lock, io, false);
    if (code < 0)
        return code;
    read_slowly(io);
    reader_lock_release(&lock);
    return 0;
}

struct reader {
    int (*take)(const struct wfs_io *io);
    atomic_bool is_stopped;
    pthread_t thread;
    int code;
};

static void *live(void *ctx)
{
    struct reader *reader = ctx;
    const struct wfs_io io = {.is_stopped = is_stopped, .ctx = &reader->is_stopped};
    reader->code = reader->take(&io);
    return NULL;
}

static void start(struct reader *reader, int (*take)(const struct wfs_io *io))
{
    *reader = (struct reader){.take = take};
    check_int(pthread_create(&reader->thread, NULL, live, reader), 0);
}

static int finish(struct reader *reader)
{
    pthread_join(reader->thread, NULL);
    return reader->code;
}

/* While one waits, a reader that is stopped ends, and one that cannot be ends with `unstopped`. */
static void check_beside(int (*take)(const struct wfs_io *io), int unstopped)
{
    struct reader first, second;
    atomic_store(&is_stalled, true);
    atomic_store(&is_waiting, false);
    start(&first, take);
    while (!atomic_load(&is_waiting))
        usleep(1000);
    check_int(take(NULL), unstopped);
    start(&second, take);
    usleep(10000);
    atomic_store(&second.is_stopped, true);
    check_int(finish(&second), -EINTR);
    atomic_store(&is_stalled, false);
    check_int(finish(&first), 0);
    check_int(take(NULL), 0);
}

static void an_inflated_stream(void)
{
    z_stream z = {0};
    struct source *origin;
    static const struct source_kind kind = {.read = read_packed};
    for (size_t i = 0; i < N; i++)
        plain[i] = (uint8_t)(i * 2654435761u >> 13 & 0x1f);
    deflateInit2(&z, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    z.next_in = plain;
    z.avail_in = N;
    z.next_out = packed;
    z.avail_out = N;
    check_int(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    const struct deflated member = {.offset = 0, .n_packed = z.total_out, .n_bytes = N};
    check_int(source_new(&kind, "m", plain, z.total_out, &origin), 0);
    check_int(derived_new(origin, &derived), 0);
    check_int(derived_add_deflated(derived, &member, &at_derived), 0);
    check_beside(take_inflated, 0);
    source_free(derived);
    source_free(origin);
}

static void an_array_on_the_shelf(void)
{
    check_beside(take_shelf, 0);
    shelf_forget(1);
}

static void a_lock(void)
{
    struct reader first;
    reader_lock_init(&lock);
    check_beside(take_lock, -EBUSY);
    atomic_store(&is_stalled, true);
    atomic_store(&is_waiting, false);
    start(&first, take_lock);
    while (!atomic_load(&is_waiting))
        usleep(1000);
    atomic_bool never = false;
    const struct wfs_io io = {.is_stopped = is_stopped, .ctx = &never};
    check_int(reader_lock_take(&lock, &io, true), -EBUSY); /* it gives up */
    atomic_store(&is_stalled, false);
    check_int(finish(&first), 0);
    reader_lock_done(&lock);
}

int main(void)
{
    check_run(an_inflated_stream);
    check_run(an_array_on_the_shelf);
    check_run(a_lock);
    return check_done();
}
