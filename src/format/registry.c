/* SPDX-License-Identifier: MIT */
/*
 * The table of formats, and what a file goes through before and after the loader of its format. The
 * content decides which loader gets it.
 */
#include "format/registry.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <weightfs/cleanup.h>
#include <weightfs/hub.h>
#include <weightfs/url.h>

#include "base/bytes.h"
#include "format/core/layout.h"
#include "format/set/pipeline.h"
#include "format/set/set.h"
#include "format/signatures.h"
#include "remote/remote_source.h"

/* In the order in which the content of a file is tried. */
static const struct wfs_format *const formats[] = {
    &format_burnpack, &format_safetensors, &format_pytorch,
    &format_records,  &format_dcp,         &format_gguf,
};

enum { N_FORMATS = sizeof(formats) / sizeof(*formats), WORDS_MAX = 8 };

static const struct wfs_format *by_content(const uint8_t *head, size_t n_head, uint64_t n_bytes)
{
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (formats[i]->functions->probe(head, n_head, n_bytes))
            return formats[i];
    }
    return NULL;
}

const struct wfs_format *wfs_format_at(size_t i)
{
    return i < N_FORMATS ? formats[i] : NULL;
}

const struct wfs_format *wfs_format_by_name(const char *name)
{
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
    }
    return NULL;
}

const struct wfs_format *wfs_format_by_path(const char *path)
{
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (format_has_name(formats[i], path))
            return formats[i];
    }
    return NULL;
}

bool wfs_format_can_write(const struct wfs_format *format)
{
    return format->functions->plan != NULL || format->functions->directory != NULL;
}

/* Adds the words of a format to a list of them. */
static size_t add_words(const struct wfs_format *format, enum wfs_format_words words,
                        const char **list)
{
    size_t n = 0;
    if (words == WFS_FORMAT_NAMES && wfs_format_can_write(format))
        list[n++] = format->name;
    const size_t n_most = format->n_usual > 0 ? format->n_usual : WORDS_MAX;
    while (words == WFS_FORMAT_ENDINGS && n < n_most && format->extensions[n] != NULL) {
        list[n] = format->extensions[n];
        n++;
    }
    return n;
}

struct wfs_format_list wfs_format_list(enum wfs_format_words words, const char *last)
{
    struct wfs_format_list ret = {""};
    const char *list[N_FORMATS * WORDS_MAX];
    size_t n = 0, n_text = 0;
    for (size_t i = 0; i < N_FORMATS; i++)
        n += add_words(formats[i], words, list + n);
    for (size_t i = 0; i < n && n_text < sizeof(ret.text); i++)
        n_text += (size_t)snprintf(ret.text + n_text, sizeof(ret.text) - n_text, "%s%s",
                                   i == 0      ? ""
                                   : i + 1 < n ? ", "
                                               : last,
                                   list[i]);
    return ret;
}

int wfs_format_check_tensor(const struct wfs_format *format, const struct wfs_tensor *tensor,
                            struct wfs_error *err)
{
    return storable_check_tensor(format, tensor, err);
}

const struct wfs_limit *registry_limit(size_t i)
{
    for (size_t f = 0; f < N_FORMATS; f++) {
        const struct wfs_limit *limit = formats[f]->limits;
        for (; limit != NULL && limit->name != NULL; limit++) {
            if (i-- == 0)
                return limit;
        }
    }
    return NULL;
}

/* ---- loading ---- */

struct head {
    uint8_t bytes[FORMAT_HEAD];
    size_t n_bytes;
};

static int read_head(const struct source *source, struct head *head, struct wfs_error *err)
{
    head->n_bytes = source->n_bytes < FORMAT_HEAD ? (size_t)source->n_bytes : FORMAT_HEAD;
    if (source_read(source, 0, head->bytes, head->n_bytes) < 0)
        return wfs_fail(err, EIO, "cannot read its first %s",
                        wfs_count(head->n_bytes, "byte").text);
    return 0;
}

static int refuse_unknown(const struct head *head, struct wfs_error *err)
{
    const size_t n = head->n_bytes < 16 ? head->n_bytes : 16;
    char text[16 * 3 + 1] = "";
    for (size_t i = 0; i < n; i++)
        snprintf(text + i * 3, 4, " %02x", head->bytes[i]);
    return wfs_fail(err, EMEDIUMTYPE, "is not a checkpoint in a known format; it begins with%s",
                    text);
}

/* The length of a header that would fit: all that a safetensors file with damaged text has left. */
static bool has_header_length(const struct source *source, const struct head *head)
{
    if (head->n_bytes < 8)
        return false;
    const uint64_t n_header = load_le64(head->bytes);
    return n_header > 0 && n_header <= source->n_bytes - 8;
}

/*
 * Content first. A file that nobody recognises is foreign, or so damaged that only its name or its
 * first bytes say what it was: then that format's loader says what is wrong.
 */
static int choose(const struct source *source, const struct head *head,
                  const struct wfs_format **ret, struct wfs_error *err)
{
    int code = signatures_compare(head->bytes, head->n_bytes, err);
    if (code < 0)
        return code;
    *ret = by_content(head->bytes, head->n_bytes, source->n_bytes);
    if (*ret != NULL)
        return 0;
    code = signatures_guess(head->bytes, head->n_bytes, source, err);
    if (code < 0)
        return code;
    *ret = wfs_format_by_path(source->path);
    if (*ret == NULL && has_header_length(source, head))
        *ret = &format_safetensors;
    return *ret == NULL ? refuse_unknown(head, err) : 0;
}

static int note_other_name(struct wfs_catalog *catalog, const struct source *source)
{
    const struct wfs_format *named = wfs_format_by_path(source->path);
    if (named == NULL || named == catalog->format)
        return 0;
    return catalog_add_finding(catalog, WFS_INFO,
                               "the name ends like that of a %s file, the content %s", named->name,
                               catalog->format->name);
}

/* What is worth to know of a source on the network. */
static int note_remote(struct wfs_catalog *catalog, const struct source *source)
{
    if (source->is_weak &&
        catalog_add_finding(catalog, WFS_MEDIUM,
                            "the server sends neither a strong ETag nor a Last-Modified that lies "
                            "before its Date: a change of the same size may not be noticed") < 0)
        return -ENOMEM;
    return source->is_unkept
               ? catalog_add_finding(catalog, WFS_INFO,
                                     "it is not kept in the cache, which has no room for its %s; "
                                     "'weightfs cache list DIR' shows what the cache holds",
                                     wfs_count(source->n_bytes, "byte").text)
               : 0;
}

int wfs_remote_tell(struct wfs_catalog *catalog, const char *text)
{
    return catalog_add_finding(catalog, WFS_INFO, "%s", text);
}

int load_source(struct source *source, const struct load_context *context, struct wfs_catalog **out,
                struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    struct head head;
    const struct wfs_format *format;
    int code = read_head(source, &head, err);
    if (code == 0)
        code = choose(source, &head, &format, err);
    if (code < 0) {
        source_free(source);
        return code;
    }
    code = format_load(format, source, context, &catalog, err);
    if (code < 0)
        return code;
    if (note_other_name(catalog, source) < 0 || note_remote(catalog, source) < 0 ||
        dcp_parts_tell(catalog, source->path) < 0)
        return wfs_fail_memory(err);
    *out = steal(&catalog);
    return 0;
}

static void foresee(const struct source *source)
{
    struct head head;
    uint64_t offset, n_bytes;
    if (read_head(source, &head, NULL) < 0)
        return;
    const struct wfs_format *format = by_content(head.bytes, head.n_bytes, source->n_bytes);
    if (format != NULL && format->functions->foresee != NULL &&
        format->functions->foresee(head.bytes, head.n_bytes, source->n_bytes, &offset, &n_bytes))
        remote_source_expect_header(source, offset, n_bytes);
}

static bool names_checkpoint(const char *path)
{
    return wfs_format_by_path(path) != NULL;
}

static const struct directory_functions *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (formats[i]->is_directory && strcmp(formats[i]->set_name, name) == 0)
            return formats[i]->functions->directory;
    }
    return NULL;
}

static int load_path(const char *path, const struct load_context *context, struct wfs_catalog **out,
                     struct wfs_error *err);

const struct format_table registry_table = {load_source, load_path, foresee, names_checkpoint,
                                            directory_of};

/* Refuses the first rank that was found in a folder, unless it is asked for, or the only one. */
static int refuse_ranks(const char *url, const struct source *source,
                        const struct load_context *context, struct wfs_error *err)
{
    static const char first[] = "consolidated.00";
    const char *found = remote_source_url(source), *file = folder_rank_of_url(found);
    if (context->ranks || file == NULL || folder_rank_of_url(url) != NULL)
        return 0;
    if (strncmp(file, first, strlen(first)) == 0) {
        char name[64];
        autofree char *beside = NULL;
        struct source *second = NULL;
        struct wfs_error inner = {0};
        snprintf(name, sizeof(name), "consolidated.01%s", file + strlen(first));
        int code = url_sibling(found, name, &beside, &inner);
        code = code < 0 ? code : format_open(context, beside, &second, &inner);
        source_free(second);
        if (code < 0)
            return code == -ENOENT ? 0 : wfs_fail(err, inner.code, "%s", inner.text);
    }
    return wfs_fail(err, EISDIR,
                    "has a file for each rank of model parallelism: join=llama or join=REGEX:DIM "
                    "reads them as one; or name '%s' in it",
                    file);
}

/* A folder on the network cannot be listed: what it is follows from the file that was found in it.
 */
static int load_url(const char *url, const struct load_context *context, struct wfs_catalog **out,
                    struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    struct source *source;
    int code = context->has_epoch ? shard_source_fail_epoch(err) : dcp_refuse_url(url, err);
    if (code == 0)
        code = format_open(context, url, &source, err);
    if (code < 0)
        return code;
    code = refuse_ranks(url, source, context, err);
    if (code < 0) {
        source_free(source);
        return code;
    }
    code = dcp_load_url(source, context, &catalog, err);
    if (code == 0)
        return shard_source_load_file(source, context, out, err);
    if (code < 0)
        return code;
    if (note_remote(catalog, catalog->sources.list[0]) < 0)
        return wfs_fail_memory(err);
    *out = steal(&catalog);
    return 0;
}

static int load_path(const char *path, const struct load_context *context, struct wfs_catalog **out,
                     struct wfs_error *err)
{
    if (url_is(path))
        return load_url(path, context, out, err);
    const int code = dcp_load(path, context, out, err);
    return code == 0 ? shard_source_load(path, context, out, err) : code < 0 ? code : 0;
}

int wfs_load(const char *path, const struct wfs_load_options *options, struct wfs_catalog **out,
             struct wfs_error *err)
{
    struct load_context context = {.table = &registry_table};
    limits_init(&context.limits);
    if (options != NULL) {
        context.force = options->force;
        context.escapes_nul = options->escapes_nul;
        context.shards = options->shards;
        context.ranks = options->ranks;
        context.has_epoch = options->has_epoch;
        context.epoch = options->epoch;
        context.remote = options->remote;
        for (size_t i = 0; i < options->n_limits; i++) {
            const int code = limits_set(&context.limits, options->limits[i], registry_limit, err);
            if (code < 0)
                return code;
        }
    }
    struct wfs_error inner = {0};
    autofree char *snapshot = url_is(path) ? NULL : hub_snapshot(path, "main");
    if (snapshot == NULL)
        return load_path(path, &context, out, err);
    return load_path(snapshot, &context, out, &inner) == 0
               ? 0
               : wfs_fail(err, inner.code, "snapshots/%s: %s", strrchr(snapshot, '/') + 1,
                          inner.text);
}

/* Verifies what catalogs were assembled of: that of the checkpoint, and those of overlays. */
static int verify_parts(const struct wfs_catalog *from, struct wfs_catalog *catalog,
                        struct wfs_error *err)
{
    int code = 0;
    if (from->own->assembled != NULL && from->own->verify != NULL)
        code = from->own->verify(from, catalog, err);
    for (size_t i = 0; i < from->parts.n && code == 0; i++)
        code = verify_parts(from->parts.list[i], catalog, err);
    return code;
}

int wfs_verify(struct wfs_catalog *catalog, struct wfs_error *err)
{
    for (size_t i = 0; i < catalog->sources.n; i++) {
        const struct source *source = catalog->sources.list[i];
        struct wfs_error inner = {0};
        struct head head;
        if (source->is_part)
            continue;
        if (read_head(source, &head, &inner) < 0)
            return catalog->sources.n == 1 ? wfs_fail(err, inner.code, "%s", inner.text)
                                           : wfs_fail(err, inner.code, "'%s': %s",
                                                      wfs_quote(source->path).text, inner.text);
        const struct wfs_format *format = by_content(head.bytes, head.n_bytes, source->n_bytes);
        const int code = format == NULL || format->functions->verify == NULL
                             ? 0
                             : format->functions->verify(source, catalog, err);
        if (code < 0)
            return code;
    }
    return verify_parts(catalog, catalog, err);
}

/* ---- sets ---- */

int wfs_shards_new(const struct wfs_format *format, const struct wfs_catalog *catalog,
                   uint64_t max_bytes, struct wfs_shards **out, struct wfs_error *err)
{
    const struct wfs_container *container = catalog->container; /* NULL: it was not loaded */
    return container != NULL && container->kind == WFS_CONTAINER_MODELS
               ? pipeline_plan_new(&registry_table, format, catalog, max_bytes, out, err)
               : set_plan_new(&registry_table, format, catalog, max_bytes, out, err);
}

int wfs_save_clear(const char *path, struct wfs_error *err)
{
    return set_note_clear(&registry_table, path, NULL, err);
}
