/* SPDX-License-Identifier: MIT */
/*
 * The place of an output in its open directory: whether the file at it may be replaced, whether the
 * disk has room, and the backup of what is replaced.
 */
#ifndef WFS_BASE_OUTPUT_H
#define WFS_BASE_OUTPUT_H

#include <sys/stat.h>

#include <weightfs/output.h>

/*
 * Returns 1 when there is something that may be replaced, which st describes, 0 when there is
 * nothing. -EEXIST, -EBUSY: it may not be replaced.
 */
int output_check_place(int directory, const char *name, const struct wfs_save_options *options,
                       struct stat *st, struct wfs_error *err);

/* Opens what a save has left, or writes now. -1 with errno. */
int output_open_temporary(int directory, const char *temporary);

/* Returns whether the name is that of the open temporary file. */
bool output_has_name(int directory, const char *temporary, int fd);

/*
 * Locks the open temporary file: LOCK_EX while it is written or removed, LOCK_SH while it is read
 * back. -EBUSY: another save has it, or another file has the name by now. Where the filesystem has
 * no locks there are none.
 */
int output_lock(int directory, const char *temporary, int fd, int kind, struct wfs_error *err);

/* Checks that the filesystem of the open file has room for n_bytes, where that can be known.
 * -ENOSPC. */
int output_check_room(int fd, uint64_t n_bytes, struct wfs_error *err);

/* Reports why the directory of an output cannot be opened. */
int output_fail_directory(const char *path, int code, struct wfs_error *err);

/* Checks that output_keep_backup can keep the file, as far as that can be known before. */
int output_check_backup(int directory, const char *name, const struct wfs_backup *backup,
                        struct wfs_error *err);

/*
 * Gives the file a further name, durably. A numbered backup never replaces anything. ret is the
 * name, also after a failure that came later; it is empty where there is no backup.
 * output_settle_backup is due in any case.
 */
int output_keep_backup(int directory, const char *name, const struct wfs_backup *backup,
                       char ret[WFS_OUTPUT_NAME_MAX], struct wfs_error *err);

/* Removes the simple backup before it, or, if the file was not replaced after all, restores that.
 */
void output_settle_backup(int directory, const char *name, const char *kept, bool is_replaced);

#endif
