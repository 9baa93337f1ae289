/* SPDX-License-Identifier: MIT */
/*
 * A layout: the complete file that a save would write, as header bytes and ranges of tensors. It
 * can be read like the file, and saved.
 */
#ifndef WFS_LAYOUT_H
#define WFS_LAYOUT_H

#include <weightfs/catalog.h>
#include <weightfs/output.h>

struct wfs_layout;

#pragma GCC visibility push(default)

/*
 * Plans a file of the format. Borrows the catalog. -EOPNOTSUPP names a tensor that the format
 * cannot hold; -EINVAL a key that it cannot.
 */
int wfs_layout_new(const struct wfs_format *format, const struct wfs_catalog *catalog,
                   struct wfs_layout **out, struct wfs_error *err);
void wfs_layout_free(struct wfs_layout *layout);

/* For a variable that owns a layout. */
#define auto_layout __attribute__((__cleanup__(wfs_layout_cleanup)))

static inline void wfs_layout_cleanup(struct wfs_layout **layout)
{
    wfs_layout_free(*layout);
}

uint64_t wfs_layout_n_bytes(const struct wfs_layout *layout);

/*
 * Returns whether the file is much larger than its sources: above 1 MiB and 16 times the files that
 * the tensors lie in. A tensor of a few stored bytes may be shown as a huge one (stride 0), and
 * would fill a disk.
 */
bool wfs_layout_is_large(const struct wfs_layout *layout);

/* As wfs_tensor_read_for, of the file. */
ssize_t wfs_layout_read(const struct wfs_io *io, const struct wfs_layout *layout, uint64_t offset,
                        void *buf, size_t n_bytes);

/*
 * Writes the layout beside path under a temporary name, syncs it, loads it again and compares,
 * renames it to path and syncs the directory. On any failure the temporary is gone and the file at
 * path is untouched. After that the layout can only be freed. report may be NULL. Returns a
 * negative errno; -EIO of a source that came up short or changed names the tensor.
 */
int wfs_save(struct wfs_layout *layout, const char *path, const struct wfs_save_options *options,
             struct wfs_save_report *report, struct wfs_error *err);

#pragma GCC visibility pop

#endif
