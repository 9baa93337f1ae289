/* SPDX-License-Identifier: MIT */
/*
 * What a commit would write: the tree as it is, laid out as a file of a format.
 */
#ifndef WFS_PLANNED_H
#define WFS_PLANNED_H

#include "fuse/driver.h"

struct planned {
    struct wfs_catalog *catalog; /* borrows from the tree */
    struct wfs_layout *layout;   /* of one file, or NULL */
    struct wfs_shards *shards;   /* of several, or NULL */
    struct wfs_fit fit;          /* what there is no room for */
};

/*
 * Fills a zeroed struct; the tree is held, and it is good until the tree changes. A negative errno
 * otherwise, -EFBIG among them for a file much larger than all it is made of; planned_done is due
 * in any case.
 */
int planned_make(const struct driver *driver, const struct wfs_format *format, struct planned *ret,
                 struct wfs_error *err);

/* The same for the target of the mount, which is several files. */
int planned_make_set(const struct driver *driver, struct planned *ret, struct wfs_error *err);
void planned_done(struct planned *planned);

#endif
