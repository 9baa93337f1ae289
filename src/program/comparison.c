/* SPDX-License-Identifier: MIT */
/*
 * A long double holds every element exactly, integers of 64 bits among them. Pieces with equal
 * bytes are equal without being decoded.
 */
#include "program/comparison.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Elements that are read, and that are decoded, at a time: whole bytes of every dtype. */
enum { N_PIECE = 1 << 15, N_BLOCK = 1 << 11 };

/* One of the two tensors, and the block of it that is compared. */
struct side {
    const struct wfs_distinct *distinct;
    const struct wfs_tensor *tensor; /* of the distinct elements */
    unsigned n_bits;
    bool is_complex;
    bool is_wide; /* integers of 64 bits, which a double does not hold: they are not decoded */
    const uint8_t *bytes;
    double *decoded; /* two for a complex element */
};

static uint64_t n_elems_of(const struct wfs_tensor *tensor)
{
    uint64_t n = 0;
    (void)wfs_shape_count(&tensor->shape, &n);
    return n;
}

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

void measures_add(struct measures *total, const struct measures *more)
{
    total->aa += more->aa;
    total->bb += more->bb;
    total->ab += more->ab;
    total->dd += more->dd;
}

/* ---- one block ---- */

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
        const uint64_t n_times = wfs_distinct_times(a->distinct, first + i);
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

/* The same as count_numbers and measure for elements that are shown equally often, many times
 * faster. */
static void count_narrow(const struct side *a, const struct side *b, size_t n_elems,
                         struct comparison *total)
{
    struct wfs_difference difference = {.max_abs = total->max_abs, .max_rel = total->max_rel};
    const uint64_t n_times = a->distinct->n_times;
    wfs_difference_add(a->decoded, b->decoded, n_elems, &difference);
    total->n_changed += n_times * difference.n_changed;
    total->n_nan += n_times * difference.n_nan;
    total->max_abs = difference.max_abs;
    total->max_rel = difference.max_rel;
}

static void measure_narrow(const struct side *a, const struct side *b, size_t n_elems,
                           struct measures *total)
{
    const struct wfs_products products = wfs_products_of(a->decoded, b->decoded, n_elems);
    const long double n_times = a->distinct->n_times;
    total->aa += n_times * products.aa;
    total->bb += n_times * products.bb;
    total->ab += n_times * products.ab;
    total->dd += n_times * products.dd;
}

static void measure(const struct side *a, const struct side *b, uint64_t first, size_t n_elems,
                    struct measures *total)
{
    for (size_t i = 0; i < n_elems; i++) {
        const struct number x = number_at(a, i), y = number_at(b, i);
        if (!is_finite(x) || !is_finite(y))
            continue;
        const struct number d = {x.re - y.re, x.im - y.im};
        const long double n_times = wfs_distinct_times(a->distinct, first + i);
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
            total->n_changed += wfs_distinct_times(a->distinct, (first + i) / n_elem);
    }
}

/* ---- both tensors ---- */

/* What is compared, and the result of all parts. */
struct job {
    struct wfs_distinct distinct[2];
    struct comparison_options options;
    struct comparison *total;
    size_t failed; /* the tensor of a read that failed; 2: none did */
};

/* What was counted in a part, and the tensor of a read that failed. */
struct part {
    struct comparison comparison;
    size_t failed;
};

static struct side side_of(const struct wfs_distinct *distinct, bool has_numbers)
{
    const struct wfs_tensor *tensor = &distinct->tensor;
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    return (struct side){.distinct = distinct,
                         .tensor = tensor,
                         .n_bits = has_numbers ? wfs_dtype_bits(dtype) : 8,
                         .is_complex = wfs_dtype_kind(dtype) == WFS_KIND_COMPLEX,
                         .is_wide = dtype == WFS_I64 || dtype == WFS_U64};
}

static void compare_block(struct side *a, struct side *b, uint64_t first, size_t n,
                          struct comparison_options options, struct comparison *ret)
{
    const bool is_one_dtype = a->tensor->dtype == b->tensor->dtype;
    const bool is_same = is_one_dtype && memcmp(a->bytes, b->bytes, n * a->n_bits / 8) == 0;
    const bool has_measures = options.has_measures && ret->has_numbers;
    if (!ret->has_numbers && !is_same)
        count_bytes(a, b, first, n, ret);
    if (!ret->has_numbers || (is_same && !has_measures))
        return;
    const bool is_quick = is_narrow(a) && is_narrow(b) && a->distinct->times == NULL;
    decode(a, n);
    if (!is_same)
        decode(b, n);
    if (!is_same && is_quick && !(options.is_exact && is_one_dtype))
        count_narrow(a, b, n, ret);
    else if (!is_same)
        count_numbers(a, b, first, n, options.is_exact && is_one_dtype, ret);
    if (has_measures && is_quick)
        measure_narrow(a, is_same ? a : b, n, &ret->measures);
    else if (has_measures)
        measure(a, is_same ? a : b, first, n, &ret->measures);
}

static void compare_piece(struct side sides[2], uint8_t *const bytes[2], uint64_t first, size_t n,
                          struct comparison_options options, struct comparison *ret)
{
    double decoded[2][2 * N_BLOCK];
    const bool is_same = sides[0].tensor->dtype == sides[1].tensor->dtype &&
                         memcmp(bytes[0], bytes[1], n * sides[0].n_bits / 8) == 0;
    if (is_same && !(options.has_measures && ret->has_numbers))
        return;
    for (size_t i = 0; i < n; i += N_BLOCK) {
        for (size_t k = 0; k < 2; k++) {
            sides[k].bytes = bytes[k] + i / 8 * sides[k].n_bits;
            sides[k].decoded = decoded[k];
        }
        compare_block(&sides[0], &sides[1], first + i, n - i < N_BLOCK ? n - i : N_BLOCK, options,
                      ret);
    }
}

static int compare_part(void *ctx, const struct wfs_io *io, uint64_t first, size_t n, void *result)
{
    const struct job *job = ctx;
    struct part *part = result;
    const bool has_numbers = job->total->has_numbers;
    struct side sides[2] = {side_of(&job->distinct[0], has_numbers),
                            side_of(&job->distinct[1], has_numbers)};
    autofree uint8_t *bytes_a = malloc((size_t)N_PIECE / 8 * sides[0].n_bits);
    autofree uint8_t *bytes_b = malloc((size_t)N_PIECE / 8 * sides[1].n_bits);
    uint8_t *const bytes[] = {bytes_a, bytes_b};
    *part = (struct part){{.has_numbers = has_numbers}, 2};
    if (bytes_a == NULL || bytes_b == NULL)
        return -ENOMEM;
    for (const uint64_t end = first + n; first < end; first += N_PIECE) {
        const size_t n_now = end - first < N_PIECE ? (size_t)(end - first) : N_PIECE;
        for (size_t k = 0; k < 2; k++) {
            const size_t n_bytes = n_now * sides[k].n_bits / 8;
            part->failed = k;
            const ssize_t n_read = wfs_tensor_read_for(
                io, sides[k].tensor, first / 8 * sides[k].n_bits, bytes[k], n_bytes);
            if (n_read < 0 || (size_t)n_read < n_bytes)
                return n_read < 0 ? (int)n_read : -EIO;
        }
        compare_piece(sides, bytes, first, n_now, job->options, &part->comparison);
    }
    return 0;
}

static void add_part(void *ctx, void *result)
{
    struct comparison *total = ((struct job *)ctx)->total;
    const struct comparison *part = &((struct part *)result)->comparison;
    total->n_changed += part->n_changed;
    total->n_nan += part->n_nan;
    total->max_abs = part->max_abs > total->max_abs ? part->max_abs : total->max_abs;
    total->max_rel = part->max_rel > total->max_rel ? part->max_rel : total->max_rel;
    measures_add(&total->measures, &part->measures);
    ((struct job *)ctx)->failed = ((struct part *)result)->failed;
}

bool comparison_has_content(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    return has_numbers(a) && has_numbers(b) ? wfs_shape_is_equal(&a->shape, &b->shape)
                                            : comparison_is_alike(a, b) && a->n_bytes == b->n_bytes;
}

static int compare_all(const struct wfs_io *io, struct job *job, const struct wfs_tensor *a,
                       const struct wfs_tensor *b)
{
    int code = wfs_distinct_init(io, &job->distinct[0], a, b);
    code = code < 0 ? code : wfs_distinct_init(io, &job->distinct[1], b, a);
    const struct wfs_tensor *tensor = &job->distinct[0].tensor;
    const struct wfs_parts parts = {.n_elems = job->total->has_numbers ? n_elems_of(tensor)
                                                                       : tensor->n_bytes,
                                    .n_part = wfs_tensor_part_elems(tensor),
                                    .n_result = sizeof(struct part),
                                    .make = compare_part,
                                    .take = add_part,
                                    .ctx = job};
    code = code < 0 ? code : wfs_parts_run(io, &parts);
    wfs_distinct_done(&job->distinct[0]);
    wfs_distinct_done(&job->distinct[1]);
    return code;
}

int comparison_make(const struct wfs_io *io, const struct wfs_tensor *a, const struct wfs_tensor *b,
                    struct comparison_options options, struct comparison *ret,
                    const struct wfs_tensor **ret_failed)
{
    const bool is_number = has_numbers(a) && has_numbers(b);
    struct job job = {.options = options, .total = ret, .failed = 2};
    *ret_failed = wfs_tensor_is_damaged(a) ? a : wfs_tensor_is_damaged(b) ? b : NULL;
    if (*ret_failed != NULL)
        return -EIO;
    *ret =
        (struct comparison){.has_numbers = is_number, .has_content = comparison_has_content(a, b)};
    if (!ret->has_content)
        return 0;
    ret->n_elems = is_number ? n_elems_of(a) : a->n_bytes;
    cleanup(wfs_numbers_done) struct wfs_numbers of_a = {.tensor = a}, of_b = {.tensor = b};
    int code = is_number ? wfs_numbers_init(&of_a, a) : 0;
    code = is_number && code == 0 ? wfs_numbers_init(&of_b, b) : code;
    code = code < 0 ? code : compare_all(io, &job, of_a.tensor, of_b.tensor);
    if (code < 0 && job.failed < 2)
        *ret_failed = job.failed == 0 ? a : b;
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

/* ---- as JSON ---- */

void comparison_put_tensor(struct json_out *json, const char *name, const struct wfs_tensor *tensor)
{
    const char *quantization = wfs_tensor_attr(tensor, "quantization");
    json_out_open_object(json, name);
    if (name == NULL)
        json_out_text(json, "key", tensor->key);
    json_out_text(json, "dtype", wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    json_out_u64s(json, "shape", tensor->shape.dims, tensor->shape.rank);
    if (quantization != NULL)
        json_out_text(json, "quantization", quantization);
    json_out_close(json);
}

/* JSON has no infinities. */
static void put_number(struct json_out *json, const char *name, double number)
{
    if (isinf(number))
        json_out_text(json, name, "Infinity");
    else
        json_out_double(json, name, number);
}

static void put_measures(struct json_out *json, const struct comparison *comparison)
{
    const bool has_measures = comparison->has_content && comparison->has_numbers;
    put_number(json, "l2", has_measures ? measures_l2(&comparison->measures) : NAN);
    put_number(json, "relative", has_measures ? measures_relative(&comparison->measures) : NAN);
    put_number(json, "cosine", has_measures ? measures_cosine(&comparison->measures) : NAN);
}

void comparison_put(struct json_out *json, const struct wfs_tensor *a, const struct wfs_tensor *b,
                    const struct comparison *comparison, bool has_measures)
{
    const bool has_max = comparison->has_numbers && comparison->n_changed > comparison->n_nan;
    json_out_open_object(json, NULL);
    json_out_text(json, "key", a->key);
    comparison_put_tensor(json, "a", a);
    comparison_put_tensor(json, "b", b);
    if (comparison->has_content) {
        json_out_text(json, "unit", comparison->has_numbers ? "elements" : "bytes");
        json_out_u64(json, "compared", comparison->n_elems);
        json_out_u64(json, "changed", comparison->n_changed);
    }
    if (comparison->has_content && comparison->has_numbers)
        json_out_u64(json, "nan_in_one", comparison->n_nan);
    put_number(json, "max_abs", has_max ? comparison->max_abs : NAN);
    put_number(json, "max_rel", has_max ? comparison->max_rel : NAN);
    if (has_measures)
        put_measures(json, comparison);
    json_out_close(json);
}
