/* SPDX-License-Identifier: MIT */
/*
 * A long double holds every element exactly, integers of 64 bits among them. Pieces with equal
 * bytes are equal without being decoded.
 */
#include "cli/comparison.h"

#include "cli/values.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_PIECE = 1 << 16 }; /* elements; whole bytes of every dtype */

/* One of the two tensors, and the piece of it that is compared. */
struct side {
    struct wfs_distinct distinct;
    const struct wfs_tensor *tensor; /* of the distinct elements */
    unsigned n_bits;
    bool is_complex;
    bool is_wide; /* integers of 64 bits, which a double does not hold: they are not decoded */
    uint8_t *bytes;
    double *decoded; /* two for a complex element */
};

static bool has_numbers(const struct wfs_tensor *tensor)
{
    static const uint8_t raw[] = {WFS_QI8, WFS_QU8, WFS_QI32};
    if (wfs_dtype_has_blocks((enum wfs_dtype)tensor->dtype))
        return !tensor->stored.is_big_endian;
    return wfs_dtype_kind((enum wfs_dtype)tensor->dtype) != WFS_KIND_BITS &&
           memchr(raw, tensor->dtype, sizeof(raw)) == NULL;
}

bool comparison_is_one_quantization(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const char *one = wfs_tensor_attr(a, "quantization"),
               *other = wfs_tensor_attr(b, "quantization");
    return one == NULL || other == NULL ? one == other : strcmp(one, other) == 0;
}

bool comparison_is_alike(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    return a->dtype == b->dtype && wfs_shape_is_equal(&a->shape, &b->shape) &&
           comparison_is_one_quantization(a, b);
}

/* ---- one piece ---- */

static uint64_t load_integer(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static void decode(struct side *side, size_t n_elems)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)side->tensor->dtype;
    if (!side->is_wide)
        wfs_dtype_decode(side->is_complex ? wfs_dtype_part(dtype) : dtype, side->bytes,
                         side->is_complex ? 2 * n_elems : n_elems, side->decoded);
}

/* An element as real and imaginary part. */
struct number {
    long double re, im;
};

static struct number number_at(const struct side *side, size_t i)
{
    if (side->is_complex)
        return (struct number){side->decoded[2 * i], side->decoded[2 * i + 1]};
    if (!side->is_wide)
        return (struct number){side->decoded[i], 0};
    const uint64_t value = load_integer(side->bytes + 8 * i);
    return (struct number){
        side->tensor->dtype == WFS_U64 ? (long double)value : (long double)(int64_t)value, 0};
}

static bool is_nan(struct number a)
{
    return isnan(a.re) || isnan(a.im);
}

static bool has_same_bits(const struct side *a, const struct side *b, size_t i)
{
    const size_t n = a->n_bits / 8;
    if (n == 0) /* types of less than a byte have zeros of two kinds and one NaN at most */
        return signbit(a->decoded[i]) == signbit(b->decoded[i]);
    return memcmp(a->bytes + n * i, b->bytes + n * i, n) == 0;
}

static void add_difference(struct number a, struct number b, struct comparison *total)
{
    const long double abs = hypotl(a.re == b.re ? 0 : a.re - b.re, a.im == b.im ? 0 : a.im - b.im);
    const long double size = fmaxl(hypotl(a.re, a.im), hypotl(b.re, b.im));
    const long double rel = isinf(size) ? (long double)INFINITY : size > 0 ? abs / size : 0;
    if (abs > total->max_abs)
        total->max_abs = (double)abs;
    if (rel > total->max_rel)
        total->max_rel = (double)rel;
}

/* first: the number of the first element of the piece. */
static void count_numbers(const struct side *a, const struct side *b, uint64_t first,
                          size_t n_elems, bool is_exact, struct comparison *total)
{
    for (size_t i = 0; i < n_elems; i++) {
        const struct number x = number_at(a, i), y = number_at(b, i);
        const bool is_equal = (x.re == y.re && x.im == y.im) || (is_nan(x) && is_nan(y));
        if (is_equal && (!is_exact || has_same_bits(a, b, i)))
            continue;
        const uint64_t n_times = wfs_distinct_times(&a->distinct, first + i);
        if (n_times == 0)
            continue;
        total->n_changed += n_times;
        if (is_equal)
            continue;
        if (is_nan(x) || is_nan(y))
            total->n_nan += n_times;
        else
            add_difference(x, y, total);
    }
}

static bool is_finite(struct number a)
{
    return isfinite(a.re) && isfinite(a.im);
}

/* Returns true if doubles hold the squares of the elements, and sums of a piece of them. */
static bool is_narrow(const struct side *side)
{
    return !side->is_complex && side->n_bits <= 32;
}

/* The same as measure for a piece whose elements are shown equally often, many times faster. */
static void measure_narrow(const struct side *a, const struct side *b, size_t n_elems,
                           struct measures *total)
{
    double aa = 0, bb = 0, ab = 0, dd = 0;
    const long double n_times = wfs_distinct_times(&a->distinct, 0);
    for (size_t i = 0; i < n_elems; i++) {
        const double x = a->decoded[i], y = b->decoded[i], d = x - y;
        if (!isfinite(x) || !isfinite(y))
            continue;
        aa += x * x;
        bb += y * y;
        ab += x * y;
        dd += d * d;
    }
    total->aa += n_times * aa;
    total->bb += n_times * bb;
    total->ab += n_times * ab;
    total->dd += n_times * dd;
}

static void measure(const struct side *a, const struct side *b, uint64_t first, size_t n_elems,
                    struct measures *total)
{
    for (size_t i = 0; i < n_elems; i++) {
        const struct number x = number_at(a, i), y = number_at(b, i);
        if (!is_finite(x) || !is_finite(y))
            continue;
        const struct number d = {x.re - y.re, x.im - y.im};
        const long double n_times = wfs_distinct_times(&a->distinct, first + i);
        total->aa += n_times * (x.re * x.re + x.im * x.im);
        total->bb += n_times * (y.re * y.re + y.im * y.im);
        total->ab += n_times * (x.re * y.re + x.im * y.im);
        total->dd += n_times * (d.re * d.re + d.im * d.im);
    }
}

static void count_bytes(const struct side *a, const struct side *b, uint64_t first, size_t n_bytes,
                        struct comparison *total)
{
    const unsigned n_bits = wfs_dtype_bits((enum wfs_dtype)a->tensor->dtype);
    const unsigned n_elem = n_bits < 8 ? 1 : n_bits / 8; /* those below a byte are not repeated */
    for (size_t i = 0; i < n_bytes; i++) {
        if (a->bytes[i] != b->bytes[i])
            total->n_changed += wfs_distinct_times(&a->distinct, (first + i) / n_elem);
    }
}

/* ---- both tensors ---- */

static void free_side(struct side *side)
{
    wfs_distinct_done(&side->distinct);
    free(side->bytes);
    free(side->decoded);
}

static bool make_side(struct side *side, const struct wfs_tensor *tensor,
                      const struct wfs_tensor *beside, bool is_number)
{
    if (wfs_distinct_init(NULL, &side->distinct, tensor, beside) < 0)
        return false;
    side->tensor = &side->distinct.tensor;
    side->n_bits = is_number ? wfs_dtype_bits((enum wfs_dtype)tensor->dtype) : 8;
    side->is_complex = wfs_dtype_kind((enum wfs_dtype)tensor->dtype) == WFS_KIND_COMPLEX;
    side->is_wide = tensor->dtype == WFS_I64 || tensor->dtype == WFS_U64;
    side->bytes = malloc((size_t)N_PIECE * side->n_bits / 8);
    if (is_number)
        side->decoded = calloc((size_t)2 * N_PIECE, sizeof(*side->decoded));
    return side->bytes != NULL && (!is_number || side->decoded != NULL);
}

static int read_piece(const struct side *side, uint64_t first, size_t n_elems)
{
    const uint64_t offset = first / 8 * side->n_bits; /* first counts whole pieces */
    const size_t n_bytes = n_elems * side->n_bits / 8;
    const ssize_t n = wfs_tensor_read(side->tensor, offset, side->bytes, n_bytes);
    if (n < 0)
        return (int)n;
    return (size_t)n == n_bytes ? 0 : -EIO;
}

static void compare_piece(struct side *a, struct side *b, uint64_t first, size_t n,
                          struct comparison_options options, struct comparison *ret)
{
    const bool is_one_dtype = a->tensor->dtype == b->tensor->dtype;
    const bool is_same = is_one_dtype && memcmp(a->bytes, b->bytes, n * a->n_bits / 8) == 0;
    const bool has_measures = options.has_measures && ret->has_numbers;
    if (!ret->has_numbers && !is_same)
        count_bytes(a, b, first, n, ret);
    if (!ret->has_numbers || (is_same && !has_measures))
        return;
    const bool is_quick = is_narrow(a) && is_narrow(b) && a->distinct.times == NULL;
    decode(a, n);
    if (!is_same) {
        decode(b, n);
        count_numbers(a, b, first, n, options.is_exact && is_one_dtype, ret);
    }
    if (has_measures && is_quick)
        measure_narrow(a, is_same ? a : b, n, &ret->measures);
    else if (has_measures)
        measure(a, is_same ? a : b, first, n, &ret->measures);
}

static int compare_pieces(struct side *a, struct side *b, struct comparison_options options,
                          struct comparison *ret, bool *ret_is_second)
{
    const uint64_t n_all = ret->has_numbers ? values_n_elems(a->tensor) : a->tensor->n_bytes;
    for (uint64_t first = 0; first < n_all; first += N_PIECE) {
        const uint64_t n_left = n_all - first;
        const size_t n = n_left < N_PIECE ? (size_t)n_left : N_PIECE;
        int code = read_piece(a, first, n);
        *ret_is_second = code == 0;
        if (code == 0)
            code = read_piece(b, first, n);
        if (code < 0)
            return code;
        compare_piece(a, b, first, n, options, ret);
    }
    return 0;
}

bool comparison_has_content(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    return has_numbers(a) && has_numbers(b) ? wfs_shape_is_equal(&a->shape, &b->shape)
                                            : comparison_is_alike(a, b) && a->n_bytes == b->n_bytes;
}

int comparison_make(const struct wfs_tensor *a, const struct wfs_tensor *b,
                    struct comparison_options options, struct comparison *ret,
                    const struct wfs_tensor **ret_failed)
{
    const bool is_number = has_numbers(a) && has_numbers(b);
    *ret_failed = NULL;
    *ret =
        (struct comparison){.has_numbers = is_number, .has_content = comparison_has_content(a, b)};
    if (!ret->has_content)
        return 0;
    ret->n_elems = is_number ? values_n_elems(a) : a->n_bytes;
    struct side one = {0}, other = {0};
    cleanup(wfs_numbers_done) struct wfs_numbers of_a = {.tensor = a}, of_b = {.tensor = b};
    int code = is_number ? wfs_numbers_init(&of_a, a) : 0;
    code = is_number && code == 0 ? wfs_numbers_init(&of_b, b) : code;
    if (code == 0)
        code = -ENOMEM;
    if (code == -ENOMEM && make_side(&one, of_a.tensor, of_b.tensor, is_number) &&
        make_side(&other, of_b.tensor, of_a.tensor, is_number)) {
        bool is_second = false;
        code = compare_pieces(&one, &other, options, ret, &is_second);
        *ret_failed = is_second ? b : a;
    }
    free_side(&one);
    free_side(&other);
    return code;
}

/* ---- measures ---- */

double measures_l2(const struct measures *measures)
{
    return (double)sqrtl(measures->dd);
}

double measures_relative(const struct measures *measures)
{
    return measures->dd == 0 ? 0 : (double)sqrtl(measures->dd / measures->aa);
}

double measures_cosine(const struct measures *measures)
{
    const long double cosine = measures->ab / (sqrtl(measures->aa) * sqrtl(measures->bb));
    return (double)(cosine > 1 ? 1 : cosine < -1 ? -1 : cosine);
}
