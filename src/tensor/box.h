/* SPDX-License-Identifier: MIT */
/*
 * A box of a strided tensor: one index range per dimension, read from the file into row-major
 * order with few, large reads and bounded memory.
 */
#ifndef WFS_BOX_H
#define WFS_BOX_H

#include "base/source.h"
#include "tensor/element.h"
#include "tensor/permute.h"

/* axes: `in` is bytes in the file, `out` bytes in what is shown. */
struct box {
    struct axis axes[PERMUTE_MAX_AXES];
    uint32_t n_axes;
};

/* Returns how many bytes the time to read the box is worth, where a read costs as much as a gap
 * that is not worth one. All axes have elements. */
uint64_t box_cost(const struct recipe *recipe, const struct box *box);

/* Reads the box whose first element is at offset. The caller checks the source afterwards. -EIO,
 * -ENOMEM. */
int box_read(const struct source *source, const struct recipe *recipe, const struct box *box,
             uint64_t offset, char *out);

#endif
