/* SPDX-License-Identifier: MIT */
/*
 * From a path to a catalog: the content decides which format's loader gets the file.
 */
#include "format/core/format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "format/set/shards.h"

enum { N_HEAD = 4096 };

struct head {
    uint8_t bytes[N_HEAD];
    size_t n_bytes;
};

static int read_head(const struct source *source, struct head *head, struct wfs_error *err)
{
    head->n_bytes = source->n_bytes < N_HEAD ? (size_t)source->n_bytes : N_HEAD;
    if (source_read(source, 0, head->bytes, head->n_bytes) < 0)
        return wfs_fail(err, EIO, "cannot read its first %zu bytes", head->n_bytes);
    return 0;
}

static int refuse_unknown(const struct head *head, struct wfs_error *err)
{
    const size_t n = head->n_bytes < 16 ? head->n_bytes : 16;
    char text[16 * 3 + 1] = "";
    for (size_t i = 0; i < n; i++)
        snprintf(text + i * 3, 4, " %02x", head->bytes[i]);
    return wfs_fail(err, EMEDIUMTYPE, "is no checkpoint of a known format, it begins with%s", text);
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
    int code = sniff_magic(head->bytes, head->n_bytes, err);
    if (code < 0)
        return code;
    *ret = format_by_content(head->bytes, head->n_bytes, source->n_bytes);
    if (*ret != NULL)
        return 0;
    code = sniff_foreign(head->bytes, head->n_bytes, source, err);
    if (code < 0)
        return code;
    *ret = wfs_format_by_path(source->path);
    if (*ret == NULL && has_header_length(source, head))
        *ret = &format_safetensors;
    return *ret == NULL ? refuse_unknown(head, err) : 0;
}

static int note_other_name(struct wfs_catalog *catalog, const struct source *source,
                           const struct wfs_format *format)
{
    const struct wfs_format *named = wfs_format_by_path(source->path);
    if (named == NULL || named == format)
        return 0;
    return catalog_add_finding(catalog, WFS_INFO, "the name is that of a %s file, the content %s",
                               named->name, format->name);
}

int load_source(struct source *source, const struct load_context *context, struct wfs_catalog **out,
                struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (catalog_new(&catalog) < 0) {
        source_free(source);
        return wfs_fail_memory(err);
    }
    catalog->arena.limit = context->limits.index_memory;
    if (catalog_adopt_source(catalog, source) < 0)
        return wfs_fail_memory(err);
    struct head head;
    const struct wfs_format *format;
    int code = read_head(source, &head, err);
    if (code == 0)
        code = choose(source, &head, &format, err);
    if (code < 0)
        return code;
    catalog->format = format;
    code = format->functions->load(source, context, catalog, err);
    if (code < 0)
        return code;
    if (note_other_name(catalog, source, format) < 0)
        return wfs_fail_memory(err);
    *out = steal(&catalog);
    return 0;
}

int wfs_load(const char *path, const struct wfs_load_options *options, struct wfs_catalog **out,
             struct wfs_error *err)
{
    struct load_context context = {0};
    limits_init(&context.limits);
    if (options != NULL) {
        context.force = options->force;
        context.shards = options->shards;
        for (size_t i = 0; i < options->n_limits; i++) {
            const int code = limits_set(&context.limits, options->limits[i], err);
            if (code < 0)
                return code;
        }
    }
    return shards_load(path, &context, out, err);
}
