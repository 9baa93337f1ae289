/* SPDX-License-Identifier: MIT */
/*
 * Elements of a strided tensor collected into row-major, little-endian order and cast to what is
 * shown: any byte range of it.
 */
#ifndef WFS_GATHER_H
#define WFS_GATHER_H

#include <weightfs/tensor.h>

/*
 * Fills buf with n_bytes of the shown content from offset; the range lies inside it. -EIO, -ENOMEM.
 * Sub-byte dtypes are gathered only where dense.
 */
int gather(const struct wfs_tensor *tensor, uint64_t offset, void *buf, size_t n_bytes);

/*
 * Returns how many shown bytes are best gathered together, starting at a multiple of that number:
 * where the shown order runs across the stored one, small pieces cost nearly as much as large ones.
 * 0: the size does not matter.
 */
uint64_t gather_band_bytes(const struct wfs_tensor *tensor);

#endif
