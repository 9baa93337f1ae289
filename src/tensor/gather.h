/* SPDX-License-Identifier: MIT */
/*
 * Elements of a strided tensor collected into row-major, little-endian order and cast to what is
 * shown: any byte range of it. Also a small cache of bands (stretches of what is shown) for tensors
 * whose shown order runs across the stored one, so that reading them costs about the same per byte
 * whatever the size of the requests: one for the process, bounded, with its own lock, the only
 * shared mutable state of the library.
 */
#ifndef WFS_GATHER_H
#define WFS_GATHER_H

#include <weightfs/tensor.h>

#include <stddef.h>
#include <stdint.h>

/*
 * Fills buf with n_bytes of the shown content from offset; the range lies inside it. -EIO, -ENOMEM.
 * Sub-byte dtypes are gathered only where dense.
 */
int gather(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t offset, void *buf,
           size_t n_bytes); /* for tests */

/* Returns how many bytes the time to gather all of it is worth; 0 where that fails at once. */
uint64_t gather_cost(const struct wfs_tensor *tensor);

/*
 * Returns how many shown bytes are best gathered together, starting at a multiple of that number:
 * where the shown order runs across the stored one, small pieces cost nearly as much as large ones.
 * 0: the size does not matter.
 */
uint64_t gather_band_bytes(const struct wfs_tensor *tensor);

/* Reads n whole elements from number `first` on. Negative errno. */
typedef int gather_read(void *ctx, uint64_t first, uint64_t n, char *out);

/*
 * Fills out with n_bytes from offset of a row of elements of n_elem bytes. Those that the range
 * begins or ends inside of are read whole, apart.
 */
int gather_range(gather_read *read, void *ctx, size_t n_elem, uint64_t offset, char *out,
                 size_t n_bytes);

/* Reads as gather does, from a tensor that is not plain. May run in parallel. */
int band_read(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t offset, void *buf,
              size_t n_bytes);

/* Makes the next band for a reader that has reached offset, inside of the tensor, and has read
 * enough of this one to need it. */
void band_read_ahead(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t offset);

/*
 * Elements in memory, moved from one order of dimensions to another.
 */

enum { PERMUTE_MAX_AXES = 64 };

/* n indices (not 0), and the bytes from one to the next on either side. */
struct axis {
    uint64_t n;
    uint64_t in, out;
};

/* Copies elements; at most PERMUTE_MAX_AXES axes, in any order. in and out do not overlap; nothing
 * needs to be aligned. */
void permute(const struct axis *axes, uint32_t n_axes, size_t n_elem, const char *in, char *out);

#endif
