/* SPDX-License-Identifier: MIT */
/*
 * Unmounting, as root or with the help of fusermount3. Needs no libfuse.
 */
#ifndef WFS_UNMOUNT_H
#define WFS_UNMOUNT_H

#include <stdbool.h>

#include <weightfs/error.h>

/*
 * Unmounts what is on top at path, which must be absolute. -EBUSY while it is in use; with is_lazy
 * it is detached at once and goes away when its last user does.
 */
int unmount_path(const char *path, bool is_lazy, struct wfs_error *err);

/* Returns true when the driver behind the mount at path is gone: every call on it is ENOTCONN. */
bool unmount_is_dead(const char *path);

#endif
