/* SPDX-License-Identifier: MIT */
/*
 * The staging directory: where the content of what was edited lies until it is published.
 *
 *   DIR/data/N        content of edit N; N is never used again
 *   DIR/base          what the edits stand on, written before the first of them
 *   DIR/status.json   the last result
 *
 * At most 64 files are held open, however many edits there are; functions on different files may
 * run in parallel.
 */
#ifndef WFS_TREE_STAGE_H
#define WFS_TREE_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <weightfs/error.h>

struct stage;

/*
 * Makes the directory or takes over an empty one, and locks it. -EBUSY: another process holds it;
 * -EPERM: not the user's own and private; -ENOTEMPTY: edits of an earlier process are in it.
 */
int stage_new(const char *path, const char *base_text, struct stage **out, struct wfs_error *err);

/* Removes what is in the directory, and it, unless it is to be kept. */
void stage_free(struct stage *stage, bool is_kept);

/* A new empty file. */
int stage_make(struct stage *stage, uint64_t *ret_number);
void stage_remove(struct stage *stage, uint64_t number);

/* All that lies before the end of the file: the count, or a negative errno. */
ssize_t stage_read(struct stage *stage, uint64_t number, uint64_t offset, void *buf,
                   size_t n_bytes);

/* At least one byte of them, or a negative errno. */
ssize_t stage_write(struct stage *stage, uint64_t number, uint64_t offset, const void *buf,
                    size_t n_bytes);
int stage_resize(struct stage *stage, uint64_t number, uint64_t n_bytes);

/* fallocate(2). */
int stage_allocate(struct stage *stage, uint64_t number, int mode, uint64_t offset,
                   uint64_t n_bytes);

/* Copies a range of a file inside the kernel. -EOPNOTSUPP: not between these two files. */
int stage_copy(struct stage *stage, uint64_t number, uint64_t offset, int fd, uint64_t fd_offset,
               uint64_t n_bytes);

/* fdatasync of the file and of the directory that names it. */
int stage_sync(struct stage *stage, uint64_t number);

/* Replaces a small file of the directory, whole or not at all. */
int stage_put_text(struct stage *stage, const char *name, const char *bytes, size_t n_bytes,
                   bool is_synced);

int stage_statfs(const struct stage *stage, struct statvfs *ret);

#endif
