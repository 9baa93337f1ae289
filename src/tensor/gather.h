/* SPDX-License-Identifier: MIT */
/*
 * Elements of a strided tensor collected into row-major, little-endian order: any byte range of
 * what is shown.
 */
#ifndef WFS_GATHER_H
#define WFS_GATHER_H

#include <weightfs/tensor.h>

/*
 * Fills buf with n_bytes of the shown content from offset; the range lies inside it. -EIO, -ENOMEM.
 * Sub-byte dtypes are gathered only where dense.
 */
int gather(const struct wfs_tensor *tensor, uint64_t offset, void *buf, size_t n_bytes);

#endif
