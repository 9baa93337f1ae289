/* SPDX-License-Identifier: MIT */
/*
 * Looks into a directory, and into the indexes in it where that decides.
 */
#include "format/set/shard_files.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/output.h"
#include "format/core/format.h"

enum { MAX_NAMES = 100000, MAX_TOLD = 5 };

/* A shard's name: what is before the first number, how many there are, what is behind. */
struct shard_name {
    size_t n_front;
    uint64_t n_all;
    const char *back;
};

char *shard_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strndup(path, slash == NULL ? 0 : (size_t)(slash + 1 - path));
}

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

bool shard_is_index(const char *name)
{
    static const char end[] = ".index.json";
    const size_t n = strlen(name), n_end = strlen(end);
    return n > n_end && strcmp(name + n - n_end, end) == 0;
}

static int compare_names(const void *a, const void *b)
{
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

void shard_names_done(struct shard_names *names)
{
    arena_done(&names->arena);
    free(names->names);
    *names = (struct shard_names){0};
}

static void close_folder(DIR **folder)
{
    if (*folder != NULL)
        closedir(*folder);
}

int shard_names_list(struct shard_names *names, const char *folder,
                     bool (*is_wanted)(const char *name))
{
    cleanup(close_folder) DIR *open = opendir(folder[0] == '\0' ? "." : folder);
    if (open == NULL)
        return -errno;
    for (const struct dirent *entry; (entry = readdir(open)) != NULL;) {
        if (is_wanted != NULL && (entry->d_name[0] == '.' || !is_wanted(entry->d_name)))
            continue;
        if (is_wanted != NULL && names->n_names == MAX_NAMES)
            return -E2BIG;
        const char *name = arena_copy(&names->arena, entry->d_name, strlen(entry->d_name));
        if (name == NULL || array_reserve(&names->names, sizeof(*names->names), names->n_names, 1,
                                          &names->n_room) < 0)
            return -ENOMEM;
        names->names[names->n_names++] = name;
    }
    if (names->n_names > 0)
        qsort(names->names, names->n_names, sizeof(*names->names), compare_names);
    return 0;
}

/* The index; transformers' names go before others. */
static int choose_index(struct shard_names *names, struct wfs_error *err)
{
    static const char *const usual[] = {"model.safetensors.index.json",
                                        "diffusion_pytorch_model.safetensors.index.json",
                                        "pytorch_model.bin.index.json"};
    for (size_t i = 0; names->n_names > 1 && i < 3; i++) {
        for (size_t j = 0; names->n_names > 1 && j < names->n_names; j++) {
            if (strcmp(names->names[j], usual[i]) != 0)
                continue;
            names->names[0] = names->names[j];
            names->n_names = 1;
        }
    }
    if (names->n_names < 2)
        return 0;
    return wfs_fail(err, EINVAL, "is a directory with %s, such as '%s' and '%s'; name one of them",
                    wfs_count_as(names->n_names, "index", "indexes").text,
                    wfs_quote(names->names[0]).text, wfs_quote(names->names[1]).text);
}

/* Refuses names of more than one checkpoint; the shards of one count once. */
static int check_one(const struct shard_names *names, const struct format_table *table,
                     struct wfs_error *err)
{
    const char *first[MAX_TOLD + 1];
    size_t n = 0;
    for (size_t i = 0; i < names->n_names && n <= MAX_TOLD; i++) {
        bool is_new = true;
        for (size_t j = 0; j < n; j++)
            is_new = is_new && !is_sibling(table, names->names[i], first[j]);
        if (is_new)
            first[n++] = names->names[i];
    }
    if (n < 2)
        return 0;
    char list[MAX_TOLD * (sizeof(struct wfs_quoted) + 4)] = "";
    size_t n_list = 0;
    for (size_t i = 0; i < n && i < MAX_TOLD; i++)
        n_list += (size_t)snprintf(list + n_list, sizeof(list) - n_list, "%s'%s'",
                                   i > 0 ? ", " : "", wfs_quote(first[i]).text);
    return wfs_fail(err, EINVAL,
                    "is a directory with %s%s and no index: %s; name one of these files, with the "
                    "option shards where it is a shard",
                    wfs_count(n > MAX_TOLD ? (size_t)MAX_TOLD : n, "checkpoint").text,
                    n > MAX_TOLD ? " or more" : "", list);
}

/* Keeps the siblings of a shard; like is its name, or NULL: then there must be one checkpoint. */
static int choose_files(struct shard_names *names, const struct format_table *table,
                        const char *like, struct wfs_error *err)
{
    struct shard_name parsed = {0};
    size_t n_kept = 0;
    const int code = like == NULL ? check_one(names, table, err) : 0;
    if (code < 0)
        return code;
    like = like == NULL ? names->names[0] : like;
    if (!parse_name(table, like, &parsed))
        return 0;
    names->n_wanted = parsed.n_all;
    for (size_t i = 0; i < names->n_names; i++) {
        if (is_sibling(table, names->names[i], like))
            names->names[n_kept++] = names->names[i];
    }
    names->n_names = n_kept;
    return n_kept > 0
               ? 0
               : wfs_fail(err, ENOENT, "no shard has a name like '%s'", wfs_quote(like).text);
}

static bool is_cache_entry(const char *name)
{
    return strncmp(name, "models--", 8) == 0;
}

/* Names what a directory without a checkpoint is, where it is something that people have. */
static int fail_empty(const char *folder, struct wfs_error *err)
{
    static const struct {
        const char *name, *what;
    } known[] = {
        {"saved_model.pb", "is a TensorFlow SavedModel, a format that weightfs does not read"},
        {"snapshots", "is an entry of the Hugging Face cache: name a directory in its snapshots/"},
        {"latest_checkpointed_iteration.txt",
         "is a folder of Megatron-LM checkpoints: name the directory of one iteration in it"},
        {"mp_rank_00",
         "is a checkpoint of old Megatron-LM, in a directory for each rank: name the file "
         "of one rank, such as mp_rank_00/model_optim_rng.pt"},
        {"zero_to_fp32.py",
         "is a DeepSpeed checkpoint, whose parts weightfs does not join: run its "
         "zero_to_fp32.py, or name one of the files below it"},
        {"pytorch_model_fsdp_0", "is a checkpoint of accelerate: name the distributed checkpoint "
                                 "pytorch_model_fsdp_0 in it"},
        {".weightfs/status.json",
         "is a mount of weightfs: name the checkpoint that is mounted, or with its "
         "edits a file in .weightfs/out"},
        {"weights", "is a checkpoint of NeMo or the like: name the directory weights in it"},
    };
    cleanup(shard_names_done) struct shard_names entries = {0};
    struct stat st;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        char path[PATH_BYTES];
        if (snprintf(path, sizeof(path), "%s%s", folder, known[i].name) < (int)sizeof(path) &&
            lstat(path, &st) == 0)
            return wfs_fail(err, EISDIR, "%s", known[i].what);
    }
    if (shard_names_list(&entries, folder, is_cache_entry) == 0 && entries.n_names > 0)
        return wfs_fail(err, EISDIR,
                        "is a Hugging Face cache: name a directory below it, such as one in "
                        "'%s/snapshots'",
                        wfs_quote(entries.names[0]).text);
    return wfs_fail(err, EISDIR, "is a directory without a checkpoint");
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
static void keep_indexes_of(struct shard_names *names, const char *folder, const char *shard)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < names->n_names; i++) {
        autofree char *path = NULL;
        if (asprintf(&path, "%s%s", folder, names->names[i]) < 0)
            path = NULL;
        if (path == NULL || !lacks_shard(path, shard))
            names->names[n_kept++] = names->names[i];
    }
    names->n_names = n_kept;
}

int shard_names_find(struct shard_names *names, const struct format_table *table,
                     const char *folder, const char *like, struct wfs_error *err)
{
    int code = shard_names_list(names, folder, shard_is_index);
    if (code == 0 && like != NULL)
        keep_indexes_of(names, folder, like);
    if (code == 0 && names->n_names > 0)
        return choose_index(names, err);
    code = code < 0 ? code : shard_names_list(names, folder, table->names_checkpoint);
    if (code < 0)
        return wfs_fail(err, -code, "cannot list the directory: %s", strerror(-code));
    if (names->n_names == 0)
        return fail_empty(folder, err);
    return choose_files(names, table, like, err);
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

int kept_indexes_read(struct kept_indexes *kept, const struct format_table *table, const char *path,
                      struct wfs_error *err)
{
    cleanup(shard_names_done) struct shard_names names = {0};
    autofree char *folder = shard_folder(path);
    if (folder == NULL)
        return wfs_fail_memory(err);
    int code = shard_names_list(&names, folder, NULL);
    if (code < 0)
        return wfs_fail(err, -code, "cannot list the directory: %s", strerror(-code));
    for (size_t i = 0; i < names.n_names; i++) {
        struct candidate candidate;
        autofree char *found = NULL;
        if (!is_candidate(table, path + strlen(folder), names.names[i], &candidate))
            continue;
        if (asprintf(&found, "%s%s", folder, names.names[i]) < 0) {
            found = NULL;
            return wfs_fail_memory(err);
        }
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
    cleanup(shard_names_done) struct shard_names names = {0};
    cleanup(kept_indexes_done) struct kept_indexes kept = {0};
    autofree char *folder = shard_folder(path);
    bool is_read = false; /* the other indexes, which matter only if there is such a file */
    size_t n_told = 0;
    if (folder == NULL)
        return -ENOMEM;
    if (shard_names_list(&names, folder, table->names_checkpoint) < 0)
        return 0; /* strays cannot be found in a directory that cannot be listed */
    for (size_t i = 0; i < names.n_names && n_told < MAX_TOLD; i++) {
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
