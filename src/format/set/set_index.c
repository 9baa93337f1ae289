/* SPDX-License-Identifier: MIT */
/*
 * The index of a set that is going to be saved: every key and the file that it is in. Files get
 * names that no file in the directory has, or the one that a file has there already.
 */
#include <weightfs/cleanup.h>
#include <weightfs/json_out.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/output.h"
#include "base/utf8.h"
#include "format/core/format.h"
#include "format/set/shard_files.h"
#include "format/set/shard_set.h"

enum { N_STEM = 160, MAX_VERSIONS = 100000 };

/* ---- existing files ---- */

int set_present_read(struct set_present *present, const struct wfs_shards *set, const char *path,
                     int directory, struct wfs_error *err)
{
    int code = set->kind != NULL ? 0 : shard_files_check_index(set->table, path, err);
    if (code == 0)
        code = kept_indexes_read(&present->kept, set->table, path, err);
    if (code < 0)
        return code;
    code = shard_index_list(&present->index, set->kind, path, set->kind != NULL ? NULL : err);
    if (code < 0 && set->kind != NULL)
        return code == -ENOMEM ? wfs_fail_memory(err) : 0;
    if (code <= 0)
        return code;
    present->regular = calloc(present->index.n_shards + 1, sizeof(*present->regular));
    if (present->regular == NULL)
        return wfs_fail_memory(err);
    for (size_t i = 0; i < present->index.n_shards; i++) {
        struct stat st;
        if (fstatat(directory, present->index.shards[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode))
            present->regular[i] = wfs_identity_of(&st);
    }
    return 0;
}

void set_present_done(struct set_present *present)
{
    shard_index_done(&present->index);
    kept_indexes_done(&present->kept);
    free(present->regular);
    *present = (struct set_present){0};
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
        return wfs_fail(err, ENAMETOOLONG, "the name of the index is too long: %s, %d fit",
                        wfs_count(strlen(name), "byte").text, N_STEM - 1);
    memcpy(stem->text, name, n);
    stem->text[n] = '\0';
    const bool has_extension = format_has_name(set->format, stem->text);
    stem->extension = has_extension ? strrchr(name, '.') : strrchr(set->format->set_name, '.');
    if (has_extension) {
        char *dot = strrchr(stem->text, '.');
        stem->extension = name + (dot - stem->text);
        *dot = '\0';
    }
    return 0;
}

/* Returns whether all names of the set differ in their numbers only. */
static bool has_one_stem(const struct wfs_shards *set)
{
    return set->format->functions->describes_part != NULL;
}

/* The extension reaches up to ".index.json" where it was taken from the name. */
static char *print_name(struct wfs_shards *set, const struct stem *stem, size_t i, unsigned version)
{
    char mark[16] = "";
    const char *end = strstr(stem->extension, ".index.json");
    const int n_extension =
        end == NULL ? (int)strlen(stem->extension) : (int)(end - stem->extension);
    if (version > 1)
        snprintf(mark, sizeof(mark), ".v%u", version);
    return arena_print(&set->arena, "%s%s-%05zu-of-%05zu%s%.*s", stem->text,
                       has_one_stem(set) ? mark : "", i + 1, set->n_shards,
                       has_one_stem(set) ? "" : mark, n_extension, stem->extension);
}

/* Returns what follows ".v2"; the text itself where it begins otherwise. */
static const char *skip_version(const char *text)
{
    const size_t n = strncmp(text, ".v", 2) == 0 ? strspn(text + 2, "0123456789") : 0;
    return n == 0 ? text : text + 2 + n;
}

/* Returns what follows "-00001-of-00002" and perhaps ".v2", on either side; NULL: the text is
 * another. */
static const char *skip_number(const char *text)
{
    static const char *const marks[] = {"-", "-of-"};
    enum { N_DIGITS = 5 };
    text = skip_version(text);
    for (size_t i = 0; i < 2; i++) {
        if (strncmp(text, marks[i], strlen(marks[i])) != 0)
            return NULL;
        text += strlen(marks[i]);
        const size_t n = strspn(text, "0123456789");
        if (n < N_DIGITS)
            return NULL;
        text += n;
    }
    return skip_version(text);
}

bool set_index_is_name(const char *index, const char *name)
{
    const size_t n_whole = strlen(index) - (shard_is_index(index) ? strlen(".index.json") : 0);
    const char *dot = memrchr(index, '.', n_whole);
    const size_t n_stem = dot == NULL ? n_whole : (size_t)(dot - index);
    const char *end = strncmp(name, index, n_whole) == 0 ? skip_number(name + n_whole) : NULL;
    if (end != NULL && *end == '.')
        return true;
    end = strncmp(name, index, n_stem) == 0 ? skip_number(name + n_stem) : NULL;
    return end != NULL && dot != NULL && strlen(end) == n_whole - n_stem &&
           strncmp(end, dot, n_whole - n_stem) == 0;
}

/* Takes over the name under which a file of the present index is the home itself. It goes into the
 * arena: it outlives the list of existing files. Returns 1; 0: there is none; -ENOMEM. */
static int keep_name(const struct set_present *present, struct wfs_shards *set, struct shard *shard)
{
    for (size_t i = 0; shard->layout == NULL && i < present->index.n_shards; i++) {
        const char *name = present->index.shards[i];
        if (!wfs_identity_is_equal(&present->regular[i], &shard->home->identity))
            continue;
        shard->is_kept = true;
        shard->name = arena_copy(&set->arena, name, strlen(name));
        return shard->name == NULL ? -ENOMEM : 1;
    }
    return 0;
}

/* Returns whether an index has the name, or that of the file until it is published: even without
 * such a file, it would show another one as its own. */
static bool is_named(const struct set_present *present, const char *name)
{
    char temporary[WFS_OUTPUT_NAME_MAX];
    wfs_output_temporary(name, temporary);
    return shard_index_has_file(&present->index, name) || kept_indexes_name(&present->kept, name) ||
           kept_indexes_name(&present->kept, temporary);
}

/* Returns 1 for a name that is not in use; 0; an error. */
static int is_free(const struct set_present *present, const char *name, int directory,
                   struct wfs_error *err)
{
    struct stat st;
    if (is_named(present, name) || fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    return errno == ENOENT ? 1
                           : wfs_fail(err, errno, "cannot inspect '%s': %s", wfs_quote(name).text,
                                      strerror(errno));
}

static int fail_names(const struct shard *shard, struct wfs_error *err)
{
    return wfs_fail(err, EEXIST, "all names like '%s' are in use", wfs_quote(shard->name).text);
}

/* Gives a file the next name that is free: of versions of one name or, in a directory, of numbers,
 * of which *number is the next. */
static int choose_free(const struct set_present *present, struct wfs_shards *set, size_t i,
                       const struct stem *stem, uint64_t *number, int directory,
                       struct wfs_error *err)
{
    struct shard *shard = &set->shards[i];
    for (unsigned version = 1; version < MAX_VERSIONS || set->kind != NULL; version++) {
        shard->name = set->kind != NULL ? set->kind->name(&set->arena, (*number)++)
                                        : print_name(set, stem, i, version);
        const int code = shard->name == NULL ? wfs_fail_memory(err)
                                             : is_free(present, shard->name, directory, err);
        if (code != 0)
            return code < 0 ? code : 0;
    }
    return fail_names(shard, err);
}

/* Gives all files names of one version, of which none is in use. */
static int choose_stem(const struct set_present *present, struct wfs_shards *set,
                       const struct stem *stem, int directory, struct wfs_error *err)
{
    for (unsigned version = 1; version < MAX_VERSIONS; version++) {
        int code = 1;
        for (size_t i = 0; i < set->n_shards && code == 1; i++) {
            const char *name = print_name(set, stem, i, version);
            code = name == NULL ? wfs_fail_memory(err) : is_free(present, name, directory, err);
            set->shards[i].name = name;
        }
        if (code != 0)
            return code < 0 ? code : 0;
    }
    return fail_names(&set->shards[0], err);
}

/* Returns whether a file has the content of a source: 1, 0; -EIO. */
static int has_content(int directory, const char *name, const struct source *source)
{
    struct source *file;
    char buf[2][4096];
    int code = source_open_beneath(directory, name, name, &file, NULL);
    if (code < 0)
        return 0;
    code = file->n_bytes == source->n_bytes;
    for (uint64_t at = 0; code == 1 && at < source->n_bytes; at += sizeof(buf[0])) {
        const uint64_t n_left = source->n_bytes - at;
        const size_t n = n_left < sizeof(buf[0]) ? (size_t)n_left : sizeof(buf[0]);
        if (source_read(file, at, buf[0], n) < 0 || source_read(source, at, buf[1], n) < 0)
            code = -EIO;
        else
            code = memcmp(buf[0], buf[1], n) == 0;
    }
    source_free(file);
    return code;
}

static int fail_beside(const char *name, struct wfs_error *err)
{
    return wfs_fail(err, EEXIST,
                    "'%s' in the directory is not what goes with the new checkpoint, and is not "
                    "replaced: write to another directory, or move it away",
                    wfs_quote(name).text);
}

/* A file beside the checkpoint keeps its name: another one with that name is not replaced. */
static int keep_beside(struct shard *shard, int directory, struct wfs_error *err)
{
    struct stat st;
    const char *slash = strrchr(shard->home->path, '/');
    shard->name = slash == NULL ? shard->home->path : slash + 1;
    if (fstatat(directory, shard->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0
                               : wfs_fail(err, errno, "cannot inspect '%s': %s",
                                          wfs_quote(shard->name).text, strerror(errno));
    shard->is_kept = shard->layout == NULL && has_content(directory, shard->name, shard->home) == 1;
    return shard->is_kept ? 0 : fail_beside(shard->name, err);
}

static bool exists(int directory, const char *name)
{
    return faccessat(directory, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* One that is read with the files of the directory must not be read with those of another
 * checkpoint: where there is one already, it neither comes nor changes, since both could not be
 * replaced at once. */
static int check_companion(const struct wfs_shards *set, const struct outfile *index,
                           struct wfs_error *err)
{
    const int directory = outfile_directory(index);
    const char *name = set->kind->beside[0];
    for (size_t i = 0; i < set->n_shards; i++) {
        const struct shard *shard = &set->shards[i];
        if (shard->is_beside && strcmp(shard->name, name) == 0)
            return shard->is_kept || !exists(directory, outfile_name(index))
                       ? 0
                       : wfs_fail(err, EEXIST,
                                  "the checkpoint in the directory has no '%s', which goes with "
                                  "the new one: write to another directory, or remove that "
                                  "checkpoint first",
                                  name);
    }
    return exists(directory, name) ? fail_beside(name, err) : 0;
}

int set_index_name(const struct set_present *present, struct wfs_shards *set,
                   const struct outfile *index, struct wfs_error *err)
{
    struct stem stem;
    uint64_t number = 0;
    int code = set->kind != NULL ? 0 : read_stem(set, outfile_name(index), &stem, err);
    if (code == 0 && has_one_stem(set))
        return choose_stem(present, set, &stem, outfile_directory(index), err);
    for (size_t i = 0; code == 0 && i < set->n_shards; i++) {
        if (set->shards[i].is_beside) {
            code = keep_beside(&set->shards[i], outfile_directory(index), err);
            continue;
        }
        const int is_kept = set->kind != NULL ? 0 : keep_name(present, set, &set->shards[i]);
        if (is_kept < 0)
            return wfs_fail_memory(err);
        if (is_kept == 0)
            code = choose_free(present, set, i, &stem, &number, outfile_directory(index), err);
    }
    if (code == 0 && set->kind != NULL)
        code = check_companion(set, index, err);
    return code;
}

/* ---- the text ---- */

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
    if (names == NULL)
        return wfs_fail_memory(err);
    return set->kind->describe(&set->directory, names, &set->arena, ret, ret_n, err);
}

int set_index_make(struct wfs_shards *set, const char **ret, size_t *ret_n, struct wfs_error *err)
{
    if (set->kind != NULL)
        return describe_directory(set, ret, ret_n, err);
    autofree struct row *rows = NULL;
    autostrbuf struct strbuf text = {0};
    struct json_out out = {.text = &text};
    uint64_t n_data = 0;
    const int code = list_rows(set, &rows, &n_data, err);
    if (code < 0)
        return code;
    json_out_open_object(&out, NULL);
    json_out_open_object(&out, "metadata");
    json_out_u64(&out, "total_size", n_data);
    json_out_close(&out);
    json_out_open_object(&out, "weight_map");
    for (size_t i = 0; i < set->catalog->n_tensors; i++)
        json_out_text(&out, rows[i].key, rows[i].file);
    json_out_close(&out);
    json_out_close(&out);
    if (text.n_bytes > SHARD_INDEX_MAX)
        return wfs_fail(err, E2BIG, "the index would have %s, readers accept %d",
                        wfs_count(text.n_bytes, "byte").text, SHARD_INDEX_MAX);
    *ret = text.has_failed ? NULL : arena_copy(&set->arena, text.bytes, text.n_bytes);
    *ret_n = text.n_bytes;
    return *ret == NULL ? wfs_fail_memory(err) : 0;
}
