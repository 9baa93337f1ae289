/* SPDX-License-Identifier: MIT */
/*
 * tensors.csv is generated once per change of the tree, the caller's texts once per commit,
 * status.json each time, metadata.json once: when it is edited it becomes an ordinary file.
 */
#include "tree/control/control.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/shape.h"
#include "tree/control/metadata.h"
#include "tree/control/status.h"
#include "tree/file/description.h"
#include "tree/file/outline.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"

struct wfs_held_text {
    atomic_size_t n_users;
    struct strbuf text;
};

struct made {
    struct wfs_held_text *held; /* NULL: none was generated yet */
    struct timespec at;
    uint64_t version; /* of its input, when it was generated */
};

struct texts {
    pthread_mutex_t lock;
    struct made made[3 + WFS_TREE_TEXTS_MAX]; /* by kind */
};

static struct made *made_of(const struct wfs_tree *tree, const struct wfs_node *node)
{
    return &tree->texts->made[node->kind - NODE_TENSORS];
}

/* ---- the directory ---- */

static int add_file(struct wfs_tree *tree, struct wfs_node *dir, const char *name,
                    enum node_kind kind)
{
    uint32_t id;
    struct wfs_node *node = node_new(tree, kind, 0);
    return node == NULL ? -ENOMEM : entry_add(tree, dir, name, NAME_BORROWED, node, true, &id);
}

static int add_out(struct wfs_tree *tree)
{
    uint32_t id;
    if (tree->options.n_made == 0)
        return 0;
    tree->out = node_new(tree, NODE_DIR, 0);
    if (tree->out == NULL ||
        entry_add(tree, tree->control, WFS_OUT_NAME, NAME_BORROWED, tree->out, true, &id) < 0)
        return -ENOMEM;
    int code = 0;
    for (size_t i = 0; code == 0 && i < tree->options.n_made; i++)
        code =
            add_file(tree, tree->out, tree->options.made[i].name, (enum node_kind)(NODE_MADE + i));
    return code;
}

int control_new(struct wfs_tree *tree)
{
    uint32_t id;
    tree->texts = calloc(1, sizeof(*tree->texts));
    if (tree->texts == NULL)
        return -ENOMEM;
    pthread_mutex_init(&tree->texts->lock, NULL);
    tree->control = node_new(tree, NODE_DIR, 0);
    if (tree->control == NULL ||
        entry_add(tree, tree->root, WFS_CONTROL_NAME, NAME_BORROWED, tree->control, false, &id) < 0)
        return -ENOMEM;
    tree->root->n_links--; /* it is not listed */
    int code = add_file(tree, tree->control, ENTRY_METADATA, NODE_METADATA);
    if (code == 0)
        code = add_file(tree, tree->control, "status.json", NODE_STATUS);
    if (code == 0)
        code = add_file(tree, tree->control, "tensors.csv", NODE_TENSORS);
    for (size_t i = 0; code == 0 && i < tree->options.n_texts; i++)
        code = add_file(tree, tree->control, tree->options.texts[i].name,
                        (enum node_kind)(NODE_GIVEN + i));
    return code < 0 ? code : add_out(tree);
}

void control_done(struct wfs_tree *tree)
{
    if (tree->texts == NULL)
        return;
    for (size_t i = 0; i < sizeof(tree->texts->made) / sizeof(*tree->texts->made); i++)
        wfs_held_text_release(tree->texts->made[i].held);
    pthread_mutex_destroy(&tree->texts->lock);
    free(tree->texts);
    tree->texts = NULL;
}

/* ---- tensors.csv ---- */

static void put_stored(const struct wfs_tree *tree, const struct wfs_tensor *tensor,
                       struct strbuf *text)
{
    const int source = wfs_catalog_source_of(tree->catalog, tensor);
    int fd;
    uint64_t offset;
    if (source >= 0)
        strbuf_cell(text, wfs_catalog_source_path(tree->catalog, (size_t)source), ',');
    strbuf_puts(text, ",");
    if (wfs_tensor_extent(tensor, &fd, &offset))
        strbuf_printf(text, "%" PRIu64, offset);
}

/* Fields that are not known are left empty; a commit reports why. */
static int put_row(const struct wfs_tree *tree, const struct outline_item *item,
                   struct strbuf *text)
{
    const struct wfs_node *node = entry_at(tree, item->entry)->node;
    cleanup(arena_done) struct arena arena = {0};
    autostrbuf struct strbuf shape = {0};
    struct description description;
    struct wfs_tensor tensor = {0};
    int code = description_make(tree, node, item->entry, &arena, &description, NULL);
    if (code == 0)
        code = description_tensor(tree, node, item->entry, &description, NULL, &arena, &tensor);
    if (code == -ENOMEM)
        return code;
    const bool is_known = code == 0;
    const bool has_dtype = is_known && description.has_dtype;
    if (is_known && description.has_shape)
        shape_print(&shape, &description.shape);
    strbuf_cell(text, item->key == NULL ? "" : item->key, ',');
    strbuf_printf(text, ",%s,", has_dtype ? wfs_dtype_name((enum wfs_dtype)description.dtype) : "");
    strbuf_cell(text, shape.bytes == NULL ? "" : shape.bytes, ',');
    strbuf_printf(text, ",%" PRIu64 ",", is_known ? description.n_bytes : edit_n_bytes(node));
    if (is_known && !edit_is_staged(node))
        put_stored(tree, &tensor, text);
    else
        strbuf_puts(text, ",");
    strbuf_puts(text, ",");
    strbuf_cell(text, tensor.origin == NULL ? "" : tensor.origin, ',');
    strbuf_puts(text, ",");
    strbuf_cell(text, tensor.changes == NULL ? "" : tensor.changes, ',');
    strbuf_puts(text, "\n");
    return shape.has_failed || text->has_failed ? -ENOMEM : 0;
}

static int render_tensors(const struct wfs_tree *tree, struct strbuf *text)
{
    cleanup(arena_done) struct arena arena = {0};
    cleanup(outline_done) struct outline outline = {0};
    strbuf_puts(text, "key,dtype,shape,bytes,file,offset,source_key,changes\n");
    int code = outline_make(tree, &arena, &outline, NULL);
    for (size_t i = 0; i < outline.n_items && code == 0; i++)
        code = put_row(tree, &outline.items[i], text);
    return code;
}

/* ---- looking at them ---- */

/* The status has none. */
static uint64_t version_of(const struct wfs_tree *tree, const struct wfs_node *node)
{
    return node->kind >= NODE_GIVEN     ? atomic_load(&tree->n_commits)
           : node->kind == NODE_TENSORS ? atomic_load(&tree->generation)
                                        : 0;
}

static int render_given(const struct wfs_tree_text *given, struct strbuf *text)
{
    size_t n_bytes = 0;
    autofree char *bytes = NULL;
    const int code = given->make(given->ctx, &bytes, &n_bytes);
    if (code == 0)
        strbuf_add(text, bytes, n_bytes);
    return code;
}

static int render(const struct wfs_tree *tree, const struct wfs_node *node, struct strbuf *text)
{
    int code = 0;
    if (node->kind == NODE_METADATA)
        metadata_render(tree, text);
    else if (node->kind == NODE_TENSORS)
        code = render_tensors(tree, text);
    else if (node->kind == NODE_STATUS)
        status_render(tree, text);
    else
        code = render_given(&tree->options.texts[node->kind - NODE_GIVEN], text);
    return code < 0 ? code : text->has_failed ? -ENOMEM : 0;
}

void wfs_held_text_release(struct wfs_held_text *text)
{
    if (text == NULL || atomic_fetch_sub(&text->n_users, 1) > 1)
        return;
    strbuf_done(&text->text);
    free(text);
}

static bool is_same_text(const struct wfs_held_text *a, const struct wfs_held_text *b)
{
    return a != NULL && a->text.n_bytes == b->text.n_bytes &&
           (b->text.n_bytes == 0 || memcmp(a->text.bytes, b->text.bytes, b->text.n_bytes) == 0);
}

/* Called with the lock held. */
static int refresh(const struct wfs_tree *tree, const struct wfs_node *node, struct made *made)
{
    const uint64_t version = version_of(tree, node);
    if (made->held != NULL && node->kind != NODE_STATUS && made->version == version)
        return 0;
    struct wfs_held_text *held = calloc(1, sizeof(*held));
    const int code = held == NULL ? -ENOMEM : render(tree, node, &held->text);
    if (held != NULL)
        atomic_init(&held->n_users, 1);
    if (code < 0) {
        wfs_held_text_release(held);
        return code;
    }
    made->at = is_same_text(made->held, held) ? made->at : node_now();
    made->version = version;
    wfs_held_text_release(made->held);
    made->held = held;
    return 0;
}

int control_hold(const struct wfs_tree *tree, const struct wfs_node *node,
                 struct wfs_held_text **out)
{
    struct made *made = made_of(tree, node);
    pthread_mutex_lock(&tree->texts->lock);
    const int code = refresh(tree, node, made);
    if (code == 0) {
        atomic_fetch_add(&made->held->n_users, 1);
        *out = made->held;
    }
    pthread_mutex_unlock(&tree->texts->lock);
    return code;
}

ssize_t control_read_held(const struct wfs_held_text *text, uint64_t offset, void *buf,
                          size_t n_bytes)
{
    if (offset >= text->text.n_bytes)
        return 0;
    const size_t n_left = text->text.n_bytes - (size_t)offset;
    const size_t n = n_bytes < n_left ? n_bytes : n_left;
    memcpy(buf, text->text.bytes + offset, n);
    return (ssize_t)n;
}

const struct wfs_tree_made *wfs_node_made(const struct wfs_tree *tree, const struct wfs_node *node)
{
    return node->kind < NODE_MADE ? NULL : &tree->options.made[node->kind - NODE_MADE];
}

int control_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t *ret_n_bytes)
{
    const struct wfs_tree_made *file = wfs_node_made(tree, node);
    if (file != NULL)
        return file->n_bytes(file->ctx, ret_n_bytes);
    struct made *made = made_of(tree, node);
    pthread_mutex_lock(&tree->texts->lock);
    const int code = refresh(tree, node, made);
    *ret_n_bytes = made->held == NULL ? 0 : made->held->text.n_bytes;
    pthread_mutex_unlock(&tree->texts->lock);
    return code;
}

struct timespec control_mtime(const struct wfs_tree *tree, const struct wfs_node *node)
{
    if (node->kind >= NODE_MADE)
        return tree->changed_at.tv_sec != 0 ? tree->changed_at : tree->mtime;
    pthread_mutex_lock(&tree->texts->lock);
    const struct timespec at = made_of(tree, node)->at;
    pthread_mutex_unlock(&tree->texts->lock);
    return at;
}

ssize_t control_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                     void *buf, size_t n_bytes)
{
    const struct wfs_tree_made *file = wfs_node_made(tree, node);
    if (file != NULL)
        return file->read(file->ctx, offset, buf, n_bytes);
    struct made *made = made_of(tree, node);
    pthread_mutex_lock(&tree->texts->lock);
    const int code = made->held == NULL ? refresh(tree, node, made) : 0;
    const ssize_t n = code < 0 ? code : control_read_held(made->held, offset, buf, n_bytes);
    pthread_mutex_unlock(&tree->texts->lock);
    return n;
}
