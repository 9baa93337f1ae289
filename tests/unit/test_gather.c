/* SPDX-License-Identifier: MIT */
/*
 * Reading strided tensors against a brute-force model: every element by itself, in 8-byte steps of
 * thought. Random shapes, strides (0 included), types, byte ranges.
 */
#include "check.h"

#include <errno.h>
#include <stdlib.h>

#include <weightfs/cleanup.h>
#include <weightfs/tensor.h>

#include "base/source.h"

enum { MAX_RANK = 6, N_FILE = 1 << 16 };

struct sample {
    uint64_t dims[MAX_RANK], strides[MAX_RANK];
    struct wfs_tensor tensor;
    uint8_t file[N_FILE];
};

static uint32_t random_state = 12345;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)random_state * n >> 32);
}

static void swap_bytes(uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        const uint8_t byte = bytes[i];
        bytes[i] = bytes[n - 1 - i];
        bytes[n - 1 - i] = byte;
    }
}

/* One shown element, by the definition in tensor.h. */
static void model_element(const struct sample *sample, uint64_t index, uint8_t *ret)
{
    const struct wfs_tensor *tensor = &sample->tensor;
    const size_t n_elem = wfs_dtype_bits(tensor->dtype) / 8;
    const enum wfs_kind kind = wfs_dtype_kind(tensor->dtype);
    uint64_t step = 0;
    for (uint32_t i = tensor->shape.rank; i-- > 0;) {
        step += index % sample->dims[i] * sample->strides[i];
        index /= sample->dims[i];
    }
    memcpy(ret, sample->file + tensor->stored.offset + step * n_elem, n_elem);
    const size_t n_parts = kind == WFS_KIND_COMPLEX ? 2 : 1, n_part = n_elem / n_parts;
    for (size_t i = 0; i < n_parts; i++) {
        uint8_t *part = ret + i * n_part;
        if (tensor->stored.is_big_endian)
            swap_bytes(part, n_part);
        const bool is_conjugated = tensor->stored.is_conjugate && i == 1;
        if (tensor->stored.is_negative != is_conjugated)
            part[n_part - 1] ^= 0x80;
    }
}

static void model(const struct sample *sample, uint8_t *ret)
{
    uint64_t n_elems = 0;
    check_int(wfs_shape_count(&sample->tensor.shape, &n_elems), 0);
    const size_t n_elem = wfs_dtype_bits(sample->tensor.dtype) / 8;
    for (uint64_t i = 0; i < n_elems; i++)
        model_element(sample, i, ret + i * n_elem);
}

/* Strides of a permuted dense array, some then set to 0 or widened. */
static void random_strides(struct sample *sample, uint32_t rank)
{
    uint32_t order[MAX_RANK] = {0};
    for (uint32_t i = 0; i < rank; i++) {
        const uint32_t at = random_below(i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    uint64_t step = 1;
    for (uint32_t i = 0; i < rank; i++) {
        const uint64_t dim = sample->dims[order[i]];
        sample->strides[order[i]] = random_below(8) == 0 ? 0 : step;
        step *= dim + (random_below(5) == 0 ? 1 : 0);
    }
}

static void random_sample(struct sample *sample)
{
    static const enum wfs_dtype dtypes[] = {WFS_U8,  WFS_F16, WFS_BF16, WFS_F32,
                                            WFS_F64, WFS_C64, WFS_C128};
    const enum wfs_dtype dtype = dtypes[random_below(7)];
    const uint32_t rank = random_below(MAX_RANK);
    for (uint32_t i = 0; i < rank; i++)
        sample->dims[i] = random_below(4) == 0 ? 1 : 1 + random_below(rank < 3 ? 17 : 5);
    random_strides(sample, rank);
    const bool has_sign = wfs_dtype_kind(dtype) != WFS_KIND_UNSIGNED;
    sample->tensor = (struct wfs_tensor){
        .key = "k",
        .shape = {rank, sample->dims},
        .dtype = (uint8_t)dtype,
        .stored = {.offset = random_below(100),
                   .strides = sample->strides,
                   .dtype = (uint8_t)dtype,
                   .is_big_endian = random_below(2),
                   .is_conjugate = wfs_dtype_kind(dtype) == WFS_KIND_COMPLEX && random_below(2),
                   .is_negative = has_sign && random_below(3) == 0}};
    check_int(wfs_shape_bytes(&sample->tensor.shape, dtype, &sample->tensor.n_bytes), 0);
    check_int(source_new_memory("m", sample->file, N_FILE, &sample->tensor.stored.source), 0);
}

static void check_range(const struct sample *sample, const uint8_t *want, uint64_t offset,
                        size_t n_bytes)
{
    const size_t n_left = (size_t)(sample->tensor.n_bytes - offset);
    const size_t n = n_bytes < n_left ? n_bytes : n_left;
    /* Exactly as long as asked, so that a sanitizer sees a write past the end. */
    autofree uint8_t *got = malloc(n_bytes > 0 ? n_bytes : 1);
    check_int(wfs_tensor_read(&sample->tensor, offset, got, n_bytes), (int64_t)n);
    check_bytes(got, want + offset, n);
}

static void any_range_is_a_slice_of_the_whole(void)
{
    struct sample *sample = calloc(1, sizeof(*sample));
    for (size_t i = 0; i < N_FILE; i++)
        sample->file[i] = (uint8_t)random_below(256);
    for (int round = 0; round < 3000 && check_state.n_failed == 0; round++) {
        random_sample(sample);
        const uint64_t n_bytes = sample->tensor.n_bytes;
        autofree uint8_t *want = malloc(n_bytes);
        model(sample, want);
        check_range(sample, want, 0, n_bytes);
        for (int i = 0; i < 8; i++) {
            const uint64_t offset = random_below((uint32_t)n_bytes);
            check_range(sample, want, offset, random_below((uint32_t)n_bytes + 10));
        }
        source_free(sample->tensor.stored.source);
    }
    free(sample);
}

static void integers_are_negated(void)
{
    const int16_t values[] = {0, 1, -1, 32767, -32768};
    int16_t got[5];
    const uint64_t n = 5;
    struct wfs_tensor tensor = {.key = "k",
                                .shape = {1, &n},
                                .n_bytes = 10,
                                .dtype = WFS_I16,
                                .stored = {.dtype = WFS_I16, .is_negative = true}};
    check_int(source_new_memory("m", values, sizeof(values), &tensor.stored.source), 0);
    check_int(wfs_tensor_read(&tensor, 0, got, sizeof(got)), 10);
    check_bytes(got, ((const int16_t[]){0, -1, 1, -32767, -32768}), sizeof(got));
    source_free(tensor.stored.source);
}

static void ranks_above_64_are_walked_when_most_dims_are_1(void)
{
    uint64_t dims[5000], strides[5000];
    for (size_t i = 0; i < 5000; i++) {
        dims[i] = 1;
        strides[i] = 77;
    }
    dims[3] = 3;
    dims[4000] = 2;
    strides[3] = 1;
    strides[4000] = 3;
    struct wfs_tensor tensor = {.key = "k",
                                .shape = {5000, dims},
                                .n_bytes = 6,
                                .dtype = WFS_U8,
                                .stored = {.dtype = WFS_U8, .strides = strides}};
    char got[7] = "";
    check_int(source_new_memory("m", "abcdef", 6, &tensor.stored.source), 0);
    check_int(wfs_tensor_read(&tensor, 0, got, 6), 6);
    check_str(got, "adbecf");
    source_free(tensor.stored.source);
}

static void sub_byte_tensors_are_read_where_dense(void)
{
    const uint64_t dims[] = {2, 4};
    struct wfs_tensor tensor = {
        .key = "k", .shape = {2, dims}, .n_bytes = 4, .dtype = WFS_F4, .stored = {.dtype = WFS_F4}};
    char got[3] = "";
    check_int(source_new_memory("m", "abcd", 4, &tensor.stored.source), 0);
    check_int(wfs_tensor_read(&tensor, 1, got, 2), 2);
    check_str(got, "bc");
    const uint64_t turned[] = {1, 2};
    tensor.stored.strides = turned;
    check_int(wfs_tensor_read(&tensor, 0, got, 2), -EIO);
    source_free(tensor.stored.source);
}

static void storage_that_ends_early_is_an_error(void)
{
    const uint64_t dims[] = {3, 4}, strides[] = {1, 3};
    struct wfs_tensor tensor = {.key = "k",
                                .shape = {2, dims},
                                .n_bytes = 12,
                                .dtype = WFS_U8,
                                .stored = {.dtype = WFS_U8, .strides = strides}};
    char got[12];
    check_int(source_new_memory("m", "0123456789a", 11, &tensor.stored.source), 0);
    check_int(wfs_tensor_read(&tensor, 0, got, 12), -EIO);
    source_free(tensor.stored.source);
}

static void stride_zero_looks_larger_than_it_is(void)
{
    const uint64_t dims[] = {UINT64_C(1) << 40, 2}, strides[] = {0, 1};
    struct wfs_tensor tensor = {.key = "k",
                                .shape = {2, dims},
                                .n_bytes = UINT64_C(1) << 41,
                                .dtype = WFS_U8,
                                .stored = {.dtype = WFS_U8, .strides = strides}};
    char got[6] = "";
    check_int(source_new_memory("m", "ab", 2, &tensor.stored.source), 0);
    check_int(wfs_tensor_read(&tensor, (UINT64_C(1) << 41) - 5, got, 100), 5);
    check_str(got, "babab");
    source_free(tensor.stored.source);
}

static void dense_tensors_are_plain(void)
{
    const uint64_t dims[] = {2, 1, 3}, dense[] = {3, 99, 1}, turned[] = {1, 1, 2};
    struct wfs_tensor tensor = {
        .key = "k", .shape = {3, dims}, .n_bytes = 6, .dtype = WFS_U8, .stored = {.dtype = WFS_U8}};
    check(wfs_tensor_is_plain(&tensor));
    tensor.stored.strides = dense;
    check(wfs_tensor_is_plain(&tensor));
    tensor.stored.is_big_endian = true; /* of single bytes */
    check(wfs_tensor_is_plain(&tensor));
    tensor.stored.strides = turned;
    check(!wfs_tensor_is_plain(&tensor));
    tensor.stored = (struct wfs_stored){.dtype = WFS_U8, .is_negative = true};
    check(!wfs_tensor_is_plain(&tensor));
}

int main(void)
{
    check_run(any_range_is_a_slice_of_the_whole);
    check_run(integers_are_negated);
    check_run(ranks_above_64_are_walked_when_most_dims_are_1);
    check_run(sub_byte_tensors_are_read_where_dense);
    check_run(storage_that_ends_early_is_an_error);
    check_run(stride_zero_looks_larger_than_it_is);
    check_run(dense_tensors_are_plain);
    return check_done();
}
