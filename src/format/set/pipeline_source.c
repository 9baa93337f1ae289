/* SPDX-License-Identifier: MIT */
/*
 * A pipeline of diffusers: model_index.json names its components, and each that is a model is in a
 * folder of that name, which is loaded as a folder by itself is. Components that are configuration
 * alone are known by the names of their classes.
 */
#include "format/set/pipeline.h"

#include <weightfs/cleanup.h>
#include <weightfs/url.h>

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "format/set/set.h"
#include "remote/remote_source.h"
#include "text/json.h"

enum { MEMBERS_MAX = 64, INDEX_BYTES_MAX = 1 << 20 };

struct component {
    const char *name, *class_name;
};

struct loading {
    const char *folder, *url; /* of the index; url NULL: it is a file */
    const struct load_context *context;
    struct load_context inner; /* of its parts */
    struct component components[MEMBERS_MAX];
    size_t n_components;
    struct wfs_catalog *catalog;
    struct catalog_member *members; /* in the arena */
    size_t n_members;
    struct wfs_error *err;
};

/* ---- the index ---- */

/* Returns whether a component is a model. */
static bool is_model(const char *class_name)
{
    static const char *const ends[] = {"Scheduler", "Tokenizer", "TokenizerFast",
                                       "Extractor", "Processor", "ProcessorFast"};
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        if (text_ends(class_name, ends[i]))
            return false;
    }
    return true;
}

/* A component is an attribute in Python. */
static bool is_identifier(const struct json_text *text)
{
    for (size_t i = 0; i < text->n_bytes; i++)
        if (!isalnum((unsigned char)text->bytes[i]) && text->bytes[i] != '_')
            return false;
    return text->n_bytes > 0 && text->n_bytes < 256 && !isdigit((unsigned char)text->bytes[0]);
}

/* Takes [LIBRARY, CLASS]; nulls: there is none. */
static int add_component(struct loading *loading, const struct json_text *name, struct json *json)
{
    const struct wfs_quoted quoted = wfs_quote_n(name->bytes, name->n_bytes);
    struct json_text words[2] = {0};
    size_t n = 0;
    if (!json_open_array(json))
        return 0;
    while (json_next_item(json)) {
        if (n < 2 && json_kind(json) == JSON_KIND_STRING)
            json_take_string(json, &words[n]);
        else
            json_skip(json);
        n++;
    }
    if (n != 2 || words[1].bytes == NULL)
        return 0;
    if (!is_identifier(name))
        return wfs_fail(loading->err, EBADMSG,
                        PIPELINE_INDEX ": '%s' is not the name of a component", quoted.text);
    for (size_t i = 0; i < loading->n_components; i++)
        if (strcmp(loading->components[i].name, name->bytes) == 0)
            return wfs_fail(loading->err, EBADMSG, PIPELINE_INDEX ": duplicate component '%s'",
                            quoted.text);
    if (!is_model(words[1].bytes))
        return 0;
    if (loading->n_components == MEMBERS_MAX)
        return wfs_fail(loading->err, E2BIG, PIPELINE_INDEX ": more than %d components",
                        MEMBERS_MAX);
    loading->components[loading->n_components++] = (struct component){name->bytes, words[1].bytes};
    return 0;
}

static int parse_index(struct loading *loading, char *text, size_t n_bytes)
{
    struct json json = json_of(text, n_bytes);
    struct json_text name;
    int code = 0;
    json_open_object(&json);
    while (code == 0 && json_next_key(&json, &name)) {
        if (json_kind(&json) == JSON_KIND_ARRAY && name.n_bytes > 0 && name.bytes[0] != '_')
            code = add_component(loading, &name, &json);
        else
            json_skip(&json);
    }
    if (code < 0 || (json.error == NULL && json_end(&json)))
        return code;
    return wfs_fail(loading->err, EBADMSG, PIPELINE_INDEX ": %s at byte %zu", json.error,
                    json_offset(&json));
}

/* Reads the text, which a copy of the pipeline needs, too. *ret is malloc'ed, and cut up. */
static int read_index(struct loading *loading, const struct source *source, char **ret)
{
    const size_t n = (size_t)source->n_bytes;
    if (source->n_bytes > INDEX_BYTES_MAX)
        return wfs_fail(loading->err, E2BIG, PIPELINE_INDEX " has more than 1 MiB");
    *ret = malloc(n + 1);
    if (*ret == NULL)
        return wfs_fail_memory(loading->err);
    if (n > 0 && source_read(source, 0, *ret, n) < 0)
        return wfs_fail(loading->err, EIO, "cannot read " PIPELINE_INDEX);
    if (utf8_valid(*ret, n) != n)
        return wfs_fail(loading->err, EBADMSG, PIPELINE_INDEX " is not UTF-8");
    (*ret)[n] = '\0';
    struct catalog_own *own = loading->catalog->own;
    own->description = arena_copy(&loading->catalog->arena, *ret, n);
    own->n_description = n;
    return own->description == NULL ? wfs_fail_memory(loading->err) : parse_index(loading, *ret, n);
}

/* ---- its parts ---- */

/* Makes the URL of a folder beside the index. */
static int find_url(const struct loading *loading, const char *name, char **ret,
                    struct wfs_error *err)
{
    autofree char *beside = NULL;
    const int code = url_sibling(loading->url, name, &beside, err);
    if (code == 0 && asprintf(ret, "%s/", beside) < 0) {
        *ret = NULL;
        return wfs_fail_memory(err);
    }
    return code;
}

/* Begins to open all parts, whose files are looked for one after the other. */
static void open_early(const struct loading *loading)
{
    for (size_t i = 0; loading->url != NULL && i < loading->n_components; i++) {
        autofree char *url = NULL;
        if (find_url(loading, loading->components[i].name, &url, NULL) == 0)
            remote_source_open_early(loading->context->remote, url);
    }
}

static int load_member(const struct loading *loading, const char *name, struct wfs_catalog **out,
                       struct wfs_error *err)
{
    struct stat st;
    autofree char *path = NULL;
    if (loading->url != NULL) {
        const int code = find_url(loading, name, &path, err);
        return code < 0 ? code : loading->inner.table->load_path(path, &loading->inner, out, err);
    }
    if (asprintf(&path, "%s%s", loading->folder, name) < 0) {
        path = NULL;
        return wfs_fail_memory(err);
    }
    if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
        return wfs_fail(err, ENOENT, "there is no folder of that name");
    return loading->inner.table->load_path(path, &loading->inner, out, err);
}

/* Returns the name of the file by which the part is loaded: of shards, the index. */
static const char *file_of(struct wfs_catalog *catalog, const struct wfs_catalog *part)
{
    if (part->sources.n == 0)
        return arena_copy(&catalog->arena, "", 0);
    const char *path = part->sources.list[0]->path, *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1, *of = strstr(name, "-of-");
    if (part->container->kind != WFS_CONTAINER_SHARDS || of == NULL)
        return arena_copy(&catalog->arena, name, strlen(name));
    const char *first = of, *back = of + strlen("-of-");
    while (first > name && isdigit((unsigned char)first[-1]))
        first--;
    back += strspn(back, "0123456789");
    return arena_print(&catalog->arena, "%.*s%s.index.json",
                       (int)(first > name ? first - 1 - name : 0), name, back);
}

/* Texts get the name of the part before their own: it is written with those that it had. */
static int take_texts(struct loading *loading, const struct wfs_catalog *part, const char *name)
{
    struct wfs_catalog *catalog = loading->catalog;
    for (const struct wfs_text *text = part->meta.first; text != NULL; text = text->next) {
        const char *full = arena_print(&catalog->arena, "%s.%s", name, text->name);
        if (full == NULL || catalog_add_meta_bytes(catalog, full, text->value, text->n_bytes) < 0)
            return -ENOMEM;
    }
    for (size_t i = 0; i < part->findings.n; i++) {
        const struct wfs_finding *finding = &part->findings.list[i];
        if (catalog_add_finding(catalog, finding->severity | finding->flags, "%s: %s", name,
                                finding->text) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Takes over a part. Each tensor notes its file, by its number among all. */
static int take_part(struct loading *loading, struct wfs_catalog *part, const char *name)
{
    struct wfs_catalog *catalog = loading->catalog;
    struct catalog_member *member = &loading->members[loading->n_members++];
    const size_t n_sources = catalog->sources.n, n_tensors = catalog->n_tensors;
    const bool is_set = part->container->kind == WFS_CONTAINER_SHARDS;
    member->name = arena_copy(&catalog->arena, name, strlen(name));
    member->file = file_of(catalog, part);
    if (catalog->format == NULL)
        catalog->format = part->format;
    int code =
        member->name == NULL || member->file == NULL ? -ENOMEM : set_take_part(catalog, part, name);
    if (code == 0)
        code = take_texts(loading, part, name);
    for (size_t i = 0; code == 0 && i < part->n_tensors; i++) {
        const uint32_t place = is_set ? part->tensors[i].place : 1;
        catalog->tensors[n_tensors + i].place = place == 0 ? 0 : (uint32_t)n_sources + place;
    }
    if (catalog_adopt_part(catalog, part) < 0 || code < 0)
        return catalog_fail_memory(catalog, loading->err);
    return 0;
}

static int add_part(struct loading *loading, const struct component *component)
{
    struct wfs_error inner = {0};
    struct wfs_catalog *part;
    const int code = load_member(loading, component->name, &part, &inner);
    if (code == 0)
        return take_part(loading, part, component->name);
    if (!loading->context->force || code == -ENOMEM)
        return wfs_fail(loading->err, inner.code, "component '%s' of the pipeline: %s",
                        wfs_quote(component->name).text, inner.text);
    return catalog_add_finding(loading->catalog, WFS_HIGH, "component '%s' of the pipeline: %s",
                               wfs_quote(component->name).text, inner.text) < 0
               ? wfs_fail_memory(loading->err)
               : 0;
}

static int load(struct loading *loading, struct source *source)
{
    static const struct wfs_container container = {.name = "diffusers pipeline",
                                                   .kind = WFS_CONTAINER_MODELS,
                                                   .read_only = "a pipeline: use output=DIR/"};
    autofree char *text = NULL;
    struct wfs_catalog *catalog = loading->catalog;
    catalog->arena.limit = loading->context->limits.index_memory;
    catalog->values.graph.arena = &catalog->arena;
    catalog->container = &container;
    int code = read_index(loading, source, &text);
    if (code == 0 && loading->n_components == 0)
        code = wfs_fail(loading->err, EISDIR, "is a diffusers pipeline without a model");
    loading->members = arena_calloc(&catalog->arena, MEMBERS_MAX, sizeof(*loading->members));
    if (code == 0 && loading->members == NULL)
        code = wfs_fail_memory(loading->err);
    if (code == 0)
        open_early(loading);
    for (size_t i = 0; code == 0 && i < loading->n_components; i++)
        code = add_part(loading, &loading->components[i]);
    if (code == 0 && catalog->format == NULL)
        code = wfs_fail(loading->err, EBADMSG, "none of its components can be read");
    catalog->own->members = loading->members;
    catalog->own->n_members = loading->n_members;
    if (code == 0)
        source_add_access(source, &catalog->sources.access);
    return code;
}

int pipeline_source_load(struct source *source, const struct load_context *context,
                         struct wfs_catalog **out, struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    autofree char *folder = folder_of(source->path);
    if (folder == NULL || catalog_new(&catalog) < 0)
        return wfs_fail_memory(err);
    if (context->is_component)
        return wfs_fail(err, EOPNOTSUPP, "is a pipeline in a pipeline");
    struct loading loading = {.folder = folder,
                              .url = remote_source_url(source),
                              .context = context,
                              .inner = *context,
                              .catalog = catalog,
                              .err = err};
    loading.inner.is_component = true;
    loading.inner.shards = loading.inner.ranks = false;
    const int code = load(&loading, source);
    if (code == 0)
        *out = steal(&catalog);
    return code;
}
