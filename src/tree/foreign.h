/* SPDX-License-Identifier: MIT */
/*
 * Attributes in "user." that mean nothing to us: kept for the life of the tree, within limits.
 */
#ifndef WFS_TREE_FOREIGN_H
#define WFS_TREE_FOREIGN_H

#include "tree/edit.h"

enum {
    FOREIGN_VALUE_MAX = 65536,   /* bytes of a value, as in the kernel */
    FOREIGN_NODE_MAX = 1 << 20,  /* of names and values of a node */
    FOREIGN_TREE_MAX = 64 << 20, /* of all */
};

struct foreign {
    struct foreign *next;
    size_t n_bytes;
    char *value; /* behind the name */
    char name[];
};

/* NULL: there is none of that name. */
const struct foreign *foreign_find(const struct wfs_node *node, const char *name);

/* flags as setxattr(2). -EEXIST, -ENODATA, -E2BIG, -ENOSPC above the limits, -ENOMEM. */
int foreign_set(struct wfs_tree *tree, struct wfs_node *node, const char *name, const void *value,
                size_t n_bytes, int flags);

/* -ENODATA. */
int foreign_remove(struct wfs_tree *tree, struct wfs_node *node, const char *name);

void foreign_free(struct wfs_tree *tree, struct edit *edit);

#endif
