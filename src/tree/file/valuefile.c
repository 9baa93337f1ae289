/* SPDX-License-Identifier: MIT */
/*
 * The sizes of all texts are kept, so that listing them again costs nothing. Texts are not:
 * together they can be larger than everything else.
 */
#include "tree/file/valuefile.h"

#include <weightfs/cleanup.h>
#include <weightfs/value.h>
#include "base/bytes.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/node/node.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct file {
    uint64_t n_bytes; /* 0: not known; no JSON text is that short */
    bool is_shown;    /* false: a tensor has its name */
};

struct valuefiles {
    pthread_mutex_t lock; /* guards sizes and text */
    struct file *files;   /* of each value */
    char *text;           /* malloc'ed; of the value that was made last */
    size_t n_bytes;
    size_t value;
};

int valuefiles_new(const struct wfs_catalog *catalog, struct valuefiles **out)
{
    autofree struct valuefiles *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return -ENOMEM;
    made->files = calloc(wfs_catalog_n_values(catalog) + 1, sizeof(*made->files));
    if (made->files == NULL)
        return -ENOMEM;
    pthread_mutex_init(&made->lock, NULL);
    *out = steal(&made);
    return 0;
}

void valuefiles_free(struct valuefiles *made)
{
    if (made == NULL)
        return;
    pthread_mutex_destroy(&made->lock);
    free(made->files);
    free(made->text);
    free(made);
}

/* Called with the lock held: makes the value's text the one that is kept. */
static int make_text(const struct wfs_tree *tree, size_t value)
{
    struct valuefiles *made = tree->valuefiles;
    char *text;
    size_t n_bytes;
    if (made->text != NULL && made->value == value)
        return 0;
    const int code = wfs_catalog_value_text(tree->catalog, value, &text, &n_bytes);
    if (code < 0)
        return code;
    free(made->text);
    made->text = text;
    made->n_bytes = n_bytes;
    made->value = value;
    made->files[value].n_bytes = n_bytes;
    return 0;
}

int valuefile_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node,
                      uint64_t *ret_n_bytes)
{
    struct valuefiles *made = tree->valuefiles;
    pthread_mutex_lock(&made->lock);
    const struct file *file = &made->files[node->value];
    const int code = file->n_bytes == 0 ? make_text(tree, node->value) : 0;
    *ret_n_bytes = file->n_bytes;
    pthread_mutex_unlock(&made->lock);
    return code;
}

ssize_t valuefile_read(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t offset,
                       void *buf, size_t n_bytes)
{
    struct valuefiles *made = tree->valuefiles;
    pthread_mutex_lock(&made->lock);
    ssize_t n = make_text(tree, node->value);
    if (n == 0 && offset < made->n_bytes) {
        const size_t n_left = made->n_bytes - (size_t)offset;
        n = (ssize_t)(n_bytes < n_left ? n_bytes : n_left);
        memcpy(buf, made->text + offset, (size_t)n);
    }
    pthread_mutex_unlock(&made->lock);
    return n;
}

void valuefile_add(struct wfs_tree *tree, const struct wfs_node *node)
{
    tree->valuefiles->files[node->value].is_shown = true;
}

bool valuefile_is_shown(const struct wfs_tree *tree, size_t value)
{
    return tree->valuefiles->files[value].is_shown;
}

size_t valuefile_n_suffix(const char *name)
{
    return text_ends(name, VALUEFILE_SUFFIX) ? strlen(VALUEFILE_SUFFIX) : 0;
}

bool valuefile_is_one(const struct entry *entry)
{
    const struct wfs_node *node = entry->node;
    if (node->kind != NODE_FILE)
        return node->kind == NODE_VALUE;
    const bool is_described =
        node->edit != NULL && (node->edit->has_dtype || node->edit->has_shape);
    return node->tensor == NULL && !is_described && valuefile_n_suffix(entry->name) > 0;
}

size_t valuefile_origin(const struct wfs_tree *tree, uint32_t id, uint32_t order)
{
    const struct wfs_node *node = entry_at(tree, id)->node;
    const size_t n_tensors = wfs_catalog_n_tensors(tree->catalog);
    if (node->kind == NODE_VALUE)
        return node->value;
    return order >= n_tensors && order - n_tensors < wfs_catalog_n_values(tree->catalog)
               ? order - n_tensors
               : SIZE_MAX;
}

int valuefile_name(const struct wfs_tree *tree, uint32_t id, struct arena *arena, const char **ret)
{
    const size_t value = valuefile_origin(tree, id, entry_at(tree, id)->order);
    autostrbuf struct strbuf key = {0};
    const int code =
        entry_key_without(tree, id, valuefile_n_suffix(entry_at(tree, id)->name), &key);
    *ret = value == SIZE_MAX ? NULL : wfs_catalog_value_name(tree->catalog, value);
    if (code == -ENOKEY || (code == 0 && *ret != NULL && strcmp(*ret, key.bytes) == 0))
        return 0;
    if (code < 0)
        return code;
    *ret = arena_copy(arena, key.bytes, key.n_bytes);
    return *ret == NULL ? -ENOMEM : 0;
}
