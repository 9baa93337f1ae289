/* SPDX-License-Identifier: MIT */
/*
 * src/archive: finding entries, and reading deflated ones in any order, from
 * many threads, as the bytes that went in.
 */
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <zlib.h>

#include "archive/derived.h"
#include "archive/zip.h"

static struct source *file;
static struct limits limits;

static int open_file(struct zip *zip, const char *path, struct wfs_error *err)
{
    limits_init(&limits);
    if (!check_int(source_open(path, &file, err), 0))
        return -1;
    return zip_open(zip, file, 0, file->n_bytes, &limits, err);
}

static void close_file(struct zip *zip)
{
    zip_close(zip);
    source_free(file);
}

static void entries_are_found_by_their_exact_names(void)
{
    struct zip zip;
    struct wfs_error err = {0};
    if (check_int(open_file(&zip, "tests/data/reject/pytorch/zip/50-zip64.pth", &err), 0)) {
        check_uint(zip.n_entries, 4);
        check(zip_find(&zip, "m/data.pkl", 10) != NULL);
        check(zip_find(&zip, "M/data.pkl", 10) == NULL);
        check(zip_find(&zip, "m/data.pk", 9) == NULL);
        check(zip_find(&zip, "", 0) == NULL);
        struct zip_entry *entry = zip_find(&zip, "m/version", 9);
        if (check(entry != NULL) && check_int(zip_locate(&zip, entry, &err), 0)) {
            char text[2];
            check_uint(entry->n_bytes, 2);
            check_int(source_read(file, entry->data, text, 2), 0);
            check_bytes(text, "3\n", 2);
            check_uint(entry->data % 64, 0);
        }
        for (uint32_t i = 1; i < zip.n_entries; i++)
            check(zip.entries[i - 1].header < zip.entries[i].header);
    }
    close_file(&zip);
}

static void errors_name_the_entry(void)
{
    static const struct {
        const char *path;
        int code;
        const char *text;
    } cases[] = {
        {"44-duplicate.pth", -EBADMSG, "zip: duplicate entry: m/data/0 and m/data/0"},
        {"45-overlap.pth", -EBADMSG, "zip: entries m/data.pkl and m/byteorder overlap"},
        {"54-multi-disk.pth", -EOPNOTSUPP, "multi-part zips are not supported"},
        {"50-zip64-disagrees.pth", -EBADMSG, "zip: its two end records disagree"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct zip zip;
        struct wfs_error err = {0};
        char path[256];
        snprintf(path, sizeof(path), "tests/data/reject/pytorch/zip/%s", cases[i].path);
        check_int(open_file(&zip, path, &err), cases[i].code);
        check_str(err.text, cases[i].text);
        close_file(&zip);
    }
}

/* Bytes that deflate well but not too well. */
static uint8_t *make_plain(size_t n)
{
    uint8_t *plain = malloc(n);
    uint32_t state = 12345;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        plain[i] = (uint8_t)(i % 4 == 0 ? state >> 24 : i >> 12);
    }
    return plain;
}

static uint8_t *deflate_all(const uint8_t *plain, size_t n, size_t *ret_n)
{
    z_stream z = {0};
    deflateInit2(&z, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    *ret_n = deflateBound(&z, n);
    uint8_t *packed = malloc(*ret_n);
    z.next_in = (uint8_t *)(uintptr_t)plain;
    z.avail_in = (uInt)n;
    z.next_out = packed;
    z.avail_out = (uInt)*ret_n;
    check_int(deflate(&z, Z_FINISH), Z_STREAM_END);
    *ret_n = z.total_out;
    deflateEnd(&z);
    return packed;
}

enum { N_PLAIN = 5000000, N_THREADS = 4, N_READS = 40 };

struct shared {
    struct source *derived;
    uint64_t offset;
    const uint8_t *plain;
    unsigned seed;
    bool is_good;
};

static void *read_at_random(void *ctx)
{
    struct shared *shared = ctx;
    uint8_t *buf = malloc(300000);
    uint32_t state = shared->seed;
    shared->is_good = true;
    for (unsigned i = 0; i < N_READS; i++) {
        state = state * 1664525 + 1013904223;
        const size_t offset = state % (N_PLAIN - 300000), n = (state >> 7) % 300000;
        shared->is_good = shared->is_good &&
                          source_read(shared->derived, shared->offset + offset, buf, n) == 0 &&
                          memcmp(buf, shared->plain + offset, n) == 0;
    }
    free(buf);
    return NULL;
}

static void deflated_bytes_are_read_in_any_order(void)
{
    size_t n_packed;
    uint8_t *plain = make_plain(N_PLAIN), *packed = deflate_all(plain, N_PLAIN, &n_packed);
    struct source *source, *derived;
    struct shared shared[N_THREADS];
    pthread_t threads[N_THREADS];
    check_int(source_new_memory("x", packed, n_packed, &source), 0);
    check_int(derived_new(source, &derived), 0);
    const struct deflated member = {0, n_packed, N_PLAIN};
    for (unsigned i = 0; i < N_THREADS; i++) {
        shared[i] = (struct shared){.derived = derived, .plain = plain, .seed = i + 1};
        check_int(derived_add_deflated(derived, &member, &shared[i].offset), 0);
    }
    shared[1].offset = shared[0].offset; /* two on the same member */
    for (unsigned i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, read_at_random, &shared[i]);
    for (unsigned i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        check(shared[i].is_good);
    }
    uint8_t byte;
    check_int(source_read(derived, shared[0].offset + N_PLAIN - 1, &byte, 1), 0);
    check_uint(byte, plain[N_PLAIN - 1]);
    check_int(source_read(derived, shared[0].offset + N_PLAIN, &byte, 1), -EIO);
    check_int(source_read(derived, shared[0].offset - 1, &byte, 1), -EIO);
    source_free(derived);
    source_free(source);
    free(packed);
    free(plain);
}

static void damaged_deflate_is_an_error(void)
{
    enum { N = 100000 };
    size_t n_packed;
    uint8_t buf[16], *plain = make_plain(N), *packed = deflate_all(plain, N, &n_packed);
    struct source *source, *derived;
    struct inflated found;
    uint64_t at[4];
    check_int(source_new_memory("x", packed, n_packed, &source), 0);
    check_int(derived_new(source, &derived), 0);
    const struct deflated good = {0, n_packed, N}, cut = {0, n_packed / 2, N},
                          more = {0, n_packed, N + 5}, less = {0, n_packed, N - 5};
    check_int(inflate_all(source, &good, &found), 0);
    check_uint(found.n_bytes, N);
    check_uint(found.crc, crc32(0, plain, N));
    check_int(inflate_all(source, &cut, &found), -EBADMSG);
    check_int(inflate_all(source, &more, &found), 0);
    check_uint(found.n_bytes, N);
    check_int(inflate_all(source, &less, &found), 0);
    check_uint(found.n_bytes, N - 4);
    check_int(derived_add_deflated(derived, &cut, &at[0]), 0);
    check_int(derived_add_deflated(derived, &more, &at[1]), 0);
    check_int(derived_add_deflated(derived, &good, &at[2]), 0);
    check_int(derived_add_deflated(derived, &good, &at[3]), 0);
    check_int(source_read(derived, at[0], buf, sizeof(buf)), -EBADMSG);
    check_int(source_read(derived, at[1], buf, sizeof(buf)), -EBADMSG);
    check_int(source_read(derived, at[2] + 50000, buf, sizeof(buf)), 0);
    check_bytes(buf, plain + 50000, sizeof(buf));
    packed[n_packed / 3] ^= 0x55;
    check(source_read(derived, at[3] + N - 16, buf, sizeof(buf)) != 0 ||
          memcmp(buf, plain + N - 16, 16) != 0);
    source_free(derived);
    source_free(source);
    free(packed);
    free(plain);
}

static void bytes_and_tensors_are_sources_too(void)
{
    static const uint8_t bytes[] = {0, 1, 2, 3, 4, 5};
    struct source *source, *derived;
    uint64_t in_memory, gathered;
    uint8_t buf[6];
    check_int(source_new_memory("x", bytes, sizeof(bytes), &source), 0);
    check_int(derived_new(source, &derived), 0);
    uint8_t *copy = malloc(3);
    memcpy(copy, "abc", 3);
    check_int(derived_add_memory(derived, copy, 3, &in_memory), 0);
    const uint64_t dims[2] = {3, 2}, strides[2] = {1, 3};
    const struct wfs_tensor tensor = {
        .key = "",
        .shape = {2, dims},
        .n_bytes = 6,
        .stored = {.source = source, .strides = strides, .dtype = WFS_U8},
        .dtype = WFS_U8,
    };
    check_int(derived_add_tensor(derived, &tensor, &gathered), 0);
    check_int(source_read(derived, in_memory, buf, 3), 0);
    check_bytes(buf, "abc", 3);
    check_int(source_read(derived, gathered, buf, 6), 0);
    check_bytes(buf, "\0\3\1\4\2\5", 6);
    check_int(source_read(derived, gathered + 2, buf, 3), 0);
    check_bytes(buf, "\1\4\2", 3);
    check_int(source_read(derived, in_memory + 2, buf, 2), -EIO);
    source_free(derived);
    source_free(source);
}

int main(void)
{
    check_run(entries_are_found_by_their_exact_names);
    check_run(errors_name_the_entry);
    check_run(deflated_bytes_are_read_in_any_order);
    check_run(damaged_deflate_is_an_error);
    check_run(bytes_and_tensors_are_sources_too);
    return check_done();
}
