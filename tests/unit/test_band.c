/* SPDX-License-Identifier: MIT */
/*
 * Reads across the stored order, large enough to meet tiles and bands: every permutation, sizes
 * around the limits, forward, backward and at random, several readers at once.
 */
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include <weightfs/cleanup.h>
#include <weightfs/tensor.h>

#include "base/source.h"
#include "tensor/cast.h"
#include "tensor/gather.h"

struct sample {
    uint64_t dims[4], strides[4];
    struct source *source;
    struct wfs_tensor tensor;
    char *file, *want;
};

/* A dense file of the stored shape, shown with its dimensions in the order of `permutation`. */
static void sample_init(struct sample *sample, uint32_t rank, const uint64_t *stored,
                        const uint32_t *permutation, enum wfs_dtype from, enum wfs_dtype to)
{
    uint64_t strides[4], n = 1;
    const size_t n_in = wfs_dtype_bits(from) / 8, n_out = wfs_dtype_bits(to) / 8;
    for (uint32_t i = rank; i-- > 0; n *= stored[i])
        strides[i] = n;
    sample->file = malloc(n * n_in);
    for (uint64_t i = 0; i < n * n_in; i++)
        sample->file[i] = (char)(i * 2654435761u >> 13 & (i % n_in == n_in - 1 ? 0x3f : 0xff));
    check_int(source_new_memory("m", sample->file, n * n_in, &sample->source), 0);
    for (uint32_t i = 0; i < rank; i++) {
        sample->dims[i] = stored[permutation[i]];
        sample->strides[i] = strides[permutation[i]];
    }
    sample->tensor = (struct wfs_tensor){
        .key = "k",
        .shape = {rank, sample->dims},
        .n_bytes = n * n_out,
        .dtype = (uint8_t)to,
        .stored = {.source = sample->source, .strides = sample->strides, .dtype = (uint8_t)from}};
    sample->want = malloc(n * n_out);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t rest = i, at = 0;
        for (uint32_t d = rank; d-- > 0; rest /= sample->dims[d])
            at += rest % sample->dims[d] * sample->strides[d];
        if (from == to)
            memcpy(sample->want + i * n_out, sample->file + at * n_in, n_in);
        else
            cast_elems(from, sample->file + at * n_in, to, sample->want + i * n_out, 1);
    }
}

static void sample_done(struct sample *sample)
{
    source_free(sample->source);
    free(sample->file);
    free(sample->want);
}

static bool check_range(const struct sample *sample, uint64_t offset, size_t n_bytes)
{
    const uint64_t n_left = sample->tensor.n_bytes - offset;
    const size_t n_want = n_bytes < n_left ? n_bytes : (size_t)n_left;
    autofree char *got = malloc(n_bytes);
    const ssize_t n = wfs_tensor_read(&sample->tensor, offset, got, n_bytes);
    return n == (ssize_t)n_want && memcmp(got, sample->want + offset, n_want) == 0;
}

static void check_all_ways(const struct sample *sample)
{
    static const size_t sizes[] = {4096, 131072, 1 << 20, 100003};
    const uint64_t n = sample->tensor.n_bytes;
    check(check_range(sample, 0, n));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        bool is_ok = true;
        for (uint64_t offset = 0; offset < n; offset += sizes[i])
            is_ok = check_range(sample, offset, sizes[i]) && is_ok;
        check(is_ok);
    }
    bool is_ok = true;
    uint64_t offset = 1;
    for (int i = 0; i < 300; i++) {
        offset = (offset * 6364136223846793005u + 1442695040888963407u);
        is_ok = check_range(sample, (offset >> 20) % n, offset % 5000 + 1) && is_ok;
    }
    check(is_ok);
}

static void check_permutation(uint32_t rank, const uint64_t *stored, const uint32_t *permutation,
                              enum wfs_dtype from, enum wfs_dtype to)
{
    struct sample sample;
    sample_init(&sample, rank, stored, permutation, from, to);
    check_all_ways(&sample);
    sample_done(&sample);
}

static void test_matrices_turned(void)
{
    static const uint32_t turned[] = {1, 0};
    static const uint64_t shapes[][2] = {{700, 1301}, {3, 200000}, {200000, 3}, {1, 9}, {1031, 4}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        check_permutation(2, shapes[i], turned, WFS_F32, WFS_F32);
        check_permutation(2, shapes[i], turned, WFS_U8, WFS_U8);
        check_permutation(2, shapes[i], turned, WFS_F32, WFS_BF16);
        check_permutation(2, shapes[i], turned, WFS_BF16, WFS_F64);
    }
}

static void test_dimensions_permuted(void)
{
    static const uint32_t permutations[][4] = {
        {0, 3, 1, 2}, {3, 2, 1, 0}, {1, 0, 2, 3}, {2, 3, 0, 1}, {0, 1, 3, 2}, {3, 0, 1, 2},
    };
    static const uint64_t stored[] = {23, 61, 17, 40};
    for (size_t i = 0; i < sizeof(permutations) / sizeof(*permutations); i++) {
        check_permutation(4, stored, permutations[i], WFS_F32, WFS_F32);
        check_permutation(4, stored, permutations[i], WFS_C128, WFS_C128);
        check_permutation(4, stored, permutations[i], WFS_F16, WFS_F32);
    }
}

static void test_wide_rows_and_tall_columns_have_bands(void)
{
    const uint64_t dims[] = {4096, 4096}, turned[] = {1, 4096};
    struct wfs_tensor tensor = {.shape = {2, dims},
                                .n_bytes = 64 << 20,
                                .dtype = WFS_F32,
                                .stored = {.dtype = WFS_F32, .strides = turned}};
    const uint64_t n_band = gather_band_bytes(&tensor);
    check(n_band > 0 && n_band <= 32 << 20);
    check_uint(n_band % (4096 * 4), 0);
    tensor.stored.strides = NULL;
    check_uint(gather_band_bytes(&tensor), 0);
}

/* Forward with a second thread's help, which may be anywhere; then at places that were never read.
 */
static void test_reading_ahead_changes_nothing(void)
{
    static const uint32_t turned[] = {1, 0};
    static const uint64_t shape[] = {1024, 2500};
    struct sample sample;
    sample_init(&sample, 2, shape, turned, WFS_F32, WFS_F32);
    bool is_ok = true;
    for (uint64_t offset = 0; offset < sample.tensor.n_bytes; offset += 70001) {
        is_ok = check_range(&sample, offset, 70001) && is_ok;
        wfs_tensor_read_ahead(NULL, &sample.tensor, offset);
        wfs_tensor_read_ahead(NULL, &sample.tensor, (offset * 7919) % sample.tensor.n_bytes);
    }
    check(is_ok);
    wfs_tensor_read_ahead(NULL, &sample.tensor, sample.tensor.n_bytes - 1);
    wfs_tensor_read_ahead(NULL, &sample.tensor, sample.tensor.n_bytes);
    wfs_tensor_read_ahead(NULL, &sample.tensor, UINT64_MAX);
    sample_done(&sample);
}

static void test_a_band_made_ahead_is_not_shown_when_the_source_changes(void)
{
    static const uint32_t turned[] = {1, 0};
    static const uint64_t shape[] = {1024, 2500};
    struct sample sample;
    sample_init(&sample, 2, shape, turned, WFS_F32, WFS_F32);
    const uint64_t n_band = gather_band_bytes(&sample.tensor);
    check(n_band > 0 && 2 * n_band < sample.tensor.n_bytes);
    check(check_range(&sample, 0, 4096));
    wfs_tensor_read_ahead(NULL, &sample.tensor, n_band / 2);
    check(check_range(&sample, n_band, 4096));
    *sample.source->has_changed = true;
    char byte;
    check_int(wfs_tensor_read(&sample.tensor, n_band, &byte, 1), -EIO);
    wfs_tensor_read_ahead(NULL, &sample.tensor, n_band + n_band / 2);
    sample_done(&sample);
}

static void test_pieces_are_whole_bands(void)
{
    static const uint32_t turned[] = {1, 0};
    static const uint64_t shape[] = {1024, 2500};
    struct sample sample;
    sample_init(&sample, 2, shape, turned, WFS_F32, WFS_F32);
    struct wfs_tensor *tensor = &sample.tensor;
    check_uint(wfs_tensor_piece_bytes(tensor), gather_band_bytes(tensor));
    tensor->stored.strides = NULL;
    check_uint(wfs_tensor_piece_bytes(tensor), 1 << 20);
    tensor->n_bytes = 5;
    check_uint(wfs_tensor_piece_bytes(tensor), 5);
    tensor->n_bytes = 0;
    check_uint(wfs_tensor_piece_bytes(tensor), 0);
    sample_done(&sample);
}

static void *read_often(void *ctx)
{
    const struct sample *sample = ctx;
    bool is_ok = true;
    for (uint64_t offset = 0; offset < sample->tensor.n_bytes; offset += 50000)
        is_ok = check_range(sample, offset, 50000) && is_ok;
    return is_ok ? ctx : NULL;
}

static void test_readers_at_once(void)
{
    static const uint32_t turned[] = {1, 0};
    static const uint64_t shape[] = {1024, 1500};
    struct sample sample;
    sample_init(&sample, 2, shape, turned, WFS_F32, WFS_F32);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        check_int(pthread_create(&threads[i], NULL, read_often, &sample), 0);
    for (size_t i = 0; i < 4; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        check(result == &sample);
    }
    sample_done(&sample);
}

static void test_a_short_source_fails_where_it_ends(void)
{
    static const uint32_t turned[] = {1, 0};
    static const uint64_t shape[] = {600, 500};
    struct sample sample;
    sample_init(&sample, 2, shape, turned, WFS_F32, WFS_F32);
    sample.source->n_bytes -= 4; /* the last element is missing */
    char byte;
    check_int(wfs_tensor_read(&sample.tensor, 0, &byte, 1), 1);
    check_int(wfs_tensor_read(&sample.tensor, sample.tensor.n_bytes - 1, &byte, 1), -EIO);
    sample_done(&sample);
}

int main(void)
{
    check_run(test_matrices_turned);
    check_run(test_dimensions_permuted);
    check_run(test_wide_rows_and_tall_columns_have_bands);
    check_run(test_reading_ahead_changes_nothing);
    check_run(test_a_band_made_ahead_is_not_shown_when_the_source_changes);
    check_run(test_pieces_are_whole_bands);
    check_run(test_readers_at_once);
    check_run(test_a_short_source_fails_where_it_ends);
    return check_done();
}
