/* SPDX-License-Identifier: MIT */
/*
 * The life of a tree: the edits of an earlier process are made again, commits are noted in the
 * journal, and edits that are pending at the end stay in the staging directory.
 */
#include "tensor/tensor.h"
#include "tree/attrs.h"
#include "tree/pristine.h"
#include "tree/content.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/node/node.h"
#include "tree/stage/journal.h"
#include "tree/stage/stage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct replay {
    struct wfs_tree *tree;
    struct wfs_error *err;
    bool is_same_run;    /* what the records that follow wrote is whole */
    uint64_t number;     /* of the record */
    uint64_t complete;   /* generation that the last complete file has */
    uint64_t n_reverted; /* edits, by the last record of that kind */
};

/* ---- finding ---- */

/* Where a path of a record leads to. */
struct spot {
    struct wfs_node *dir, *node; /* node NULL: nothing has the name */
    const char *name;
};

/* -ENOENT without a directory, or without a node where there must be one. */
static int find(const struct wfs_tree *tree, const char *path, bool is_needed, struct spot *ret)
{
    char name[KEY_NAME_MAX + 1];
    *ret = (struct spot){.dir = tree->root};
    for (const char *slash; (slash = strchr(path, '/')) != NULL; path = slash + 1) {
        const size_t n = (size_t)(slash - path);
        if (n > KEY_NAME_MAX)
            return -ENAMETOOLONG;
        memcpy(name, path, n);
        name[n] = '\0';
        const int code = wfs_node_lookup(tree, ret->dir, name, &ret->dir);
        if (code < 0)
            return code;
    }
    ret->name = path;
    if (ret->dir->kind != NODE_DIR)
        return -ENOTDIR;
    const int code = wfs_node_lookup(tree, ret->dir, path, &ret->node);
    return is_needed ? code : 0;
}

/* ---- names ---- */

static int do_make(struct wfs_tree *tree, const struct wfs_record *record)
{
    struct spot at;
    const int code = find(tree, record->words[0], false, &at);
    if (code < 0)
        return code;
    const mode_t mode = ~tree->options.umask; /* the creator's is not recorded */
    return record->kind == WFS_RECORD_DIRECTORY
               ? wfs_node_mkdir(tree, at.dir, at.name, mode & 0777, &at.node)
               : wfs_node_create(tree, at.dir, at.name, mode & 0666, &at.node);
}

static int do_move(struct wfs_tree *tree, const struct wfs_record *record)
{
    struct spot from, to;
    uint64_t flags;
    int code = find(tree, record->words[0], false, &from);
    if (code == 0)
        code = find(tree, record->words[1], false, &to);
    if (code == 0)
        code = record_to_number(record, 2, &flags);
    if (code == 0 && flags > UINT32_MAX)
        code = -EINVAL;
    return code < 0 ? code
                    : wfs_node_rename(tree, from.dir, from.name, to.dir, to.name, (unsigned)flags);
}

static int do_remove(struct wfs_tree *tree, const struct wfs_record *record)
{
    struct spot at;
    const int code = find(tree, record->words[0], true, &at);
    if (code < 0)
        return code;
    return at.node->kind == NODE_DIR ? wfs_node_rmdir(tree, at.dir, at.name)
                                     : wfs_node_unlink(tree, at.dir, at.name);
}

static int do_link(struct wfs_tree *tree, const struct wfs_record *record)
{
    struct spot from, to;
    int code = find(tree, record->words[0], true, &from);
    if (code == 0)
        code = find(tree, record->words[1], false, &to);
    return code < 0 ? code : wfs_node_link(tree, from.node, to.dir, to.name);
}

static int do_attr(struct wfs_tree *tree, const struct wfs_record *record)
{
    struct spot at;
    const char *value = record->n_words > 2 ? record->words[2] : NULL;
    const int code = find(tree, record->words[0], true, &at);
    if (code < 0)
        return code;
    const struct attr *attr = attrs_find(record->words[1]);
    if (at.node->kind != NODE_FILE || attr == NULL)
        return -ENODATA;
    if (value != NULL)
        return attrs_set(tree, at.node, attr, value, strlen(value));
    if (attr->effect >= ATTR_TEXT && at.node->edit != NULL)
        attrs_unset(tree, at.node->edit, attr);
    return 0;
}

/* ---- content ---- */

/*
 * Returns 0 when the source has the tensor that it had when the edit was made. New files did not
 * take the description of a tensor with which they were exchanged when earlier programs recorded
 * that they had none.
 */
static int check_origin(const struct replay *state, const struct wfs_node *node,
                        const struct wfs_record *record)
{
    const struct wfs_tensor *tensor = node->kind == NODE_FILE ? node->tensor : NULL;
    const char *dtype = "-";
    autostrbuf struct strbuf shape = {0};
    if (tensor != NULL) {
        dtype = wfs_dtype_name((enum wfs_dtype)tensor->dtype);
        shape_print(&shape, &tensor->shape);
    } else {
        strbuf_puts(&shape, "-");
    }
    if (shape.has_failed)
        return -ENOMEM;
    if (node_loaded(node) == 0 && strcmp(record->words[2], "-") == 0)
        return 0;
    if (strcmp(dtype, record->words[2]) == 0 && strcmp(shape.bytes, record->words[3]) == 0)
        return 0;
    return wfs_fail(state->err, EBADMSG,
                    "edit %s of '%s' was made to a tensor of %s %s, but the source has %s %s",
                    record->words[0], wfs_quote(record->words[1]).text, record->words[2],
                    record->words[3], dtype, shape.bytes);
}

static int do_edit(const struct replay *state, const struct wfs_record *record)
{
    struct wfs_tree *tree = state->tree;
    struct spot at = {0};
    struct stat st;
    uint64_t number;
    int code = record_to_number(record, 0, &number);
    if (code == 0)
        code = find(tree, record->words[1], true, &at);
    struct wfs_node *node = at.node;
    if (code == 0 && (number == 0 || node->kind == NODE_DIR || node_is_fixed(node)))
        code = -EINVAL;
    if (code == 0)
        code = check_origin(state, node, record);
    struct edit *edit = code < 0 ? NULL : edit_of(tree, node);
    if (edit == NULL)
        return code < 0 ? code : -ENOMEM;
    const bool is_there = datafiles_stat(&tree->stage->data, number, &st) == 0;
    if (!edit->is_staged)
        edit->n_bytes = edit_n_bytes(node);
    edit->number = number;
    edit->is_staged = edit->is_recorded = edit->has_mtime = true;
    edit->health = state->is_same_run ? EDIT_SOUND : EDIT_DOUBTFUL;
    edit->mtime = is_there ? st.st_mtim : node_now();
    edit_touch(tree, node);
    edit_set_n_bytes(tree, edit, is_there ? (uint64_t)st.st_size : 0);
    edit_set_unsynced(tree, edit, true);
    edit_mark(tree, edit);
    return 0;
}

static int do_sync(struct wfs_tree *tree, const struct wfs_record *record)
{
    struct spot at;
    uint64_t number, n_bytes;
    int code = record_to_number(record, 0, &number);
    if (code == 0)
        code = record_to_number(record, 1, &n_bytes);
    if (code == 0)
        code = find(tree, record->words[2], true, &at);
    if (code < 0)
        return code;
    if (!edit_is_staged(at.node) || at.node->edit->number != number)
        return -EINVAL;
    at.node->edit->is_recorded = false;
    at.node->edit->health = EDIT_SOUND;
    edit_set_unsynced(tree, at.node->edit, false);
    return 0;
}

/* ---- one record ---- */

static int apply(struct replay *state, const struct wfs_record *record)
{
    struct wfs_tree *tree = state->tree;
    if (!record_is_complete(record))
        return -EINVAL;
    switch (record->kind) {
    case WFS_RECORD_RUN:
        state->is_same_run = wfs_stage_is_same_run(tree->stage, record->words[0]);
        return 0;
    case WFS_RECORD_FILE:
    case WFS_RECORD_DIRECTORY:
        return do_make(tree, record);
    case WFS_RECORD_EDIT:
        return do_edit(state, record);
    case WFS_RECORD_SYNC:
        return do_sync(tree, record);
    case WFS_RECORD_MOVE:
        return do_move(tree, record);
    case WFS_RECORD_REMOVE:
        return do_remove(tree, record);
    case WFS_RECORD_LINK:
        return do_link(tree, record);
    case WFS_RECORD_ATTR:
        return do_attr(tree, record);
    case WFS_RECORD_REVERT:
        return revert(tree, record->words[0], NULL, &state->n_reverted, state->err);
    case WFS_RECORD_PUBLISHED:
        return tree->stage->has_forgotten ? 0 : wfs_tree_committed(tree, state->complete);
    case WFS_RECORD_COMPLETE:
        state->complete = wfs_tree_generation(tree);
        return 0;
    default:
        return 0;
    }
}

static int visit(void *ctx, const struct wfs_record *record)
{
    struct replay *state = ctx;
    state->number++;
    const int code = apply(state, record);
    if (code == 0 || code == -ENOMEM || (state->err != NULL && state->err->code != 0))
        return code;
    return wfs_fail(state->err, EBADMSG,
                    "the journal does not fit the source: record %" PRIu64 " ('%c %s'): %s",
                    state->number, record->kind,
                    record->n_words > 0 ? wfs_quote(record->words[0]).text : "", strerror(-code));
}

/* ---- afterwards ---- */

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

/* Removes content that no edit refers to. */
static int sweep(struct wfs_tree *tree)
{
    size_t n_edits = 0, n_kept = 0;
    for (const struct edit *edit = tree->edits; edit != NULL; edit = edit->next)
        n_edits++;
    autofree uint64_t *kept = calloc(n_edits + 1, sizeof(*kept));
    if (kept == NULL)
        return -ENOMEM;
    for (const struct edit *edit = tree->edits; edit != NULL; edit = edit->next) {
        if (edit->is_staged && edit->number != 0)
            kept[n_kept++] = edit->number;
    }
    if (n_kept > 0)
        qsort(kept, n_kept, sizeof(*kept), compare_numbers);
    return datafiles_sweep(&tree->stage->data, kept, n_kept);
}

/* Counts what was restored. */
static void count(struct wfs_tree *tree)
{
    for (struct edit *edit = tree->edits; edit != NULL; edit = edit->next) {
        struct stat st;
        if (!edit->is_staged || edit->number == 0)
            continue;
        tree->replayed.n_doubtful += edit->health == EDIT_DOUBTFUL;
        if (datafiles_stat(&tree->stage->data, edit->number, &st) < 0)
            edit->health = EDIT_LOST;
        tree->replayed.n_lost += edit_is_lost(edit->node);
        tree->replayed.n_unsynced += edit->is_unsynced;
    }
    tree->replayed.n_edits = wfs_tree_n_edits(tree);
}

/* Fills tree->replayed. -EBADMSG: the journal does not fit the tree, or is damaged. */
static int replay(struct wfs_tree *tree, struct wfs_error *err)
{
    struct replay state = {.tree = tree, .err = err};
    tree->is_replaying = tree->stage->data.keeps_all = true;
    int code = wfs_stage_each(tree->stage, visit, &state);
    if (code == 0) {
        tree->is_replaying = tree->stage->data.keeps_all = false;
        count(tree);
        code = sweep(tree);
    }
    return code < 0 ? wfs_fail(err, -code, "%s", strerror(-code)) : 0;
}

void wfs_tree_replayed(const struct wfs_tree *tree, struct wfs_replayed *ret)
{
    *ret = tree->replayed;
}

/* Returns about how many bytes the records have that remove each name of a tree as it was built. */
static uint64_t n_bytes_of_removals(const struct wfs_tree *tree)
{
    enum { N_RECORD = 32 }; /* bytes beside the path */
    uint64_t n_bytes = 0;
    for (uint32_t id = 1; id <= tree->entries.n_items; id++) {
        n_bytes += N_RECORD;
        for (uint32_t at = id; at != 0; at = entry_at(tree, at)->dir->entry)
            n_bytes += strlen(entry_at(tree, at)->name) + 1;
    }
    return n_bytes;
}

/* Puts the edits that the stage has on a pristine tree. */
static int stage_up(struct wfs_tree *tree, const char *base_text, struct wfs_error *err)
{
    if (base_text != NULL && stage_set_base(tree->stage, base_text) < 0)
        return wfs_fail_memory(err);
    const uint64_t n_bytes = n_bytes_of_removals(tree);
    const int code = replay(tree, err);
    if (code == 0)
        stage_prepare(tree->stage, n_bytes);
    return code;
}

int wfs_tree_new(const struct wfs_catalog *catalog, const struct wfs_tree_options *options,
                 struct wfs_tree **out, struct wfs_error *err)
{
    struct wfs_tree *tree;
    int code = pristine_new(catalog, options, &tree, err);
    if (code < 0) {
        wfs_stage_close(options->stage);
        return code;
    }
    tree->stage = options->stage;
    if (tree->stage != NULL)
        code = stage_up(tree, options->base_text, err);
    if (code < 0) {
        tree->is_unmade = true;
        wfs_tree_free(tree);
        return code;
    }
    *out = tree;
    return 0;
}

/* The edits are freed first: some of their files are removed with them. */
void wfs_tree_free(struct wfs_tree *tree)
{
    if (tree == NULL)
        return;
    const int saved = errno;
    const bool is_kept = wfs_tree_has_pending(tree), is_unmade = tree->is_unmade;
    struct wfs_stage *stage = tree->stage;
    pristine_free(tree);
    if (is_unmade)
        wfs_stage_close(stage);
    else
        stage_free(stage, is_kept);
    errno = saved;
}

bool wfs_tree_is_writable(const struct wfs_tree *tree)
{
    return tree_is_open(tree);
}

struct wfs_node *wfs_tree_root(const struct wfs_tree *tree)
{
    return tree->root;
}

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
        tree->stage->leftover.commit != WFS_COMMIT_COMPLETE)
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
