/* SPDX-License-Identifier: MIT */
/*
 * The dtypes of records: Burn's names for them, its numbers, and Rust's names in the metadata.
 */
#ifndef WFS_RECORD_DTYPE_H
#define WFS_RECORD_DTYPE_H

#include "format/records/record_load.h"

/* A dtype as it is in a tensor. */
struct record_dtype {
    enum wfs_dtype dtype;
    const struct wfs_text *attrs; /* that it brings along */
};

/* Finds a dtype that has a name alone. */
bool record_dtype_parse(const char *name, size_t n_bytes, enum wfs_dtype *ret);

/* Returns Burn's name of a dtype, NULL: it has none. Bools have a form of their own since 0.21. */
const char *record_dtype_name(enum wfs_dtype dtype);

/* Returns the dtype that Rust's name stands for, such as "half::binary16::f16"; WFS_OPAQUE: none.
 */
enum wfs_dtype record_dtype_of_rust(const char *name, size_t n_bytes);

/*
 * Reads the dtype of the tensor with the key from the value of its field. -EOPNOTSUPP for one that
 * is not known; with force its bytes are opaque.
 */
int record_dtype_take(struct record_load *load, const char *key, uint32_t id,
                      struct record_dtype *ret);

#endif
