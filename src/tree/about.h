/* SPDX-License-Identifier: MIT */
/*
 * What a file says of itself: dtype, shape and where its data begins. In this order: what was set,
 * the header of a .npy file, the tensor that it was or has replaced.
 */
#ifndef WFS_TREE_ABOUT_H
#define WFS_TREE_ABOUT_H

#include "base/source.h"
#include "tree/node.h"

struct about {
    bool has_dtype, has_shape;
    bool is_framed; /* a .npy file; its name has the suffix, its key has not */
    uint8_t dtype;
    struct wfs_shape shape; /* dims borrowed from the tree, or in the arena */
    uint64_t data_offset;   /* into the staged file */
    uint64_t n_bytes;       /* of data */
};

/*
 * id is the entry that the node is looked at through; 0: it has no name any more. -EBADMSG,
 * -EOPNOTSUPP: the .npy header is not usable; -EIO, -ENOMEM. err names the file. What else is known
 * is there even then.
 */
int about_node(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
               struct arena *arena, struct about *ret, struct wfs_error *err);

/* True when the suffix ".npy" of the name is no part of the key. */
bool about_hides_suffix(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id);

/* Checks that dtype and shape are there and take just the bytes that there are. -EINVAL. */
int about_check(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                const struct about *about, struct wfs_error *err);

/* The staged file of an edit as a source that borrows from the tree. -ENOMEM. */
int about_source(const struct wfs_tree *tree, const struct wfs_node *node, struct source **out);

/*
 * The tensor that a commit would write, but for its key. source is the one of a staged node, or
 * NULL. A list of attributes that has to be made is in the arena. -ENOMEM.
 */
int about_tensor(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                 const struct about *about, struct source *source, struct arena *arena,
                 struct wfs_tensor *ret);

#endif
