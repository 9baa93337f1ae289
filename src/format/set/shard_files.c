/* SPDX-License-Identifier: MIT */
/*
 * Looks into a directory, and into the indexes in it where that decides.
 */
#include "format/set/shard_files.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/output.h"
#include "format/core/format.h"

enum { MAX_NAMES = 100000, MAX_TOLD = 5 };

/* A shard's name: what is before the first number, how many there are, what is behind. */
struct shard_name {
    size_t n_front;
    uint64_t n_all;
    const char *back;
};

/* of: a "-of-" in the name. */
static bool parse_numbers(const char *name, const char *of, struct shard_name *ret)
{
    static const char digits[] = "0123456789";
    const char *first = of;
    while (first > name && strchr(digits, first[-1]) != NULL)
        first--;
    const size_t n_all = strspn(of + 4, digits);
    if (first == of || first == name || strchr("-_", first[-1]) == NULL || n_all == 0 || n_all > 9)
        return false;
    *ret = (struct shard_name){(size_t)(first - name), strtoull(of + 4, NULL, 10), of + 4 + n_all};
    return ret->n_all > 0;
}

/* The last numbers count: the front may be called "state-of-the-art-". */
static bool parse_name(const struct format_table *table, const char *name, struct shard_name *ret)
{
    bool is_shard = false;
    for (const char *of = strstr(name, "-of-"); of != NULL; of = strstr(of + 1, "-of-"))
        is_shard = parse_numbers(name, of, ret) || is_shard;
    return is_shard && table->names_checkpoint(name);
}

bool shard_is_name(const struct format_table *table, const char *path)
{
    struct shard_name name;
    const char *slash = strrchr(path, '/');
    return parse_name(table, slash == NULL ? path : slash + 1, &name);
}

static bool is_sibling(const struct format_table *table, const char *a, const char *b)
{
    struct shard_name x, y;
    return parse_name(table, a, &x) && parse_name(table, b, &y) && x.n_front == y.n_front &&
           x.n_all == y.n_all && memcmp(a, b, x.n_front) == 0 && strcmp(x.back, y.back) == 0;
}

bool pipeline_is_index(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash == NULL ? path : slash + 1, PIPELINE_INDEX) == 0;
}

bool shard_is_index(const char *name)
{
    return text_ends(name, ".index.json");
}

/* Refuses a folder with several indexes. */
static int choose_index(const struct folder_names *names, struct wfs_error *err)
{
    if (names->n < 2)
        return 0;
    return wfs_fail(err, EINVAL, "is a directory with %s, such as '%s' and '%s'; name one of them",
                    wfs_count_as(names->n, "index", "indexes").text,
                    wfs_quote(names->names[0]).text, wfs_quote(names->names[1]).text);
}

/* Returns whether two names are of one file: a link to the newest checkpoint, and that. */
static bool is_same_file(const char *folder, const char *a, const char *b)
{
    struct stat st[2];
    const char *const names[] = {a, b};
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_BYTES];
        if (snprintf(path, sizeof(path), "%s%s", folder, names[i]) >= (int)sizeof(path) ||
            stat(path, &st[i]) < 0)
            return false;
    }
    return st[0].st_dev == st[1].st_dev && st[0].st_ino == st[1].st_ino;
}

/* Refuses names of more than one checkpoint; the shards of one count once. */
static int check_one(const struct folder_names *names, const struct format_table *table,
                     const char *folder, struct wfs_error *err)
{
    cleanup(folder_names_done) struct folder_names first = {0};
    bool has_shards = false;
    char list[FOLDER_LIST];
    for (size_t i = 0; i < names->n && first.n <= MAX_TOLD; i++) {
        bool is_new = true;
        for (size_t j = 0; j < first.n; j++)
            is_new = is_new && !is_sibling(table, names->names[i], first.names[j]);
        if (is_new && folder_names_add(&first, names->names[i]) < 0)
            return wfs_fail_memory(err);
        has_shards = has_shards || shard_is_name(table, names->names[i]);
    }
    if (first.n < 2 ||
        (first.n == 2 && names->n == 2 && is_same_file(folder, first.names[0], first.names[1])))
        return 0;
    const bool is_cut = first.n > MAX_TOLD;
    first.n -= is_cut;
    return wfs_fail(err, EINVAL,
                    "is a directory with %s%s and no index: %s; name one of these files%s",
                    wfs_count(first.n, "checkpoint").text, is_cut ? " or more" : "",
                    folder_names_print(&first, list),
                    has_shards ? ", with the option shards where it is a shard" : "");
}

/* Keeps the siblings of a shard; like is its name, or NULL: then there must be one checkpoint. */
static int choose_files(struct folder_names *names, uint64_t *ret_n_wanted,
                        const struct format_table *table, const char *folder, const char *like,
                        struct wfs_error *err)
{
    struct shard_name parsed = {0};
    size_t n_kept = 0;
    const int code = like == NULL ? check_one(names, table, folder, err) : 0;
    if (code < 0)
        return code;
    like = like == NULL ? names->names[0] : like;
    if (!parse_name(table, like, &parsed))
        return 0;
    *ret_n_wanted = parsed.n_all;
    for (size_t i = 0; i < names->n; i++) {
        if (is_sibling(table, names->names[i], like))
            names->names[n_kept++] = names->names[i];
    }
    names->n = n_kept;
    return n_kept > 0
               ? 0
               : wfs_fail(err, ENOENT, "no shard has a name like '%s'", wfs_quote(like).text);
}

/* Returns true if the file is an index without that shard; one that cannot be read may have it. */
static bool lacks_shard(const char *path, const char *shard)
{
    struct source *source = NULL;
    struct shard_index index = {0};
    bool lacks = false;
    if (source_open(path, &source, NULL) == 0) {
        const int code = shard_index_read(&index, source, SHARD_INDEX_MAX, NULL);
        lacks = code > 0 && !shard_index_has_file(&index, shard);
        shard_index_done(&index);
    }
    source_free(source);
    return lacks;
}

/* Removes the indexes that belong to another checkpoint than the shard. */
static void keep_indexes_of(struct folder_names *names, const char *folder, const char *shard)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < names->n; i++) {
        autofree char *path = NULL;
        if (asprintf(&path, "%s%s", folder, names->names[i]) < 0)
            path = NULL;
        if (path == NULL || !lacks_shard(path, shard))
            names->names[n_kept++] = names->names[i];
    }
    names->n = n_kept;
}

/* Compares a folder with those of known programs. 1: *names is the one file; 0: it is none. */
static int find_known(struct folder_names *names, const struct folder_names *all, bool is_last,
                      const struct format_table *table, const char *folder, struct wfs_error *err)
{
    struct folder_layout layout = {0};
    char list[FOLDER_LIST] = "";
    int code = folder_layout_find(folder, all, is_last, table->names_checkpoint, &layout);
    if (code > 0 && layout.take != NULL)
        code = folder_names_add(names, layout.take) < 0 ? -ENOMEM : 1;
    else if (code > 0)
        code = wfs_fail(err, EISDIR, "%s%s", layout.what,
                        layout.choice.n == 0 ? "" : folder_names_print(&layout.choice, list));
    folder_names_done(&layout.choice);
    return code == -ENOMEM ? wfs_fail_memory(err) : code;
}

/* Fails for a folder in which no file is the checkpoint. */
static int fail_empty(const struct folder_names *all, const struct format_table *table,
                      const char *folder, struct wfs_error *err)
{
    cleanup(folder_names_done) struct folder_names state = {0};
    char list[FOLDER_LIST];
    int code = find_known(&state, all, true, table, folder, err);
    for (size_t i = 0; i < all->n && code == 0; i++)
        if (all->names[i][0] != '.' && table->names_checkpoint(all->names[i]) &&
            strcmp(all->names[i], "training_args.bin") != 0) /* which has no tensors */
            code = folder_names_add(&state, all->names[i]);
    if (code < 0)
        return code == -ENOMEM ? wfs_fail_memory(err) : code;
    return state.n == 0
               ? wfs_fail(err, EISDIR, "is a directory without a checkpoint")
               : wfs_fail(err, EISDIR,
                          "is a directory without a checkpoint; files such as %s have the state of "
                          "a training run, and are read when they are named",
                          folder_names_print(&state, list));
}

static bool is_folder(const char *folder, const char *name)
{
    struct stat st;
    char path[PATH_BYTES];
    return snprintf(path, sizeof(path), "%s%s", folder, name) < (int)sizeof(path) &&
           stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Adds the names that may be checkpoints. */
static int add_files(struct folder_names *names, const struct folder_names *all, const char *folder,
                     const char *like, const struct format_table *table)
{
    int code = 0;
    for (size_t i = 0; i < all->n && code == 0; i++) {
        const char *name = all->names[i];
        if (name[0] != '.' && table->names_checkpoint(name) &&
            (like != NULL || !(folder_is_state(name) || is_folder(folder, name))))
            code = folder_names_add(names, name);
    }
    return code;
}

int shard_names_find(struct folder_names *names, uint64_t *ret_n_wanted,
                     const struct format_table *table, const char *folder, const char *like,
                     struct wfs_error *err)
{
    cleanup(folder_names_done) struct folder_names all = {0};
    *ret_n_wanted = 0;
    int code = folder_names_list(&all, folder, SIZE_MAX, NULL);
    if (code < 0)
        return wfs_fail(err, -code, "cannot list the directory: %s", strerror(-code));
    code = like == NULL ? find_known(names, &all, false, table, folder, err) : 0;
    if (code != 0)
        return code < 0 ? code : 0;
    for (size_t i = 0; i < all.n && code == 0; i++)
        if (all.names[i][0] != '.' && shard_is_index(all.names[i]))
            code = folder_names_add(names, all.names[i]);
    if (code == 0 && like != NULL)
        keep_indexes_of(names, folder, like);
    if (code == 0 && names->n > 0)
        return choose_index(names, err);
    code = code < 0 ? code : add_files(names, &all, folder, like, table);
    if (code < 0)
        return wfs_fail_memory(err);
    if (names->n == 0)
        return fail_empty(&all, table, folder, err);
    return choose_files(names, ret_n_wanted, table, folder, like, err);
}

int shard_names_make(struct folder_names *names, const struct format_table *table, const char *name,
                     uint64_t n_most, struct wfs_error *err)
{
    struct shard_name of;
    if (!parse_name(table, name, &of))
        return wfs_fail(err, EINVAL,
                        "'shards' is for one of several files with numbers, such as "
                        "'model-00001-of-00003.safetensors'");
    if (of.n_all > n_most)
        return wfs_fail(err, E2BIG, "it is in %s, the limit is %" PRIu64 " (limit files)",
                        wfs_count(of.n_all, "file").text, n_most);
    const int width = (int)strspn(name + of.n_front, "0123456789");
    int code = 0;
    for (uint64_t i = 1; i <= of.n_all && code == 0; i++) {
        autofree char *one = NULL;
        code = asprintf(&one, "%.*s%0*" PRIu64 "%s", (int)of.n_front, name, width, i,
                        name + of.n_front + width) < 0
                   ? -ENOMEM
                   : folder_names_add(names, one);
    }
    return code < 0 ? wfs_fail_memory(err) : 0;
}

int shard_files_check_index(const struct format_table *table, const char *path,
                            struct wfs_error *err)
{
    cleanup(folder_names_done) struct folder_names names = {0};
    struct folder_layout alone = {0}, layout = {0};
    autofree char *folder = folder_of(path);
    if (folder == NULL || folder_names_add(&names, path + strlen(folder)) < 0)
        return wfs_fail_memory(err);
    int code = folder_layout_find(folder, &names, false, table->names_checkpoint, &alone);
    if (code > 0 && alone.take != NULL && folder_names_list(&names, folder, SIZE_MAX, NULL) == 0)
        code = folder_layout_find(folder, &names, false, table->names_checkpoint, &layout);
    folder_names_done(&alone.choice);
    folder_names_done(&layout.choice);
    if (code < 0)
        return wfs_fail_memory(err);
    return layout.take == NULL || strcmp(layout.take, alone.take) == 0
               ? 0
               : wfs_fail(err, EEXIST,
                          "'%s' in the directory would be read in place of the new file: remove "
                          "it, or write to another directory",
                          layout.take);
}

int shard_files_tell_rest(const struct format_table *table, const char *folder, const char *file,
                          struct wfs_catalog *catalog)
{
    cleanup(folder_names_done) struct folder_names all = {0}, rest = {0};
    if (folder_names_list(&all, folder, SIZE_MAX, NULL) < 0)
        return 0;
    int code = 0;
    const bool is_pipeline = pipeline_is_index(file);
    for (size_t i = 0; i < all.n && code == 0 && !shard_is_index(file); i++)
        if (all.names[i][0] != '.' && strcmp(all.names[i], file) != 0 &&
            !is_sibling(table, all.names[i], file) &&
            (table->names_checkpoint(all.names[i]) || shard_is_index(all.names[i])))
            code = folder_names_add(&rest, all.names[i]);
    if (code == 0 && !is_pipeline)
        code = folder_find_below(folder, &all, 1, table->names_checkpoint, &rest);
    return code < 0 ? code : folder_tell_rest(catalog, &rest);
}

/* ---- what other indexes name ---- */

int kept_indexes_add(struct kept_indexes *kept, const struct directory_functions *kind,
                     const char *path, struct wfs_error *err)
{
    struct kept_index item = {0};
    autofree char *target = realpath(path, NULL);
    if (target == NULL)
        return errno == ENOENT ? 0 : wfs_fail(err, errno, "cannot open it: %s", strerror(errno));
    if (array_reserve(&kept->items, sizeof(*kept->items), kept->n, 1, &kept->n_room) < 0)
        return wfs_fail_memory(err);
    const int code = shard_index_list(&item.files, kind, target, err);
    if (code > 0)
        kept->items[kept->n++] = item;
    return code;
}

/* What a file beside an index may be, by its name. */
struct candidate {
    const struct directory_functions *kind; /* of a description; NULL: it may be an index */
    bool is_sure;   /* it is one: if it cannot be read, nobody knows what it names */
    bool is_backup; /* of the index */
};

/*
 * A backup has the name of the index and more behind it. Other indexes are called NAME.index.json;
 * what follows that says that they are backups, too. Users give their own any name with ".json", or
 * with that of a description.
 */
static bool is_candidate(const struct format_table *table, const char *index, const char *name,
                         struct candidate *ret)
{
    const struct directory_functions *kind = table->directory_of(index);
    char left[2][WFS_OUTPUT_NAME_MAX];
    wfs_output_temporary(index, left[0]);
    wfs_output_temporary_link(index, left[1]);
    if (strcmp(name, index) == 0 || strcmp(name, left[0]) == 0 || strcmp(name, left[1]) == 0)
        return false;
    *ret = (struct candidate){.is_backup = strncmp(name, index, strlen(index)) == 0};
    ret->is_sure = ret->is_backup || strstr(name, ".index.json") != NULL;
    if (ret->is_backup || (kind != NULL && strstr(name, index + 1) != NULL))
        ret->kind = kind;
    else
        ret->kind = table->directory_of(name);
    return ret->is_sure || ret->kind != NULL || strstr(name, ".json") != NULL;
}

/* Returns whether "weight_map" is in the bytes, or an escape that may stand for one of its letters.
 */
static bool has_word(const char *bytes, size_t n)
{
    static const char word[] = "weight_map", escape[] = "\\u00";
    if (memmem(bytes, n, word, sizeof(word) - 1) != NULL)
        return true;
    for (const char *at = bytes, *end = bytes + n; at != NULL && end - at > 5; at++) {
        at = memmem(at, (size_t)(end - at), escape, sizeof(escape) - 1);
        if (at == NULL || end - at <= 4)
            break;
        if (at[4] >= '4' && at[4] <= '7')
            return true;
    }
    return false;
}

/*
 * Returns whether a file may be an index, before it is parsed: large vocabularies lie beside
 * models, too, and would be parsed by each save. What cannot be read is not left out here.
 */
static bool may_be_index(const char *path)
{
    enum { N_PIECE = 1 << 20, N_BEFORE = 16 };
    autofree char *bytes = malloc(N_PIECE);
    struct source *source;
    bool is_possible = bytes == NULL || source_open(path, &source, NULL) < 0;
    if (is_possible)
        return true;
    for (uint64_t at = 0; at < source->n_bytes && !is_possible; at += N_PIECE - N_BEFORE) {
        const uint64_t n_left = source->n_bytes - at;
        const size_t n = n_left < N_PIECE ? (size_t)n_left : N_PIECE;
        is_possible = source_read(source, at, bytes, n) < 0 || has_word(bytes, n);
    }
    source_free(source);
    return is_possible;
}

int kept_indexes_read(struct kept_indexes *kept, const struct format_table *table, const char *path,
                      struct wfs_error *err)
{
    cleanup(folder_names_done) struct folder_names names = {0};
    autofree char *folder = folder_of(path);
    if (folder == NULL)
        return wfs_fail_memory(err);
    int code = folder_names_list(&names, folder, SIZE_MAX, NULL);
    if (code < 0)
        return wfs_fail(err, -code, "cannot list the directory: %s", strerror(-code));
    for (size_t i = 0; i < names.n; i++) {
        struct candidate candidate;
        autofree char *found = NULL;
        if (!is_candidate(table, path + strlen(folder), names.names[i], &candidate))
            continue;
        if (asprintf(&found, "%s%s", folder, names.names[i]) < 0) {
            found = NULL;
            return wfs_fail_memory(err);
        }
        if (!candidate.is_sure && candidate.kind == NULL && !may_be_index(found))
            continue;
        code = kept_indexes_add(kept, candidate.kind, found, NULL);
        if (code == -ENOMEM)
            return wfs_fail_memory(err);
        if (code > 0)
            kept->items[kept->n - 1].is_backup = candidate.is_backup;
        kept->is_unsure = kept->is_unsure || (code < 0 && candidate.is_sure);
    }
    return 0;
}

bool kept_indexes_name(const struct kept_indexes *kept, const char *file)
{
    for (size_t i = 0; i < kept->n; i++) {
        if (shard_index_has_file(&kept->items[i].files, file))
            return true;
    }
    return false;
}

bool kept_indexes_need(const struct kept_indexes *kept, const char *file)
{
    return kept->is_unsure || kept_indexes_name(kept, file);
}

void kept_indexes_done(struct kept_indexes *kept)
{
    for (size_t i = 0; i < kept->n; i++)
        shard_index_done(&kept->items[i].files);
    free(kept->items);
    *kept = (struct kept_indexes){0};
}

int shard_files_tell_strays(const struct format_table *table, const char *path,
                            const struct shard_index *index, struct wfs_catalog *catalog)
{
    cleanup(folder_names_done) struct folder_names names = {0};
    cleanup(kept_indexes_done) struct kept_indexes kept = {0};
    autofree char *folder = folder_of(path);
    bool is_read = false; /* the other indexes, which matter only if there is such a file */
    size_t n_told = 0;
    if (folder == NULL)
        return -ENOMEM;
    if (folder_names_list(&names, folder, SIZE_MAX, table->names_checkpoint) < 0)
        return 0; /* strays cannot be found in a directory that cannot be listed */
    for (size_t i = 0; i < names.n && n_told < MAX_TOLD; i++) {
        if (shard_index_has_file(index, names.names[i]))
            continue;
        if (!is_read && kept_indexes_read(&kept, table, path, NULL) == -ENOMEM)
            return -ENOMEM;
        is_read = true;
        if (kept_indexes_need(&kept, names.names[i]))
            continue;
        n_told++;
        if (catalog_add_finding(catalog, WFS_INFO, "the file '%s' beside the index is not in it",
                                wfs_quote(names.names[i]).text) < 0)
            return -ENOMEM;
    }
    return 0;
}
