/* SPDX-License-Identifier: MIT */
/*
 * The header is generated again for each read that touches it.
 */
#include "tree/frame.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tree/file/description.h"
#include "tree/node/edit.h"

/* Returns true when a header is generated for the content. */
static bool is_framed(const struct wfs_tree *tree, const struct wfs_node *node)
{
    return tree->options.files == WFS_FILES_NPY && node->kind == NODE_FILE && !edit_is_staged(node);
}

size_t frame_header_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node)
{
    if (!is_framed(tree, node))
        return 0;
    const struct wfs_tensor tensor = description_shown(node);
    return wfs_npy_header(&tensor, NULL, 0);
}

ssize_t frame_read(const struct wfs_tensor *tensor, size_t n_header, uint64_t offset, void *buf,
                   size_t n_bytes)
{
    size_t n_front = 0;
    if (offset < n_header) {
        autofree char *header = malloc(n_header);
        if (header == NULL)
            return -ENOMEM;
        wfs_npy_header(tensor, header, n_header);
        n_front = n_header - (size_t)offset;
        n_front = n_front < n_bytes ? n_front : n_bytes;
        memcpy(buf, header + offset, n_front);
        offset = n_header;
    }
    const ssize_t n =
        n_front == n_bytes
            ? 0
            : wfs_tensor_read(tensor, offset - n_header, (char *)buf + n_front, n_bytes - n_front);
    return n < 0 ? n : (ssize_t)n_front + n;
}
