/* SPDX-License-Identifier: MIT */
/*
 * The course of a commit: in the journal, and in what counts as edited.
 */
#include <errno.h>
#include <stdlib.h>

#include "tree/edit.h"
#include "tree/stage/record.h"
#include "tree/stage/stage.h"

/* Writes a record that has to be durable before anything else happens. */
static int append(struct wfs_tree *tree, const struct strbuf *text, enum wfs_commit_state state)
{
    int code = text->has_failed ? -ENOMEM : stage_append(tree->stage, text->bytes, text->n_bytes);
    if (code == 0)
        code = stage_sync_journal(tree->stage);
    if (code == 0)
        tree->stage->leftover.commit = state;
    return code;
}

static int note_published(struct wfs_tree *tree)
{
    const struct strbuf text = {.bytes = (char[]){"F"}, .n_bytes = 1};
    const int code = append(tree, &text, WFS_COMMIT_PUBLISHED);
    tree->stage->owes_published = code < 0;
    return code;
}

int wfs_tree_commit_begin(struct wfs_tree *tree, const char *output, const char *temporary)
{
    autostrbuf struct strbuf text = {0};
    const int code = tree->stage->owes_published ? note_published(tree) : 0;
    if (code < 0)
        return code;
    strbuf_puts(&text, "B");
    record_puts(&text, output);
    record_puts(&text, temporary);
    return append(tree, &text, WFS_COMMIT_BEGUN);
}

int wfs_tree_commit_complete(struct wfs_tree *tree, const struct wfs_identity *identity,
                             uint64_t digest)
{
    autostrbuf struct strbuf text = {0};
    strbuf_puts(&text, "P");
    record_number(&text, identity->device);
    record_number(&text, identity->inode);
    record_number(&text, identity->n_bytes);
    record_number(&text, (uint64_t)identity->mtime_ns);
    record_number(&text, digest);
    return append(tree, &text, WFS_COMMIT_COMPLETE);
}

int wfs_tree_keep_source(struct wfs_tree *tree, const char *path)
{
    return wfs_stage_keep_source(tree->stage, path);
}

int wfs_tree_committed(struct wfs_tree *tree, uint64_t generation)
{
    uint64_t n_nodes = 0;
    for (const struct edit *edit = tree->edits; edit != NULL; edit = edit->next)
        n_nodes += edit->changed > generation;
    /* Each change of names since then counted one generation. */
    const uint64_t n_since = atomic_load(&tree->generation) - generation;
    if (atomic_load(&tree->n_changed_entries) > n_since)
        atomic_store(&tree->n_changed_entries, n_since);
    atomic_store(&tree->n_changed_nodes, n_nodes);
    atomic_store(&tree->committed, generation);
    atomic_fetch_add(&tree->n_commits, 1);
    if (tree->stage == NULL || tree->stage->is_replaying ||
        tree->stage->leftover.commit != WFS_COMMIT_COMPLETE)
        return 0;
    return note_published(tree);
}
