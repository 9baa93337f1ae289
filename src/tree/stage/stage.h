/* SPDX-License-Identifier: MIT */
/*
 * The staging directory: where edits are kept until they are published. The room src/tree/stage
 * knows this directory and its journal; it knows nothing of nodes and trees.
 *
 *   DIR/base          what the edits are based on, written before the first of them
 *   DIR/journal       every change, one record a line
 *   DIR/data/N        content of edit N; N is never used again
 *   DIR/source/NAME   a source whose name was given to an output
 *   DIR/status.json   the last result
 *
 * At most 64 files are held open, however many edits there are; functions on different files may
 * run in parallel.
 */
#ifndef WFS_TREE_STAGE_H
#define WFS_TREE_STAGE_H

#include <weightfs/json_out.h>
#include <weightfs/stage.h>
#include <weightfs/status.h>
#include "tree/stage/datafiles.h"
#include "tree/stage/journal.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads a small file of the directory whole, malloc'ed; *ret is NULL when there is no such regular
 * file. A negative errno of reading. */
int leftover_read_text(int dir_fd, const char *name, char **ret);

struct wfs_stage {
    char *name; /* in the parent directory */
    char *base_text;
    char *run; /* the word of an "O" record of this process */
    int parent_fd, fd;
    bool has_base;
    bool has_begun;      /* this process has written its "O" record */
    bool owes_published; /* the journal lacks the record that the last commit was published */
    bool has_forgotten;  /* what was published does not exist any more */
    struct datafiles data;
    struct journal journal;
    struct wfs_leftover leftover; /* zeroed: of a new staging directory; owns its text */
};

/* ---- journal and texts ---- */

/* Sets the text of `base`, which is written before the first record. -ENOMEM. */
int stage_set_base(struct wfs_stage *stage, const char *text);

/*
 * Writes what precedes the first record, and takes room on the disk for n_bytes of records and some
 * more, for changes and commits when it is full. What fails here is tried again by the first
 * record.
 */
void stage_prepare(struct wfs_stage *stage, uint64_t n_bytes);

/* Writes a record; before the first one, what must precede it. */
int stage_append(struct wfs_stage *stage, const char *text, size_t n_bytes);

/* Writes a record of a commit, and makes it durable; step is how far the commit has come with it.
 */
int stage_append_step(struct wfs_stage *stage, const struct strbuf *record,
                      enum wfs_commit_state step);

/* Makes all records, and the names of all files, durable. */
int stage_sync_journal(struct wfs_stage *stage);

/* Replaces a small file of the directory atomically. On a full disk, one that is not to be synced
 * is overwritten instead. */
int stage_put_text(struct wfs_stage *stage, const char *name, const char *bytes, size_t n_bytes,
                   bool is_synced);

/* Removes the journal when no edit is left; the next one begins another. */
int stage_restart(struct wfs_stage *stage);

/* Removes the journal, and so all edits; files that only edits need stay until the stage is freed.
 */
int stage_forget(struct wfs_stage *stage);

/* Frees the stage and, unless is_kept, removes the directory. */
void stage_free(struct wfs_stage *stage, bool is_kept);

/* ---- status.json as text and back; the names of its fields are in statusfile.c only ---- */

/* Adds a member for each field to the open object: the sources of the mount, which are not read
 * back, follow. */
void statusfile_add(const struct wfs_status *status, struct json_out *out);

/* Returns a copy in one block, with texts of its own; free it with free(3). NULL: no memory. */
struct wfs_status *statusfile_copy(const struct wfs_status *status);

#endif
