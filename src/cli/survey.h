/* SPDX-License-Identifier: MIT */
/*
 * Statistics of many tensors: a line for each, or for equal layers together.
 */
#ifndef WFS_SURVEY_H
#define WFS_SURVEY_H

#include <weightfs/catalog.h>
#include <weightfs/json_out.h>
#include <weightfs/tensor.h>
#include "cli/args.h"
#include "program/print.h"

/*
 * Reads the tensors of the catalog that are marked and prints them. Unless EXIT_DONE, a line was
 * printed.
 */
enum exit_code survey_print(const struct args *args, const struct wfs_catalog *catalog,
                            const bool *marks);

/* Takes its options from the command line, or prints a line about those that do not fit. */
enum exit_code survey_check(const struct args *args);

/*
 * A part of a tensor as numpy spells it: "0:4,:", "-1", "::2,3". Its elements are read one by one,
 * and no others. Ranges are clipped as Python clips them; an index must exist.
 */

struct slice_range {
    uint64_t start, step, n; /* indices */
    bool is_index;           /* one index, which leaves no dimension in the result */
};

struct slice {
    const struct wfs_tensor *tensor;
    struct slice_range *ranges; /* one for each dimension */
    uint64_t n_elems;
};

void slice_done(struct slice *slice);

/* Parses; text is the value of --slice. Unless EXIT_DONE, a line was printed. */
enum exit_code slice_parse(struct slice *slice, const struct wfs_tensor *tensor, const char *text,
                           const char *path);

/*
 * Prints the elements, one line for each row; a heading for each matrix where there are more. On a
 * terminal of n_screen columns (0: it is none) a matrix is drawn, and its elements are printed
 * where they have room. A negative errno if a read fails.
 */
int slice_print(const struct slice *slice, size_t n_screen);

/* Puts "slice_shape", and "values" in the order of rows. */
int slice_put_json(const struct slice *slice, struct json_out *out);

#endif
