/* SPDX-License-Identifier: MIT */
/*
 * A part of a tensor as numpy spells it: "0:4,:", "-1", "::2,3". Its elements are read one by one,
 * and no others.
 */
#ifndef WFS_SLICE_H
#define WFS_SLICE_H

#include <weightfs/cleanup.h>
#include <weightfs/tensor.h>

#include "cli/jsonout.h"
#include "program/exit.h"

struct slice_range {
    uint64_t start, step, n; /* indices */
    bool is_index;           /* one index, which leaves no dimension in the result */
};

struct slice {
    const struct wfs_tensor *tensor;
    struct slice_range *ranges; /* one for each dimension */
    uint64_t n_elems;
};

/* Parses; text is the value of --slice. Unless EXIT_DONE, a line was printed. */
enum exit_code slice_parse(struct slice *slice, const struct wfs_tensor *tensor, const char *text,
                           const char *path);
void slice_done(struct slice *slice);

/* Prints the elements, one line for each row; a heading for each matrix where there are more. A
 * negative errno if a read fails. */
int slice_print(const struct slice *slice);

/* Puts "slice_shape", and "values" in the order of rows. */
int slice_put_json(const struct slice *slice, struct jsonout *out);

#define auto_slice cleanup(slice_done)

#endif
