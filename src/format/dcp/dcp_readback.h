/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint that was written, before it is published: whether loading it gives what was planned.
 */
#ifndef WFS_DCP_READBACK_H
#define WFS_DCP_READBACK_H

#include "format/core/directory.h"

/* Compares keys, dtypes, shapes, bytes and edited values. -EIO, -ENOMEM, or what the progress of
 * the options says. */
int dcp_readback_compare(const struct directory *directory, const struct directory_files *files,
                         const struct wfs_save_options *options, const struct wfs_catalog *found,
                         struct wfs_error *err);

#endif
