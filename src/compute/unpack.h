/* SPDX-License-Identifier: MIT */
/*
 * Codes of a few bits that are packed in bytes or words, one in each byte: U8, row-major.
 */
#ifndef WFS_UNPACK_H
#define WFS_UNPACK_H

#include <weightfs/tensor.h>
#include "base/source.h"

enum packing {
    PACKING_LOW_FIRST,  /* two in a byte, the low half first, whatever the rows */
    PACKING_HIGH_FIRST, /* the same, the high half first */
    PACKING_ROWS,       /* a stream of bits along each row of words, low bits first */
    PACKING_COLUMNS,    /* the same along each column */
    PACKING_AWQ,        /* eight in a word of a row, in the order 0 2 4 6 1 3 5 7 */
};

struct packed {
    struct wfs_tensor tensor; /* a matrix of U8, I8 or I32; its arrays are borrowed */
    enum packing packing;
    unsigned n_bits; /* 1 to 8; 4 where two are in a byte, or eight in a word */
    uint64_t n_rows, n_cols;
};

/* Makes the codes a source, after a check that the tensor has all of them. -EINVAL, -ENOMEM. */
int unpack_new(const struct packed *packed, struct source **out);

#endif
