/* SPDX-License-Identifier: MIT */
/*
 * A pipeline is written part by part: each is complete or as it was, and the file that describes
 * them comes last. A part whose file is whole is a file again, one in shards a set.
 */
#include "format/set/pipeline.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/outfile.h"
#include "format/core/save.h"
#include "format/set/set.h"
#include "format/set/shard_set.h"
#include "tensor/tensor.h"

struct pipeline_part {
    const struct catalog_member *member;
    struct wfs_catalog *catalog; /* its tensors, by their names in it */
    struct wfs_layout *layout;   /* of one file, or NULL */
    struct wfs_shards *shards;   /* of several, or NULL */
};

/* ---- laying out ---- */

/* Returns the part that a key is in, and in *ret the rest of the key; NULL: in none. */
static struct pipeline_part *find_part(const struct wfs_shards *set, const char *key,
                                       const char **ret)
{
    for (size_t i = 0; i < set->n_parts; i++) {
        const char *name = set->parts[i].member->name;
        const size_t n = strlen(name);
        *ret = key + n + 1;
        if (strncmp(key, name, n) == 0 && key[n] == '.' && key[n + 1] != '\0')
            return &set->parts[i];
    }
    return NULL;
}

/* Adds a text to a part, or to each that has none of that name where it is in no part. -ENOMEM. */
static int divide_text(struct wfs_shards *set, const struct wfs_text *text)
{
    const char *rest;
    struct pipeline_part *part = find_part(set, text->name, &rest);
    if (part != NULL)
        return catalog_add_meta_bytes(part->catalog, rest, text->value, text->n_bytes);
    int code = 0;
    for (size_t i = 0; i < set->n_parts && code == 0; i++) {
        struct wfs_catalog *catalog = set->parts[i].catalog;
        if (text_find(catalog->meta.first, text->name) == NULL)
            code = catalog_add_meta_bytes(catalog, text->name, text->value, text->n_bytes);
    }
    return code;
}

/* Gives each part its tensors and texts. */
static int divide(struct wfs_shards *set, struct wfs_error *err)
{
    const struct wfs_catalog *catalog = set->catalog;
    const char *rest;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        struct pipeline_part *part = find_part(set, wfs_catalog_tensor(catalog, i)->key, &rest);
        if (part == NULL)
            return wfs_fail(
                err, EINVAL,
                "'%s' is in none of the components of the pipeline, such as '%s': write "
                "one file, or rename it",
                wfs_quote(wfs_catalog_tensor(catalog, i)->key).text,
                wfs_quote(set->parts[0].member->name).text);
        struct wfs_tensor *tensor = catalog_add(part->catalog);
        if (tensor == NULL)
            return wfs_fail_memory(err);
        *tensor = *wfs_catalog_tensor(catalog, i);
        tensor->key = rest;
    }
    for (const struct wfs_text *text = catalog->meta.first; text != NULL; text = text->next) {
        if (divide_text(set, text) < 0)
            return wfs_fail_memory(err);
    }
    return 0;
}

/* Returns the path of the file of a part in the folder of the pipeline, under the name that
 * diffusers and transformers look for. malloc'ed; NULL: out of memory. */
static char *find_path(const struct wfs_shards *set, const struct pipeline_part *part,
                       const char *folder)
{
    static const char usual[] = "diffusion_pytorch_model";
    const char *file = part->member->file, *name = set->format->set_name;
    const char *index = part->shards != NULL ? ".index.json" : "";
    const size_t n = strlen(file) - (shard_is_index(file) ? strlen(".index.json") : 0);
    autofree char *front = strndup(file, n);
    char *path;
    if (front == NULL)
        return NULL;
    const bool is_usual = strncmp(front, usual, strlen(usual)) == 0;
    const bool is_same = format_has_name(set->format, front);
    return asprintf(&path, "%s%s/%s%s%s", folder, part->member->name,
                    is_same    ? front
                    : is_usual ? usual
                               : name,
                    !is_same && is_usual ? strrchr(name, '.') : "", index) < 0
               ? NULL
               : path;
}

static int plan_part(struct wfs_shards *set, struct pipeline_part *part, uint64_t max_bytes,
                     struct wfs_error *err)
{
    struct wfs_error inner = {0};
    uint64_t n_tensors = 0;
    for (size_t i = 0; i < part->catalog->n_tensors; i++)
        n_tensors += part->catalog->tensors[i].n_bytes;
    const bool is_set = max_bytes > 0 ? n_tensors > max_bytes : shard_is_index(part->member->file);
    if (part->catalog->n_tensors == 0)
        return wfs_fail(err, EINVAL, "component '%s' of the pipeline has no tensors left",
                        wfs_quote(part->member->name).text);
    const int code = is_set ? set_plan_new(set->table, set->format, part->catalog, max_bytes,
                                           &part->shards, &inner)
                            : wfs_layout_new(set->format, part->catalog, &part->layout, &inner);
    if (code < 0)
        return wfs_fail(err, inner.code, "component '%s' of the pipeline: %s",
                        wfs_quote(part->member->name).text, inner.text);
    const uint64_t n = is_set ? part->shards->n_bytes : part->layout->n_bytes;
    set->n_files += is_set ? part->shards->n_shards + 1 : 1;
    if (!checked_add(set->n_bytes, n, &set->n_bytes))
        return wfs_fail(err, EFBIG, "the files would have more than 2^64 bytes");
    return 0;
}

static int plan(struct wfs_shards *set, uint64_t max_bytes, struct wfs_error *err)
{
    static const struct wfs_container container = {.name = "component of a pipeline",
                                                   .kind = WFS_CONTAINER_SHARDS};
    const struct catalog_own *own = set->catalog->own;
    if (set->format->functions->directory != NULL)
        return wfs_fail(err, EOPNOTSUPP, "a pipeline is not written as a distributed checkpoint");
    set->parts = calloc(own->n_members, sizeof(*set->parts));
    if (set->parts == NULL)
        return wfs_fail_memory(err);
    for (size_t i = 0; i < own->n_members; i++) {
        struct pipeline_part *part = &set->parts[set->n_parts++];
        part->member = &own->members[i];
        if (catalog_new(&part->catalog) < 0)
            return wfs_fail_memory(err);
        catalog_copy_graph(part->catalog, set->catalog);
        part->catalog->format = set->catalog->format;
        part->catalog->container = &container;
        part->catalog->output = set->catalog->output;
    }
    int code = divide(set, err);
    for (size_t i = 0; code == 0 && i < set->n_parts; i++)
        code = plan_part(set, &set->parts[i], max_bytes, err);
    return code;
}

static void free_parts(struct wfs_shards *set)
{
    for (size_t i = 0; i < set->n_parts; i++) {
        wfs_layout_free(set->parts[i].layout);
        wfs_shards_free(set->parts[i].shards);
        wfs_catalog_free(set->parts[i].catalog);
    }
    free(set->parts);
}

/* ---- writing ---- */

struct writing {
    struct wfs_shards *set;
    const struct wfs_save_options *options;
    struct wfs_save_options inner; /* of one part: progress counts those before it */
    uint64_t n_before;
    const char *folder; /* of the pipeline, with its slash */
    const char *part;   /* that is written */
};

/* Calls what was given for the output itself, whose folder a part has its own folder in. */
static int set_mode(void *ctx, const char *name, uint32_t mode)
{
    const struct writing *writing = ctx;
    autofree char *path = NULL;
    if (asprintf(&path, "%s/%s", writing->part, name) < 0) {
        path = NULL;
        return -ENOMEM;
    }
    return writing->options->set_mode(writing->options->ctx, path, mode);
}

static int set_owner(void *ctx, const char *name)
{
    const struct writing *writing = ctx;
    autofree char *path = NULL;
    if (asprintf(&path, "%s/%s", writing->part, name) < 0) {
        path = NULL;
        return -ENOMEM;
    }
    return writing->options->set_owner(writing->options->ctx, path);
}

static void abandon(void *ctx, int fd)
{
    const struct writing *writing = ctx;
    writing->options->abandon(writing->options->ctx, fd);
}

static int count_all(void *ctx, uint64_t n_done, uint64_t n_total)
{
    const struct writing *writing = ctx;
    return save_tell_progress(writing->options, writing->n_before + n_done, writing->set->n_bytes);
}

static void tell_danger(void *ctx, const char *text)
{
    const struct writing *writing = ctx;
    writing->options->danger(writing->options->ctx, text);
}

static int fail_part(const struct pipeline_part *part, const struct wfs_error *inner,
                     struct wfs_error *err)
{
    return wfs_fail(err, inner->code, "component '%s' of the pipeline: %s",
                    wfs_quote(part->member->name).text, inner->text);
}

/* Makes the folder of a part, and refuses a file in it that would be read in place of the new one.
 */
static int prepare_part(const struct writing *writing, const struct pipeline_part *part,
                        struct wfs_error *err)
{
    struct wfs_error inner = {0};
    autofree char *path = find_path(writing->set, part, writing->folder), *folder = NULL;
    if (path == NULL || (folder = folder_of(path)) == NULL)
        return wfs_fail_memory(err);
    if (mkdir(folder, 0777) < 0 && errno != EEXIST)
        return wfs_fail(err, errno, "cannot create the directory '%s': %s", wfs_quote(folder).text,
                        strerror(errno));
    return shard_files_check_index(writing->set->table, path, &inner) < 0
               ? fail_part(part, &inner, err)
               : 0;
}

static int write_part(struct writing *writing, struct pipeline_part *part, struct wfs_error *err)
{
    struct wfs_error inner = {0};
    autofree char *path = find_path(writing->set, part, writing->folder);
    if (path == NULL)
        return wfs_fail_memory(err);
    writing->part = part->member->name;
    const int code = part->shards != NULL
                         ? wfs_shards_save(part->shards, path, &writing->inner, NULL, &inner)
                         : wfs_save(part->layout, path, &writing->inner, NULL, &inner);
    writing->n_before += part->shards != NULL ? part->shards->n_bytes : part->layout->n_bytes;
    return code < 0 ? fail_part(part, &inner, err) : 0;
}

/* Writes the description, which makes a pipeline of the folder. */
static int write_index(struct writing *writing, struct outfile *index,
                       struct wfs_save_report *report, struct wfs_error *err)
{
    const struct catalog_own *own = writing->set->catalog->own;
    int code = outfile_write(index, own->description, own->n_description);
    if (code < 0)
        return save_fail_write(index, code, err);
    code = outfile_sync(index, err);
    if (code == 0)
        code = outfile_check(index, &writing->inner, err);
    if (code == 0)
        code = save_tell_complete(writing->options, index, writing->set->catalog, err);
    report->step = "rename";
    return code < 0 ? code : outfile_publish(index, report, err);
}

static int save(struct wfs_shards *set, const char *path, const struct wfs_save_options *options,
                struct wfs_save_report *report, struct wfs_error *err)
{
    autofree char *folder = folder_of(path), *index_path = NULL;
    struct outfile *index = NULL;
    if (folder == NULL || asprintf(&index_path, "%s" PIPELINE_INDEX, folder) < 0) {
        index_path = NULL;
        return wfs_fail_memory(err);
    }
    const bool is_new = options->replace == WFS_REPLACE_NONE;
    struct writing writing = {.set = set, .options = options, .folder = folder};
    writing.inner =
        (struct wfs_save_options){.replace = is_new ? WFS_REPLACE_NONE : WFS_REPLACE_ANY,
                                  .backup = options->backup,
                                  .mode = options->mode,
                                  .access = options->access,
                                  .narrows_replaced = options->narrows_replaced,
                                  .progress = count_all,
                                  .danger = options->danger != NULL ? tell_danger : NULL,
                                  .set_mode = options->set_mode != NULL ? set_mode : NULL,
                                  .set_owner = options->set_owner != NULL ? set_owner : NULL,
                                  .abandon = options->abandon != NULL ? abandon : NULL,
                                  .team = options->team,
                                  .ctx = &writing};
    struct wfs_error inner = {0};
    int code = outfile_new(index_path, set->catalog->own->n_description, options, &index, &inner);
    if (code < 0)
        return wfs_fail(err, inner.code, PIPELINE_INDEX ": %s", inner.text);
    for (size_t i = 0; code == 0 && i < set->n_parts; i++)
        code = prepare_part(&writing, &set->parts[i], err);
    report->step = "write";
    for (size_t i = 0; code == 0 && i < set->n_parts; i++)
        code = write_part(&writing, &set->parts[i], err);
    if (code == 0)
        code = write_index(&writing, index, report, err);
    outfile_free(index);
    return code;
}

int pipeline_plan_new(const struct format_table *table, const struct wfs_format *format,
                      const struct wfs_catalog *catalog, uint64_t max_bytes,
                      struct wfs_shards **out, struct wfs_error *err)
{
    static const struct pipeline_functions functions = {save, free_parts};
    struct wfs_shards *set = calloc(1, sizeof(*set));
    if (set == NULL)
        return wfs_fail_memory(err);
    set->table = table;
    set->format = format;
    set->catalog = catalog;
    set->functions = &functions;
    const int code = plan(set, max_bytes, err);
    if (code < 0) {
        wfs_shards_free(set);
        return code;
    }
    *out = set;
    return 0;
}
