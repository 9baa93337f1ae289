/* SPDX-License-Identifier: MIT */
/*
 * What is known of a file as a tensor: dtype, shape and where its data begins. In this order: what
 * was set, the header of a .npy file, the tensor that the file was or has replaced, a sibling.
 *
 * The room src/tree/file knows what a single file contains: its staged content, its description,
 * its key, its place in the output. It leaves changes of the tree and generated texts to those
 * above.
 */
#ifndef WFS_TREE_DESCRIPTION_H
#define WFS_TREE_DESCRIPTION_H

#include "base/source.h"
#include "tree/node/node.h"

#include <errno.h>

struct description {
    bool has_dtype, has_shape;
    bool is_framed; /* a .npy file: its name has the suffix, its key does not */
    uint8_t dtype;
    struct wfs_shape shape; /* dims borrowed from the tree, or in the arena */
    uint64_t data_offset;   /* into the staged file */
    uint64_t n_bytes;       /* of data */
    uint32_t sibling;       /* the entry that dtype and shape are taken from, or 0 */
};

/* Returns true for an error that says that the .npy header of a file cannot be used. */
static inline bool description_is_of_header(int code)
{
    return code == -EBADMSG || code == -E2BIG || code == -EOPNOTSUPP;
}

/* Returns 1 when the suffix ".npy" of the name is not part of the key, else 0. -EIO, -ENOMEM. */
int description_hides_suffix(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id);

/* Checks that dtype and shape are known and take exactly the bytes that the file has. -EINVAL. */
int description_check(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                      const struct description *description, struct wfs_error *err);

/*
 * Returns the tensor as the tree shows it while its content is that of the catalog: with the dtype
 * and shape that were set, and the key of the catalog.
 */
struct wfs_tensor description_shown(const struct wfs_node *node);

/*
 * Makes the tensor that a commit would write, except for its key. source is that of a staged node,
 * or NULL. A new list of attributes is made in the arena. -ENOMEM.
 */
int description_tensor(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                       const struct description *description, struct source *source,
                       struct arena *arena, struct wfs_tensor *ret);

/* Returns what the file was loaded as under that name (entry; 0: none): tied tensors share a node,
 * and each has a description of its own. NULL: it is new. */
const struct wfs_tensor *description_base(const struct wfs_tree *tree, const struct wfs_node *node,
                                          uint32_t id);

/* Does what description_make does, and describes a file of which nothing is known by a sibling. */
int sibling_describe(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                     struct arena *arena, struct description *ret, struct wfs_error *err);

/* Returns the bytes of the header that is generated for the file; 0: none. */
size_t frame_header_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node);

/* Reads header and data as one, like wfs_tensor_read. */
ssize_t frame_read(const struct wfs_io *io, const struct wfs_tensor *tensor, size_t n_header,
                   uint64_t offset, void *buf, size_t n_bytes);

#endif
