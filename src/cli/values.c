/* SPDX-License-Identifier: MIT */
/*
 * A sub-byte element is read with its group: the fewest elements that fill whole bytes.
 */
#include "cli/values.h"

#include <weightfs/cleanup.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

int values_format(const struct wfs_tensor *tensor, uint64_t index, bool is_json,
                  char text[VALUES_TEXT_MAX])
{
    struct element element;
    const int result = read_element(tensor, index, &element);
    if (result < 0)
        return result;
    const unsigned n_bits = element.n_bits, n_spare = 64 - (n_bits < 64 ? n_bits : 64);
    const uint64_t value = load(&element);
    switch (wfs_dtype_kind(tensor->dtype)) {
    case WFS_KIND_BOOL:
        if (value > 1)
            snprintf(text, VALUES_TEXT_MAX, "%" PRIu64, value);
        else
            strcpy(text, value == 1 ? "true" : "false");
        break;
    case WFS_KIND_UNSIGNED:
        snprintf(text, VALUES_TEXT_MAX, "%" PRIu64, value);
        break;
    case WFS_KIND_SIGNED:
        snprintf(text, VALUES_TEXT_MAX, "%" PRId64, (int64_t)(value << n_spare) >> n_spare);
        break;
    case WFS_KIND_FLOAT:
        format_float(&element, tensor->dtype, is_json, text);
        break;
    case WFS_KIND_COMPLEX:
        format_complex(&element, tensor->dtype, is_json, text);
        break;
    case WFS_KIND_BITS:
        snprintf(text, VALUES_TEXT_MAX, is_json ? "\"0x%0*" PRIx64 "\"" : "0x%0*" PRIx64,
                 (int)(n_bits + 3) / 4,
                 value >> element.position * n_bits & (((uint64_t)1 << n_bits) - 1));
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

/* ---- all elements ---- */

enum { N_DECODED = 2048 }; /* elements at a time: whole groups of every dtype */

/* ---- summaries ---- */

int values_summarise(const struct wfs_io *io, const struct wfs_tensor *tensor,
                     struct progress *progress, struct values_summary *ret)
{
    const enum wfs_kind kind = wfs_dtype_kind((enum wfs_dtype)tensor->dtype);
    cleanup(wfs_numbers_done) struct wfs_numbers numbers = {0};
    *ret = (struct values_summary){0};
    int code = wfs_tensor_is_damaged(tensor) ? -EIO : wfs_numbers_init(&numbers, tensor);
    if (code == 0)
        code = wfs_tensor_stats(io, numbers.tensor, &ret->stats);
    if (code == -EOPNOTSUPP)
        return 0;
    progress_add(progress, tensor->n_bytes);
    ret->has_stats = code == 0;
    if (code < 0 || kind == WFS_KIND_BOOL || ret->stats.min >= ret->stats.max)
        return code;
    code = wfs_tensor_histogram(io, numbers.tensor, &ret->stats, VALUES_N_BINS, ret->counts);
    progress_add(progress, tensor->n_bytes);
    ret->has_histogram = code == 0;
    return code;
}

void values_put_histogram(struct json_out *out, const struct values_summary *summary)
{
    if (!summary->has_histogram) {
        json_out_text(out, "histogram", NULL);
        return;
    }
    json_out_open_array(out, "histogram");
    for (size_t i = 0; i < VALUES_N_BINS; i++)
        json_out_u64(out, NULL, summary->counts[i]);
    json_out_close(out);
}

void values_add_spark(struct strbuf *out, const uint64_t counts[VALUES_N_BINS], size_t n_columns)
{
    static const char *const levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    enum { N_LEVELS = sizeof(levels) / sizeof(levels[0]) };
    uint64_t sums[VALUES_N_BINS] = {0}, most = 1;
    for (size_t i = 0; i < VALUES_N_BINS; i++)
        sums[i * n_columns / VALUES_N_BINS] += counts[i];
    for (size_t i = 0; i < n_columns; i++)
        most = sums[i] > most ? sums[i] : most;
    for (size_t i = 0; i < n_columns; i++) {
        const double share = (double)sums[i] / (double)most;
        strbuf_puts(out, sums[i] == 0 ? " " : levels[(size_t)(share * (N_LEVELS - 1))]);
    }
}

/* ---- samples ---- */

int values_sample(const struct wfs_tensor *tensor, const struct wfs_stats *stats, size_t n_bins,
                  uint64_t *counts, uint64_t *ret_n_elems)
{
    enum { N_PIECES = 64, N_PIECE = 48 << 8, N_GROUP = 48 }; /* bytes: whole groups of all dtypes */
    const unsigned n_bits = wfs_dtype_bits(tensor->dtype);
    const uint64_t n_bytes = tensor->n_bytes;
    const bool is_all = n_bytes <= N_PIECES * N_PIECE;
    const size_t n_pieces = is_all ? (size_t)((n_bytes + N_PIECE - 1) / N_PIECE) : N_PIECES;
    uint8_t piece[N_PIECE];
    autofree double *numbers = malloc(N_PIECE * 8 / n_bits * sizeof(*numbers));
    if (numbers == NULL)
        return -ENOMEM;
    memset(counts, 0, n_bins * sizeof(*counts));
    *ret_n_elems = 0;
    for (size_t i = 0; i < n_pieces; i++) {
        const uint64_t even = (n_bytes - N_PIECE) / (N_PIECES - 1) * i;
        const uint64_t offset = is_all ? i * (uint64_t)N_PIECE : even - even % N_GROUP;
        const ssize_t n = wfs_tensor_read(tensor, offset, piece, N_PIECE);
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        const size_t n_elems = (size_t)n * 8 / n_bits;
        wfs_dtype_decode(tensor->dtype, piece, n_elems, numbers);
        wfs_bins_add(stats, numbers, n_elems, n_bins, counts);
        *ret_n_elems += n_elems;
    }
    return 0;
}

/* ---- percentiles ---- */

enum { N_DIGIT = 16, N_COUNTS = 1 << N_DIGIT };

const unsigned percentiles_ranks[PERCENTILES_N] = {1, 5, 25, 50, 75, 95, 99};

/* One of the percentiles, as far as it is known. */
struct search {
    uint64_t front;    /* its first digits */
    uint64_t n_before; /* elements with these digits that come before it */
    size_t table;      /* of the counts of the next digit */
};

struct percentiles {
    const struct wfs_distinct *distinct;
    struct search searches[PERCENTILES_N]; /* in order */
    uint64_t fronts[PERCENTILES_N];        /* of the tables, in order */
    size_t n_tables;
    uint64_t (*tables)[N_COUNTS];
    unsigned n_passes, n_known; /* digits */
    bool is_single;             /* the elements are exact in single precision */
};

/* Single precision and less has two digits. */
static bool is_single(const struct wfs_tensor *tensor)
{
    return wfs_dtype_kind((enum wfs_dtype)tensor->dtype) == WFS_KIND_FLOAT &&
           wfs_dtype_bits((enum wfs_dtype)tensor->dtype) <= 32;
}

unsigned percentiles_n_passes(const struct wfs_tensor *tensor)
{
    return is_single(tensor) ? 2 : 4;
}

/* ---- numbers as integers in the same order ---- */

static uint64_t encode_number(double number, bool single)
{
    uint64_t bits = 0;
    number += 0.0; /* minus zero is zero */
    if (single) {
        const float narrow = (float)number;
        uint32_t half;
        memcpy(&half, &narrow, sizeof(half));
        bits = (uint64_t)half << 32;
    } else {
        memcpy(&bits, &number, sizeof(bits));
    }
    return bits >> 63 != 0 ? ~bits : bits | 1ull << 63;
}

static double decode_number(uint64_t bits, bool single)
{
    double number;
    float narrow;
    bits = bits >> 63 != 0 ? bits & ~(1ull << 63) : ~bits;
    memcpy(&number, &bits, sizeof(number));
    const uint32_t half = (uint32_t)(bits >> 32);
    memcpy(&narrow, &half, sizeof(narrow));
    return single ? (double)narrow : number;
}

/* ---- passes ---- */

struct counting {
    const struct percentiles *percentiles;
    uint64_t (*tables)[N_COUNTS]; /* of a part of the elements */
};

static void count(const struct counting *counting, double number, uint64_t n_times)
{
    const struct percentiles *percentiles = counting->percentiles;
    const unsigned n_front = percentiles->n_known * N_DIGIT;
    if (!isfinite(number))
        return;
    const uint64_t key = encode_number(number, percentiles->is_single);
    const uint64_t front = n_front == 0 ? 0 : key >> (64 - n_front);
    for (size_t t = 0; t < percentiles->n_tables; t++) {
        if (percentiles->fronts[t] == front)
            counting->tables[t][key << n_front >> (64 - N_DIGIT)] += n_times;
    }
}

static int count_piece(void *ctx, const void *bytes, size_t n, uint64_t first)
{
    const struct counting *counting = ctx;
    const struct wfs_distinct *distinct = counting->percentiles->distinct;
    const enum wfs_dtype dtype = (enum wfs_dtype)distinct->tensor.dtype;
    double numbers[N_DECODED];
    for (size_t i = 0; i < n; i += N_DECODED) {
        const size_t n_now = n - i < N_DECODED ? n - i : N_DECODED;
        wfs_dtype_decode(dtype, (const char *)bytes + i / 8 * wfs_dtype_bits(dtype), n_now,
                         numbers);
        for (size_t k = 0; k < n_now; k++)
            count(counting, numbers[k], wfs_distinct_times(distinct, first + i + k));
    }
    return 0;
}

static int count_part(void *ctx, const struct wfs_io *io, uint64_t first, size_t n, void *result)
{
    struct counting counting = {ctx, result};
    return wfs_tensor_scan(io, &counting.percentiles->distinct->tensor, first, n, count_piece,
                           &counting);
}

static void add_counts(void *ctx, void *result)
{
    const struct percentiles *percentiles = ctx;
    const uint64_t(*tables)[N_COUNTS] = result;
    for (size_t t = 0; t < percentiles->n_tables; t++) {
        for (size_t i = 0; i < N_COUNTS; i++)
            percentiles->tables[t][i] += tables[t][i];
    }
}

/* Few parts, since each has tables of its own. */
static int count_all(const struct wfs_io *io, struct percentiles *percentiles)
{
    enum { N_PARTS = 4 };
    const struct wfs_distinct *distinct = percentiles->distinct;
    struct wfs_parts parts = {.n_elems = wfs_distinct_count(distinct),
                              .n_part = wfs_tensor_part_elems(&distinct->tensor),
                              .n_result = percentiles->n_tables * sizeof(*percentiles->tables),
                              .make = count_part,
                              .take = add_counts,
                              .ctx = percentiles};
    while (parts.n_part < parts.n_elems / N_PARTS)
        parts.n_part *= 2;
    return wfs_parts_run(io, &parts);
}

/* Gives each search a table, the same to those that are equal so far. */
static void assign_tables(struct percentiles *percentiles)
{
    percentiles->n_tables = 0;
    for (size_t i = 0; i < PERCENTILES_N; i++) {
        struct search *search = &percentiles->searches[i];
        const size_t n = percentiles->n_tables;
        if (n == 0 || percentiles->fronts[n - 1] != search->front)
            percentiles->fronts[percentiles->n_tables++] = search->front;
        search->table = percentiles->n_tables - 1;
    }
    memset(percentiles->tables, 0, percentiles->n_tables * sizeof(*percentiles->tables));
}

static void take_digit(const struct percentiles *percentiles, struct search *search)
{
    const uint64_t *counts = percentiles->tables[search->table];
    size_t digit = 0;
    while (digit + 1 < N_COUNTS && search->n_before >= counts[digit])
        search->n_before -= counts[digit++];
    search->front = search->front << N_DIGIT | digit;
}

int percentiles_find(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t n_finite,
                     double ret[PERCENTILES_N])
{
    cleanup(wfs_numbers_done) struct wfs_numbers numbers = {0};
    cleanup(wfs_distinct_done) struct wfs_distinct distinct = {0};
    struct percentiles percentiles = {.distinct = &distinct,
                                      .n_passes = percentiles_n_passes(tensor),
                                      .is_single = is_single(tensor)};
    autofree void *tables = malloc(PERCENTILES_N * sizeof(*percentiles.tables));
    percentiles.tables = tables;
    int code = tables == NULL ? -ENOMEM : wfs_numbers_init(&numbers, tensor);
    code = code < 0 ? code : wfs_distinct_init(io, &distinct, numbers.tensor, NULL);
    for (size_t i = 0; i < PERCENTILES_N; i++) {
        const uint64_t rank = percentiles_ranks[i];
        const uint64_t n_until = n_finite / 100 * rank + (n_finite % 100 * rank + 99) / 100;
        percentiles.searches[i].n_before = n_until - 1;
    }
    for (; code == 0 && percentiles.n_known < percentiles.n_passes; percentiles.n_known++) {
        assign_tables(&percentiles);
        code = count_all(io, &percentiles);
        for (size_t i = 0; i < PERCENTILES_N && code == 0; i++)
            take_digit(&percentiles, &percentiles.searches[i]);
    }
    for (size_t i = 0; i < PERCENTILES_N; i++)
        ret[i] =
            decode_number(percentiles.searches[i].front << (64 - percentiles.n_known * N_DIGIT),
                          percentiles.is_single);
    return code;
}
