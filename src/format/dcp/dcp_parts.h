/* SPDX-License-Identifier: MIT */
/*
 * Directories of DCP's writer for Hugging Face: safetensors files whose tensors are parts of larger
 * ones. Nothing but the offsets of the parts describes the whole.
 */
#ifndef WFS_DCP_PARTS_H
#define WFS_DCP_PARTS_H

#include "format/core/format.h"

/* Returns whether a safetensors file has tensors that are parts, by the text of its header: 1; 0,
 * also where that cannot be read. -ENOMEM. */
int dcp_parts_probe(const char *path);

/*
 * Loads a directory (with its slash) whose files these are: names in natural order. -EBADMSG,
 * -EOPNOTSUPP, -E2BIG, -EIO, -ENOMEM.
 */
int dcp_parts_load(const char *folder, const char *const *names, size_t n_names,
                   const struct load_context *context, struct wfs_catalog **out,
                   struct wfs_error *err);

/* Adds a finding to the catalog of one safetensors file whose tensors are parts. -ENOMEM. */
int dcp_parts_tell(struct wfs_catalog *catalog, const char *path);

#endif
