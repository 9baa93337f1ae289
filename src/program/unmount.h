/* SPDX-License-Identifier: MIT */
/*
 * Unmounting, as root or with fusermount3. Does not need libfuse.
 */
#ifndef WFS_UNMOUNT_H
#define WFS_UNMOUNT_H

#include <stdbool.h>
#include <sys/types.h>

#include <weightfs/error.h>

/*
 * Unmounts the topmost mount at path, which must be absolute. -EBUSY while it is in use; with
 * is_lazy it is detached at once and removed when its last user is gone.
 */
int unmount_path(const char *path, bool is_lazy, struct wfs_error *err);

/*
 * Returns why fusermount3 cannot unmount anything here, and what to do about it, or NULL. Root and
 * the owner of a user namespace do not need it.
 */
const char *unmount_find_trouble(void);

/* Returns true when the path is the root of a weightfs mount, or of one whose driver has exited. */
bool unmount_is_root(const char *path);

/* Returns true when the driver of the mount at path has exited: every call fails with ENOTCONN. */
bool unmount_is_dead(const char *path);

/* Where a filesystem is mounted besides one place, before it is unmounted there. */
struct unmount_others {
    dev_t device;
    ino_t connection; /* of the kernel to the driver; 0: not known */
    int *ids;         /* of the other mounts; malloc'ed */
    size_t n_ids, n_room;
};

/* fd: of the root. Without memory, fewer mounts are known. unmount_others_done is due. */
void unmount_others_find(struct unmount_others *others, int fd);
void unmount_others_done(struct unmount_others *others);

/*
 * Finds out whether a filesystem that was unmounted from one place is still mounted elsewhere:
 * bound to another directory, or in another namespace. Its device number means nothing: a new mount
 * may have that as soon as this one is gone. Returns false when no place is known. ret_place is
 * malloc'ed, as the namespace of the process shows it; NULL: neither it nor the process is visible.
 */
bool unmount_is_elsewhere(const struct unmount_others *others, pid_t *ret_pid, char **ret_place);

/*
 * Waits until the driver whose mount is gone, and which is saving what is in the staging directory,
 * has ended. Returns whether there was one: what was found before may have changed.
 */
bool unmount_wait_for_driver(const char *stage);

#endif
