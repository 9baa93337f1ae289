/* SPDX-License-Identifier: MIT */
/*
 * Outputs that are loaded again before they are published.
 */
#ifndef WFS_READBACK_H
#define WFS_READBACK_H

#include "base/outfile.h"
#include "format/core/layout.h"

/*
 * Loads a file that was written and synced, by the loader of its format. Only what decides how
 * much is listed is limited, as it was for what the file was made from.
 */
int readback_load(const struct wfs_format *format, const struct outfile *outfile,
                  const struct wfs_catalog *wanted, struct wfs_catalog **out,
                  struct wfs_error *err);

/*
 * The same, and fails with -EIO unless the file has what the layout was made from. It relies on
 * outfile_check for the bytes of the layout.
 */
int readback_load_same(const struct wfs_layout *layout, const struct wfs_save_options *options,
                       const struct outfile *outfile, struct wfs_catalog **out,
                       struct wfs_error *err);

/*
 * Compares the bytes of two tensors of one dtype and shape: what was expected, and what was found,
 * in a file of the layout or elsewhere. It relies on outfile_check for the bytes of the layout,
 * which may be NULL. -EIO, -ENOMEM, or what the progress of the options says.
 */
int readback_compare_bytes(const struct wfs_layout *layout, const struct wfs_save_options *options,
                           const struct wfs_tensor *wanted, const struct wfs_tensor *found,
                           struct wfs_error *err);

#endif
