/* SPDX-License-Identifier: MIT */
/*
 * What the files of a set are called, and the index that says so.
 */
#include <weightfs/cleanup.h>

#include "format/set/shard_set.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "format/set/shard_files.h"
#include "text/textout.h"

enum { N_STEM = 160, MAX_VERSIONS = 100000, MAX_INDEX = 256 << 20 };

/* ---- what is there ---- */

static int look_at_files(struct shard_present *present, int directory)
{
    const size_t n = present->index.n_shards;
    present->regular = calloc(n + 1, sizeof(*present->regular));
    if (present->regular == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (fstatat(directory, present->index.shards[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode))
            present->regular[i] = wfs_identity_of(&st);
    }
    return 0;
}

int shard_present_read(struct shard_present *present, const char *path, int directory,
                       struct wfs_error *err)
{
    struct stat st;
    *present = (struct shard_present){0};
    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    int code = source_open(path, &present->source, err);
    if (code == 0)
        code = shard_index_read(&present->index, present->source, MAX_INDEX, err);
    if (code <= 0)
        return code;
    present->has_index = true;
    return look_at_files(present, directory) < 0 ? wfs_fail_memory(err) : 0;
}

void shard_present_done(struct shard_present *present)
{
    shard_index_done(&present->index);
    source_free(present->source);
    free(present->regular);
    *present = (struct shard_present){0};
}

/* ---- names ---- */

/* "NAME.EXTENSION.index.json" cut into the two. */
struct stem {
    char text[N_STEM];
    const char *extension; /* with its dot */
};

static int read_stem(const struct wfs_shards *set, const char *name, struct stem *stem,
                     struct wfs_error *err)
{
    const size_t n = strlen(name) - (shard_is_index(name) ? strlen(".index.json") : 0);
    if (n >= sizeof(stem->text))
        return wfs_fail(err, ENAMETOOLONG, "the name of the index is too long: %zu bytes, %d fit",
                        strlen(name), N_STEM - 1);
    memcpy(stem->text, name, n);
    stem->text[n] = '\0';
    const bool has_extension = wfs_format_by_path(stem->text) == set->format;
    stem->extension = has_extension ? strrchr(name, '.') : strrchr(set->format->set_name, '.');
    if (has_extension) {
        char *dot = strrchr(stem->text, '.');
        stem->extension = name + (dot - stem->text);
        *dot = '\0';
    }
    return 0;
}

/* The extension reaches up to ".index.json" where it was taken from the name. */
static char *print_name(struct arena *arena, const struct stem *stem, size_t i, size_t n,
                        unsigned version)
{
    char mark[16] = "";
    const char *end = strstr(stem->extension, ".index.json");
    const int n_extension =
        end == NULL ? (int)strlen(stem->extension) : (int)(end - stem->extension);
    if (version > 1)
        snprintf(mark, sizeof(mark), ".v%u", version);
    return arena_print(arena, "%s-%05zu-of-%05zu%s%.*s", stem->text, i + 1, n, mark, n_extension,
                       stem->extension);
}

/* The name under which a file of the present index is the home itself, or NULL. */
static const char *find_present(const struct shard_present *present, const struct source *home)
{
    for (size_t i = 0; present->has_index && i < present->index.n_shards; i++) {
        if (wfs_identity_is_equal(&present->regular[i], &home->identity))
            return present->index.shards[i];
    }
    return NULL;
}

/* In the arena: what is there now is not looked at any more when the names are needed. */
static int keep_name(struct wfs_shards *set, struct shard *shard, const char *name,
                     struct wfs_error *err)
{
    shard->is_kept = true;
    shard->name = arena_copy(&set->arena, name, strlen(name));
    return shard->name == NULL ? wfs_fail_memory(err) : 0;
}

static int choose_free(struct wfs_shards *set, size_t i, const struct stem *stem, int directory,
                       struct wfs_error *err)
{
    struct stat st;
    for (unsigned version = 1; version < MAX_VERSIONS; version++) {
        const char *name = print_name(&set->arena, stem, i, set->n_shards, version);
        if (name == NULL)
            return wfs_fail_memory(err);
        set->shards[i].name = name;
        if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return errno == ENOENT ? 0
                                   : wfs_fail(err, errno, "cannot look at '%s': %s",
                                              wfs_quote(name).text, strerror(errno));
    }
    return wfs_fail(err, EEXIST, "all names like '%s' are taken",
                    wfs_quote(set->shards[i].name).text);
}

int shard_name_all(struct wfs_shards *set, const struct shard_present *present,
                   const struct outfile *index, struct wfs_error *err)
{
    struct stem stem;
    int code = read_stem(set, outfile_name(index), &stem, err);
    for (size_t i = 0; code == 0 && i < set->n_shards; i++) {
        struct shard *shard = &set->shards[i];
        const char *name = shard->layout == NULL ? find_present(present, shard->home) : NULL;
        code = name != NULL ? keep_name(set, shard, name, err)
                            : choose_free(set, i, &stem, outfile_directory(index), err);
    }
    return code;
}

/* ---- the index ---- */

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

int shard_index_write(struct wfs_shards *set, const char **ret, size_t *ret_n,
                      struct wfs_error *err)
{
    autofree struct row *rows = NULL;
    struct textout text = {0};
    uint64_t n_data = 0;
    const size_t n = set->catalog->n_tensors;
    const int code = list_rows(set, &rows, &n_data, err);
    if (code < 0)
        return code;
    put_index(&text, rows, n, n_data);
    if (text.n_bytes > MAX_INDEX)
        return wfs_fail(err, E2BIG, "the index would have %" PRIu64 " bytes, readers take %d",
                        text.n_bytes, MAX_INDEX);
    *ret_n = (size_t)text.n_bytes;
    char *buf = arena_chars(&set->arena, *ret_n + 1);
    if (buf == NULL)
        return wfs_fail_memory(err);
    text = (struct textout){.buf = buf};
    put_index(&text, rows, n, n_data);
    *ret = buf;
    return 0;
}
