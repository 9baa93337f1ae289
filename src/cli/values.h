/* SPDX-License-Identifier: MIT */
/*
 * Elements of a tensor as text, and their histogram.
 */
#ifndef WFS_VALUES_H
#define WFS_VALUES_H

#include "cli/progress.h"

#include <weightfs/json_out.h>
#include <weightfs/strbuf.h>
#include <weightfs/tensor.h>
#include <weightfs/workload.h>

#define VALUES_TEXT_MAX 80
#define VALUES_N_BINS 16

/*
 * Formats element `index` (row-major) for a person, or as a JSON value: numbers are exact, values
 * that are not finite are strings, complex numbers are pairs, uninterpreted bits are strings of
 * hexadecimal digits. -EIO.
 */
int values_format(const struct wfs_tensor *tensor, uint64_t index, bool is_json,
                  char text[VALUES_TEXT_MAX]);

/*
 * Formats a result of wfs_tensor_stats: integers in full if a double holds them exactly, otherwise
 * with "about".
 */
void values_format_number(const struct wfs_tensor *tensor, double number,
                          char text[VALUES_TEXT_MAX]);

/*
 * Returns the number of elements for values_format: the bytes of an opaque tensor, otherwise the
 * product of its shape.
 */
uint64_t values_n_elems(const struct wfs_tensor *tensor);

/* What is counted in one tensor. */
struct values_summary {
    bool has_stats; /* the elements are numbers */
    bool has_histogram;
    struct wfs_stats stats;
    uint64_t counts[VALUES_N_BINS];
};

/* Reads a tensor twice; what does not hold numbers has no statistics, BOOL and what is constant no
 * histogram. -EIO, -ENOMEM. */
int values_summarise(const struct wfs_io *io, const struct wfs_tensor *tensor,
                     struct progress *progress, struct values_summary *ret);

/* Puts the member "histogram", null where there is none. */
void values_put_histogram(struct json_out *out, const struct values_summary *summary);

/* Adds a histogram as n_columns characters of eighths of blocks; n_columns divides VALUES_N_BINS.
 */
void values_add_spark(struct strbuf *out, const uint64_t counts[VALUES_N_BINS], size_t n_columns);

/*
 * Counts, in n_bins equal bins from min to max, the finite elements of at most 768 KiB, which are
 * taken evenly from the whole tensor; of all elements where it is no larger. *ret_n_elems is how
 * many were looked at. -EIO, -ENOMEM.
 */
int values_sample(const struct wfs_tensor *tensor, const struct wfs_stats *stats, size_t n_bins,
                  uint64_t *counts, uint64_t *ret_n_elems);

/* ---- percentiles: exact, in memory that does not depend on the size of a tensor ---- */

enum { PERCENTILES_N = 7 };

/* Which: 1, 5, 25, 50, 75, 95, 99. */
extern const unsigned percentiles_ranks[PERCENTILES_N];

/* Returns how often percentiles_find reads the tensor. */
unsigned percentiles_n_passes(const struct wfs_tensor *tensor);

/*
 * Finds for each the smallest element that is not smaller than so many percent of the finite
 * elements, of which there are n_finite, at least 1. The tensor holds numbers. -EIO, -ENOMEM.
 */
int percentiles_find(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t n_finite,
                     double ret[PERCENTILES_N]);

#endif
