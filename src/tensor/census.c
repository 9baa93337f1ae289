/* SPDX-License-Identifier: MIT */
/*
 * Each loop goes over sums (lanes) that are neighbours in memory, so that it is vector code without
 * any change to the order of additions.
 */
#include "tensor/census.h"

#include <endian.h>
#include <math.h>
#include <string.h>

#define always_inline static inline __attribute__((always_inline))

/* ---- classes by bits ---- */

/*
 * An element is NaN when (bits ^ flip) & mask is above top, and infinite when it is equal to that.
 * The flip makes the one NaN of some types the largest number.
 */
struct classes {
    uint8_t dtype;
    bool has_inf;
    uint64_t flip, mask, top;
};

static const struct classes floats[] = {
    {WFS_F64, true, 0, INT64_MAX, 0x7ff0000000000000},
    {WFS_F32, true, 0, INT32_MAX, 0x7f800000},
    {WFS_FLEX32, true, 0, INT32_MAX, 0x7f800000},
    {WFS_F16, true, 0, 0x7fff, 0x7c00},
    {WFS_BF16, true, 0, 0x7fff, 0x7f80},
    {WFS_F8_E5M2, true, 0, 0x7f, 0x7c},
    {WFS_F8_E4M3, false, 0, 0x7f, 0x7e},
    {WFS_F8_E8M0, false, 0, 0xff, 0xfe},
    {WFS_F8_E4M3FNUZ, false, 0x7f, 0xff, 0xfe},
    {WFS_F8_E5M2FNUZ, false, 0x7f, 0xff, 0xfe},
};

enum { N_FLOATS = sizeof(floats) / sizeof(floats[0]) };

/* The counters are as wide as the elements, and a run is too short for them to overflow. */
#define COUNT_CLASSES(n_bits, from_file)                                                           \
    always_inline void count_##n_bits(const void *elems, size_t n, const struct classes *classes,  \
                                      uint64_t *n_nan, uint64_t *n_inf)                            \
    {                                                                                              \
        typedef uint##n_bits##_t bits;                                                             \
        const size_t n_run = n_bits == 8 ? 128 : 4096;                                             \
        const bits flip = (bits)classes->flip, mask = (bits)classes->mask;                         \
        const bits top = (bits)classes->top;                                                       \
        for (size_t start = 0; start < n; start += n_run) {                                        \
            const char *at = (const char *)elems + start * sizeof(bits);                           \
            const size_t n_now = n - start < n_run ? n - start : n_run;                            \
            bits n_above = 0, n_equal = 0;                                                         \
            for (size_t i = 0; i < n_now; i++) {                                                   \
                bits value;                                                                        \
                memcpy(&value, at + i * sizeof(value), sizeof(value));                             \
                value = (bits)((from_file(value) ^ flip) & mask);                                  \
                n_above = (bits)(n_above + (value > top));                                         \
                n_equal = (bits)(n_equal + (value == top));                                        \
            }                                                                                      \
            *n_nan += n_above;                                                                     \
            *n_inf += classes->has_inf ? n_equal : 0;                                              \
        }                                                                                          \
    }

COUNT_CLASSES(8, (uint8_t))
COUNT_CLASSES(16, le16toh)
COUNT_CLASSES(32, le32toh)
COUNT_CLASSES(64, le64toh)

CAST_CLONES static void count_classes(unsigned n_bits, const void *elems, size_t n,
                                      const struct classes *classes, uint64_t *n_nan,
                                      uint64_t *n_inf)
{
    switch (n_bits) {
    case 8:
        count_8(elems, n, classes, n_nan, n_inf);
        break;
    case 16:
        count_16(elems, n, classes, n_nan, n_inf);
        break;
    case 32:
        count_32(elems, n, classes, n_nan, n_inf);
        break;
    default:
        count_64(elems, n, classes, n_nan, n_inf);
    }
}

void census_odd(enum wfs_dtype dtype, const void *elems, size_t n, uint64_t *n_nan, uint64_t *n_inf)
{
    for (size_t i = 0; i < N_FLOATS; i++) {
        if (floats[i].dtype == dtype)
            count_classes(wfs_dtype_bits(dtype), elems, n, &floats[i], n_nan, n_inf);
    }
}

/* ---- sums ---- */

struct lanes {
    double sum[CENSUS_LANES], min[CENSUS_LANES], max[CENSUS_LANES];
};

always_inline void add_extremes(struct lanes *lanes, const double *x, size_t n, double scale)
{
    for (size_t i = 0; i < n; i++) {
        lanes->sum[i] += x[i] * scale;
        lanes->min[i] = x[i] < lanes->min[i] ? x[i] : lanes->min[i];
        lanes->max[i] = x[i] > lanes->max[i] ? x[i] : lanes->max[i];
    }
}

always_inline double sum_lanes(double *sums)
{
    for (size_t n = CENSUS_LANES / 2; n > 0; n /= 2) {
        for (size_t i = 0; i < n; i++)
            sums[i] += sums[i + n];
    }
    return sums[0];
}

/* Finds extremes and the sum of x * scale; of numbers that are not all finite, only the sum, which
 * is not finite then either. */
CAST_CLONES static double find_extremes(const double *x, size_t n, double scale,
                                        struct wfs_stats *stats)
{
    struct lanes lanes = {0};
    size_t i = 0;
    uint64_t n_zero = 0;
    for (size_t k = 0; k < CENSUS_LANES; k++)
        lanes.min[k] = lanes.max[k] = x[0];
    for (; i + CENSUS_LANES <= n; i += CENSUS_LANES)
        add_extremes(&lanes, x + i, CENSUS_LANES, scale);
    add_extremes(&lanes, x + i, n - i, scale);
    for (i = 0; i < n; i++)
        n_zero += x[i] == 0;
    double min = x[0], max = x[0];
    for (size_t k = 0; k < CENSUS_LANES; k++) {
        min = lanes.min[k] < min ? lanes.min[k] : min;
        max = lanes.max[k] > max ? lanes.max[k] : max;
    }
    stats->min = min + 0.0; /* never -0.0 */
    stats->max = max + 0.0;
    stats->n_zero = n_zero;
    return sum_lanes(lanes.sum);
}

always_inline void add_squares(double *sums, double *squares, const double *x, size_t n,
                               double mean)
{
    for (size_t i = 0; i < n; i++) {
        const double d = x[i] - mean;
        sums[i] += d;
        squares[i] += d * d;
    }
}

/* Makes the mean, which is that of rounded sums, exact but for one rounding, and finds the squares
 * of the distances from it. */
CAST_CLONES static void find_squares(const double *x, size_t n, struct census *census)
{
    double sums[CENSUS_LANES] = {0}, squares[CENSUS_LANES] = {0};
    const double mean = census->stats.mean;
    size_t i = 0;
    for (; i + CENSUS_LANES <= n; i += CENSUS_LANES)
        add_squares(sums, squares, x + i, CENSUS_LANES, mean);
    add_squares(sums, squares, x + i, n - i, mean);
    const double rest = sum_lanes(sums);
    census->squares = sum_lanes(squares);
    if (!isfinite(census->squares)) {
        census->squares = INFINITY;
        return;
    }
    census->stats.mean = mean + rest / (double)n;
    census->squares = fmax(census->squares - rest * rest / (double)n, 0);
}

/* Moves the finite ones to the front and returns how many there are. */
static size_t keep_finite(double *numbers, size_t n, struct wfs_stats *stats)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(numbers[i]))
            numbers[n_kept++] = numbers[i];
        else if (isnan(numbers[i]))
            stats->n_nan++;
        else if (numbers[i] > 0)
            stats->n_positive_inf++;
        else
            stats->n_negative_inf++;
    }
    return n_kept;
}

void census_block(double *numbers, size_t n, struct census *ret)
{
    struct wfs_stats *stats = &ret->stats;
    double scale = 1;
    *ret = (struct census){.stats.n_elems = n};
    double sum = n > 0 ? find_extremes(numbers, n, scale, stats) : 0;
    if (!isfinite(sum)) {
        n = keep_finite(numbers, n, stats);
        sum = n > 0 ? find_extremes(numbers, n, scale, stats) : 0;
    }
    if (!isfinite(sum)) {
        scale = 0x1p-64; /* a block has fewer numbers than that */
        sum = find_extremes(numbers, n, scale, stats);
    }
    stats->n_finite = n;
    if (n == 0) {
        stats->min = stats->max = 0;
        stats->n_zero = 0;
        return;
    }
    stats->mean = stats->min == stats->max ? stats->min : sum / (double)n / scale;
    if (stats->min != stats->max)
        find_squares(numbers, n, ret);
}

void census_join(struct census *to, const struct census *from)
{
    struct wfs_stats *a = &to->stats;
    const struct wfs_stats *b = &from->stats;
    const uint64_t n_before = a->n_finite;
    wfs_stats_add_counts(a, b);
    if (b->n_finite == 0)
        return;
    if (n_before == 0) {
        a->min = b->min;
        a->max = b->max;
        a->mean = b->mean;
        to->squares = from->squares;
        return;
    }
    a->min = b->min < a->min ? b->min : a->min;
    a->max = b->max > a->max ? b->max : a->max;
    const double share = (double)b->n_finite / (double)a->n_finite, delta = b->mean - a->mean;
    const double more = delta * delta * ((double)n_before * share);
    a->mean = isfinite(delta) ? a->mean + delta * share : a->mean * (1 - share) + b->mean * share;
    to->squares = isfinite(more) ? to->squares + from->squares + more : INFINITY;
}

/* ---- bins ---- */

CAST_CLONES static void find_bins(const struct wfs_stats *stats, const double *x, size_t n,
                                  size_t n_bins, int32_t *bins)
{
    const double scale = isinf(stats->max - stats->min) ? 0.5 : 1;
    const double min = stats->min * scale, width = stats->max * scale - min;
    const double last = (double)n_bins - 1, outside = (double)n_bins;
    for (size_t i = 0; i < n; i++) {
        const double place = (x[i] * scale - min) / width * (double)n_bins;
        const double bin = place > 0 ? place < last ? place : last : 0;
        bins[i] = (int32_t)(x[i] - x[i] == 0 ? bin : outside);
    }
}

void census_bins(const struct wfs_stats *stats, const double *numbers, size_t n, size_t n_bins,
                 int32_t *bins)
{
    find_bins(stats, numbers, n, n_bins, bins);
}

/* ---- two lists ---- */

struct pair_lanes {
    double abs[CENSUS_LANES], rel[CENSUS_LANES];
};

always_inline void add_differences(struct pair_lanes *lanes, const double *x, const double *y,
                                   size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const bool counts = x[i] == x[i] && y[i] == y[i] && x[i] != y[i];
        const double abs = counts ? fabs(x[i] - y[i]) : 0;
        const double size = fabs(x[i]) > fabs(y[i]) ? fabs(x[i]) : fabs(y[i]);
        const double rel = abs == 0 ? 0 : size > 0x1.fffffffffffffp1023 ? INFINITY : abs / size;
        lanes->abs[i] = abs > lanes->abs[i] ? abs : lanes->abs[i];
        lanes->rel[i] = rel > lanes->rel[i] ? rel : lanes->rel[i];
    }
}

CAST_CLONES static void find_differences(const double *x, const double *y, size_t n,
                                         struct wfs_difference *total)
{
    struct pair_lanes lanes = {0};
    size_t i = 0;
    uint64_t n_changed = 0, n_nan = 0;
    for (; i + CENSUS_LANES <= n; i += CENSUS_LANES)
        add_differences(&lanes, x + i, y + i, CENSUS_LANES);
    add_differences(&lanes, x + i, y + i, n - i);
    for (i = 0; i < n; i++) {
        const uint64_t x_is_nan = x[i] != x[i], y_is_nan = y[i] != y[i];
        n_nan += x_is_nan ^ y_is_nan;
        n_changed += (uint64_t)(x[i] != y[i]) - (x_is_nan & y_is_nan);
    }
    total->n_changed += n_changed;
    total->n_nan += n_nan;
    for (size_t k = 0; k < CENSUS_LANES; k++) {
        total->max_abs = lanes.abs[k] > total->max_abs ? lanes.abs[k] : total->max_abs;
        total->max_rel = lanes.rel[k] > total->max_rel ? lanes.rel[k] : total->max_rel;
    }
}

void wfs_difference_add(const double *a, const double *b, size_t n, struct wfs_difference *total)
{
    find_differences(a, b, n, total);
}

struct product_lanes {
    double aa[CENSUS_LANES], bb[CENSUS_LANES], ab[CENSUS_LANES], dd[CENSUS_LANES];
};

always_inline void add_products(struct product_lanes *lanes, const double *x, const double *y,
                                size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const bool is_finite = (x[i] - x[i]) + (y[i] - y[i]) == 0;
        const double a = is_finite ? x[i] : 0, b = is_finite ? y[i] : 0;
        lanes->aa[i] += a * a;
        lanes->bb[i] += b * b;
        lanes->ab[i] += a * b;
        lanes->dd[i] += (a - b) * (a - b);
    }
}

CAST_CLONES static struct wfs_products find_products(const double *x, const double *y, size_t n)
{
    struct product_lanes lanes = {0};
    size_t i = 0;
    for (; i + CENSUS_LANES <= n; i += CENSUS_LANES)
        add_products(&lanes, x + i, y + i, CENSUS_LANES);
    add_products(&lanes, x + i, y + i, n - i);
    return (struct wfs_products){sum_lanes(lanes.aa), sum_lanes(lanes.bb), sum_lanes(lanes.ab),
                                 sum_lanes(lanes.dd)};
}

struct wfs_products wfs_products_of(const double *a, const double *b, size_t n)
{
    return find_products(a, b, n);
}
