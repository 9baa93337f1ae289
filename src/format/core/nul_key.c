/* SPDX-License-Identifier: MIT */
/*
 * Loaders escape such keys and mark the tensors; what becomes of these is decided when all is
 * loaded, because the layout of a file is checked with all its tensors.
 */
#include "format/core/nul_key.h"

#include <errno.h>
#include <string.h>

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

int nul_key_settle(bool is_shown, struct wfs_catalog *catalog)
{
    size_t n_kept = 0, n_found = 0;
    const char *first = NULL;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct wfs_tensor *tensor = &catalog->tensors[i];
        n_found += tensor->has_nul;
        first = first == NULL && tensor->has_nul ? tensor->key : first;
        if (!tensor->has_nul || is_shown)
            catalog->tensors[n_kept++] = *tensor;
    }
    catalog->n_tensors = n_kept;
    if (n_found == 0)
        return 0;
    return catalog_add_finding(
        catalog, is_shown ? WFS_FINDING_NUL_ESCAPED : WFS_FINDING_NUL_LEFT_OUT,
        "%s a NUL in the key%s; the first is '%s'",
        wfs_count_as(n_found, "tensor has", "tensors have").text,
        is_shown ? ", shown as %00" : " and cannot be shown (escape_nul shows it as %00)",
        wfs_quote(first).text);
}
