/* SPDX-License-Identifier: MIT */
/*
 * A path is checked as text before the kernel sees it, so that the message names what is wrong.
 */
#include "format/dcp/dcp_files.h"

#include <weightfs/cleanup.h>
#include <weightfs/output.h>
#include <weightfs/url.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote/remote_source.h"

/* Returns whether a path stays below the directory: parts with names, none of them "." or "..". */
static bool is_below(const char *path, size_t n_bytes)
{
    if (n_bytes == 0 || strlen(path) != n_bytes)
        return false;
    for (const char *part = path;; part++) {
        const size_t n = strcspn(part, "/");
        if (n == 0 || (n <= 2 && strncmp(part, "..", n) == 0))
            return false;
        part += n;
        if (*part == '\0')
            return true;
    }
}

int dcp_files_make(struct dcp_reading *r)
{
    const struct text_index *paths = &r->metadata->paths;
    struct dcp_tables *tables = &r->tables;
    tables->files = calloc(paths->n_texts + 1, sizeof(*tables->files));
    if (tables->files == NULL)
        return wfs_fail_memory(r->err);
    for (; tables->n_files < paths->n_texts; tables->n_files++) {
        const struct text_slice *path = &paths->texts[tables->n_files];
        struct dcp_file *file = &tables->files[tables->n_files];
        file->name = arena_copy(&tables->arena, path->bytes, path->n_bytes);
        const bool is_good = is_below(path->bytes, path->n_bytes);
        if (!is_good)
            file->trouble = arena_print(&tables->arena, "the path '%s' leads out of the directory",
                                        wfs_quote_n(path->bytes, path->n_bytes).text);
        if (file->name == NULL || (file->trouble == NULL && !is_good))
            return wfs_fail_memory(r->err);
    }
    return 0;
}

static int fail_many(const struct dcp_reading *r)
{
    return wfs_fail(r->err, EMFILE,
                    "cannot open its files after %zu of them: the hard limit of open files (ulimit "
                    "-Hn) is too low",
                    r->catalog->n_sources);
}

/* Begins to open the files of a URL that come soon: each is a round trip. */
static void open_early(struct dcp_reading *r, uint32_t number)
{
    enum { N_AHEAD = 32 };
    const struct dcp_tables *tables = &r->tables;
    for (; r->n_early < tables->n_files && r->n_early < number + N_AHEAD; r->n_early++) {
        autofree char *url = NULL;
        if (tables->files[r->n_early].trouble == NULL &&
            url_below(r->url, tables->files[r->n_early].name, &url, NULL) == 0)
            remote_source_open_early(r->context->remote, url);
    }
}

static int open_url(struct dcp_reading *r, uint32_t number, struct wfs_error *err)
{
    struct dcp_file *file = &r->tables.files[number];
    autofree char *url = NULL;
    const int code = url_below(r->url, file->name, &url, err);
    if (code < 0)
        return code;
    open_early(r, number);
    return format_open(r->context, url, &file->source, err);
}

static int open_beneath(const struct dcp_reading *r, struct dcp_file *file, struct wfs_error *err)
{
    autofree char *path = NULL;
    char temporary[WFS_OUTPUT_NAME_MAX];
    const char *name = r->is_new ? temporary : file->name;
    wfs_output_temporary(file->name, temporary);
    if (asprintf(&path, "%s%s", r->folder, name) < 0)
        return -ENOMEM;
    return source_open_beneath(r->directory, name, path, &file->source, err);
}

int dcp_files_open(struct dcp_reading *r, uint32_t number)
{
    struct dcp_file *file = &r->tables.files[number];
    struct wfs_error err = {0};
    if (file->source != NULL || file->trouble != NULL)
        return 0;
    if (r->catalog->n_sources > r->context->limits.files)
        return wfs_fail(r->err, E2BIG, "it is in more than %s (limit files)",
                        wfs_count(r->context->limits.files, "file").text);
    const int code = r->url != NULL ? open_url(r, number, &err) : open_beneath(r, file, &err);
    if (code == -EMFILE || code == -ENFILE)
        return fail_many(r);
    if (code == -ENOMEM)
        return wfs_fail_memory(r->err);
    if (code == 0) {
        file->source->is_part = true;
        return catalog_adopt_source(r->catalog, file->source) < 0 ? wfs_fail_memory(r->err) : 0;
    }
    file->source = NULL;
    file->trouble = arena_print(&r->tables.arena, "'%s': %s", wfs_quote(file->name).text, err.text);
    return file->trouble == NULL ? wfs_fail_memory(r->err) : 0;
}

int dcp_files_check(struct dcp_reading *r, uint32_t number)
{
    struct dcp_item *item = &r->tables.items[number];
    if (item->trouble != NULL)
        return 0;
    const int code = dcp_files_open(r, item->file);
    const struct dcp_file *file = &r->tables.files[item->file];
    if (code < 0)
        return code;
    if (file->trouble != NULL) {
        item->trouble = file->trouble;
        return 0;
    }
    const uint64_t n_bytes = file->source->n_bytes;
    if (item->n_bytes > 0 && item->offset <= n_bytes && item->n_bytes <= n_bytes - item->offset)
        return 0;
    item->trouble =
        arena_print(&r->tables.arena, "its %s at byte %" PRIu64 " cannot be in '%s', which has %s",
                    wfs_count(item->n_bytes, "byte").text, item->offset, wfs_quote(file->name).text,
                    wfs_count(n_bytes, "byte").text);
    return item->trouble == NULL ? wfs_fail_memory(r->err) : 0;
}
