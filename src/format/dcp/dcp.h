/* SPDX-License-Identifier: MIT */
/*
 * The room of PyTorch's distributed checkpoints: directories in which many ranks wrote parts of
 * tensors. It knows the metadata, how parts become tensors, and how such a directory is recognised.
 * The stored items are files of PyTorch or safetensors, which it gives to those rooms.
 */
#ifndef WFS_DCP_H
#define WFS_DCP_H

#include "format/core/format.h"

extern const struct wfs_format format_dcp;

/*
 * Loads a directory, or the one that a file called .metadata is in. 1: *out; 0: the path is
 * something else, for which nothing was reported. -EBADMSG, -EOPNOTSUPP, -E2BIG, -EISDIR (a
 * directory without what belongs to it), -EIO, -ENOMEM.
 */
int dcp_load(const char *path, const struct load_context *context, struct wfs_catalog **out,
             struct wfs_error *err);

/* Returns whether a directory (with its slash) has the metadata of a distributed checkpoint. */
bool dcp_is_described(const char *folder);

/* Refuses the URL of a file that is not the one to be named. -EISDIR, -EOPNOTSUPP, -ENOMEM. */
int dcp_refuse_url(const char *url, struct wfs_error *err);

/* Loads what the open file of a URL describes, with the files beside it. As dcp_load; the source is
 * taken over unless 0 is returned. */
int dcp_load_url(struct source *source, const struct load_context *context,
                 struct wfs_catalog **out, struct wfs_error *err);

#endif
