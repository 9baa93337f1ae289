/* SPDX-License-Identifier: MIT */
/*
 * Elements of a tensor as text, and how its numbers are spread.
 */
#ifndef WFS_VALUES_H
#define WFS_VALUES_H

#include <weightfs/tensor.h>

#define VALUES_TEXT_MAX 80
#define VALUES_N_BINS 16

/*
 * Element `index` (row-major) as text for a person, or as a JSON value: numbers exact, what is not
 * finite as a string, complex ones as a pair, uninterpreted bits as a string of hexadecimal digits.
 * -EIO.
 */
int values_format(const struct wfs_tensor *tensor, uint64_t index, bool is_json,
                  char text[VALUES_TEXT_MAX]);

/* A result of wfs_tensor_stats as text: integers in full where a double holds them, else with
 * "about". */
void values_format_number(const struct wfs_tensor *tensor, double number,
                          char text[VALUES_TEXT_MAX]);

/* Elements that values_format can be asked for: bytes of an opaque tensor, else those of its shape.
 */
uint64_t values_n_elems(const struct wfs_tensor *tensor);

/* Of the real and the imaginary part of a complex dtype. */
enum wfs_dtype values_part_dtype(enum wfs_dtype dtype);

/* Counts the finite elements in equal bins from min to max. -EIO, -ENOMEM. */
int values_histogram(const struct wfs_tensor *tensor, const struct wfs_stats *stats,
                     uint64_t counts[VALUES_N_BINS]);

#endif
