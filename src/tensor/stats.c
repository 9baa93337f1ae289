/* SPDX-License-Identifier: MIT */
/*
 * One pass over the elements of a tensor: as numbers for its statistics, as bytes for its digest.
 */
#include <weightfs/cleanup.h>
#include <weightfs/interruption.h>
#include <weightfs/tensor.h>
#include <weightfs/workload.h>
#include "base/hash.h"
#include "tensor/census.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_PIECE = 1 << 15, N_PART = 1 << 20 /* elements */, N_AT_ONCE = 64 /* parts */ };

/* ---- parts ---- */

size_t wfs_tensor_part_elems(const struct wfs_tensor *tensor)
{
    const uint64_t n_least = wfs_tensor_piece_bytes(tensor);
    size_t n = N_PART;
    while (n / 8 * wfs_dtype_bits((enum wfs_dtype)tensor->dtype) < n_least)
        n *= 2;
    return n;
}

struct run {
    const struct wfs_io *io;
    const struct wfs_parts *parts;
    uint64_t first; /* element of the first part */
    char *results;
    int codes[N_AT_ONCE];
};

static void make_part(void *ctx, size_t i)
{
    struct run *run = ctx;
    const struct wfs_parts *parts = run->parts;
    const uint64_t first = run->first + i * parts->n_part, n_left = parts->n_elems - first;
    const size_t n = n_left < parts->n_part ? (size_t)n_left : parts->n_part;
    run->codes[i] = parts->make(parts->ctx, run->io, first, n, run->results + i * parts->n_result);
}

int wfs_parts_run(const struct wfs_io *io, const struct wfs_parts *parts)
{
    const uint64_t n_all = parts->n_elems / parts->n_part + (parts->n_elems % parts->n_part != 0);
    const size_t n_most = n_all < N_AT_ONCE ? (size_t)n_all : N_AT_ONCE;
    autofree char *results = malloc(n_most * parts->n_result + 1);
    struct run run = {.io = io, .parts = parts, .results = results};
    if (results == NULL)
        return -ENOMEM;
    for (uint64_t n_done = 0; n_done < n_all; n_done += n_most) {
        const size_t n = n_all - n_done < n_most ? (size_t)(n_all - n_done) : n_most;
        memset(results, 0, n * parts->n_result);
        run.first = n_done * parts->n_part;
        wfs_io_share(io, n, make_part, &run);
        for (size_t i = 0; i < n; i++) {
            parts->take(parts->ctx, results + i * parts->n_result);
            if (run.codes[i] < 0)
                return run.codes[i];
        }
    }
    return 0;
}

int wfs_tensor_scan(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t first,
                    uint64_t n, wfs_visit visit, void *ctx)
{
    const unsigned n_bits = wfs_dtype_bits((enum wfs_dtype)tensor->dtype);
    autofree char *piece = malloc((size_t)N_PIECE / 8 * n_bits);
    if (piece == NULL)
        return -ENOMEM;
    for (const uint64_t end = first + n; first < end; first += N_PIECE) {
        const size_t n_now = end - first < N_PIECE ? (size_t)(end - first) : N_PIECE;
        const size_t n_bytes = n_now * n_bits / 8;
        const ssize_t n_read = wfs_tensor_read_for(io, tensor, first / 8 * n_bits, piece, n_bytes);
        if (n_read < 0 || (size_t)n_read < n_bytes)
            return n_read < 0 ? (int)n_read : -EIO;
        const int code = visit(ctx, piece, n_now, first);
        if (code != 0)
            return code;
    }
    return 0;
}

uint64_t wfs_distinct_count(const struct wfs_distinct *distinct)
{
    const struct wfs_tensor *tensor = &distinct->tensor;
    return tensor->n_bytes * 8 / wfs_dtype_bits((enum wfs_dtype)tensor->dtype);
}

/* The elements of a tensor as numbers, each as often as it is stored. */
struct elements {
    struct wfs_numbers numbers;
    struct wfs_distinct distinct;
};

static void elements_done(struct elements *elements)
{
    wfs_distinct_done(&elements->distinct);
    wfs_numbers_done(&elements->numbers);
}

static int elements_init(const struct wfs_io *io, struct elements *elements,
                         const struct wfs_tensor *tensor, bool takes_complex)
{
    *elements = (struct elements){0};
    const int code = wfs_numbers_init(&elements->numbers, tensor);
    const struct wfs_tensor *numbers = elements->numbers.tensor;
    const enum wfs_kind kind = wfs_dtype_kind((enum wfs_dtype)numbers->dtype);
    if (code < 0 || kind == WFS_KIND_BITS || (kind == WFS_KIND_COMPLEX && !takes_complex))
        return code < 0 ? code : -EOPNOTSUPP;
    return wfs_distinct_init(io, &elements->distinct, numbers, NULL);
}

/* Works on all of them; the rest is as in struct wfs_parts. */
static int work_on(const struct wfs_io *io, const struct wfs_distinct *distinct, size_t n_result,
                   int (*make)(void *, const struct wfs_io *, uint64_t, size_t, void *),
                   void (*take)(void *, void *), void *ctx)
{
    const struct wfs_parts parts = {.n_elems = wfs_distinct_count(distinct),
                                    .n_part = wfs_tensor_part_elems(&distinct->tensor),
                                    .n_result = n_result,
                                    .make = make,
                                    .take = take,
                                    .ctx = ctx};
    return wfs_parts_run(io, &parts);
}

/* ---- statistics ---- */

/* What was counted in 2^0, 2^1, ... blocks (or parts), where the bits of n are set; the larger come
 * first in the tensor. */
struct tree {
    struct census nodes[64];
    uint64_t n;
};

static void tree_add(struct tree *tree, const struct census *census)
{
    struct census *nodes = tree->nodes, sum = *census;
    unsigned level = 0;
    for (; tree->n >> level & 1; level++) {
        census_join(&nodes[level], &sum);
        sum = nodes[level];
    }
    nodes[level] = sum;
    tree->n++;
}

static struct census tree_sum(struct tree *tree)
{
    struct census sum = {0};
    for (unsigned level = 0; level < 64; level++) {
        if (tree->n >> level & 1) {
            census_join(&tree->nodes[level], &sum);
            sum = tree->nodes[level];
        }
    }
    return sum;
}

struct counting {
    const struct wfs_distinct *distinct;
    struct tree tree; /* of blocks of a part */
};

static void repeat(struct wfs_stats *stats, uint64_t n_times)
{
    stats->n_elems *= n_times;
    stats->n_finite *= n_times;
    stats->n_nan *= n_times;
    stats->n_positive_inf *= n_times;
    stats->n_negative_inf *= n_times;
    stats->n_zero *= n_times;
}

/* A number that is shown n_times. */
static void add_repeated(struct census *sum, double x, uint64_t n_times)
{
    struct census one;
    if (n_times == 0)
        return;
    census_block(&x, 1, &one);
    repeat(&one.stats, n_times);
    census_join(sum, &one);
}

/* Decodes a block of what was read, or what is left of n elements from the i-th on. Returns how
 * many these are. */
static size_t decode_block(const struct wfs_distinct *distinct, const void *bytes, size_t i,
                           size_t n, double numbers[CENSUS_BLOCK])
{
    const enum wfs_dtype dtype = (enum wfs_dtype)distinct->tensor.dtype;
    const size_t n_now = n - i < CENSUS_BLOCK ? n - i : CENSUS_BLOCK;
    wfs_dtype_decode(dtype, (const char *)bytes + i / 8 * wfs_dtype_bits(dtype), n_now, numbers);
    return n_now;
}

static int count_blocks(void *ctx, const void *bytes, size_t n, uint64_t first)
{
    struct counting *counting = ctx;
    const struct wfs_distinct *distinct = counting->distinct;
    double numbers[CENSUS_BLOCK];
    for (size_t i = 0; i < n; i += CENSUS_BLOCK) {
        const size_t n_now = decode_block(distinct, bytes, i, n, numbers);
        struct census census = {0};
        if (distinct->times == NULL)
            census_block(numbers, n_now, &census);
        for (size_t k = 0; k < n_now && distinct->times != NULL; k++)
            add_repeated(&census, numbers[k], distinct->times[first + i + k]);
        tree_add(&counting->tree, &census);
    }
    return 0;
}

static int count_part(void *ctx, const struct wfs_io *io, uint64_t first, size_t n, void *result)
{
    const struct wfs_distinct *distinct = ((struct counting *)ctx)->distinct;
    struct counting counting = {.distinct = distinct};
    const int code = wfs_tensor_scan(io, &distinct->tensor, first, n, count_blocks, &counting);
    *(struct census *)result = tree_sum(&counting.tree);
    return code;
}

static void take_part(void *ctx, void *result)
{
    tree_add(&((struct counting *)ctx)->tree, result);
}

int wfs_tensor_stats(const struct wfs_io *io, const struct wfs_tensor *tensor,
                     struct wfs_stats *ret)
{
    cleanup(elements_done) struct elements elements;
    struct counting counting = {.distinct = &elements.distinct};
    int code = elements_init(io, &elements, tensor, false);
    if (code == 0)
        code = work_on(io, &elements.distinct, sizeof(struct census), count_part, take_part,
                       &counting);
    if (code < 0)
        return code;
    const struct census sum = tree_sum(&counting.tree);
    *ret = sum.stats;
    ret->std = ret->n_finite == 0 ? 0 : sqrt(sum.squares / (double)ret->n_finite);
    repeat(ret, elements.distinct.n_times);
    return 0;
}

/* ---- histograms ---- */

/* Several tables: an addition need not wait for the one before when both are to the same bin. */
void wfs_bins_add(const struct wfs_stats *stats, const double *numbers, size_t n, size_t n_bins,
                  uint64_t *counts)
{
    enum { N_TABLES = 4 };
    uint32_t tables[N_TABLES][WFS_BINS_MAX + 1] = {0};
    int32_t bins[CENSUS_BLOCK];
    for (size_t i = 0; i < n; i += CENSUS_BLOCK) {
        const size_t n_now = n - i < CENSUS_BLOCK ? n - i : CENSUS_BLOCK;
        census_bins(stats, numbers + i, n_now, n_bins, bins);
        for (size_t k = 0; k < n_now; k++)
            tables[k % N_TABLES][bins[k]]++;
    }
    for (size_t i = 0; i < n_bins; i++) {
        for (size_t k = 0; k < N_TABLES; k++)
            counts[i] += tables[k][i];
    }
}

struct binning {
    const struct wfs_distinct *distinct;
    const struct wfs_stats *stats;
    size_t n_bins;
    uint64_t *counts;
};

static int add_bins(void *ctx, const void *bytes, size_t n, uint64_t first)
{
    const struct binning *binning = ctx;
    const struct wfs_distinct *distinct = binning->distinct;
    double numbers[CENSUS_BLOCK];
    for (size_t i = 0; i < n; i += CENSUS_BLOCK) {
        const size_t n_now = decode_block(distinct, bytes, i, n, numbers);
        if (distinct->times == NULL)
            wfs_bins_add(binning->stats, numbers, n_now, binning->n_bins, binning->counts);
        for (size_t k = 0; k < n_now && distinct->times != NULL; k++) {
            int32_t bin;
            census_bins(binning->stats, &numbers[k], 1, binning->n_bins, &bin);
            if ((size_t)bin < binning->n_bins)
                binning->counts[bin] += distinct->times[first + i + k];
        }
    }
    return 0;
}

static int make_bins(void *ctx, const struct wfs_io *io, uint64_t first, size_t n, void *result)
{
    struct binning binning = *(const struct binning *)ctx;
    binning.counts = result;
    return wfs_tensor_scan(io, &binning.distinct->tensor, first, n, add_bins, &binning);
}

static void take_bins(void *ctx, void *result)
{
    const struct binning *binning = ctx;
    const uint64_t *counts = result;
    for (size_t i = 0; i < binning->n_bins; i++)
        binning->counts[i] += counts[i] * binning->distinct->n_times;
}

int wfs_tensor_histogram(const struct wfs_io *io, const struct wfs_tensor *tensor,
                         const struct wfs_stats *stats, size_t n_bins, uint64_t *counts)
{
    cleanup(elements_done) struct elements elements;
    struct binning binning = {&elements.distinct, stats, n_bins, counts};
    const int code = elements_init(io, &elements, tensor, false);
    memset(counts, 0, n_bins * sizeof(*counts));
    return code < 0 ? code
                    : work_on(io, &elements.distinct, n_bins * sizeof(*counts), make_bins,
                              take_bins, &binning);
}

/* ---- what should not be there ---- */

struct oddity {
    const struct wfs_distinct *distinct;
    struct wfs_odd odd;
};

static void join_odd(struct wfs_odd *to, const struct wfs_odd *from)
{
    if (from->n_elems == 0)
        return;
    to->is_constant = from->is_constant &&
                      (to->n_elems == 0 || (to->is_constant && to->constant == from->constant));
    to->constant = from->constant;
    to->n_elems += from->n_elems;
    to->n_nan += from->n_nan;
    to->n_inf += from->n_inf;
}

/* One element of one or two parts. */
static void count_one(struct wfs_odd *odd, const double *parts, size_t n_parts, uint64_t n_times)
{
    const bool is_nan = isnan(parts[0]) || isnan(parts[n_parts - 1]);
    const bool is_inf = !is_nan && (isinf(parts[0]) || isinf(parts[n_parts - 1]));
    const struct wfs_odd one = {.n_elems = n_times,
                                .n_nan = is_nan ? n_times : 0,
                                .n_inf = is_inf ? n_times : 0,
                                .is_constant = !is_nan && !is_inf && n_parts == 1,
                                .constant = parts[0]};
    join_odd(odd, &one);
}

/* Decodes them: complex ones, those that are not shown equally often, and others as long as all are
 * one number. */
static void count_decoded(struct oddity *oddity, const char *bytes, size_t n, uint64_t first)
{
    const struct wfs_distinct *distinct = oddity->distinct;
    const enum wfs_dtype dtype = (enum wfs_dtype)distinct->tensor.dtype;
    const size_t n_parts = wfs_dtype_kind(dtype) == WFS_KIND_COMPLEX ? 2 : 1;
    double numbers[2 * CENSUS_BLOCK];
    for (size_t i = 0; i < n; i += CENSUS_BLOCK) {
        const size_t n_now = n - i < CENSUS_BLOCK ? n - i : CENSUS_BLOCK;
        wfs_dtype_decode(n_parts == 2 ? wfs_dtype_part(dtype) : dtype,
                         bytes + i / 8 * wfs_dtype_bits(dtype), n_now * n_parts, numbers);
        for (size_t k = 0; k < n_now; k++)
            count_one(&oddity->odd, numbers + k * n_parts, n_parts,
                      distinct->times == NULL ? 1 : distinct->times[first + i + k]);
    }
}

static int count_odd(void *ctx, const void *bytes, size_t n, uint64_t first)
{
    struct oddity *oddity = ctx;
    struct wfs_odd *odd = &oddity->odd;
    const enum wfs_dtype dtype = (enum wfs_dtype)oddity->distinct->tensor.dtype;
    const char *at = bytes;
    size_t n_left = n;
    if (oddity->distinct->times != NULL || wfs_dtype_kind(dtype) == WFS_KIND_COMPLEX) {
        count_decoded(oddity, at, n, first);
        return 0;
    }
    while (n_left > 0 && (odd->n_elems == 0 || odd->is_constant)) {
        const size_t n_now = n_left < CENSUS_BLOCK ? n_left : CENSUS_BLOCK;
        count_decoded(oddity, at, n_now, 0);
        at += n_now / 8 * wfs_dtype_bits(dtype);
        n_left -= n_now;
    }
    census_odd(dtype, at, n_left, &odd->n_nan, &odd->n_inf);
    odd->n_elems += n_left;
    return 0;
}

static int make_odd(void *ctx, const struct wfs_io *io, uint64_t first, size_t n, void *result)
{
    const struct wfs_distinct *distinct = ((struct oddity *)ctx)->distinct;
    struct oddity oddity = {.distinct = distinct};
    const int code = wfs_tensor_scan(io, &distinct->tensor, first, n, count_odd, &oddity);
    *(struct wfs_odd *)result = oddity.odd;
    return code;
}

static void take_odd(void *ctx, void *result)
{
    join_odd(&((struct oddity *)ctx)->odd, result);
}

int wfs_tensor_count_odd(const struct wfs_io *io, const struct wfs_tensor *tensor,
                         struct wfs_odd *ret)
{
    cleanup(elements_done) struct elements elements;
    struct oddity oddity = {.distinct = &elements.distinct};
    int code = elements_init(io, &elements, tensor, true);
    if (code == 0)
        code = work_on(io, &elements.distinct, sizeof(struct wfs_odd), make_odd, take_odd, &oddity);
    *ret = oddity.odd;
    ret->n_elems *= elements.distinct.n_times;
    ret->n_nan *= elements.distinct.n_times;
    ret->n_inf *= elements.distinct.n_times;
    return code;
}

enum { N_HASHED = 1 << 20 };

int wfs_tensor_digest_and(const struct wfs_io *io, const struct wfs_tensor *tensor, wfs_take take,
                          void *ctx, uint64_t *ret_digest)
{
    autofree char *piece = malloc(N_HASHED);
    auto_hasher struct hasher *hasher = hasher_new();
    if (piece == NULL || hasher == NULL)
        return -ENOMEM;
    if (wfs_tensor_is_damaged(tensor))
        return -EIO; /* also where it shows no bytes */
    for (uint64_t offset = 0; offset < tensor->n_bytes;) {
        const ssize_t n = wfs_tensor_read_for(io, tensor, offset, piece, N_HASHED);
        if (n < 0)
            return (int)n;
        hasher_update(hasher, piece, (size_t)n);
        const int code = take == NULL ? 0 : take(ctx, piece, (size_t)n);
        if (code != 0)
            return code;
        offset += (uint64_t)n;
    }
    *ret_digest = hasher_digest(hasher);
    return 0;
}

int wfs_tensor_digest(const struct wfs_tensor *tensor, uint64_t *ret_digest)
{
    return wfs_tensor_digest_and(NULL, tensor, NULL, NULL, ret_digest);
}
