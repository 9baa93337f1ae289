/* SPDX-License-Identifier: MIT */
/*
 * Decides by name alone: what a tool moves aside keeps its node, its dtype and its attributes.
 */
#include "tree/file/backup.h"

#include <string.h>
#include <weightfs/cleanup.h>

#include "tree/file/namesake.h"
#include "tree/node/entry.h"

/* Returns the length of the suffix, or 0. Numbered ones are `.~N~`. */
static size_t suffix_of(const char *name, size_t n_bytes)
{
    static const char *const words[] = {".bak", ".orig", ".rej", ".swp"};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        const size_t n = strlen(words[i]);
        if (n_bytes > n && memcmp(name + n_bytes - n, words[i], n) == 0)
            return n;
    }
    if (n_bytes < 2 || name[n_bytes - 1] != '~')
        return 0;
    size_t at = n_bytes - 1;
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9')
        at--;
    return at > 2 && at < n_bytes - 1 && name[at - 1] == '~' && name[at - 2] == '.'
               ? n_bytes - at + 2
               : 1;
}

/* Cuts a name down to the one that it is a backup copy of. Returns false when it is not one. */
static bool strip(const char **name, size_t *n_bytes)
{
    if (*n_bytes > 2 && (*name)[0] == '#' && (*name)[*n_bytes - 1] == '#') {
        *name += 1;
        *n_bytes -= 2;
        return true;
    }
    const size_t n_suffix = suffix_of(*name, *n_bytes);
    *n_bytes -= n_suffix;
    return n_suffix > 0;
}

bool backup_is_name(const char *name)
{
    size_t n_bytes = strlen(name);
    return strip(&name, &n_bytes);
}

/* Returns true when the key that the entry was loaded with ends in the name that it has now. */
static bool has_loaded_name(const struct wfs_tree *tree, const struct entry *entry)
{
    char part[KEY_NAME_MAX];
    size_t n_part = 0;
    if (entry->order == ORDER_NEW ||
        key_decode(entry->name, strlen(entry->name), part, &n_part) != KEY_IS_PART)
        return false;
    const char *key = namesake_key(tree, entry->order);
    const size_t n_key = strlen(key);
    return n_key >= n_part && memcmp(key + n_key - n_part, part, n_part) == 0 &&
           (n_key == n_part || key[n_key - n_part - 1] == '.');
}

/* Returns true when the name leads to a file. */
static bool is_file(const struct wfs_tree *tree, const struct wfs_node *dir, const char *bytes,
                    size_t n_bytes)
{
    char name[KEY_NAME_MAX + 1];
    if (n_bytes > KEY_NAME_MAX)
        return false;
    memcpy(name, bytes, n_bytes);
    name[n_bytes] = '\0';
    const uint32_t id = entry_find(tree, dir, name);
    return id != 0 && entry_at(tree, id)->node->kind != NODE_DIR;
}

bool backup_is_one(const struct wfs_tree *tree, uint32_t id, const char *key, bool is_value)
{
    const struct entry *entry = entry_at(tree, id);
    const char *name = entry->name;
    size_t n_bytes = strlen(name);
    if (!backup_is_name(name) || has_loaded_name(tree, entry) ||
        (key != NULL && namesake_find(tree, key, is_value) != ORDER_NEW))
        return false;
    while (strip(&name, &n_bytes))
        if (name[0] != '.' && is_file(tree, entry->dir, name, n_bytes))
            return true;
    return false;
}
