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

#include "base/bytes.h"
#include "format/set/shard_index.h"
#include "text/textout.h"

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
                                "the key '%s' is not valid UTF-8, as an index needs it",
                                wfs_quote(key).text);
            rows[n++] = (struct row){key, set->shards[i].name};
            *n_data += part->tensors[j].n_bytes;
        }
    }
    qsort(rows, n, sizeof(*rows), compare_rows);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(rows[i - 1].key, rows[i].key) == 0)
            return wfs_fail(err, EINVAL, "two tensors are called '%s'",
                            wfs_quote(rows[i].key).text);
    }
    return 0;
}

static void put_index(struct textout *text, const struct row *rows, size_t n, uint64_t n_data)
{
    textout_word(text, "{\n  \"metadata\": {\n    \"total_size\": ");
    textout_number(text, n_data);
    textout_word(text, "\n  },\n  \"weight_map\": {");
    for (size_t i = 0; i < n; i++) {
        textout_word(text, i == 0 ? "\n    " : ",\n    ");
        textout_json(text, rows[i].key, strlen(rows[i].key));
        textout_word(text, ": ");
        textout_json(text, rows[i].file, strlen(rows[i].file));
    }
    textout_word(text, "\n  }\n}\n");
}

int set_index_make(struct wfs_shards *set, const char **ret, size_t *ret_n, struct wfs_error *err)
{
    autofree struct row *rows = NULL;
    struct textout text = {0};
    uint64_t n_data = 0;
    const size_t n = set->catalog->n_tensors;
    const int code = list_rows(set, &rows, &n_data, err);
    if (code < 0)
        return code;
    put_index(&text, rows, n, n_data);
    if (text.n_bytes > SHARD_INDEX_MAX)
        return wfs_fail(err, E2BIG, "the index would have %" PRIu64 " bytes, readers take %d",
                        text.n_bytes, SHARD_INDEX_MAX);
    *ret_n = (size_t)text.n_bytes;
    char *buf = arena_chars(&set->arena, *ret_n + 1);
    if (buf == NULL)
        return wfs_fail_memory(err);
    text = (struct textout){.buf = buf};
    put_index(&text, rows, n, n_data);
    *ret = buf;
    return 0;
}
