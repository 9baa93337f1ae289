/* SPDX-License-Identifier: MIT */
/*
 * { "metadata": {...}, "weight_map": { KEY: FILE, ... } }, of which only the map is believed.
 */
#include "format/set/shard_index.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/utf8.h"
#include "remote/remote_source.h"
#include "text/json.h"

struct shard_key *shard_index_find(const struct shard_index *index, const char *key)
{
    const uint32_t i = text_index_find(&index->by_key, key, strlen(key));
    return i == TEXT_INDEX_NONE ? NULL : &index->keys[i];
}

/* No path, only a name: decided by its letters, because links are followed. */
static bool is_plain_name(const struct json_text *text)
{
    return text->n_bytes > 0 && text->n_bytes < 256 && strlen(text->bytes) == text->n_bytes &&
           strpbrk(text->bytes, "/\\") == NULL && strcmp(text->bytes, ".") != 0 &&
           strcmp(text->bytes, "..") != 0;
}

int shard_index_add(struct shard_index *index, const char *key, const char *shard,
                    uint32_t *ret_shard)
{
    uint32_t i;
    if (array_reserve(&index->keys, sizeof(*index->keys), index->n_keys, 1, &index->n_key_room) <
            0 ||
        array_reserve(&index->shards, sizeof(*index->shards), index->n_shards, 1,
                      &index->n_shard_room) < 0 ||
        text_index_add(&index->by_key, key, strlen(key), &i) < 0)
        return -ENOMEM;
    if (i < index->n_keys) {
        *ret_shard = index->keys[i].shard;
        return 0;
    }
    if (text_index_add(&index->by_shard, shard, strlen(shard), ret_shard) < 0)
        return -ENOMEM;
    if (*ret_shard == index->n_shards)
        index->shards[index->n_shards++] = shard;
    index->keys[index->n_keys++] = (struct shard_key){.name = key, .shard = *ret_shard};
    return 1;
}

static int add_key(struct shard_index *index, const struct json_text *key,
                   const struct json_text *file, struct wfs_error *err)
{
    uint32_t shard;
    const struct wfs_quoted quoted = wfs_quote_n(key->bytes, key->n_bytes);
    if (strlen(key->bytes) != key->n_bytes)
        return wfs_fail(err, EOPNOTSUPP, "index: the key '%s' contains a NUL", quoted.text);
    if (!is_plain_name(file))
        return wfs_fail(err, EBADMSG, "index: the key '%s' is in '%s', which is not a file name",
                        quoted.text, wfs_quote_n(file->bytes, file->n_bytes).text);
    const int code = shard_index_add(index, key->bytes, file->bytes, &shard);
    if (code == 0)
        return wfs_fail(err, EBADMSG, "index: duplicate key '%s'", quoted.text);
    return code < 0 ? wfs_fail_memory(err) : 0;
}

static int read_map(struct shard_index *index, struct json *json, struct wfs_error *err)
{
    struct json_text key, file;
    int code = 0;
    if (!json_open_object(json))
        return 0;
    while (code == 0 && json_next_key(json, &key)) {
        if (!json_take_string(json, &file))
            return 0;
        code = add_key(index, &key, &file, err);
    }
    return code;
}

static int compare_names(const void *a, const void *b)
{
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

bool shard_index_has_file(const struct shard_index *index, const char *name)
{
    return text_index_find(&index->by_shard, name, strlen(name)) != TEXT_INDEX_NONE;
}

/* Puts the files in order, and the keys' numbers with them. */
static int sort_shards(struct shard_index *index)
{
    autofree uint32_t *places = calloc(index->n_shards + 1, sizeof(*places)); /* by number before */
    if (places == NULL)
        return -ENOMEM;
    qsort(index->shards, index->n_shards, sizeof(*index->shards), compare_names);
    for (size_t i = 0; i < index->n_shards; i++) {
        const char *name = index->shards[i];
        places[text_index_find(&index->by_shard, name, strlen(name))] = (uint32_t)i;
    }
    for (size_t i = 0; i < index->n_keys; i++)
        index->keys[i].shard = places[index->keys[i].shard];
    return 0;
}

static int parse(struct shard_index *index, struct json *json, struct wfs_error *err)
{
    struct json_text name;
    bool has_map = false;
    int code = 0;
    if (!json_open_object(json))
        return 0;
    while (code == 0 && json_next_key(json, &name)) {
        const bool is_map = name.n_bytes == 10 && memcmp(name.bytes, "weight_map", 10) == 0;
        if (is_map && has_map)
            return wfs_fail(err, EBADMSG, "index: duplicate weight_map");
        if (is_map && json_kind(json) == JSON_KIND_OBJECT) {
            has_map = true;
            code = read_map(index, json, err);
        } else if (!json_skip(json)) {
            break;
        }
    }
    if (code < 0)
        return code;
    if (has_map && (json->error != NULL || !json_end(json)))
        return wfs_fail(err, EBADMSG, "index: %s at byte %zu", json->error, json_offset(json));
    if (has_map && index->n_keys == 0)
        return wfs_fail(err, EBADMSG, "index: the weight_map is empty");
    return has_map;
}

/* Returns whether white space and a brace come first. -EIO. */
static int begins_like_json(const struct source *source)
{
    char head[64];
    const size_t n = source->n_bytes < sizeof(head) ? (size_t)source->n_bytes : sizeof(head);
    if (n > 0 && source_read(source, 0, head, n) < 0)
        return -EIO;
    size_t i = 0;
    while (i < n && strchr(" \t\r\n", head[i]) != NULL && head[i] != '\0')
        i++;
    return i < n && head[i] == '{';
}

/* Tells how many shards there will be as soon as the first name does: "…-of-00100…". */
static void expect_shards(const struct source *source)
{
    char head[4096];
    const size_t n = source->n_bytes < sizeof(head) ? (size_t)source->n_bytes : sizeof(head) - 1;
    if (!source->is_remote || source_read(source, 0, head, n) < 0)
        return;
    head[n] = '\0';
    const char *name = strstr(head, "-of-");
    remote_source_expect_siblings(source, name == NULL ? 0 : strtoul(name + 4, NULL, 10));
}

int shard_index_read(struct shard_index *index, const struct source *source, uint64_t n_most,
                     struct wfs_error *err)
{
    *index = (struct shard_index){0};
    const int is_json = source->n_bytes > n_most ? 0 : begins_like_json(source);
    if (is_json < 0)
        return wfs_fail(err, EIO, "cannot read its first bytes");
    if (!is_json)
        return 0;
    expect_shards(source);
    const size_t n = (size_t)source->n_bytes;
    index->text = malloc(n + 1);
    if (index->text == NULL)
        return wfs_fail_memory(err);
    if (source_read(source, 0, index->text, n) < 0)
        return wfs_fail(err, EIO, "cannot read its %s", wfs_count(n, "byte").text);
    if (utf8_valid(index->text, n) != n)
        return 0;
    index->text[n] = '\0';
    struct json json = json_of(index->text, n);
    const int code = parse(index, &json, err);
    return code > 0 && sort_shards(index) < 0 ? wfs_fail_memory(err) : code;
}

void shard_index_done(struct shard_index *index)
{
    free(index->text);
    free(index->keys);
    free(index->shards);
    text_index_done(&index->by_key);
    text_index_done(&index->by_shard);
    *index = (struct shard_index){0};
}

/* ---- which files are named ---- */

/* Makes an index of the files that a description names. Returns 1; errors as those of its reader.
 */
static int read_description(struct shard_index *ret, const struct directory_functions *kind,
                            const struct source *source, struct wfs_error *err)
{
    uint32_t number;
    int code = kind->list(source, &ret->text, err);
    if (code < 0)
        return code;
    for (const char *name = ret->text; *name != '\0' && code >= 0; name += strlen(name) + 1)
        code = shard_index_add(ret, name, name, &number);
    return code < 0 ? wfs_fail_memory(err) : 1;
}

int shard_index_list(struct shard_index *ret, const struct directory_functions *kind,
                     const char *path, struct wfs_error *err)
{
    struct stat st;
    struct source *source = NULL;
    *ret = (struct shard_index){0};
    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    int code = source_open(path, &source, err);
    if (code == 0)
        code = kind != NULL ? read_description(ret, kind, source, err)
                            : shard_index_read(ret, source, SHARD_INDEX_MAX, err);
    source_free(source);
    if (code <= 0)
        shard_index_done(ret);
    return code;
}
