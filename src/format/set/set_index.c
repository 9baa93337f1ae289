/* SPDX-License-Identifier: MIT */
/*
 * The index of a set that is going to be saved: every key and the file that it is in.
 */
#include "format/set/set_index.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include "base/utf8.h"
#include "format/set/shard_index.h"

struct row {
    const char *key, *file;
};

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return strcmp(x->key, y->key);
}

/* All keys by their bytes, malloc'ed. */
static int list_rows(const struct wfs_shards *set, struct row **out, uint64_t *n_data,
                     struct wfs_error *err)
{
    size_t n = 0;
    struct row *rows = calloc(set->catalog->n_tensors + 1, sizeof(*rows));
    if (rows == NULL)
        return wfs_fail_memory(err);
    *out = rows;
    for (size_t i = 0; i < set->n_shards; i++) {
        const struct wfs_catalog *part = set->shards[i].part;
        for (size_t j = 0; j < part->n_tensors; j++) {
            const char *key = part->tensors[j].key;
            if (utf8_valid(key, strlen(key)) != strlen(key))
                return wfs_fail(err, EINVAL,
                                "the key '%s' is not valid UTF-8, which an index requires",
                                wfs_quote(key).text);
            rows[n++] = (struct row){key, set->shards[i].name};
            *n_data += part->tensors[j].n_bytes;
        }
    }
    qsort(rows, n, sizeof(*rows), compare_rows);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(rows[i - 1].key, rows[i].key) == 0)
            return wfs_fail(err, EINVAL, "two tensors have the key '%s'",
                            wfs_quote(rows[i].key).text);
    }
    return 0;
}

static void put_index(struct strbuf *text, const struct row *rows, size_t n, uint64_t n_data)
{
    strbuf_puts(text, "{\n  \"metadata\": {\n    \"total_size\": ");
    strbuf_printf(text, "%" PRIu64, n_data);
    strbuf_puts(text, "\n  },\n  \"weight_map\": {");
    for (size_t i = 0; i < n; i++) {
        strbuf_puts(text, i == 0 ? "\n    " : ",\n    ");
        strbuf_json_bytes(text, rows[i].key, strlen(rows[i].key));
        strbuf_puts(text, ": ");
        strbuf_json_bytes(text, rows[i].file, strlen(rows[i].file));
    }
    strbuf_puts(text, "\n  }\n}\n");
}

const char **set_index_names(const struct wfs_shards *set)
{
    const char **names = calloc(set->n_shards + 1, sizeof(*names));
    for (size_t i = 0; names != NULL && i < set->n_shards; i++)
        names[i] = set->shards[i].name;
    return names;
}

static int describe_directory(struct wfs_shards *set, const char **ret, size_t *ret_n,
                              struct wfs_error *err)
{
    autofree const char **names = set_index_names(set);
    return names == NULL
               ? wfs_fail_memory(err)
               : set->kind->describe(&set->directory, names, &set->arena, ret, ret_n, err);
}

int set_index_make(struct wfs_shards *set, const char **ret, size_t *ret_n, struct wfs_error *err)
{
    if (set->kind != NULL)
        return describe_directory(set, ret, ret_n, err);
    autofree struct row *rows = NULL;
    autostrbuf struct strbuf text = {0};
    uint64_t n_data = 0;
    const size_t n = set->catalog->n_tensors;
    const int code = list_rows(set, &rows, &n_data, err);
    if (code < 0)
        return code;
    put_index(&text, rows, n, n_data);
    if (text.n_bytes > SHARD_INDEX_MAX)
        return wfs_fail(err, E2BIG, "the index would have %s, readers accept %d",
                        wfs_count(text.n_bytes, "byte").text, SHARD_INDEX_MAX);
    char *buf = text.has_failed ? NULL : arena_copy(&set->arena, text.bytes, text.n_bytes);
    if (buf == NULL)
        return wfs_fail_memory(err);
    *ret_n = text.n_bytes;
    *ret = buf;
    return 0;
}
