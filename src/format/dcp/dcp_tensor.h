/* SPDX-License-Identifier: MIT */
/*
 * A tensor in parts: boxes that fill it without a hole and without an overlap, each with a stored
 * item that has its elements.
 */
#ifndef WFS_DCP_TENSOR_H
#define WFS_DCP_TENSOR_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/source.h"
#include <weightfs/strbuf.h>
#include <weightfs/tensor.h>

/* A stored item: a torch.save file, or a safetensors file, in a range of a file. */
struct dcp_item {
    uint32_t file; /* number of its file */
    bool is_used;  /* by a chunk or a value */
    uint64_t offset, n_bytes;
    const char *trouble; /* why it cannot be used; NULL: it can */
};

/* One part. What its elements are read from is known once the item was opened. */
struct dcp_part {
    const int64_t *box;    /* offsets, then sizes: one number each per dimension */
    uint32_t item;         /* number of the item */
    bool is_odd;           /* data is the address of a catalog, whose tensor has the elements */
    _Atomic uint64_t data; /* 1 + the place of the elements, row-major and dense, in the file; 0:
                              the item was not opened yet */
    uint64_t reach;        /* in dimension 0: the end of this part or of one before it */
};

struct dcp_tensor {
    const char *key;
    uint32_t rank;
    uint32_t n_parts;
    uint64_t *dims;          /* of packed elements: of bytes */
    struct dcp_part *parts;  /* none of them empty, in the order of their offsets */
    uint64_t start, n_bytes; /* in the assembly */
    uint32_t n_elem;         /* bytes of an element */
    uint8_t dtype;           /* enum wfs_dtype */
    bool is_object;          /* its one item is more than elements: it is read as a value */
    const char *trouble;     /* found when it was loaded; NULL: none */
    _Atomic(const char *) late_trouble; /* found when it was read */
};

/* Notes what is wrong with a tensor: the first trouble counts. NULL: nothing. */
static inline void dcp_tensor_spoil(struct dcp_tensor *tensor, const char *trouble)
{
    if (tensor->trouble == NULL)
        tensor->trouble = trouble;
}

/* Sets n_bytes by dims and n_elem: 0 where it is not below 2^63. Returns that as a trouble, NULL:
 * none. */
const char *dcp_tensor_measure(struct dcp_tensor *tensor);

/* Returns whether a box has no elements. */
bool dcp_box_is_empty(const int64_t *sizes, uint32_t rank);

/* Prints "[0, 4]": one number per dimension. */
void dcp_print_numbers(struct strbuf *text, const int64_t *numbers, uint32_t rank);

/*
 * Sorts the parts of a tensor, keeps one of equal ones, and checks that they fill it. Returns what
 * is wrong as a text in the arena, NULL: nothing. *ret_code: 0, -ENOMEM.
 */
const char *dcp_boxes_check(struct dcp_tensor *tensor, struct arena *arena, int *ret_code);

/* Returns the first part that may have elements of a row, an index of dimension 0, or of one after
 * it; n_parts: there is none. The parts are in the order of their first rows. */
uint32_t dcp_boxes_first(const struct dcp_tensor *tensor, uint64_t row);

#endif
