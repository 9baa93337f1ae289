/* SPDX-License-Identifier: MIT */
/*
 * What the names on the way from the root to an entry spell: a path, or a key.
 */
#include <errno.h>
#include <string.h>

#include "tree/node/entry.h"

/* The entries from the root's down; long ways are on the heap. */
struct way {
    const struct entry *few[64];
    const struct entry **entries;
    size_t n_entries;
};

static bool find_way(const struct wfs_tree *tree, uint32_t id, struct way *way)
{
    size_t n = 0;
    for (uint32_t at = id; at != 0; at = entry_at(tree, at)->dir->entry)
        n++;
    way->n_entries = n;
    way->entries = way->few;
    if (n > sizeof(way->few) / sizeof(*way->few))
        way->entries = calloc(n, sizeof(*way->entries));
    if (way->entries == NULL)
        return false;
    for (uint32_t at = id; at != 0; at = entry_at(tree, at)->dir->entry)
        way->entries[--n] = entry_at(tree, at);
    return true;
}

static void way_done(struct way *way)
{
    if (way->entries != way->few)
        free(way->entries);
}

void entry_path(const struct wfs_tree *tree, uint32_t id, struct strbuf *text)
{
    struct way way;
    if (!find_way(tree, id, &way)) {
        text->has_failed = true;
        return;
    }
    for (size_t i = 0; i < way.n_entries; i++) {
        if (i > 0)
            strbuf_add(text, "/", 1);
        strbuf_puts(text, way.entries[i]->name);
    }
    way_done(&way);
}

bool entry_is_scratch(const struct wfs_tree *tree, uint32_t id)
{
    for (uint32_t at = id; at != 0; at = entry_at(tree, at)->dir->entry) {
        if (entry_at(tree, at)->name[0] == '.')
            return true;
    }
    return false;
}

bool entry_has_suffix(const struct wfs_tree *tree, uint32_t id)
{
    const char *name = entry_at(tree, id)->name;
    const size_t n_bytes = strlen(name), n_suffix = strlen(KEY_NPY);
    return n_bytes > n_suffix && strcmp(name + n_bytes - n_suffix, KEY_NPY) == 0;
}

/* Adds what the name stands for; a %self adds nothing. */
static int add_part(const struct wfs_tree *tree, const char *name, size_t n_bytes, bool is_first,
                    struct strbuf *text)
{
    char part[KEY_NAME_MAX];
    size_t n_part = 0;
    if (memchr(name, '%', n_bytes) == NULL) {
        if (name[0] == '.')
            return -ENOENT;
        if (!is_first)
            strbuf_add(text, ".", 1);
        strbuf_add(text, name, n_bytes);
        return 0;
    }
    const enum key_kind kind = key_decode(name, n_bytes, part, &n_part);
    if (kind == KEY_IS_SELF)
        return 0;
    const char *cut = kind == KEY_IS_CUT ? key_cuts_find(&tree->cuts, name, n_bytes) : NULL;
    if (kind != KEY_IS_PART && cut == NULL)
        return kind == KEY_IS_SCRATCH ? -ENOENT : -ENOKEY;
    if (!is_first)
        strbuf_add(text, ".", 1);
    if (cut != NULL)
        strbuf_puts(text, cut);
    else
        strbuf_add(text, part, n_part);
    return 0;
}

int entry_key_without(const struct wfs_tree *tree, uint32_t id, size_t n_suffix,
                      struct strbuf *text)
{
    struct way way;
    if (!find_way(tree, id, &way))
        return -ENOMEM;
    int code = 0;
    for (size_t i = 0; i < way.n_entries && code == 0; i++) {
        const char *name = way.entries[i]->name;
        const bool is_last = i + 1 == way.n_entries;
        code = add_part(tree, name, strlen(name) - (is_last ? n_suffix : 0), i == 0, text);
    }
    way_done(&way);
    if (code == 0)
        strbuf_add(text, "", 0);
    return code < 0 ? code : text->has_failed ? -ENOMEM : 0;
}

int entry_key(const struct wfs_tree *tree, uint32_t id, bool has_suffix, struct strbuf *text)
{
    return entry_key_without(tree, id, has_suffix ? strlen(KEY_NPY) : 0, text);
}
