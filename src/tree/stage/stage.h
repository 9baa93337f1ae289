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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weightfs/stage.h>
#include <weightfs/strbuf.h>

#include "tree/stage/datafiles.h"
#include "tree/stage/journal.h"
#include "tree/stage/leftover.h"

struct wfs_stage {
    char *name; /* in the parent directory */
    char *base_text;
    char *run; /* what an "O" record of this process says */
    int parent_fd, fd;
    bool has_base;
    bool has_begun;      /* this process has written its "O" record */
    bool owes_published; /* the journal does not say yet that the last commit was published */
    bool has_forgotten;  /* what was published does not exist any more */
    struct datafiles data;
    struct journal journal;
    struct leftover leftover;
};

/* ---- journal and texts ---- */

/* What `base` will say, once it is needed. -ENOMEM. */
int stage_set_base(struct wfs_stage *stage, const char *text);

/* Writes a record, after what has to be there before the first one. */
int stage_append(struct wfs_stage *stage, const char *text, size_t n_bytes);

/* Writes a record of a commit, and makes it durable; step is how far the commit has come with it.
 */
int stage_append_step(struct wfs_stage *stage, const struct strbuf *record,
                      enum wfs_commit_state step);

/* Takes back what stage_append has just written. */
void stage_undo(struct wfs_stage *stage);

/* Makes all records, and the names of all files, durable. */
int stage_sync_journal(struct wfs_stage *stage);

/* Replaces a small file of the directory, whole or not at all. */
int stage_put_text(struct wfs_stage *stage, const char *name, const char *bytes, size_t n_bytes,
                   bool is_synced);

/* Removes what is in the directory, and it, unless it is to be kept. */
void stage_free(struct wfs_stage *stage, bool is_kept);

#endif
