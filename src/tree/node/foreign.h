/* SPDX-License-Identifier: MIT */
/*
 * Attributes in "user." that mean nothing to us: kept for the life of the tree, within limits. The
 * limit of the whole tree is the caller's to check.
 */
#ifndef WFS_TREE_FOREIGN_H
#define WFS_TREE_FOREIGN_H

#include <stddef.h>
#include <stdint.h>

enum {
    FOREIGN_VALUE_MAX = 65536,   /* bytes of a value, as in the kernel */
    FOREIGN_NODE_MAX = 1 << 20,  /* of names and values of a node */
    FOREIGN_TREE_MAX = 64 << 20, /* of all */
};

struct foreign_attr {
    struct foreign_attr *next;
    size_t n_bytes;
    char *value; /* after the name */
    char name[];
};

/* Those of one node. A zeroed struct has none. */
struct foreign {
    struct foreign_attr *first;
    uint64_t n_bytes; /* of names and values */
};

/* Returns NULL when no attribute has the name. */
const struct foreign_attr *foreign_find(const struct foreign *foreign, const char *name);

/*
 * Sets an attribute; flags are those of setxattr(2). n_room is how many bytes all may have
 * together. -EEXIST, -ENODATA, -E2BIG, -ENOSPC above a limit, -ENOMEM.
 */
int foreign_set(struct foreign *foreign, const char *name, const void *value, size_t n_bytes,
                int flags, uint64_t n_room);

/* -ENODATA. */
int foreign_remove(struct foreign *foreign, const char *name);
void foreign_done(struct foreign *foreign);

#endif
