/* SPDX-License-Identifier: MIT */
/*
 * The staging directory: where what was edited lies until it is published.
 *
 *   DIR/base          what the edits stand on, written before the first of them
 *   DIR/journal       every change, one record a line
 *   DIR/data/N        content of edit N; N is never used again
 *   DIR/source/NAME   a source whose own name was given to an output
 *   DIR/status.json   the last result
 *
 * At most 64 files are held open, however many edits there are; functions on different files may
 * run in parallel.
 */
#ifndef WFS_TREE_STAGE_H
#define WFS_TREE_STAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <weightfs/stage.h>

#include "tree/stage/handles.h"
#include "tree/stage/journal.h"

struct wfs_stage {
    char *name; /* in the parent directory */
    char *base_text;
    char *run; /* what an "O" record of this process says */
    int parent_fd, fd, data_fd;
    bool has_base;
    bool has_begun;            /* this process has its "O" record */
    bool is_replaying;         /* nothing is removed */
    bool owes_published;       /* the journal does not know yet that the last commit was */
    bool has_forgotten;        /* what was published is not there any more */
    atomic_bool has_new_names; /* that were not synced yet */
    uint64_t n_made;
    struct handles handles;
    struct journal journal;
    struct wfs_leftover leftover;
    char *texts[3]; /* of leftover: base, output, temporary */
};

/* ---- content ---- */

/* A new empty file. */
int stage_make(struct wfs_stage *stage, uint64_t *ret_number);
void stage_remove(struct wfs_stage *stage, uint64_t number);

/* All that lies before the end of the file: the count, or a negative errno. */
ssize_t stage_read(struct wfs_stage *stage, uint64_t number, uint64_t offset, void *buf,
                   size_t n_bytes);

/* At least one byte of them, or a negative errno. */
ssize_t stage_write(struct wfs_stage *stage, uint64_t number, uint64_t offset, const void *buf,
                    size_t n_bytes);
int stage_resize(struct wfs_stage *stage, uint64_t number, uint64_t n_bytes);

/* fallocate(2). */
int stage_allocate(struct wfs_stage *stage, uint64_t number, int mode, uint64_t offset,
                   uint64_t n_bytes);

/* Copies a range of a file inside the kernel. -EOPNOTSUPP: not between these two files. */
int stage_copy(struct wfs_stage *stage, uint64_t number, uint64_t offset, int fd,
               uint64_t fd_offset, uint64_t n_bytes);

/* fdatasync of the file. */
int stage_sync(struct wfs_stage *stage, uint64_t number);

/* -ENOENT when there is no such regular file. */
int stage_stat(const struct wfs_stage *stage, uint64_t number, struct stat *ret);

int stage_statfs(const struct wfs_stage *stage, struct statvfs *ret);

/* ---- journal and texts ---- */

/* What `base` will say, once it is needed. -ENOMEM. */
int stage_set_base(struct wfs_stage *stage, const char *text);

/* Writes a record, after what has to be there before the first one. */
int stage_append(struct wfs_stage *stage, const char *text, size_t n_bytes);

/* Takes back what stage_append has just written. */
void stage_undo(struct wfs_stage *stage);

/* Makes all records, and the names of all files, durable. */
int stage_sync_journal(struct wfs_stage *stage);

/* Replaces a small file of the directory, whole or not at all. */
int stage_put_text(struct wfs_stage *stage, const char *name, const char *bytes, size_t n_bytes,
                   bool is_synced);

/* Removes the files of data/ but those that is_kept answers true for; makes numbers new. */
int stage_sweep(struct wfs_stage *stage, bool (*is_kept)(void *ctx, uint64_t number), void *ctx);

/* Removes what is in the directory, and it, unless it is to be kept. */
void stage_free(struct wfs_stage *stage, bool is_kept);

#endif
