/* SPDX-License-Identifier: MIT */
/*
 * What a file says of itself: dtype, shape and where its data begins. In this order: what was set,
 * the header of a .npy file, the tensor that it was or has replaced.
 */
#ifndef WFS_TREE_DESCRIPTION_H
#define WFS_TREE_DESCRIPTION_H

#include "base/source.h"
#include "tree/node/node.h"

struct description {
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
int description_make(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                     struct arena *arena, struct description *ret, struct wfs_error *err);

/* Returns 1 when the suffix ".npy" of the name is not part of the key, else 0. -EIO, -ENOMEM. */
int description_hides_suffix(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id);

/* Checks that dtype and shape are there and take just the bytes that there are. -EINVAL. */
int description_check(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                      const struct description *description, struct wfs_error *err);

/*
 * The tensor as the tree shows it while its content is the catalog's: with the dtype and shape that
 * were set. Its key is the catalog's.
 */
struct wfs_tensor description_shown(const struct wfs_node *node);

/*
 * The tensor that a commit would write, but for its key. source is the one of a staged node, or
 * NULL. A list of attributes that has to be made is in the arena. -ENOMEM.
 */
int description_tensor(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                       const struct description *description, struct source *source,
                       struct arena *arena, struct wfs_tensor *ret);

#endif
