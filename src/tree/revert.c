/* SPDX-License-Identifier: MIT */
/*
 * A name now and the name that it was loaded with are taken back together, and a directory with all
 * that is in it and was in it. So is a name that another file of the catalog has now.
 *
 * All that can fail comes first: new names are added beside the old ones, then the record is made
 * durable, and only then names and edits go. A journal that is replayed finds the same names, so
 * one record stands for everything.
 */
#include "tree/pristine.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/stage/stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An entry whose relations are still to be marked. */
struct mark {
    uint32_t id;
    bool is_before; /* of the pristine tree */
};

/* A name of the catalog that comes back. */
struct place {
    uint32_t before;       /* entry of the pristine tree */
    uint32_t added;        /* entry of the tree; 0: the name exists, and gets another file */
    struct wfs_node *node; /* that it leads to */
};

/* Arrays are in the arena of the changes, with room for all that there can be. */
struct reversion {
    struct wfs_tree *tree;
    struct wfs_error *err;
    const struct wfs_tree_listener *listener;
    struct changes changes;
    bool *now, *before; /* entries that are taken back: of the tree, of the pristine one */
    struct mark *todo;
    size_t n_todo;
    struct wfs_node **made; /* by node of the pristine tree: new ones, or directories used for it */
    struct place *places;
    size_t n_places;
    struct wfs_node **gone; /* nodes that may be without a name at the end */
    size_t n_gone;
    uint64_t n; /* edits that are taken back */
};

static const struct entry *before(const struct reversion *reversion, uint32_t id)
{
    return entry_at(reversion->changes.loaded, id);
}

/* ---- what goes together ---- */

static void mark(struct reversion *reversion, bool is_before, uint32_t id)
{
    bool *is_marked = is_before ? &reversion->before[id] : &reversion->now[id];
    if (id == 0 || *is_marked)
        return;
    *is_marked = true;
    reversion->todo[reversion->n_todo++] = (struct mark){id, is_before};
}

static void mark_content(struct reversion *reversion, bool is_before, const struct wfs_node *dir)
{
    const struct wfs_tree *tree = is_before ? reversion->changes.loaded : reversion->tree;
    const struct directory *directory = dir->directory;
    for (uint32_t i = 0; i < directory->n_ids; i++) {
        const struct wfs_node *node = entry_at(tree, directory->ids[i])->node;
        if (node != NULL && !node_is_fixed(node) && node != tree->out)
            mark(reversion, is_before, directory->ids[i]);
    }
}

static void relate_now(struct reversion *reversion, uint32_t id)
{
    const struct changes *changes = &reversion->changes;
    const struct wfs_node *node = entry_at(changes->tree, id)->node;
    const struct wfs_node *was = changes_before(changes, node);
    const uint32_t origin = changes->origin[id];
    mark(reversion, true, origin);
    if (node->kind == NODE_DIR && node != changes->tree->control)
        mark_content(reversion, false, node);
    if (was == NULL || was->kind == NODE_DIR ||
        (origin != 0 && before(reversion, origin)->node == was))
        return;
    /* The file may have been loaded with names that it has no more: it comes back to them. */
    for (uint32_t name = was->entry; name != 0; name = before(reversion, name)->next) {
        if (changes->current[name] == 0)
            mark(reversion, true, name);
    }
}

static void relate_before(struct reversion *reversion, uint32_t id)
{
    const struct changes *changes = &reversion->changes;
    const struct wfs_node *was = before(reversion, id)->node;
    const struct wfs_node *now = changes->now[was->id];
    mark(reversion, false, changes->current[id]);
    if (was->kind == NODE_DIR)
        mark_content(reversion, true, was);
    else if (now != NULL) {
        /* Names that other files of the catalog were loaded with, and that this one has now. */
        for (uint32_t name = now->entry; name != 0; name = entry_at(changes->tree, name)->next) {
            const uint32_t origin = changes->origin[name];
            if (origin != 0 && before(reversion, origin)->node != was)
                mark(reversion, false, name);
        }
    }
}

/* Returns the entry at the path of n bytes, or 0. */
static uint32_t resolve(const struct wfs_tree *tree, const char *path, size_t n)
{
    const struct wfs_node *dir = tree->root;
    const char *end = path + n;
    uint32_t id = 0;
    char name[KEY_NAME_MAX + 1];
    for (; path < end; path++) {
        const char *slash = memchr(path, '/', (size_t)(end - path));
        const size_t n_name = (size_t)((slash == NULL ? end : slash) - path);
        if (n_name > KEY_NAME_MAX || dir->kind != NODE_DIR)
            return 0;
        memcpy(name, path, n_name);
        name[n_name] = '\0';
        id = entry_find(tree, dir, name);
        if (id == 0)
            return 0;
        dir = entry_at(tree, id)->node;
        path += n_name;
    }
    return id;
}

/* Returns the end of the first path. The next one begins two bytes behind it, if it is not the
 * last. */
static const char *end_of_path(const char *paths)
{
    const char *end = strstr(paths, "//");
    return end == NULL ? paths + strlen(paths) : end;
}

static int mark_path(struct reversion *reversion, const char *path, size_t n)
{
    const struct wfs_tree *tree = reversion->tree;
    const uint32_t now = resolve(tree, path, n);
    const uint32_t was = resolve(reversion->changes.loaded, path, n);
    const struct wfs_node *node = now == 0 ? NULL : entry_at(tree, now)->node;
    if (now == 0 && was == 0)
        return wfs_fail(reversion->err, ENOENT, "'%s' is neither in the mount nor in its source",
                        wfs_quote_n(path, n).text);
    if (node != NULL && (node_is_fixed(node) || node == tree->out || node == tree->control))
        return wfs_fail(reversion->err, EINVAL, "'%s' cannot have edits",
                        wfs_quote_n(path, n).text);
    mark(reversion, false, now);
    mark(reversion, true, was);
    return 0;
}

/* The control directory is not listed in the root. */
static int mark_all(struct reversion *reversion, const char *paths)
{
    const struct wfs_tree *tree = reversion->tree, *loaded = reversion->changes.loaded;
    if (*paths == '\0') {
        mark_content(reversion, false, tree->root);
        mark_content(reversion, false, tree->control);
        mark_content(reversion, true, loaded->root);
        mark_content(reversion, true, loaded->control);
    }
    for (const char *end; *paths != '\0'; paths = *end == '\0' ? end : end + 2) {
        end = end_of_path(paths);
        const int code = mark_path(reversion, paths, (size_t)(end - paths));
        if (code < 0)
            return code;
    }
    while (reversion->n_todo > 0) {
        const struct mark next = reversion->todo[--reversion->n_todo];
        (next.is_before ? relate_before : relate_now)(reversion, next.id);
    }
    return 0;
}

/* ---- what is in the way ---- */

static int fail_paths(const struct reversion *reversion, uint32_t loaded, uint32_t other,
                      const char *format)
{
    autostrbuf struct strbuf one = {0}, two = {0};
    entry_path(reversion->changes.loaded, loaded, &one);
    entry_path(reversion->tree, other, &two);
    if (one.bytes == NULL || two.bytes == NULL || one.has_failed || two.has_failed)
        return wfs_fail_memory(reversion->err);
    const struct wfs_quoted name = wfs_quote(two.bytes);
    return wfs_fail(reversion->err, EBUSY, format, wfs_quote(one.bytes).text, name.text, name.text);
}

/* A file of the catalog that keeps its edits cannot get back another name of it. */
static int check_tie(const struct reversion *reversion, uint32_t loaded,
                     const struct wfs_node *node)
{
    if (!changes_is_edited(node))
        return 0;
    for (uint32_t id = node->entry; id != 0; id = entry_at(reversion->tree, id)->next) {
        if (id <= reversion->changes.n_entries && reversion->now[id])
            return 0;
    }
    return fail_paths(reversion, loaded, node->entry,
                      "'%s' is another name of the file '%s', which has edits; discard '%s' as "
                      "well");
}

/* ---- places ---- */

static int add_place(struct reversion *reversion, uint32_t loaded, struct wfs_node *dir,
                     struct wfs_node *node)
{
    struct wfs_tree *tree = reversion->tree;
    const struct entry *was = before(reversion, loaded);
    const uint32_t there = entry_find(tree, dir, was->name);
    uint32_t id = 0;
    if (there != 0 && (there > reversion->changes.n_entries || !reversion->now[there]))
        return fail_paths(reversion, loaded, there,
                          "'%s' cannot come back, because '%s' has its place; discard '%s' as "
                          "well");
    if (there == 0 || there != reversion->changes.current[loaded]) {
        if (entry_add(tree, dir, was->name, NAME_COPIED, node, true, &id) < 0)
            return wfs_fail_memory(reversion->err);
        entry_at(tree, id)->order = was->order;
    }
    reversion->places[reversion->n_places++] = (struct place){loaded, id, node};
    return 0;
}

static struct wfs_node *make_node(struct reversion *reversion, const struct wfs_node *was)
{
    struct wfs_tree *tree = reversion->tree;
    struct wfs_node *node =
        node_new(tree, (enum node_kind)was->kind, (was->ino & INO_MADE) != 0 ? 0 : was->ino);
    if (node == NULL)
        return NULL;
    if (was->kind == NODE_FILE) {
        node->tensor = was->tensor;
        tree->n_bytes += was->tensor->n_bytes;
    } else if (was->kind == NODE_VALUE) {
        node->value = was->value;
    }
    reversion->made[was->id] = node;
    struct edit *edit = edit_of(tree, node);
    if (edit == NULL)
        return NULL;
    edit->loaded = was->id;
    edit_touch(tree, node);
    return node;
}

/* Makes the directory if it is gone; one that was made in its place since will do. */
static int find_dir(struct reversion *reversion, const struct wfs_node *was, struct wfs_node **ret)
{
    const struct changes *changes = &reversion->changes;
    *ret = changes->now[was->id] != NULL ? changes->now[was->id] : reversion->made[was->id];
    if (*ret != NULL)
        return 0;
    const struct entry *entry = before(reversion, was->entry);
    struct wfs_node *parent;
    const int code = find_dir(reversion, entry->dir, &parent);
    if (code < 0)
        return code;
    const uint32_t there = entry_find(reversion->tree, parent, entry->name);
    struct wfs_node *other = there == 0 ? NULL : entry_at(reversion->tree, there)->node;
    if (other != NULL && other->kind == NODE_DIR && there <= changes->n_entries &&
        !reversion->now[there] && changes_before(changes, other) == NULL) {
        *ret = reversion->made[was->id] = other;
        return 0;
    }
    *ret = make_node(reversion, was);
    return *ret == NULL ? wfs_fail_memory(reversion->err)
                        : add_place(reversion, was->entry, parent, *ret);
}

static int place(struct reversion *reversion, uint32_t loaded)
{
    const struct entry *was = before(reversion, loaded);
    struct wfs_node *dir, *node = reversion->changes.now[was->node->id];
    if (was->node->kind == NODE_DIR && node == NULL)
        return find_dir(reversion, was->node, &node);
    if (changes_is_in_place(&reversion->changes, loaded))
        return 0;
    int code = find_dir(reversion, was->dir, &dir);
    if (code == 0 && node != NULL && was->node->kind != NODE_DIR)
        code = check_tie(reversion, loaded, node);
    if (code < 0)
        return code;
    if (node == NULL)
        node = reversion->made[was->node->id];
    if (node == NULL)
        node = make_node(reversion, was->node);
    return node == NULL ? wfs_fail_memory(reversion->err) : add_place(reversion, loaded, dir, node);
}

/* Takes the new names away again, the last one first: directories are older than what is in them.
 */
static void take_away(struct reversion *reversion)
{
    struct wfs_tree *tree = reversion->tree;
    if (reversion->made == NULL)
        return;
    while (reversion->n_places > 0) {
        const struct place *place = &reversion->places[--reversion->n_places];
        if (place->added != 0)
            entry_remove(tree, place->added);
    }
    for (uint32_t id = 1; id <= reversion->changes.loaded->nodes.n_items; id++) {
        struct wfs_node *node = reversion->made[id];
        if (node == NULL || node->entry != 0)
            continue;
        node->n_links = 0;
        edit_release(tree, node);
    }
}

/* ---- doing ---- */

/* Returns whether it has anything to take back. Modes, times and attributes of other programs go
 * with the edits, but do not count as such. */
static bool is_touched(const struct wfs_node *node)
{
    const struct edit *edit = node == NULL ? NULL : node->edit;
    return edit != NULL && (changes_is_edited(node) || edit->has_mode || edit->has_atime ||
                            edit->has_mtime || edit->foreign.first != NULL);
}

/* Returns the file now of a name that is taken back, if that is so. */
static struct wfs_node *touched(const struct reversion *reversion, uint32_t loaded)
{
    struct wfs_node *node = reversion->before[loaded]
                                ? reversion->changes.now[before(reversion, loaded)->node->id]
                                : NULL;
    return is_touched(node) ? node : NULL;
}

static bool has_work(const struct reversion *reversion)
{
    const struct changes *changes = &reversion->changes;
    bool has_any = reversion->n_places > 0;
    for (uint32_t id = 1; id <= changes->n_entries && !has_any; id++)
        has_any = reversion->now[id] && changes->origin[id] == 0;
    for (uint32_t id = 1; id <= changes->loaded->entries.n_items && !has_any; id++)
        has_any = touched(reversion, id) != NULL;
    return has_any;
}

static void tell(const struct reversion *reversion, const struct wfs_node *node, const char *name)
{
    if (reversion->listener != NULL)
        reversion->listener->changed(reversion->listener->ctx, wfs_node_number(node), name);
}

static void touch_dir(const struct reversion *reversion, struct wfs_node *dir)
{
    dir->directory->mtime = node_now();
    edit_touch(reversion->tree, dir);
    tell(reversion, dir, NULL);
}

static void leave(struct reversion *reversion, struct wfs_node *node)
{
    edit_touch(reversion->tree, node);
    tell(reversion, node, NULL);
    reversion->gone[reversion->n_gone++] = node;
}

static void reset_node(struct reversion *reversion, struct wfs_node *node)
{
    reversion->n += changes_is_edited(node);
    edit_reset(reversion->tree, node);
    tell(reversion, node, NULL);
}

static void reset_nodes(struct reversion *reversion)
{
    for (uint32_t id = 1; id <= reversion->changes.loaded->entries.n_items; id++) {
        struct wfs_node *node = touched(reversion, id);
        if (node != NULL)
            reset_node(reversion, node);
    }
}

static void put_places(struct reversion *reversion)
{
    for (size_t i = 0; i < reversion->n_places; i++) {
        const struct place *place = &reversion->places[i];
        const uint32_t old = reversion->changes.current[place->before];
        const uint32_t id = place->added != 0 ? place->added : old;
        const struct entry *entry = entry_at(reversion->tree, id);
        if (place->added == 0) {
            leave(reversion, entry->node);
            entry_relink(reversion->tree, id, place->node);
        } else if (old != 0) {
            reversion->changes.origin[old] = 0; /* it goes, as new names do */
            reversion->n--;
        }
        edit_touch(reversion->tree, place->node);
        tell(reversion, place->node, NULL);
        touch_dir(reversion, entry->dir);
        tell(reversion, entry->dir, entry->name);
        reversion->n++;
    }
}

static void remove_names(struct reversion *reversion)
{
    for (uint32_t id = 1; id <= reversion->changes.n_entries; id++) {
        const struct entry *entry = entry_at(reversion->tree, id);
        if (!reversion->now[id] || reversion->changes.origin[id] != 0)
            continue;
        tell(reversion, entry->dir, entry->name);
        touch_dir(reversion, entry->dir);
        leave(reversion, entry->node);
        entry_remove(reversion->tree, id);
        reversion->n++;
    }
    for (size_t i = 0; i < reversion->n_gone; i++) {
        struct wfs_node *node = reversion->gone[i];
        if (node->entry == 0 && node->kind == NODE_DIR)
            node->n_links = 0;
        edit_release(reversion->tree, node);
    }
}

/*
 * Counts what is left. A tree that is its catalog's again has nothing to commit and needs no
 * journal, unless something else was committed before.
 */
static void count_again(struct reversion *reversion, bool is_all, bool has_names)
{
    struct wfs_tree *tree = reversion->tree;
    tree->generation += reversion->n;
    tree->changed_at = node_now();
    /* A file that lost its last name while it is open does not count as an edit. */
    for (struct edit *edit = tree->edits; edit != NULL; edit = edit->next) {
        if (edit->node->entry != 0 || edit->changed <= tree->committed)
            continue;
        edit->changed = 0;
        tree->n_changed_nodes--;
    }
    if (has_names && (tree->n_commits > 0 || changes_refresh(&reversion->changes) < 0)) {
        tree->n_changed_entries += reversion->n;
        return;
    }
    if (has_names)
        tree->n_changed_entries = changes_count_names(&reversion->changes);
    if (tree->n_changed_entries > 0 || tree->n_changed_nodes > 0)
        return;
    edit_settle(tree, tree->generation);
    if (is_all && !tree->is_replaying)
        (void)stage_restart(tree->stage);
}

/* ---- all of it ---- */

static int begin(struct reversion *reversion, const char *paths)
{
    struct changes *changes = &reversion->changes;
    int code = changes_find(reversion->tree, changes, reversion->err);
    if (code < 0)
        return code;
    struct arena *arena = &changes->arena;
    const size_t n_now = changes->n_entries + 1u, n_before = changes->loaded->entries.n_items + 1u;
    reversion->now = arena_calloc(arena, n_now, sizeof(*reversion->now));
    reversion->before = arena_calloc(arena, n_before, sizeof(*reversion->before));
    reversion->todo = arena_calloc(arena, n_now + n_before, sizeof(*reversion->todo));
    reversion->places = arena_calloc(arena, n_before, sizeof(*reversion->places));
    reversion->gone = arena_calloc(arena, n_now + n_before, sizeof(*reversion->gone));
    reversion->made = arena_calloc(arena, changes->loaded->nodes.n_items + 1u, sizeof(void *));
    if (reversion->now == NULL || reversion->before == NULL || reversion->todo == NULL ||
        reversion->places == NULL || reversion->gone == NULL || reversion->made == NULL)
        return wfs_fail_memory(reversion->err);
    code = mark_all(reversion, paths);
    for (uint32_t id = 1; id < n_before && code == 0; id++) {
        if (reversion->before[id])
            code = place(reversion, id);
    }
    return code;
}

/* Durable before anything is removed that an older record refers to. */
static int note(const struct reversion *reversion, const char *paths)
{
    struct wfs_tree *tree = reversion->tree;
    int code = notes_revert(tree, paths);
    if (code == 0 && !tree->is_replaying)
        code = notes_settle(tree, NULL, stage_sync_journal(tree->stage));
    return code < 0
               ? wfs_fail(reversion->err, -code, "cannot write the journal: %s", strerror(-code))
               : 0;
}

/* ---- files alone ---- */

/* Calls visit with the file at each path. Returns false where one is not a tensor of the catalog.
 */
static bool each_file(struct reversion *reversion, const char *paths,
                      void (*visit)(struct reversion *, struct wfs_node *))
{
    for (const char *end; *paths != '\0'; paths = *end == '\0' ? end : end + 2) {
        end = end_of_path(paths);
        const uint32_t id = resolve(reversion->tree, paths, (size_t)(end - paths));
        struct wfs_node *node = id == 0 ? NULL : entry_at(reversion->tree, id)->node;
        if (node == NULL || node->kind != NODE_FILE || node->tensor == NULL)
            return false;
        if (is_touched(node))
            visit(reversion, node);
    }
    return true;
}

static void count_touched(struct reversion *reversion, struct wfs_node *node)
{
    (void)node;
    reversion->n_places++;
}

/*
 * As long as no name has changed, each file is the one that was loaded with its name: there is no
 * need to look at the whole tree.
 */
static int revert_files(struct reversion *reversion, const char *paths)
{
    const int code = reversion->n_places == 0 ? 0 : note(reversion, paths);
    if (code < 0 || reversion->n_places == 0)
        return code;
    each_file(reversion, paths, reset_node);
    count_again(reversion, false, false);
    return 0;
}

/* The order of the steps matters: edits are reset while names still lead to their nodes. */
int revert(struct wfs_tree *tree, const char *paths, const struct wfs_tree_listener *listener,
           uint64_t *ret_n, struct wfs_error *err)
{
    struct reversion reversion = {.tree = tree, .err = err, .listener = listener};
    if (*paths != '\0' && tree->n_commits == 0 && tree->n_changed_entries == 0 &&
        each_file(&reversion, paths, count_touched)) {
        const int reverted = revert_files(&reversion, paths);
        *ret_n = reversion.n;
        return reverted;
    }
    reversion.n_places = 0;
    /* Names that were changed and changed back are edits to be saved, too. */
    const bool is_whole = *paths == '\0' && tree->n_commits == 0;
    const uint64_t n_pending = wfs_tree_n_edits(tree);
    int code = begin(&reversion, paths);
    const bool is_needed =
        code == 0 && (has_work(&reversion) || (is_whole && wfs_tree_has_pending(tree)));
    if (is_needed)
        code = note(&reversion, paths);
    if (code < 0) {
        take_away(&reversion);
    } else if (is_needed) {
        reset_nodes(&reversion);
        put_places(&reversion);
        remove_names(&reversion);
        count_again(&reversion, *paths == '\0', true);
    }
    const uint64_t n_left = wfs_tree_n_edits(tree);
    *ret_n = tree->n_commits == 0 && n_pending > n_left ? n_pending - n_left : reversion.n;
    changes_done(&reversion.changes);
    return code;
}

int wfs_tree_revert(struct wfs_tree *tree, const char *paths, bool takes_committed,
                    const struct wfs_tree_listener *listener, uint64_t *ret_n,
                    struct wfs_error *err)
{
    *ret_n = 0;
    if (!tree_is_open(tree))
        return wfs_fail(err, EROFS, "the mount takes no edits");
    if (tree->n_commits > 0 && !takes_committed)
        return wfs_fail(err, EBUSY,
                        "a commit has saved edits, and these would be taken back too; --committed "
                        "allows that, and 'weightfs umount --discard' drops the edits since");
    return revert(tree, paths, listener, ret_n, err);
}
