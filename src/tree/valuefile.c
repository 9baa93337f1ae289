/* SPDX-License-Identifier: MIT */
/*
 * Sizes are kept for all, so that listing them again costs nothing; texts are not, since together
 * they can be larger than everything else.
 */
#include "tree/valuefile.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <weightfs/value.h>

#include "base/cleanup.h"

struct file {
    uint64_t n_bytes;            /* 0: not known; no JSON text is that short */
    const struct wfs_node *node; /* NULL: a tensor has its name */
    bool is_removed;
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
    tree->valuefiles->files[node->value].node = node;
}

void valuefile_remove(struct wfs_tree *tree, const struct wfs_node *node)
{
    tree->valuefiles->files[node->value].is_removed = true;
}

bool valuefile_is_removed(const struct wfs_tree *tree, size_t value)
{
    return tree->valuefiles->files[value].is_removed;
}

/* Is it in the directory with that key? */
static bool is_below(const char *name, const struct strbuf *key)
{
    return strncmp(name, key->bytes, key->n_bytes) == 0 && name[key->n_bytes] == '.';
}

int valuefile_name(const struct wfs_tree *tree, size_t value, struct arena *arena, const char **ret)
{
    const struct file *file = &tree->valuefiles->files[value];
    autostrbuf struct strbuf key = {0};
    *ret = wfs_catalog_value_name(tree->catalog, value);
    if (file->is_removed || file->node == NULL)
        return 0;
    const struct wfs_node *dir = entry_at(tree, file->node->entry)->dir;
    if (dir->entry == 0)
        return 0;
    const int code = entry_key(tree, dir->entry, false, &key);
    if (code == -ENOKEY || code == -ENOENT)
        return 0;
    if (code < 0)
        return code;
    if (is_below(*ret, &key))
        return 0;
    const char *dot = strrchr(*ret, '.');
    *ret = arena_print(arena, "%s%s", key.bytes, dot != NULL ? dot : "");
    return *ret == NULL ? -ENOMEM : 0;
}
