/* SPDX-License-Identifier: MIT */
/*
 * Changes of names: made, removed, moved, linked.
 */
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "tree/control/control.h"
#include "tree/file/description.h"
#include "tree/file/outline.h"
#include "tree/file/valuefile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/node/node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_called(const struct wfs_tree *tree, const struct wfs_node *dir, const char *name)
{
    return dir->entry != 0 && entry_at(tree, dir->entry)->dir == tree->root &&
           strcmp(entry_at(tree, dir->entry)->name, name) == 0;
}

/* The name without a suffix ".npy" that has something before it. */
static size_t n_bytes_of_stem(const char *name)
{
    return strlen(name) - (text_ends(name, KEY_NPY) ? strlen(KEY_NPY) : 0);
}

/* Returns true for a name such as "%.json": only with its suffix is it that of a file. */
static bool is_name_of_value(const char *name)
{
    char part[KEY_NAME_MAX];
    size_t n_part;
    const size_t n_suffix = valuefile_n_suffix(name);
    const enum key_kind kind = key_decode(name, strlen(name) - n_suffix, part, &n_part);
    return n_suffix > 0 && (kind == KEY_IS_PART || kind == KEY_IS_CUT);
}

/* May something be called so, there? */
static int check_name(const struct wfs_tree *tree, const struct wfs_node *dir, const char *name,
                      bool is_dir)
{
    char part[KEY_NAME_MAX];
    size_t n_part;
    const size_t n = strlen(name);
    if (n > KEY_NAME_MAX)
        return -ENAMETOOLONG;
    if (n == 0 || strchr(name, '/') != NULL || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return n == 0 ? -ENOENT : -EINVAL;
    if (dir == tree->control)
        return 0;
    enum key_kind kind = key_decode(name, n, part, &n_part);
    if (kind == KEY_IS_INVALID && !is_dir)
        kind = key_decode(name, n_bytes_of_stem(name), part, &n_part);
    if (kind == KEY_IS_INVALID && !is_dir && (is_name_of_value(name) || backup_is_only(name)))
        return 0;
    if (kind == KEY_IS_INVALID || (kind == KEY_IS_SELF && (is_dir || dir == tree->root)))
        return -EINVAL;
    if (tree->options.reserved_key != NULL && !is_dir &&
        ((dir == tree->root && n_bytes_of_stem(name) == strlen(tree->options.reserved_key) &&
          strncmp(name, tree->options.reserved_key, n_bytes_of_stem(name)) == 0) ||
         (kind == KEY_IS_SELF && is_called(tree, dir, tree->options.reserved_key))))
        return -EINVAL;
    return 0;
}

/* May the directory be changed? */
static int check_dir(const struct wfs_tree *tree, const struct wfs_node *dir)
{
    if (!tree_is_open(tree))
        return -EROFS;
    if (dir->kind != NODE_DIR)
        return -ENOTDIR;
    if (dir == tree->out)
        return -EPERM;
    return node_is_unlinked(dir) ? -ENOENT : 0;
}

/* The entry of a directory that may be changed. */
static int find(struct wfs_tree *tree, const struct wfs_node *dir, const char *name, uint32_t *ret)
{
    const int code = check_dir(tree, dir);
    if (code < 0)
        return code;
    *ret = entry_find(tree, dir, name);
    return *ret == 0 ? -ENOENT : 0;
}

static bool is_shown(const struct wfs_tree *tree, uint32_t id)
{
    const struct entry *entry = entry_at(tree, id);
    if (entry->dir == tree->control)
        return strcmp(entry->name, ENTRY_METADATA) == 0;
    if (entry->node->kind == NODE_DIR && !entry_has_any(entry->node))
        return false;
    return !entry_is_scratch(tree, id);
}

static bool is_fixed(const struct wfs_tree *tree, const struct wfs_node *node)
{
    return node == tree->control || node == tree->out || node_is_fixed(node);
}

/* Notes that names in the directory have changed. */
static void touch_dir(struct wfs_tree *tree, struct wfs_node *dir)
{
    dir->directory->mtime = node_now();
    edit_touch(tree, dir);
}

/* ---- making ---- */

static int check_new(const struct wfs_tree *tree, const struct wfs_node *dir, const char *name,
                     bool is_dir)
{
    int code = check_dir(tree, dir);
    if (code == 0 && entry_find(tree, dir, name) != 0)
        code = -EEXIST;
    if (code == 0)
        code = check_name(tree, dir, name, is_dir);
    if (code == 0 && is_dir && dir == tree->control)
        code = -EPERM;
    return code < 0 ? code : tree->n_nodes >= NODES_MAX ? -ENOSPC : 0;
}

static int make_node(struct wfs_tree *tree, struct wfs_node *dir, const char *name, mode_t mode,
                     enum node_kind kind, struct wfs_node **ret)
{
    uint32_t id = 0;
    struct wfs_node *node = node_new(tree, kind, 0);
    if (node == NULL)
        return -ENOMEM;
    struct edit *edit = edit_of(tree, node);
    int code = edit == NULL ? -ENOMEM : 0;
    if (code == 0) {
        edit->is_staged = kind == NODE_FILE; /* of no bytes, without a file */
        code = entry_add(tree, dir, name, NAME_COPIED, node, true, &id);
    }
    if (code == 0)
        code = namesake_describe(tree, node);
    if (code < 0) {
        if (id != 0)
            entry_remove(tree, id);
        node->n_links = 0;
        edit_release(tree, node);
        return code;
    }
    const struct timespec now = node_now();
    edit->has_mode = true;
    edit->mode = mode & 07777;
    if (kind == NODE_DIR && dir->edit != NULL)
        edit->mode |= dir->edit->mode & S_ISGID;
    if (kind == NODE_DIR) {
        node->directory->mtime = now;
    } else {
        edit->has_mtime = true;
        edit->mtime = now;
        edit_mark(tree, edit);
    }
    edit_touch(tree, node);
    touch_dir(tree, dir);
    *ret = node;
    return 0;
}

static int make(struct wfs_tree *tree, struct wfs_node *dir, const char *name, mode_t mode,
                enum node_kind kind, struct wfs_node **ret)
{
    const bool is_dir = kind == NODE_DIR;
    int code = check_new(tree, dir, name, is_dir);
    if (code == 0)
        code = namesake_index(tree);
    if (code == 0)
        code = notes_name(tree, is_dir ? WFS_RECORD_DIRECTORY : WFS_RECORD_FILE, dir, name);
    return code < 0 ? code : notes_settle(tree, NULL, make_node(tree, dir, name, mode, kind, ret));
}

int wfs_node_create(struct wfs_tree *tree, struct wfs_node *dir, const char *name, mode_t mode,
                    struct wfs_node **ret)
{
    return make(tree, dir, name, mode, NODE_FILE, ret);
}

int wfs_node_mkdir(struct wfs_tree *tree, struct wfs_node *dir, const char *name, mode_t mode,
                   struct wfs_node **ret)
{
    return make(tree, dir, name, mode, NODE_DIR, ret);
}

int wfs_node_link(struct wfs_tree *tree, struct wfs_node *node, struct wfs_node *dir,
                  const char *name)
{
    uint32_t id;
    int code = check_new(tree, dir, name, false);
    if (code < 0)
        return code;
    if (node->kind == NODE_DIR || node->kind == NODE_VALUE || node_is_fixed(node))
        return -EPERM;
    if (node_is_unlinked(node))
        return -ENOENT;
    if (wfs_node_is_control(tree, node) != (dir == tree->control))
        return -EXDEV;
    code = namesake_index(tree);
    if (code == 0)
        code = notes_link(tree, node, dir, name);
    if (code < 0)
        return code;
    const bool is_unknown = node->tensor == NULL && !valuefile_is_one(entry_at(tree, node->entry));
    code = entry_add(tree, dir, name, NAME_COPIED, node, true, &id);
    if (code == 0 && is_unknown) {
        code = namesake_describe(tree, node);
        if (code < 0)
            entry_remove(tree, id);
    }
    if (notes_settle(tree, NULL, code) < 0)
        return code;
    edit_touch(tree, node);
    touch_dir(tree, dir);
    edit_mark_entry(tree, is_shown(tree, id));
    return 0;
}

/* ---- removing ---- */

static int remove_name(struct wfs_tree *tree, struct wfs_node *dir, const char *name, bool is_dir)
{
    uint32_t id;
    int code = find(tree, dir, name, &id);
    if (code < 0)
        return code;
    struct wfs_node *node = entry_at(tree, id)->node;
    if ((node->kind == NODE_DIR) != is_dir)
        return is_dir ? -ENOTDIR : -EISDIR;
    if (is_fixed(tree, node))
        return is_dir ? -EBUSY : -EPERM;
    if (is_dir && entry_has_any(node))
        return -ENOTEMPTY;
    code = notes_name(tree, WFS_RECORD_REMOVE, dir, name);
    if (code < 0)
        return code;
    edit_mark_entry(tree, is_shown(tree, id)); /* an empty directory is not */
    entry_remove(tree, id);
    if (is_dir)
        node->n_links = 0;
    edit_touch(tree, node);
    edit_release(tree, node);
    touch_dir(tree, dir);
    return 0;
}

int wfs_node_unlink(struct wfs_tree *tree, struct wfs_node *dir, const char *name)
{
    return remove_name(tree, dir, name, false);
}

int wfs_node_rmdir(struct wfs_tree *tree, struct wfs_node *dir, const char *name)
{
    return remove_name(tree, dir, name, true);
}

/* ---- moving ---- */

struct move {
    struct wfs_node *from_dir, *to_dir;
    const char *to_name;
    uint32_t from, to; /* entries; to is 0 when there is none yet */
};

static bool is_inside(const struct wfs_tree *tree, const struct wfs_node *dir,
                      const struct wfs_node *ancestor)
{
    while (dir != ancestor && dir->entry != 0)
        dir = entry_at(tree, dir->entry)->dir;
    return dir == ancestor;
}

/* Would the directory give a tensor the reserved key by its new name? */
static bool makes_metadata_key(const struct wfs_tree *tree, const struct wfs_node *node,
                               const struct wfs_node *to_dir, const char *name)
{
    return tree->options.reserved_key != NULL && to_dir == tree->root &&
           strcmp(name, tree->options.reserved_key) == 0 &&
           (entry_find(tree, node, KEY_SELF) != 0 || entry_find(tree, node, KEY_SELF KEY_NPY) != 0);
}

static int check_arrival(const struct wfs_tree *tree, const struct wfs_node *node,
                         const struct wfs_node *to_dir, const char *name)
{
    const bool is_dir = node->kind == NODE_DIR;
    if (is_dir && (is_inside(tree, to_dir, node) || makes_metadata_key(tree, node, to_dir, name)))
        return -EINVAL;
    return check_name(tree, to_dir, name, is_dir);
}

static int check_replaced(const struct wfs_tree *tree, const struct move *move)
{
    const struct wfs_node *node = entry_at(tree, move->from)->node;
    const struct wfs_node *replaced = entry_at(tree, move->to)->node;
    if (is_inside(tree, move->from_dir, replaced))
        return -ENOTEMPTY;
    if (replaced->kind != NODE_DIR)
        return node->kind == NODE_DIR ? -ENOTDIR : 0;
    if (node->kind != NODE_DIR)
        return -EISDIR;
    return entry_has_any(replaced) ? -ENOTEMPTY : 0;
}

static int check_move(const struct wfs_tree *tree, const struct move *move, unsigned flags)
{
    const struct entry *from = entry_at(tree, move->from);
    const struct entry *to = move->to == 0 ? NULL : entry_at(tree, move->to);
    if ((flags & RENAME_NOREPLACE) != 0 && to != NULL)
        return -EEXIST;
    if ((flags & RENAME_EXCHANGE) != 0 && to == NULL)
        return -ENOENT;
    if (is_fixed(tree, from->node) || (to != NULL && is_fixed(tree, to->node)))
        return -EPERM;
    if ((move->from_dir == tree->control) != (move->to_dir == tree->control))
        return -EXDEV;
    const int code = check_arrival(tree, from->node, move->to_dir, move->to_name);
    if (code < 0 || to == NULL || to->node == from->node)
        return code;
    if ((flags & RENAME_EXCHANGE) != 0)
        return check_arrival(tree, to->node, move->from_dir, from->name);
    return check_replaced(tree, move);
}

/* Returns true for a file whose dtype and shape depend on the place that it takes. */
static bool takes_description(const struct entry *entry)
{
    return entry->node->kind == NODE_FILE && !edit_is_told(entry->node) && !valuefile_is_one(entry);
}

/* Gives a new file what the other one is, as far as neither what was set nor the header of a .npy
 * file says it. The new one takes the name id. */
static int inherit(struct wfs_tree *tree, struct wfs_node *node, uint32_t id,
                   const struct wfs_node *from)
{
    cleanup(arena_done) struct arena arena = {0};
    struct description own = {0};
    int code = description_hides_suffix(tree, node, id);
    if (code > 0)
        code = sibling_describe(tree, node, id, &arena, &own, NULL);
    if (code < 0 && !description_is_of_header(code))
        return code;
    return edit_inherit(tree, node, from, !own.is_framed || !own.has_dtype, !own.is_framed);
}

/* Each of two files takes the place of the other. */
static int inherit_both(struct wfs_tree *tree, const struct move *move)
{
    const struct entry *from = entry_at(tree, move->from), *to = entry_at(tree, move->to);
    struct wfs_node *node = from->node, *other = to->node;
    const bool takes = takes_description(from), other_takes = takes_description(to);
    const struct wfs_tensor *tensor = takes && other_takes ? node->tensor : NULL;
    if (node->kind != NODE_FILE || other->kind != NODE_FILE)
        return 0;
    int code = takes ? inherit(tree, node, move->to, other) : 0;
    if (code == 0 && other_takes)
        code = inherit(tree, other, move->from, node);
    if (code == 0 && tensor != NULL)
        other->tensor = tensor;
    return code;
}

static int exchange(struct wfs_tree *tree, const struct move *move)
{
    struct entry *from = entry_at(tree, move->from), *to = entry_at(tree, move->to);
    struct wfs_node *node = from->node, *other = to->node;
    const int code = inherit_both(tree, move);
    if (code < 0)
        return code;
    if ((node->kind == NODE_DIR) != (other->kind == NODE_DIR)) {
        const uint32_t order = from->order;
        from->order = to->order;
        to->order = order;
    }
    const bool was_shown = is_shown(tree, move->from) || is_shown(tree, move->to);
    entry_relink(tree, move->from, other);
    entry_relink(tree, move->to, node);
    edit_touch(tree, other);
    edit_mark_entry(tree, was_shown);
    return 0;
}

/* The place in the output stays with the key; a new file without dtype and shape gets those of the
 * replaced one. */
static int replace(struct wfs_tree *tree, const struct move *move)
{
    struct entry *from = entry_at(tree, move->from), *to = entry_at(tree, move->to);
    struct wfs_node *node = from->node, *replaced = to->node;
    if (node->kind == NODE_FILE && !edit_is_told(node)) {
        const int code = inherit(tree, node, move->to, replaced);
        if (code < 0)
            return code;
    }
    const bool was_shown = is_shown(tree, move->from) || is_shown(tree, move->to);
    to->order = to->order == ORDER_NEW ? from->order : to->order;
    if (node->kind == NODE_DIR)
        replaced->n_links = 0;
    entry_relink(tree, move->to, node);
    entry_remove(tree, move->from);
    edit_touch(tree, replaced);
    edit_release(tree, replaced);
    edit_mark_entry(tree, was_shown);
    return 0;
}

static int move_on(struct wfs_tree *tree, const struct move *move)
{
    uint32_t id;
    const bool was_shown = is_shown(tree, move->from);
    const struct entry *from = entry_at(tree, move->from);
    int code = entry_add(tree, move->to_dir, move->to_name, NAME_COPIED, from->node, true, &id);
    if (code < 0)
        return code;
    entry_at(tree, id)->order = from->order;
    code = namesake_describe(tree, from->node);
    if (code < 0) {
        entry_remove(tree, id);
        return code;
    }
    entry_remove(tree, move->from);
    edit_mark_entry(tree, was_shown || is_shown(tree, id));
    return 0;
}

int wfs_node_rename(struct wfs_tree *tree, struct wfs_node *from_dir, const char *from_name,
                    struct wfs_node *to_dir, const char *to_name, unsigned flags)
{
    if ((flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) != 0 ||
        flags == (RENAME_NOREPLACE | RENAME_EXCHANGE))
        return -EINVAL;
    int code = check_dir(tree, from_dir);
    if (code == 0)
        code = check_dir(tree, to_dir);
    if (code < 0)
        return code;
    const struct move move = {from_dir, to_dir, to_name, entry_find(tree, from_dir, from_name),
                              entry_find(tree, to_dir, to_name)};
    if (move.from == 0)
        return -ENOENT;
    code = check_move(tree, &move, flags);
    if (code == 0 && backup_is_name(to_name))
        code = namesake_index(tree);
    if (code < 0)
        return code;
    struct wfs_node *node = entry_at(tree, move.from)->node;
    if (move.to != 0 && node == entry_at(tree, move.to)->node)
        return 0; /* POSIX: two names of one file stay both */
    code = notes_move(tree, from_dir, from_name, to_dir, to_name, flags);
    if (code < 0)
        return code;
    code = (flags & RENAME_EXCHANGE) != 0 ? exchange(tree, &move)
           : move.to != 0                 ? replace(tree, &move)
                                          : move_on(tree, &move);
    code = notes_settle(tree, NULL, code);
    if (code < 0)
        return code;
    edit_touch(tree, node);
    touch_dir(tree, from_dir);
    if (to_dir != from_dir)
        touch_dir(tree, to_dir);
    return 0;
}
