/* SPDX-License-Identifier: MIT */
/*
 * A sub-byte element is read with its group: the fewest elements that fill whole bytes.
 */
#include "cli/values.h"

#include <weightfs/cleanup.h>
#include <weightfs/distinct.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct element {
    uint8_t bytes[16]; /* of the group */
    size_t n_bytes;
    unsigned position; /* of the element in the group */
    unsigned n_bits;   /* of one element */
};

static int read_element(const struct wfs_tensor *tensor, uint64_t index, struct element *ret)
{
    ret->n_bits = wfs_dtype_bits(tensor->dtype);
    unsigned n_group = 1;
    while (ret->n_bits * n_group % 8 != 0)
        n_group++;
    ret->n_bytes = ret->n_bits * n_group / 8;
    ret->position = (unsigned)(index % n_group);
    const uint64_t offset = index / n_group * ret->n_bytes;
    const ssize_t n = wfs_tensor_read(tensor, offset, ret->bytes, ret->n_bytes);
    if (n < 0)
        return (int)n;
    return (size_t)n == ret->n_bytes ? 0 : -EIO;
}

static uint64_t load(const struct element *element)
{
    uint64_t value = 0;
    for (size_t i = 0; i < element->n_bytes && i < sizeof(value); i++)
        value |= (uint64_t)element->bytes[i] << (8 * i);
    return value;
}

static void format_double(double number, bool is_json, char text[VALUES_TEXT_MAX])
{
    if (isnan(number))
        strcpy(text, is_json ? "\"NaN\"" : "nan");
    else if (isinf(number) && is_json)
        strcpy(text, number > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    else
        snprintf(text, VALUES_TEXT_MAX, is_json ? "%.17g" : "%.6g", number);
}

static void format_bool(const struct element *element, char text[VALUES_TEXT_MAX])
{
    const uint64_t value = load(element);
    if (value > 1)
        snprintf(text, VALUES_TEXT_MAX, "%" PRIu64, value);
    else
        strcpy(text, value == 1 ? "true" : "false");
}

static void format_signed(const struct element *element, char text[VALUES_TEXT_MAX])
{
    const unsigned n_spare = 64 - element->n_bits;
    const int64_t value = (int64_t)(load(element) << n_spare) >> n_spare;
    snprintf(text, VALUES_TEXT_MAX, "%" PRId64, value);
}

static void format_float(const struct element *element, enum wfs_dtype dtype, bool is_json,
                         char text[VALUES_TEXT_MAX])
{
    double numbers[8];
    const size_t n = element->n_bytes * 8 / element->n_bits;
    wfs_dtype_decode(dtype, element->bytes, n, numbers);
    format_double(numbers[element->position], is_json, text);
}

static void format_complex(const struct element *element, enum wfs_dtype dtype, bool is_json,
                           char text[VALUES_TEXT_MAX])
{
    double numbers[2] = {0};
    char re[VALUES_TEXT_MAX], im[VALUES_TEXT_MAX];
    wfs_dtype_decode(wfs_dtype_part(dtype), element->bytes, 2, numbers);
    format_double(numbers[0], is_json, re);
    format_double(numbers[1], is_json, im);
    const bool has_sign = is_json || im[0] == '-';
    snprintf(text, VALUES_TEXT_MAX,
             is_json    ? "[%.30s, %.30s]"
             : has_sign ? "%s%si"
                        : "%s+%si",
             re, im);
}

static void format_bits(const struct element *element, bool is_json, char text[VALUES_TEXT_MAX])
{
    const unsigned shift = element->position * element->n_bits;
    const uint64_t value = load(element) >> shift & ((1ull << element->n_bits) - 1);
    snprintf(text, VALUES_TEXT_MAX, is_json ? "\"0x%0*" PRIx64 "\"" : "0x%0*" PRIx64,
             (int)(element->n_bits + 3) / 4, value);
}

int values_format(const struct wfs_tensor *tensor, uint64_t index, bool is_json,
                  char text[VALUES_TEXT_MAX])
{
    struct element element;
    const int result = read_element(tensor, index, &element);
    if (result < 0)
        return result;
    switch (wfs_dtype_kind(tensor->dtype)) {
    case WFS_KIND_BOOL:
        format_bool(&element, text);
        break;
    case WFS_KIND_UNSIGNED:
        snprintf(text, VALUES_TEXT_MAX, "%" PRIu64, load(&element));
        break;
    case WFS_KIND_SIGNED:
        format_signed(&element, text);
        break;
    case WFS_KIND_FLOAT:
        format_float(&element, tensor->dtype, is_json, text);
        break;
    case WFS_KIND_COMPLEX:
        format_complex(&element, tensor->dtype, is_json, text);
        break;
    case WFS_KIND_BITS:
        format_bits(&element, is_json, text);
        break;
    }
    return 0;
}

void values_format_number(const struct wfs_tensor *tensor, double number,
                          char text[VALUES_TEXT_MAX])
{
    const double exact_max = 9007199254740992.0; /* 2^53: a double holds every integer below */
    if (wfs_dtype_kind(tensor->dtype) == WFS_KIND_FLOAT)
        snprintf(text, VALUES_TEXT_MAX, "%.9g", number);
    else if (fabs(number) < exact_max)
        snprintf(text, VALUES_TEXT_MAX, "%.0f", number);
    else
        snprintf(text, VALUES_TEXT_MAX, "about %.15g", number);
}

uint64_t values_n_elems(const struct wfs_tensor *tensor)
{
    uint64_t n_elems;
    if (tensor->dtype == WFS_OPAQUE)
        return tensor->n_bytes;
    return wfs_shape_count(&tensor->shape, &n_elems) == 0 ? n_elems : 0;
}

/* ---- histogram ---- */

static size_t bin_of(double number, const struct wfs_stats *stats)
{
    double place = (number - stats->min) / (stats->max - stats->min);
    if (isinf(stats->max - stats->min))
        place = (number / 2 - stats->min / 2) / (stats->max / 2 - stats->min / 2);
    const size_t bin = place > 0 ? (size_t)(place * VALUES_N_BINS) : 0;
    return bin < VALUES_N_BINS ? bin : VALUES_N_BINS - 1;
}

struct bins {
    const struct wfs_stats *stats;
    uint64_t *counts;
};

static void count_bins(void *ctx, const double *numbers, size_t n,
                       const struct wfs_distinct *distinct, uint64_t index)
{
    const struct bins *bins = ctx;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(numbers[i]))
            bins->counts[bin_of(numbers[i], bins->stats)] +=
                wfs_distinct_times(distinct, index + i);
    }
}

int values_histogram(const struct wfs_tensor *tensor, const struct wfs_stats *stats,
                     uint64_t counts[VALUES_N_BINS])
{
    struct bins bins = {stats, counts};
    memset(counts, 0, VALUES_N_BINS * sizeof(counts[0]));
    return values_scan(tensor, count_bins, &bins);
}

/* ---- all elements ---- */

static int scan(const struct wfs_distinct *distinct, values_visit visit, void *ctx)
{
    enum { N_CHUNK = 3 << 14 }; /* whole groups of every dtype */
    const struct wfs_tensor *tensor = &distinct->tensor;
    const unsigned n_bits = wfs_dtype_bits(tensor->dtype);
    autofree uint8_t *chunk = malloc(N_CHUNK);
    autofree double *numbers = malloc(N_CHUNK * 8 / n_bits * sizeof(*numbers));
    if (chunk == NULL || numbers == NULL)
        return -ENOMEM;
    for (uint64_t offset = 0, index = 0; offset < tensor->n_bytes;) {
        const ssize_t n = wfs_tensor_read(tensor, offset, chunk, N_CHUNK);
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        const size_t n_elems = (size_t)n * 8 / n_bits;
        wfs_dtype_decode(tensor->dtype, chunk, n_elems, numbers);
        visit(ctx, numbers, n_elems, distinct, index);
        offset += (uint64_t)n;
        index += n_elems;
    }
    return 0;
}

int values_scan(const struct wfs_tensor *tensor, values_visit visit, void *ctx)
{
    cleanup(wfs_distinct_done) struct wfs_distinct distinct;
    const int code = wfs_distinct_init(&distinct, tensor, NULL);
    return code < 0 ? code : scan(&distinct, visit, ctx);
}
