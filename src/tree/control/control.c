/* SPDX-License-Identifier: MIT */
/*
 * tensors.csv is generated once per change of the tree, the caller's texts once per commit,
 * status.json each time, metadata.json once: when it is edited it becomes an ordinary file.
 */
#include "tree/control/control.h"

#include <weightfs/cleanup.h>
#include "tensor/tensor.h"
#include "tree/control/texts.h"
#include "tree/file/description.h"
#include "tree/file/outline.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/node/node.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Equal numbers mean equal bytes, for whoever caches them. */
struct version {
    struct version *older;
    struct control_look look;
    uint64_t n_refs;
    uint64_t input;     /* of its content, when that was last found unchanged */
    struct strbuf text; /* nothing for a file of options.made */
    int code;           /* not 0: it cannot be generated */
};

struct made {
    pthread_mutex_t lock;
    struct version *now; /* then the older ones that have references; NULL: none was generated */
    uint32_t n_versions;
};

enum { N_MADE = 3 + WFS_TREE_TEXTS_MAX + WFS_TREE_MADE_MAX };

struct generated {
    struct made made[N_MADE]; /* by kind */
};

static struct made *made_of(const struct wfs_tree *tree, const struct wfs_node *node)
{
    return &tree->generated->made[node->kind - NODE_TENSORS];
}

static void remove_version(struct version **at)
{
    struct version *version = *at;
    *at = version->older;
    strbuf_done(&version->text);
    free(version);
}

/* ---- the directory ---- */

static int add_file(struct wfs_tree *tree, struct wfs_node *dir, const char *name,
                    enum node_kind kind, bool is_listed)
{
    uint32_t id;
    struct wfs_node *node = node_new(tree, kind, 0);
    return node == NULL ? -ENOMEM : entry_add(tree, dir, name, NAME_BORROWED, node, is_listed, &id);
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
    assert(tree->options.n_made <= WFS_TREE_MADE_MAX);
    for (size_t i = 0; code == 0 && i < tree->options.n_made; i++)
        code = add_file(tree, tree->out, tree->options.made[i].name,
                        (enum node_kind)(NODE_MADE + i), !tree->options.made[i].is_hidden);
    return code;
}

int control_new(struct wfs_tree *tree)
{
    uint32_t id;
    tree->generated = calloc(1, sizeof(*tree->generated));
    if (tree->generated == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < N_MADE; i++)
        pthread_mutex_init(&tree->generated->made[i].lock, NULL);
    tree->control = node_new(tree, NODE_DIR, 0);
    if (tree->control == NULL ||
        entry_add(tree, tree->root, WFS_CONTROL_NAME, NAME_BORROWED, tree->control, false, &id) < 0)
        return -ENOMEM;
    tree->root->n_links--; /* it is not listed */
    int code = add_file(tree, tree->control, ENTRY_METADATA, NODE_METADATA, true);
    if (code == 0)
        code = add_file(tree, tree->control, "status.json", NODE_STATUS, true);
    if (code == 0)
        code = add_file(tree, tree->control, "tensors.csv", NODE_TENSORS, true);
    for (size_t i = 0; code == 0 && i < tree->options.n_texts; i++)
        code = add_file(tree, tree->control, tree->options.texts[i].name,
                        (enum node_kind)(NODE_GIVEN + i), true);
    return code < 0 ? code : add_out(tree);
}

void control_done(struct wfs_tree *tree)
{
    if (tree->generated == NULL)
        return;
    for (size_t i = 0; i < N_MADE; i++) {
        struct made *made = &tree->generated->made[i];
        while (made->now != NULL)
            remove_version(&made->now);
        pthread_mutex_destroy(&made->lock);
    }
    free(tree->generated);
    tree->generated = NULL;
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
    int code = sibling_describe(tree, node, item->entry, &arena, &description, NULL);
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

/* ---- versions ---- */

const struct wfs_tree_made *wfs_node_made(const struct wfs_tree *tree, const struct wfs_node *node)
{
    return node->kind < NODE_MADE ? NULL : &tree->options.made[node->kind - NODE_MADE];
}

/* Returns a count that stays while the content cannot change; that of the status always can. */
static uint64_t input_of(const struct wfs_tree *tree, const struct wfs_node *node)
{
    const struct wfs_tree_made *made = wfs_node_made(tree, node);
    const bool is_given = node->kind >= NODE_GIVEN && made == NULL;
    const bool shows_edits = made != NULL ? !made->is_hidden
                             : is_given   ? tree->options.texts[node->kind - NODE_GIVEN].shows_edits
                                          : node->kind == NODE_TENSORS;
    return (is_given ? atomic_load(&tree->n_commits) : 0) +
           (shows_edits ? atomic_load(&tree->generation) : 0);
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
        code = metadata_render(tree, NULL, NULL, 0, text);
    else if (node->kind == NODE_TENSORS)
        code = render_tensors(tree, text);
    else if (node->kind == NODE_STATUS)
        status_render(tree, text);
    else
        code = render_given(&tree->options.texts[node->kind - NODE_GIVEN], text);
    return code < 0 ? code : text->has_failed ? -ENOMEM : 0;
}

/* Generates what the file shows now; an error is part of the version. */
static void generate(const struct wfs_tree *tree, const struct wfs_node *node,
                     struct version *version)
{
    const struct wfs_tree_made *file = wfs_node_made(tree, node);
    struct control_look *look = &version->look;
    if (file != NULL) {
        version->code = file->n_bytes(file->ctx, &look->n_bytes);
        look->mtime = tree->changed_at.tv_sec != 0 ? tree->changed_at : tree->mtime;
    } else {
        version->code = render(tree, node, &version->text);
        look->n_bytes = version->text.n_bytes;
        look->mtime = node_now();
    }
    if (version->code < 0)
        look->n_bytes = 1;
}

static bool is_same(const struct wfs_node *node, const struct version *a, const struct version *b)
{
    if (a == NULL || a->code != b->code || a->look.n_bytes != b->look.n_bytes)
        return false;
    if (a->code < 0 || node->kind >= NODE_MADE)
        return a->input == b->input;
    return a->look.n_bytes == 0 || memcmp(a->text.bytes, b->text.bytes, a->look.n_bytes) == 0;
}

/* Makes made->now what the file shows now. Called with the lock held. -ENOMEM, -EAGAIN: it is as it
 * was. */
static int refresh(const struct wfs_tree *tree, const struct wfs_node *node, struct made *made)
{
    struct version *now = made->now;
    const uint64_t input = input_of(tree, node);
    if (now != NULL && now->code == 0 && node->kind != NODE_STATUS && now->input == input)
        return 0;
    struct version *made_now = calloc(1, sizeof(*made_now));
    if (made_now == NULL)
        return -ENOMEM;
    made_now->input = input;
    generate(tree, node, made_now);
    if (made_now->code == -EAGAIN) { /* it needs what is not fetched yet */
        remove_version(&made_now);
        return -EAGAIN;
    }
    if (is_same(node, now, made_now)) {
        now->input = input;
        remove_version(&made_now);
        return 0;
    }
    if (now != NULL && now->n_refs == 0)
        remove_version(&made->now);
    made->n_versions += made->n_versions == UINT32_MAX ? 2 : 1;
    made_now->look.number = (uint64_t)made->n_versions << 32 | node->id;
    made_now->older = made->now;
    made->now = made_now;
    return 0;
}

/* Returns where the version is in the list, or the end of the list. The lock is held. */
static struct version **find(struct made *made, uint64_t number)
{
    struct version **at = &made->now;
    while (*at != NULL && (*at)->look.number != number)
        at = &(*at)->older;
    return at;
}

int control_look(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t n_refs,
                 struct control_look *ret)
{
    struct made *made = made_of(tree, node);
    *ret = (struct control_look){.n_bytes = 1};
    pthread_mutex_lock(&made->lock);
    int code = refresh(tree, node, made);
    if (code == 0) {
        made->now->n_refs += n_refs;
        code = made->now->code;
        *ret = made->now->look;
    }
    pthread_mutex_unlock(&made->lock);
    return code;
}

int control_look_at(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                    struct control_look *ret)
{
    struct made *made = made_of(tree, node);
    pthread_mutex_lock(&made->lock);
    const struct version *version = *find(made, number);
    const int code = version == NULL ? -ESTALE : version->code;
    *ret = version == NULL ? (struct control_look){.n_bytes = 1} : version->look;
    pthread_mutex_unlock(&made->lock);
    return code;
}

void control_unref(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                   uint64_t n_refs)
{
    struct made *made = made_of(tree, node);
    pthread_mutex_lock(&made->lock);
    struct version **at = find(made, number);
    if (*at != NULL) {
        (*at)->n_refs -= n_refs;
        if ((*at)->n_refs == 0 && *at != made->now)
            remove_version(at);
    }
    pthread_mutex_unlock(&made->lock);
}

static ssize_t read_text(const struct strbuf *text, uint64_t offset, void *buf, size_t n_bytes)
{
    if (offset >= text->n_bytes)
        return 0;
    const size_t n_left = text->n_bytes - (size_t)offset;
    const size_t n = n_bytes < n_left ? n_bytes : n_left;
    memcpy(buf, text->bytes + offset, n);
    return (ssize_t)n;
}

/* Finds the version, which is generated where 0 asks for the last one. The lock is held. */
static int find_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                     const struct version **ret)
{
    struct made *made = made_of(tree, node);
    const bool is_known = number != 0 || (made->now != NULL && made->now->code == 0);
    const int code = is_known ? 0 : refresh(tree, node, made);
    if (code < 0)
        return code;
    *ret = number == 0 ? made->now : *find(made, number);
    const bool is_stale = *ret != NULL && number != 0 && wfs_node_made(tree, node) != NULL &&
                          (*ret)->input != input_of(tree, node);
    return *ret == NULL || is_stale ? -ESTALE : 0;
}

int control_check_held(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number)
{
    struct made *made = made_of(tree, node);
    const struct version *version;
    pthread_mutex_lock(&made->lock);
    const int code = number == 0 ? 0 : find_read(tree, node, number, &version);
    pthread_mutex_unlock(&made->lock);
    return code;
}

int control_hold(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                 const void **ret_held)
{
    const struct wfs_tree_made *file = wfs_node_made(tree, node);
    struct made *made = made_of(tree, node);
    const struct version *version;
    pthread_mutex_lock(&made->lock);
    const int code = find_read(tree, node, number, &version);
    pthread_mutex_unlock(&made->lock);
    return code < 0 ? code : file->hold(file->ctx, ret_held);
}

static ssize_t read_made(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                         uint64_t offset, void *buf, size_t n_bytes)
{
    const struct wfs_tree_made *file = wfs_node_made(tree, node);
    const void *held;
    const int code = control_hold(tree, node, number, &held);
    if (code < 0)
        return code;
    const ssize_t n = file->read(NULL, held, offset, buf, n_bytes);
    file->let_go(file->ctx, held);
    return n;
}

ssize_t control_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                     uint64_t offset, void *buf, size_t n_bytes)
{
    struct made *made = made_of(tree, node);
    const struct version *version;
    if (wfs_node_made(tree, node) != NULL)
        return read_made(tree, node, number, offset, buf, n_bytes);
    pthread_mutex_lock(&made->lock);
    ssize_t n = find_read(tree, node, number, &version);
    if (n == 0)
        n = version->code < 0 ? version->code : read_text(&version->text, offset, buf, n_bytes);
    pthread_mutex_unlock(&made->lock);
    return n;
}
