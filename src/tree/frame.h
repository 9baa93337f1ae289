/* SPDX-License-Identifier: MIT */
/*
 * A tensor file as it is shown: the data, after a .npy header where the mount generates one.
 */
#ifndef WFS_TREE_FRAME_H
#define WFS_TREE_FRAME_H

#include "tree/node/node.h"

/* Returns the bytes of the header that is generated for the file; 0: none. */
size_t frame_header_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node);

/* Reads header and data as one, like wfs_tensor_read. */
ssize_t frame_read(const struct wfs_tensor *tensor, size_t n_header, uint64_t offset, void *buf,
                   size_t n_bytes);

#endif
