/* SPDX-License-Identifier: MIT */
/*
 * The course of a commit: in the journal, and in what counts as edited.
 */
#include <errno.h>
#include <stdlib.h>

#include "tree/node/edit.h"
#include "tree/stage/record.h"
#include "tree/stage/stage.h"

int wfs_tree_commit_begin(struct wfs_tree *tree, const char *output, const char *temporary)
{
    autostrbuf struct strbuf text = {0};
    const int code = tree->stage->owes_published ? wfs_stage_note_published(tree->stage) : 0;
    if (code < 0)
        return code;
    record_begin(&text, WFS_RECORD_COMMIT);
    record_puts(&text, output);
    record_puts(&text, temporary);
    return stage_append_step(tree->stage, &text, WFS_COMMIT_BEGUN);
}

int wfs_tree_commit_complete(struct wfs_tree *tree, const struct wfs_identity *identity,
                             uint64_t digest)
{
    autostrbuf struct strbuf text = {0};
    record_begin(&text, WFS_RECORD_COMPLETE);
    record_number(&text, identity->device);
    record_number(&text, identity->inode);
    record_number(&text, identity->n_bytes);
    record_number(&text, (uint64_t)identity->mtime_ns);
    record_number(&text, digest);
    return stage_append_step(tree->stage, &text, WFS_COMMIT_COMPLETE);
}

int wfs_tree_keep_source(struct wfs_tree *tree, const char *path)
{
    return wfs_stage_keep_source(tree->stage, path);
}

int wfs_tree_committed(struct wfs_tree *tree, uint64_t generation)
{
    edit_settle(tree, generation);
    atomic_fetch_add(&tree->n_commits, 1);
    if (tree->stage == NULL || tree->is_replaying ||
        tree->stage->leftover.found.commit != WFS_COMMIT_COMPLETE)
        return 0;
    return wfs_stage_note_published(tree->stage);
}

int wfs_tree_discard(struct wfs_tree *tree)
{
    const int code = stage_forget(tree->stage);
    if (code < 0)
        return code;
    tree->is_discarded = true;
    edit_settle(tree, atomic_load(&tree->generation));
    return 0;
}
