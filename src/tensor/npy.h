/* SPDX-License-Identifier: MIT */
/*
 * The header of a .npy file: what one that somebody else wrote says.
 */
#ifndef WFS_NPY_H
#define WFS_NPY_H

#include <weightfs/tensor.h>
#include "base/arena.h"

#define NPY_MAGIC "\x93NUMPY"

enum {
    NPY_MAGIC_BYTES = 6,
    NPY_HEADER_MAX = 65536,              /* bytes of its text */
    NPY_FRONT_MAX = NPY_HEADER_MAX + 12, /* bytes of a file that are enough to see it whole */
};

struct npy_header {
    size_t n_bytes; /* before the data */
    char descr[16]; /* "<f4"; 'V' types and single bytes as wfs_dtype_descr has them */
    bool has_dtype; /* descr names one; "<V2" and the like do not */
    enum wfs_dtype dtype;
    struct wfs_shape shape; /* dims in the arena */
};

/*
 * Parses a header. bytes are the first ones of the file: NPY_FRONT_MAX of them, or all. -EBADMSG,
 * -E2BIG, -ENOMEM, and -EOPNOTSUPP for what a tensor cannot be: Fortran order, big-endian, objects.
 * *ret_reason is set when this fails: static text to follow the name of the file.
 */
int npy_parse(const char *bytes, size_t n_bytes, struct arena *arena, struct npy_header *ret,
              const char **ret_reason);

/* Returns how many elements a row has that takes n_bytes, as a header shows elements of less than a
 * byte and blocks. What does not fill a block is left out. */
uint64_t npy_unpack(enum wfs_dtype dtype, uint64_t n_bytes);

#endif
