/* SPDX-License-Identifier: MIT */
/*
 * Loaders escape such keys and mark the tensors; what becomes of these is decided when all is
 * loaded, because the layout of a file is checked with all its tensors.
 */
#include "format/core/keys.h"

#include <weightfs/array.h>
#include "base/arena.h"
#include "base/text_index.h"
#include "catalog/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int names_reserve(struct names *names, uint32_t n)
{
    if (array_reserve(&names->n_same, sizeof(*names->n_same), 0, n, &names->n_room) < 0)
        return -ENOMEM;
    return text_index_reserve(&names->index, n);
}

/* Counts the name as asked for once more; *ret_is_new: it was not in use. */
static int count(struct names *names, const char *name, size_t n_bytes, uint32_t *ret,
                 bool *ret_is_new)
{
    const size_t n_before = names->index.n_texts;
    if (array_reserve(&names->n_same, sizeof(*names->n_same), n_before, 1, &names->n_room) < 0 ||
        text_index_add(&names->index, name, n_bytes, ret) < 0)
        return -ENOMEM;
    *ret_is_new = names->index.n_texts > n_before;
    if (*ret_is_new)
        names->n_same[*ret] = 1;
    return 0;
}

int names_make(struct names *names, struct arena *arena, const char *name, size_t n_bytes,
               const char *lasting, const char **ret)
{
    const char *from = name == NULL ? "" : name;
    uint32_t first, number;
    bool is_new;
    if (count(names, from, n_bytes, &first, &is_new) < 0)
        return -ENOMEM;
    if (is_new) {
        *ret = lasting != NULL ? lasting : arena_copy(arena, from, n_bytes);
        names->index.texts[first].bytes = *ret == NULL ? "" : *ret;
        return *ret == NULL ? -ENOMEM : 0;
    }
    char *copy = arena_chars(arena, n_bytes + 16);
    if (copy == NULL)
        return -ENOMEM;
    memcpy(copy, from, n_bytes);
    do {
        const size_t n_all =
            n_bytes + (size_t)snprintf(copy + n_bytes, 16, "~%u", ++names->n_same[first]);
        if (count(names, copy, n_all, &number, &is_new) < 0)
            return -ENOMEM;
    } while (!is_new);
    names->n_clashes++;
    *ret = copy;
    return 0;
}

void names_done(struct names *names)
{
    free(names->n_same);
    text_index_done(&names->index);
    *names = (struct names){.n_clashes = names->n_clashes};
}

#define ESCAPED "%00"

static size_t count_nuls(const char *bytes, size_t n_bytes)
{
    size_t n = 0;
    for (const char *at = bytes, *end = bytes + n_bytes;
         at < end && (at = memchr(at, '\0', (size_t)(end - at))) != NULL; at++)
        n++;
    return n;
}

int nul_key_escape(bool is_allowed, struct arena *arena, const char **bytes, size_t *n_bytes)
{
    const size_t n_nuls = *n_bytes == 0 ? 0 : count_nuls(*bytes, *n_bytes);
    if (n_nuls == 0)
        return 0;
    if (!is_allowed)
        return -EOPNOTSUPP;
    const size_t n_all = *n_bytes + n_nuls * (strlen(ESCAPED) - 1);
    char *copy = arena_chars(arena, n_all + 1), *to = copy;
    if (copy == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < *n_bytes; i++) {
        if ((*bytes)[i] == '\0')
            to = mempcpy(to, ESCAPED, strlen(ESCAPED));
        else
            *to++ = (*bytes)[i];
    }
    *to = '\0';
    *bytes = copy;
    *n_bytes = n_all;
    return 1;
}

const char nul_key_mark[] = "its key has a NUL";

int nul_key_settle(bool is_shown, struct wfs_catalog *catalog)
{
    size_t n_kept = 0, n_found = 0;
    const char *first = NULL;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        struct wfs_tensor *tensor = &catalog->tensors[i];
        const bool has_nul = tensor->changes == nul_key_mark;
        n_found += has_nul;
        first = first == NULL && has_nul ? tensor->key : first;
        tensor->changes = has_nul ? NULL : tensor->changes;
        if (!has_nul || is_shown)
            catalog->tensors[n_kept++] = *tensor;
    }
    catalog->n_tensors = n_kept;
    if (n_found == 0)
        return 0;
    return catalog_add_finding(
        catalog, is_shown ? WFS_LOW : WFS_HIGH, "%s a NUL in the key%s; the first is '%s'",
        wfs_count_as(n_found, "tensor has", "tensors have").text,
        is_shown ? ", shown as %00" : " and cannot be shown (escape_nul shows it as %00)",
        wfs_quote(first).text);
}
