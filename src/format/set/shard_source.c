/* SPDX-License-Identifier: MIT */
/*
 * Each shard is loaded as the complete file that it is; the tensors that the index gives it go into
 * one catalog. The index decides; where it and the shards disagree so that numbers would be wrong
 * or missing, the whole is refused, unless it is to be read by force.
 */
#include <weightfs/cleanup.h>
#include <weightfs/url.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "format/set/pipeline.h"
#include "format/set/set.h"
#include "format/set/shard_files.h"
#include "remote/remote_source.h"
#include "catalog/catalog.h"

enum { MAX_LISTED = 20 }; /* findings of one kind */

enum found { FOUND_UNREADABLE, FOUND_UNLISTED_KEY, FOUND_OTHER_SHARD, FOUND_OTHER_PART, N_FOUND };

/* The severity of each kind, and what is said of those that are not listed: of one, and of several.
 */
static const struct {
    enum wfs_severity severity;
    const char *one, *several;
} kinds[N_FOUND] = {
    [FOUND_UNREADABLE] = {WFS_HIGH, "more shard that cannot be read",
                          "more shards that cannot be read"},
    [FOUND_UNLISTED_KEY] = {WFS_MEDIUM, "more key that is not in the index",
                            "more keys that are not in the index"},
    [FOUND_OTHER_SHARD] = {WFS_MEDIUM, "more key that is in a second shard",
                           "more keys that are in a second shard"},
    [FOUND_OTHER_PART] = {WFS_MEDIUM, "more shard that describes another place in the set",
                          "more shards that describe another place in the set"},
};

/* A shard that was opened before its turn. */
struct early {
    struct source *source;
    int code;
    struct wfs_error err;
};

enum { N_EARLY = 100 };

struct gathering {
    const char *folder; /* with its slash, or empty */
    const char *url;    /* of the index, beside which the shards are; NULL: in the folder */
    const struct load_context *context;
    struct shard_index *index; /* NULL: none, all keys are taken */
    struct wfs_catalog *catalog;
    struct shard_index seen; /* without an index: the keys so far */
    struct early *early;     /* N_EARLY of a URL, from the last multiple of that on */
    size_t n_shards;
    size_t n_found[N_FOUND];
    struct wfs_error *err;
};

/* Each kind is cut on its own, so that many of one never hide another. */
static int note(struct gathering *g, enum found kind, const char *format, const char *name,
                const char *text)
{
    if (g->n_found[kind]++ >= MAX_LISTED)
        return 0;
    return catalog_add_finding(g->catalog, kinds[kind].severity, format, wfs_quote(name).text,
                               text) < 0
               ? wfs_fail_memory(g->err)
               : 0;
}

static int note_rest(struct gathering *g)
{
    for (enum found kind = 0; kind < N_FOUND; kind++) {
        const size_t n = g->n_found[kind];
        if (n > MAX_LISTED &&
            catalog_add_finding(
                g->catalog, kinds[kind].severity, "and %s",
                wfs_count_as(n - MAX_LISTED, kinds[kind].one, kinds[kind].several).text) < 0)
            return wfs_fail_memory(g->err);
    }
    return 0;
}

static int load_shard(struct gathering *g, uint32_t shard, const char *path,
                      struct wfs_catalog **out, struct wfs_error *err)
{
    struct early *early = g->early == NULL ? NULL : &g->early[shard % N_EARLY];
    struct source *source = early == NULL ? NULL : steal(&early->source);
    int code = early == NULL ? format_open(g->context, path, &source, err) : early->code;
    if (early != NULL)
        *err = early->err;
    return code < 0 ? code : g->context->table->load(source, g->context, out, err);
}

/* A tensor that the index promises and nobody has: its name, and nothing to read. */
static int add_lost(struct gathering *g, const struct shard_key *key, const char *problem)
{
    static const uint64_t no_elements = 0;
    struct wfs_tensor *tensor = catalog_add(g->catalog);
    if (tensor == NULL)
        return wfs_fail_memory(g->err);
    tensor->key = arena_copy(&g->catalog->arena, key->name, strlen(key->name));
    tensor->trouble = problem;
    tensor->dtype = tensor->stored.dtype = WFS_OPAQUE;
    tensor->shape = (struct wfs_shape){1, &no_elements};
    return tensor->key == NULL ? wfs_fail_memory(g->err) : 0;
}

/* Whether the tensor is shown: 1, 0, or an error. */
static int decide(struct gathering *g, const char *key, uint32_t shard, const char *name)
{
    if (g->index == NULL) {
        uint32_t before;
        const int code = shard_index_add(&g->seen, key, name, &before);
        if (code < 0)
            return wfs_fail_memory(g->err);
        if (code > 0 || g->context->force)
            return code > 0;
        return wfs_fail(
            g->err, EBADMSG, "the key '%s' is in two shards, '%s' and '%s', and no index decides",
            wfs_quote(key).text, wfs_quote(g->seen.shards[before]).text, wfs_quote(name).text);
    }
    struct shard_key *entry = shard_index_find(g->index, key);
    if (entry == NULL) {
        return note(g, FOUND_UNLISTED_KEY,
                    "the key '%s' of shard '%s' is not in the index: left out", key,
                    wfs_quote(name).text);
    }
    if (entry->shard != shard) {
        return note(g, FOUND_OTHER_SHARD,
                    "the key '%s' is in shard '%s' as well: the index decides", key,
                    wfs_quote(name).text);
    }
    entry->is_found = true;
    return 1;
}

static int take_tensors(struct gathering *g, const struct wfs_catalog *part, uint32_t shard,
                        const char *name)
{
    for (size_t i = 0; i < part->n_tensors; i++) {
        const int code = decide(g, part->tensors[i].key, shard, name);
        if (code < 0)
            return code;
        if (code == 0)
            continue;
        struct wfs_tensor *tensor = set_add_tensor(g->catalog, &part->tensors[i]);
        if (tensor == NULL)
            return wfs_fail_memory(g->err);
        tensor->place = (uint32_t)g->catalog->sources.n + 1; /* it is taken over next */
    }
    return 0;
}

int set_show_values(struct wfs_catalog *catalog, const struct wfs_catalog *part)
{
    int code = 0;
    catalog->values.graph = part->values.graph;
    for (size_t i = 0; i < part->values.n && code == 0; i++) {
        const struct catalog_value *value = &part->values.list[i];
        if (!part->format->functions->describes_part(value->name))
            code = catalog_add_value(catalog, value->name, value->id, 0);
    }
    return code;
}

/* The names are in the memory of the part, which becomes the whole's. */
static int note_values(struct gathering *g, const struct wfs_catalog *part)
{
    bool (*describes_part)(const char *) = part->format->functions->describes_part;
    if (describes_part != NULL && g->catalog->sources.n == 0)
        return set_show_values(g->catalog, part) < 0 ? wfs_fail_memory(g->err) : 0;
    for (size_t i = part->values.n; i-- > 0;) {
        if (describes_part != NULL && describes_part(part->values.list[i].name))
            continue;
        struct catalog_unshown *value = arena_calloc(&g->catalog->arena, 1, sizeof(*value));
        if (value == NULL)
            return wfs_fail_memory(g->err);
        *value = (struct catalog_unshown){part->values.list[i].name, part->sources.list[0],
                                          g->catalog->notes.unshown};
        g->catalog->notes.unshown = value;
    }
    return 0;
}

/* Notes a shard that describes itself as another one than its place among all makes it. */
static int note_part(struct gathering *g, uint32_t shard, const char *name,
                     const struct wfs_catalog *part)
{
    const struct catalog_part *stated = &part->notes.part;
    char text[80] = "a checkpoint of its own";
    if (part->format->functions->describes_part == NULL ||
        (stated->n == g->n_shards && stated->number == shard))
        return 0;
    if (stated->n > 0)
        snprintf(text, sizeof(text),
                 "file %" PRIu64 " of %" PRIu32 ", but is file %" PRIu32 " of %zu",
                 (uint64_t)stated->number + 1, stated->n, shard + 1, g->n_shards);
    return note(g, FOUND_OTHER_PART, "shard '%s' describes itself as %s", name, text);
}

/* The same, if the first one states another number of tensors in all files. */
static int note_total(struct gathering *g, const char *name)
{
    const struct catalog_part *stated =
        g->catalog->parts.n == 0 ? NULL : &g->catalog->parts.list[0]->notes.part;
    char text[80];
    if (stated == NULL || stated->n == 0 || stated->n_tensors == g->catalog->n_tensors)
        return 0;
    snprintf(text, sizeof(text), "%" PRIu64 ", but all shards together have %zu", stated->n_tensors,
             g->catalog->n_tensors);
    return note(g, FOUND_OTHER_PART, "shard '%s' states a number of tensors of %s", name, text);
}

/* Returns whether an error is not the fault of the shard: then loading stops. */
static bool is_ours(int code)
{
    return code == EMFILE || code == ENFILE || code == ENOMEM;
}

/* Returns a shard beside an index that it does not name; NULL: none. The names own it. */
static const char *find_unlisted(const struct gathering *g, struct folder_names *names)
{
    if (g->index == NULL || g->url != NULL ||
        folder_names_list(names, g->folder, SIZE_MAX, NULL) < 0)
        return NULL;
    for (size_t i = 0; i < names->n; i++)
        if (shard_is_name(g->context->table, names->names[i]) &&
            !shard_index_has_file(g->index, names->names[i]))
            return names->names[i];
    return NULL;
}

static int fail_shard(const struct gathering *g, const char *name, const struct wfs_error *inner)
{
    cleanup(folder_names_done) struct folder_names names = {0};
    const struct wfs_quoted shard = wfs_quote(name);
    const char *other = inner->code == ENOENT ? find_unlisted(g, &names) : NULL;
    if (other != NULL)
        return wfs_fail(g->err, ENOENT,
                        "shard '%s': %s; the index may be that of another checkpoint: --shards "
                        "'%s%s' reads the shards that are here without it",
                        shard.text, inner->text, wfs_quote(g->folder).text, wfs_quote(other).text);
    if (inner->code != EMFILE)
        return wfs_fail(g->err, inner->code, "shard '%s': %s", shard.text, inner->text);
    return wfs_fail(g->err, EMFILE,
                    "shard '%s' cannot be opened after %s: the hard limit of open files (ulimit "
                    "-Hn) is too low",
                    shard.text, wfs_count(g->catalog->sources.n, "other").text);
}

/* malloc'ed */
static int find_shard_path(const struct gathering *g, const char *name, char **ret)
{
    if (g->url != NULL)
        return url_sibling(g->url, name, ret, g->err);
    if (asprintf(ret, "%s%s", g->folder, name) < 0)
        return wfs_fail_memory(g->err);
    if (strlen(*ret) < PATH_BYTES)
        return 0;
    return wfs_fail(g->err, ENAMETOOLONG, "the path of shard '%s' is too long",
                    wfs_quote(name).text);
}

static void drop_early(struct gathering *g)
{
    for (size_t i = 0; g->early != NULL && i < N_EARLY; i++) {
        source_free(g->early[i].source);
        g->early[i] = (struct early){0};
    }
}

/* Opens the next n shards of a URL, N_EARLY at most, and begins to fetch their headers: all at the
 * same time, because each is a round trip. */
static void open_early(struct gathering *g, const char *const *names, size_t n)
{
    struct wfs_remote *remote = g->context->remote;
    n = n < N_EARLY ? n : N_EARLY;
    drop_early(g);
    for (size_t i = 0; i < n; i++) {
        autofree char *url = NULL;
        if (url_sibling(g->url, names[i], &url, NULL) == 0)
            remote_source_open_early(remote, url);
    }
    for (size_t i = 0; i < n; i++) {
        struct early *early = &g->early[i];
        autofree char *url = NULL;
        early->code = url_sibling(g->url, names[i], &url, &early->err);
        if (early->code == 0)
            early->code = remote_source_open(remote, url, &early->source, &early->err);
        if (early->code == 0)
            g->context->table->foresee(early->source);
    }
}

static int add_shard(struct gathering *g, uint32_t shard, const char *name)
{
    static const struct wfs_container container = {.name = "sharded checkpoint",
                                                   .kind = WFS_CONTAINER_SHARDS};
    struct wfs_error inner = {0};
    struct wfs_catalog *part = NULL;
    autofree char *path = NULL;
    int code = find_shard_path(g, name, &path);
    if (code < 0)
        return code;
    code = load_shard(g, shard, path, &part, &inner);
    if (code < 0 && (!g->context->force || is_ours(inner.code)))
        return fail_shard(g, name, &inner);
    if (code < 0)
        return note(g, FOUND_UNREADABLE, "shard '%s': %s", name, inner.text);
    if (g->catalog->format == NULL) {
        g->catalog->format = part->format;
        g->catalog->container = &container;
    }
    code = g->catalog->format != part->format
               ? wfs_fail(g->err, EOPNOTSUPP, "shard '%s' has another format than the others",
                          wfs_quote(name).text)
               : take_tensors(g, part, shard, name);
    if (code == 0)
        code = note_part(g, shard, name, part);
    if (code == 0)
        code = note_values(g, part);
    if (code == 0 && catalog_merge_texts(g->catalog, part) < 0)
        code = wfs_fail_memory(g->err);
    if (catalog_adopt_part(g->catalog, part) < 0)
        return wfs_fail_memory(g->err);
    return code;
}

/* Keys that the index has and their shards have not. */
static int check_found(struct gathering *g)
{
    size_t n_lost = 0;
    const struct shard_key *first = NULL;
    for (size_t i = 0; i < g->index->n_keys; i++) {
        const struct shard_key *key = &g->index->keys[i];
        if (key->is_found)
            continue;
        first = first == NULL ? key : first;
        n_lost++;
        if (g->context->force && add_lost(g, key, "it is missing in its shard") < 0)
            return -ENOMEM;
    }
    if (first == NULL || g->context->force)
        return 0;
    return wfs_fail(g->err, EBADMSG, "the key '%s' is not in its shard '%s', nor are %s in theirs",
                    wfs_quote(first->name).text, wfs_quote(g->index->shards[first->shard]).text,
                    wfs_count(n_lost - 1, "other").text);
}

static void gathering_done(struct gathering *g)
{
    drop_early(g);
    free(g->early);
    shard_index_done(&g->seen);
    wfs_catalog_free(g->catalog);
}

/* Loads the shards of these names, and makes the catalog. */
static int gather(struct gathering *g, const char *const *names, size_t n, struct wfs_catalog **out)
{
    const struct load_context *context = g->context;
    if (n > context->limits.files)
        return wfs_fail(g->err, E2BIG, "it is in %s, the limit is %" PRIu64 " (limit files)",
                        wfs_count(n, "file").text, context->limits.files);
    g->n_shards = n;
    g->early = g->url == NULL ? NULL : calloc(N_EARLY, sizeof(*g->early));
    if ((g->url != NULL && g->early == NULL) || catalog_new(&g->catalog) < 0)
        return wfs_fail_memory(g->err);
    g->catalog->arena.limit = context->limits.index_memory;
    limits_listing(&context->limits, &g->catalog->values.listing);
    int code = 0;
    for (size_t i = 0; code == 0 && i < n; i++) {
        if (g->early != NULL && i % N_EARLY == 0)
            open_early(g, names + i, n - i);
        code = add_shard(g, (uint32_t)i, names[i]);
    }
    if (code == 0 && g->index != NULL)
        code = check_found(g);
    if (code == 0)
        code = note_total(g, names[0]);
    code = code < 0 ? code : note_rest(g);
    if (code < 0)
        return code;
    if (g->catalog->format == NULL && g->index == NULL)
        return wfs_fail(g->err, EBADMSG, "none of the shards can be read");
    if (g->catalog->format == NULL)
        return wfs_fail(g->err, EBADMSG, "none of its %s can be read", wfs_count(n, "shard").text);
    *out = steal(&g->catalog);
    return 0;
}

static int load_indexed(const struct source *source, struct shard_index *index,
                        const struct load_context *context, struct wfs_catalog **out,
                        struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    autofree char *folder = folder_of(source->path);
    if (folder == NULL)
        return wfs_fail_memory(err);
    cleanup(gathering_done) struct gathering g = {.folder = folder,
                                                  .url = remote_source_url(source),
                                                  .context = context,
                                                  .index = index,
                                                  .err = err};
    int code = gather(&g, index->shards, index->n_shards, &catalog);
    if (code == 0 && g.url == NULL)
        code = shard_files_tell_strays(context->table, source->path, index, catalog);
    if (code == 0)
        *out = steal(&catalog);
    return code;
}

/* Shards that belong together by their names. */
static int load_named(const char *folder, const struct folder_names *names, uint64_t n_wanted,
                      const struct load_context *context, struct wfs_catalog **out,
                      struct wfs_error *err)
{
    if (names->n < n_wanted && !context->force)
        return wfs_fail(err, ENOENT, "%zu of %s exist, such as '%s'; use force to show them",
                        names->n, wfs_count(n_wanted, "shard").text,
                        wfs_quote(names->names[0]).text);
    cleanup(gathering_done) struct gathering g = {.folder = folder, .context = context, .err = err};
    return gather(&g, names->names, names->n, out);
}

static int load_file(struct source *source, struct shard_index *index,
                     const struct load_context *context, struct wfs_catalog **out,
                     struct wfs_error *err)
{
    const uint64_t most = context->limits.header;
    /* By its name: any file may begin like an index. */
    if (source->n_bytes > most && shard_is_index(source->path))
        return wfs_fail(err, E2BIG, "index: it has %s, the limit is %" PRIu64 " (limit header)",
                        wfs_count(source->n_bytes, "byte").text, most);
    int code = shard_index_read(index, source, most, err);
    if (code <= 0)
        return code;
    code = load_indexed(source, index, context, out, err);
    if (code == 0)
        source_add_access(source, &(*out)->sources.access);
    return code < 0 ? code : 1;
}

/* Loads all shards of which a URL names one: a server does not list them, but their names follow
 * from that one. */
static int load_numbered(const struct source *source, const struct load_context *context,
                         struct wfs_catalog **out, struct wfs_error *err)
{
    cleanup(folder_names_done) struct folder_names names = {0};
    const char *url = remote_source_url(source);
    autofree char *name = url_name(url);
    if (name == NULL)
        return wfs_fail_memory(err);
    const int code = shard_names_make(&names, context->table, name, context->limits.files, err);
    if (code < 0)
        return code;
    cleanup(gathering_done) struct gathering g = {
        .folder = "", .url = url, .context = context, .err = err};
    return gather(&g, names.names, names.n, out);
}

int shard_source_load_file(struct source *source, const struct load_context *context,
                           struct wfs_catalog **out, struct wfs_error *err)
{
    cleanup(shard_index_done) struct shard_index index = {0};
    if (pipeline_is_index(source->path)) {
        const int loaded = pipeline_source_load(source, context, out, err);
        source_free(source);
        return loaded;
    }
    int code = load_file(source, &index, context, out, err);
    if (code == 0 && context->shards && remote_source_url(source) != NULL) {
        code = load_numbered(source, context, out, err);
    } else if (code == 0) {
        shard_index_done(&index);
        return context->table->load(source, context, out, err);
    }
    source_free(source);
    return code < 0 ? code : 0;
}

static int load_path(const char *path, const struct load_context *context, struct wfs_catalog **out,
                     struct wfs_error *err)
{
    struct source *source;
    const int code = format_open(context, path, &source, err);
    return code < 0 ? code : shard_source_load_file(source, context, out, err);
}

/* Loads what shard_names_find chooses. A file without tensors is not the checkpoint of a directory.
 */
static int load_folder(const char *folder, const char *like, const struct load_context *context,
                       struct wfs_catalog **out, struct wfs_error *err)
{
    cleanup(folder_names_done) struct folder_names names = {0};
    auto_catalog struct wfs_catalog *catalog = NULL;
    char path[PATH_BYTES];
    uint64_t n_wanted = 0;
    const char *first = context->ranks ? folder_first_rank(folder) : NULL;
    int code = first != NULL
                   ? folder_names_add(&names, first)
                   : shard_names_find(&names, &n_wanted, context->table, folder, like, err);
    if (code < 0)
        return code == -ENOMEM ? wfs_fail_memory(err) : code;
    const char *file = names.names[0];
    if (snprintf(path, sizeof(path), "%s%s", folder, file) >= (int)sizeof(path))
        return wfs_fail(err, ENAMETOOLONG, "the path is too long");
    code = n_wanted > 0 ? load_named(folder, &names, n_wanted, context, &catalog, err)
                        : load_path(path, context, &catalog, err);
    if (code < 0)
        return code;
    if (n_wanted == 0 && catalog->n_tensors == 0 && !shard_is_index(file))
        return wfs_fail(
            err, EISDIR,
            "is a directory without a checkpoint; '%s' has no tensors, and is read when "
            "it is named",
            wfs_quote(file).text);
    if (like == NULL && first == NULL &&
        shard_files_tell_rest(context->table, folder, file, catalog) < 0)
        return wfs_fail_memory(err);
    *out = steal(&catalog);
    return 0;
}

int shard_source_fail_epoch(struct wfs_error *err)
{
    return wfs_fail(err, EINVAL,
                    "is not the directory of a training run, from which an epoch is read");
}

int shard_source_load(const char *path, const struct load_context *context,
                      struct wfs_catalog **out, struct wfs_error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        autofree char *folder = NULL;
        const bool has_slash = path[0] != '\0' && path[strlen(path) - 1] == '/';
        if (asprintf(&folder, "%s%s", path, has_slash ? "" : "/") < 0)
            return wfs_fail_memory(err);
        int code = run_source_load(folder, context, out, err);
        if (code == 0)
            code = context->has_epoch ? shard_source_fail_epoch(err)
                                      : load_folder(folder, NULL, context, out, err);
        autoclose int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (code >= 0)
            wfs_access_add(&(*out)->sources.access, fd);
        return code < 0 ? code : 0;
    }
    if (context->has_epoch)
        return shard_source_fail_epoch(err);
    const bool is_shard = shard_is_name(context->table, path);
    if (context->shards && !is_shard && !shard_is_index(path))
        return wfs_fail(err, EINVAL,
                        "'shards' is for one of several files with numbers, such as "
                        "'model-00001-of-00003.safetensors'");
    if (context->shards && is_shard) {
        autofree char *folder = folder_of(path);
        return folder == NULL ? wfs_fail_memory(err)
                              : load_folder(folder, path + strlen(folder), context, out, err);
    }
    return load_path(path, context, out, err);
}
