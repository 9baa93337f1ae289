/* SPDX-License-Identifier: MIT */
/*
 * A list per node: few nodes have any, and those have few.
 */
#include "tree/node/foreign.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

/* Returns where the pointer to the attribute is, or to where a new one would be. */
static struct foreign_attr **find(struct foreign *foreign, const char *name)
{
    struct foreign_attr **at = &foreign->first;
    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

const struct foreign_attr *foreign_find(const struct foreign *foreign, const char *name)
{
    const struct foreign_attr *at = foreign->first;
    while (at != NULL && strcmp(at->name, name) != 0)
        at = at->next;
    return at;
}

static uint64_t cost(const struct foreign_attr *attr)
{
    return attr == NULL ? 0 : strlen(attr->name) + attr->n_bytes;
}

static void take_out(struct foreign *foreign, struct foreign_attr **at)
{
    struct foreign_attr *gone = *at;
    *at = gone->next;
    foreign->n_bytes -= cost(gone);
    free(gone);
}

int foreign_set(struct foreign *foreign, const char *name, const void *value, size_t n_bytes,
                int flags, uint64_t n_room)
{
    const struct foreign_attr *old = foreign_find(foreign, name);
    const size_t n_name = strlen(name) + 1;
    if (n_bytes > FOREIGN_VALUE_MAX)
        return -E2BIG;
    if ((flags & XATTR_CREATE) != 0 && old != NULL)
        return -EEXIST;
    if ((flags & XATTR_REPLACE) != 0 && old == NULL)
        return -ENODATA;
    const uint64_t n_all = foreign->n_bytes - cost(old) + strlen(name) + n_bytes;
    if (n_all > FOREIGN_NODE_MAX || n_all > n_room)
        return -ENOSPC;
    struct foreign_attr *attr = malloc(sizeof(*attr) + n_name + n_bytes);
    if (attr == NULL)
        return -ENOMEM;
    if (old != NULL)
        take_out(foreign, find(foreign, name));
    memcpy(attr->name, name, n_name);
    attr->value = attr->name + n_name;
    attr->n_bytes = n_bytes;
    if (n_bytes > 0)
        memcpy(attr->value, value, n_bytes);
    attr->next = foreign->first;
    foreign->first = attr;
    foreign->n_bytes += cost(attr);
    return 0;
}

int foreign_remove(struct foreign *foreign, const char *name)
{
    struct foreign_attr **at = find(foreign, name);
    if (*at == NULL)
        return -ENODATA;
    take_out(foreign, at);
    return 0;
}

void foreign_done(struct foreign *foreign)
{
    while (foreign->first != NULL)
        take_out(foreign, &foreign->first);
}
