/* SPDX-License-Identifier: MIT */
/*
 * A list per node: few nodes have any, and those have few.
 */
#include "tree/foreign.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

static struct foreign **find(struct edit *edit, const char *name)
{
    struct foreign **at = &edit->foreign;
    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

const struct foreign *foreign_find(const struct wfs_node *node, const char *name)
{
    return node->edit == NULL ? NULL : *find(node->edit, name);
}

static uint64_t cost(const struct foreign *foreign)
{
    return foreign == NULL ? 0 : strlen(foreign->name) + foreign->n_bytes;
}

static void take_out(struct wfs_tree *tree, struct edit *edit, struct foreign **at)
{
    struct foreign *gone = *at;
    *at = gone->next;
    edit->n_foreign_bytes -= cost(gone);
    tree->n_foreign_bytes -= cost(gone);
    free(gone);
}

int foreign_set(struct wfs_tree *tree, struct wfs_node *node, const char *name, const void *value,
                size_t n_bytes, int flags)
{
    const struct foreign *old = foreign_find(node, name);
    const uint64_t n_new = strlen(name) + n_bytes;
    if (n_bytes > FOREIGN_VALUE_MAX)
        return -E2BIG;
    if ((flags & XATTR_CREATE) != 0 && old != NULL)
        return -EEXIST;
    if ((flags & XATTR_REPLACE) != 0 && old == NULL)
        return -ENODATA;
    struct edit *edit = edit_of(tree, node);
    if (edit == NULL)
        return -ENOMEM;
    if (edit->n_foreign_bytes - cost(old) + n_new > FOREIGN_NODE_MAX ||
        tree->n_foreign_bytes - cost(old) + n_new > FOREIGN_TREE_MAX)
        return -ENOSPC;
    struct foreign *foreign = malloc(sizeof(*foreign) + strlen(name) + 1 + n_bytes);
    if (foreign == NULL)
        return -ENOMEM;
    if (old != NULL)
        take_out(tree, edit, find(edit, name));
    strcpy(foreign->name, name);
    foreign->value = foreign->name + strlen(name) + 1;
    foreign->n_bytes = n_bytes;
    if (n_bytes > 0)
        memcpy(foreign->value, value, n_bytes);
    foreign->next = edit->foreign;
    edit->foreign = foreign;
    edit->n_foreign_bytes += n_new;
    tree->n_foreign_bytes += n_new;
    return 0;
}

int foreign_remove(struct wfs_tree *tree, struct wfs_node *node, const char *name)
{
    if (foreign_find(node, name) == NULL)
        return -ENODATA;
    take_out(tree, node->edit, find(node->edit, name));
    return 0;
}

void foreign_free(struct wfs_tree *tree, struct edit *edit)
{
    while (edit->foreign != NULL)
        take_out(tree, edit, &edit->foreign);
}
