/* SPDX-License-Identifier: MIT */
/*
 * Files called model-N, optim-N and scheduler-N, whatever they end with: a run is what has at least
 * the first and one of the others. Each is loaded as the file that it is.
 */
#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/set/set.h"
#include "format/set/shard_files.h"
#include "catalog/catalog.h"

enum { MODEL, OPTIM, SCHEDULER, N_KINDS };

static const char *const kinds[N_KINDS] = {"model", "optim", "scheduler"};

/* What the whole of a record is called that is one tensor or value. */
#define WHOLE "item"

struct epoch {
    uint64_t number;
    const char *files[N_KINDS]; /* among the names; NULL: there is none */
};

struct run {
    struct folder_names names;
    struct epoch *epochs; /* malloc'ed */
    size_t n_epochs, n_room;
};

static void run_done(struct run *run)
{
    folder_names_done(&run->names);
    free(run->epochs);
}

/* ---- names ---- */

/* "optim-12.mpk.gz": a kind, an epoch, and an ending or none. */
static bool parse_name(const char *name, size_t *ret_kind, uint64_t *ret_number)
{
    for (size_t kind = 0; kind < N_KINDS; kind++) {
        const size_t n = strlen(kinds[kind]);
        char *end;
        if (strncmp(name, kinds[kind], n) != 0 || name[n] != '-' || name[n + 1] < '0' ||
            name[n + 1] > '9')
            continue;
        errno = 0;
        *ret_kind = kind;
        *ret_number = strtoull(name + n + 1, &end, 10);
        return errno == 0 && (*end == '\0' || *end == '.');
    }
    return false;
}

static struct epoch *find_epoch(struct run *run, uint64_t number)
{
    for (size_t i = 0; i < run->n_epochs; i++) {
        if (run->epochs[i].number == number)
            return &run->epochs[i];
    }
    if (array_reserve(&run->epochs, sizeof(*run->epochs), run->n_epochs, 1, &run->n_room) < 0)
        return NULL;
    run->epochs[run->n_epochs] = (struct epoch){.number = number};
    return &run->epochs[run->n_epochs++];
}

static int list_run(struct run *run, const char *folder, const struct load_context *context,
                    struct wfs_error *err)
{
    const int code = folder_names_list(&run->names, folder, SIZE_MAX, NULL);
    if (code < 0)
        return wfs_fail(err, -code, "cannot open the directory: %s", strerror(-code));
    for (size_t i = 0; i < run->names.n; i++) {
        const char *name = run->names.names[i];
        size_t kind;
        uint64_t number;
        if (!parse_name(name, &kind, &number))
            continue;
        if (run->n_epochs >= context->limits.files)
            return wfs_fail(err, E2BIG, "it has more epochs than files may be read (limit files)");
        struct epoch *epoch = find_epoch(run, number);
        if (epoch == NULL)
            return wfs_fail_memory(err);
        if (epoch->files[kind] != NULL)
            return wfs_fail(err, EINVAL,
                            "'%s' has another file of the same kind and epoch beside it",
                            wfs_quote(name).text);
        epoch->files[kind] = name;
    }
    return 0;
}

/* Chooses the epoch that was asked for, or the newest one. *ret NULL: it is not a run. */
static int choose(const struct run *run, const struct load_context *context,
                  const struct epoch **ret, struct wfs_error *err)
{
    const struct epoch *newest = NULL;
    *ret = NULL;
    for (size_t i = 0; i < run->n_epochs; i++) {
        const struct epoch *epoch = &run->epochs[i];
        if (epoch->files[MODEL] == NULL ||
            (epoch->files[OPTIM] == NULL && epoch->files[SCHEDULER] == NULL))
            continue;
        if (newest == NULL || epoch->number > newest->number)
            newest = epoch;
        if (context->has_epoch && epoch->number == context->epoch)
            *ret = epoch;
    }
    if (context->has_epoch && *ret == NULL && newest != NULL)
        return wfs_fail(err, ENOENT, "it has no epoch %" PRIu64 ", the newest is %" PRIu64,
                        context->epoch, newest->number);
    *ret = context->has_epoch ? *ret : newest;
    return 0;
}

/* ---- loading ---- */

/* The name of what is in a part, in the arena; NULL: out of memory. */
static const char *name_in(struct wfs_catalog *catalog, const char *part, const char *name)
{
    return strcmp(name, WHOLE) == 0 ? arena_copy(&catalog->arena, part, strlen(part))
                                    : arena_print(&catalog->arena, "%s.%s", part, name);
}

int set_take_part(struct wfs_catalog *catalog, const struct wfs_catalog *part, const char *name)
{
    for (size_t i = 0; i < part->n_tensors; i++) {
        struct wfs_tensor *tensor = set_add_tensor(catalog, &part->tensors[i]);
        if (tensor == NULL)
            return -ENOMEM;
        tensor->origin = part->tensors[i].key;
        tensor->key = name_in(catalog, name, part->tensors[i].key);
        if (tensor->key == NULL)
            return -ENOMEM;
    }
    for (size_t i = 0; i < part->values.n; i++) {
        const char *value = name_in(catalog, name, part->values.list[i].name);
        const uint32_t id =
            value_copy(&catalog->values.graph, &part->values.graph, part->values.list[i].id);
        if (value == NULL || id == 0 || catalog_add_value(catalog, value, id, 0) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int add_part(struct wfs_catalog *catalog, const char *folder, const char *name, size_t kind,
                    const struct load_context *context, struct wfs_error *err)
{
    struct wfs_catalog *part = NULL;
    struct wfs_error inner = {0};
    struct source *source;
    autofree char *path = NULL;
    if (asprintf(&path, "%s%s", folder, name) < 0) {
        path = NULL;
        return wfs_fail_memory(err);
    }
    int code = source_open(path, &source, &inner);
    if (code == 0)
        code = context->table->load(source, context, &part, &inner);
    if (code < 0)
        return wfs_fail(err, inner.code, "'%s': %s", wfs_quote(name).text, inner.text);
    if (catalog->format == NULL)
        catalog->format = part->format;
    code = set_take_part(catalog, part, kinds[kind]);
    if (code == 0)
        code = catalog_merge_texts(catalog, part);
    if (catalog_adopt_part(catalog, part) < 0 || code < 0)
        return catalog_fail_memory(catalog, err);
    return 0;
}

static int load_epoch(const struct epoch *epoch, const char *folder,
                      const struct load_context *context, struct wfs_catalog **out,
                      struct wfs_error *err)
{
    static const struct wfs_container container = {.name = "epoch of a training run",
                                                   .kind = WFS_CONTAINER_RUN};
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (catalog_new(&catalog) < 0)
        return wfs_fail_memory(err);
    catalog->arena.limit = context->limits.index_memory;
    catalog->values.graph.arena = &catalog->arena;
    catalog->container = &container;
    for (size_t kind = 0; kind < N_KINDS; kind++) {
        const char *file = epoch->files[kind];
        const int code = file == NULL ? 0 : add_part(catalog, folder, file, kind, context, err);
        if (code < 0)
            return code;
    }
    *out = steal(&catalog);
    return 0;
}

int run_source_load(const char *folder, const struct load_context *context,
                    struct wfs_catalog **out, struct wfs_error *err)
{
    cleanup(run_done) struct run run = {0};
    const struct epoch *epoch = NULL;
    int code = list_run(&run, folder, context, err);
    if (code == 0)
        code = choose(&run, context, &epoch, err);
    if (code < 0 || epoch == NULL)
        return code;
    code = load_epoch(epoch, folder, context, out, err);
    return code < 0 ? code : 1;
}
