/* SPDX-License-Identifier: MIT */
/*
 * Loading a directory: its kind by the names of its files, then the metadata, then the tables and
 * the catalog; and the format, which verifies what it loaded, and reads back what it wrote.
 */
#include "format/dcp/dcp.h"

#include <weightfs/cleanup.h>
#include <weightfs/output.h>
#include <weightfs/url.h>
#include <weightfs/value.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/zip.h"
#include "base/bytes.h"
#include "base/search.h"
#include "base/text_index.h"
#include "catalog/catalog.h"
#include "format/core/folder.h"
#include "format/core/format.h"
#include "format/core/save.h"
#include "format/dcp/dcp_assembly.h"
#include "format/dcp/dcp_item.h"
#include "format/dcp/dcp_parts.h"
#include "format/dcp/dcp_reading.h"
#include "format/dcp/writer/dcp_plan.h"
#include "format/pytorch/writer/torch_checkpoint.h"
#include "pickle/pickle.h"
#include "remote/remote_source.h"

static const char metadata_name[] = ".metadata";
static const char *const whole[] = {metadata_name};

/* The files of a directory that decide what it is. */
struct names {
    bool has_metadata;
    bool has_parts; /* NAME.distcp */
    bool has_paddle;
    bool has_index;              /* of a sharded checkpoint */
    struct folder_names ranks;   /* __R.metadata */
    struct folder_names tensors; /* NAME.safetensors */
    struct folder_names all;
};

static void names_done(struct names *names)
{
    folder_names_done(&names->ranks);
    folder_names_done(&names->tensors);
    folder_names_done(&names->all);
}

/* "__12.metadata": what one rank wrote of the metadata. */
static bool is_rank_name(const char *name)
{
    const size_t n_digits = strncmp(name, "__", 2) == 0 ? strspn(name + 2, "0123456789") : 0;
    return n_digits > 0 && strcmp(name + 2 + n_digits, metadata_name) == 0;
}

/* "0.metadata" */
static bool is_paddle_name(const char *name)
{
    const size_t n_digits = strspn(name, "0123456789");
    return n_digits > 0 && strcmp(name + n_digits, metadata_name) == 0;
}

/* -errno where the directory cannot be listed; that is somebody else's to report. */
static int list(const char *folder, struct names *names)
{
    int code = folder_names_list(&names->all, folder, SIZE_MAX, NULL);
    for (size_t i = 0; code == 0 && i < names->all.n; i++) {
        const char *name = names->all.names[i];
        names->has_metadata |= strcmp(name, metadata_name) == 0;
        names->has_parts |= text_ends(name, ".distcp");
        names->has_paddle |= is_paddle_name(name);
        names->has_index |= text_ends(name, ".index.json");
        if (is_rank_name(name))
            code = folder_names_add(&names->ranks, name);
        else if (name[0] != '.' && text_ends(name, ".safetensors"))
            code = folder_names_add(&names->tensors, name);
    }
    return code;
}

/* Adds a finding about checkpoints that lie in the directory of one and were not read. -ENOMEM. */
static int tell_rest(const struct names *names, const char *folder,
                     const struct load_context *context, struct wfs_catalog *catalog)
{
    cleanup(folder_names_done) struct folder_names rest = {0};
    int code = 0;
    for (size_t i = 0; code == 0 && i < names->all.n; i++) {
        const char *name = names->all.names[i];
        const bool is_read =
            catalog->own->companion.source != NULL && strcmp(name, DCP_COMPANION) == 0;
        if (name[0] != '.' && !is_read && context->table->names_checkpoint(name) &&
            !folder_names_has(&names->tensors, name))
            code = folder_names_add(&rest, name);
    }
    if (code == 0)
        code = folder_find_below(folder, &names->all, 1, context->table->names_checkpoint, &rest);
    return code < 0 ? code : folder_tell_rest(catalog, &rest);
}

/* ---- loading ---- */

/* Reads one file of metadata, which becomes a source of the catalog. opened: it is open already. */
static int read_metadata(struct dcp_reading *r, const char *name, struct source *opened)
{
    struct source *source = opened;
    struct wfs_error err = {0};
    autofree char *path = NULL;
    if (opened == NULL && asprintf(&path, "%s%s", r->folder, name) < 0)
        return wfs_fail_memory(r->err);
    int code = opened != NULL ? 0 : source_open_beneath(r->directory, name, path, &source, &err);
    if (code == 0) {
        if (catalog_adopt_source(r->catalog, source) < 0)
            return wfs_fail_memory(r->err);
        source->is_part = true;
        code = dcp_metadata_read(r->metadata, source, &r->context->limits, &err);
    }
    if (code == -ENOMEM)
        return wfs_fail_memory(r->err);
    return code == 0 ? 0 : wfs_fail(r->err, -code, "'%s': %s", name, err.text);
}

/* Opens all items where they are not too many: what is wrong with them is known from the start. */
static int open_items(const struct source *assembly, uint64_t n_most)
{
    const struct dcp_tables *tables = dcp_assembly_tables(assembly);
    int code = 0;
    for (uint32_t i = 0; tables->n_parts <= n_most && i < tables->n_tensors && code == 0; i++)
        (void)dcp_assembly_open(assembly, i, &code);
    return code;
}

/* Megatron-core stores states of its distributed optimizer in another order of elements. */
static int tell_reformulated(struct dcp_reading *r)
{
    const struct graph *graph = &r->metadata->graph;
    const uint32_t data =
        r->metadata->n_roots == 0 ? 0 : dcp_field(graph, r->metadata->roots[0], "mcore_data");
    const struct value *dict = data == 0 ? NULL : graph_at(graph, data);
    for (uint32_t i = 0; dict != NULL && dict->kind == VALUE_DICT && i + 1 < dict->n; i += 2) {
        const struct value *key = graph_at(graph, value_items(dict)[i]);
        const uint32_t about = value_items(dict)[i + 1];
        if (key->kind != VALUE_TEXT || graph_at(graph, about)->kind != VALUE_DICT ||
            value_get(graph, about, "nd_reformulated_orig_global_shape") == 0)
            continue;
        return catalog_add_finding(r->catalog, WFS_MEDIUM,
                                   "'%s', and perhaps others, are stored by Megatron-core in "
                                   "another order of elements (nd_reformulated_orig_global_shape), "
                                   "and shown as they are stored",
                                   wfs_quote(key->text).text) < 0
                   ? wfs_fail_memory(r->err)
                   : 0;
    }
    return 0;
}

/* ---- checksums ---- */

enum { MAX_TOLD = 20 };

/* Returns the first thing that is wrong with the records of an item in err. */
static int verify_item(const struct source *file, const struct dcp_item *item,
                       const struct limits *limits, struct wfs_error *err)
{
    cleanup(zip_close) struct zip zip = {0};
    int code = zip_open(&zip, file, item->offset, item->n_bytes, limits, err);
    for (uint32_t i = 0; code == 0 && i < zip.n_entries; i++) {
        code = zip_locate(&zip, &zip.entries[i], err);
        if (code == 0)
            code = zip_verify(&zip, &zip.entries[i], err);
    }
    return code;
}

/* Every zip has a CRC-32 for each of its records. Items that no tensor or value needs are passed
 * over: their files are not open. */
static int verify(const struct wfs_catalog *from, struct wfs_catalog *catalog,
                  struct wfs_error *err)
{
    const struct dcp_tables *tables = dcp_assembly_tables(from->own->assembled);
    size_t n_bad = 0;
    for (uint32_t i = 0; i < tables->n_items; i++) {
        const struct dcp_item *item = &tables->items[i];
        struct wfs_error inner = {0};
        if (item->trouble != NULL || tables->files[item->file].source == NULL)
            continue;
        const struct dcp_file *file = &tables->files[item->file];
        if (dcp_window_probe(file->source, item->offset) != 0)
            continue;
        const int code = verify_item(file->source, item, &tables->limits, &inner);
        if (code == -ENOMEM)
            return wfs_fail_memory(err);
        if (code == 0 || n_bad++ >= MAX_TOLD)
            continue;
        if (catalog_add_finding(catalog, WFS_HIGH, "the %s at byte %" PRIu64 " of '%s': %s",
                                wfs_count(item->n_bytes, "byte").text, item->offset,
                                wfs_quote(file->name).text, inner.text) < 0)
            return wfs_fail_memory(err);
    }
    if (n_bad > MAX_TOLD && catalog_add_finding(catalog, WFS_HIGH, "and %s of files",
                                                wfs_count(n_bad - MAX_TOLD, "more part").text) < 0)
        return wfs_fail_memory(err);
    return 0;
}

static int fill_catalog(struct dcp_reading *r)
{
    int code = dcp_table_fill(r);
    if (code < 0)
        return code;
    const uint64_t n_most = limits_own(&r->context->limits, &dcp_limits[DCP_LIMIT_ITEMS]);
    r->catalog->own->verify = verify;
    code = dcp_assembly_new(r->folder, &r->tables, &r->catalog->own->assembled);
    if (code == 0)
        code = open_items(r->catalog->own->assembled, n_most);
    if (code < 0)
        return code == -EOVERFLOW
                   ? wfs_fail(r->err, EBADMSG, "its tensors have 2^63 bytes or more together")
                   : wfs_fail_memory(r->err);
    code = dcp_values_list(r, r->catalog->own->assembled);
    return code < 0 ? code : tell_reformulated(r);
}

/* Loads what files of metadata describe. begun has what is known before; opened is that of a URL,
 * which is adopted; NULL: a directory. */
static int load_described(const struct dcp_reading *begun, const char *const *names, size_t n_names,
                          struct source *opened, struct wfs_catalog **out)
{
    static const struct wfs_container container = {.name = "distributed checkpoint"};
    const struct limits *limits = &begun->context->limits;
    auto_catalog struct wfs_catalog *catalog = NULL;
    cleanup(dcp_metadata_done) struct dcp_metadata metadata;
    dcp_metadata_init(&metadata, limits);
    cleanup(dcp_reading_done) struct dcp_reading reading = *begun;
    if (catalog_new(&catalog) < 0) {
        source_free(opened);
        return wfs_fail_memory(begun->err);
    }
    catalog->arena.limit = limits->index_memory;
    catalog->format = &format_dcp;
    catalog->container = &container;
    reading.catalog = catalog;
    reading.metadata = &metadata;
    reading.url = opened == NULL ? NULL : remote_source_url(opened);
    int code = 0;
    for (size_t i = 0; i < n_names && code == 0; i++)
        code = read_metadata(&reading, names[i], opened);
    if (code == 0)
        code = fill_catalog(&reading);
    if (code < 0)
        return catalog->arena.is_full || metadata.arena.is_full || reading.tables.arena.is_full
                   ? wfs_fail(begun->err, E2BIG,
                              "its index takes more than %s of memory (limit index_memory)",
                              wfs_count(limits->index_memory, "byte").text)
                   : code;
    *out = steal(&catalog);
    return 0;
}

/* Returns whether the file of that name is a pickle: 1, 0. -ENOMEM. */
static int is_pickle(int directory, const char *name)
{
    uint8_t head[FORMAT_HEAD];
    struct source *source;
    const int code = source_open_beneath(directory, name, name, &source, NULL);
    if (code < 0)
        return code == -ENOMEM ? code : 0;
    const size_t n = source->n_bytes < sizeof(head) ? (size_t)source->n_bytes : sizeof(head);
    const bool is = source_read(source, 0, head, n) == 0 && pickle_probe(head, n, source->n_bytes);
    source_free(source);
    return is;
}

/* Returns whether one of the files has parts of tensors: 1, 0. An index would name whole ones.
 * -ENOMEM. */
static int has_parts_of_tensors(const char *folder, const struct names *names)
{
    int code = 0;
    for (size_t i = 0; i < names->tensors.n && !names->has_index && code == 0; i++) {
        autofree char *path = NULL;
        code = asprintf(&path, "%s%s", folder, names->tensors.names[i]) < 0 ? -ENOMEM
                                                                            : dcp_parts_probe(path);
    }
    return code;
}

/* A directory with parts of a checkpoint, and without what describes them. */
static int fail_unfinished(const struct names *names, struct wfs_error *err)
{
    return names->has_paddle
               ? wfs_fail(
                     err, EOPNOTSUPP,
                     "is a distributed checkpoint of PaddlePaddle, a format that weightfs does "
                     "not read")
               : wfs_fail(err, EBADMSG,
                          "is a PyTorch distributed checkpoint without .metadata, which is written "
                          "last: the save was not finished, or not all of it was copied");
}

static const char *const beside[] = {DCP_COMPANION, "common.pt", "metadata.json", NULL};

/* Notes the files without which Megatron-core or Lightning cannot load the checkpoint. directory
 * -1: a URL, beside which only that of Lightning is known. */
static int add_beside(int directory, const char *folder, struct wfs_catalog *catalog)
{
    enum { N_BESIDE = sizeof(beside) / sizeof(*beside) - 1 };
    struct catalog_own *own = catalog->own;
    own->beside = arena_calloc(&catalog->arena, N_BESIDE, sizeof(*own->beside));
    if (own->beside != NULL && own->companion.source != NULL)
        own->beside[own->n_beside++] = own->companion.source;
    for (size_t i = 1; own->beside != NULL && directory >= 0 && i < N_BESIDE; i++) {
        struct source *source;
        autofree char *path = NULL;
        if (asprintf(&path, "%s%s", folder, beside[i]) < 0) {
            path = NULL;
            return -ENOMEM;
        }
        if (source_open_beneath(directory, beside[i], path, &source, NULL) < 0)
            continue;
        if (catalog_adopt_source(catalog, source) < 0)
            return -ENOMEM;
        source->is_part = true;
        own->beside[own->n_beside++] = source;
    }
    return own->beside == NULL ? -ENOMEM : 0;
}

static int load_folder(const char *folder, const struct load_context *context,
                       struct wfs_catalog **out, struct wfs_error *err)
{
    cleanup(names_done) struct names names = {0};
    autoclose int directory = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int code = directory < 0 ? -errno : list(folder, &names);
    if (code < 0)
        return code == -ENOMEM ? wfs_fail_memory(err) : 0;
    code = names.ranks.n > 0 || (names.has_metadata && names.has_parts);
    if (code == 0 && names.has_metadata)
        code = is_pickle(directory, metadata_name);
    const bool is_described = code == 1;
    if (code == 0 && !names.has_parts)
        code = has_parts_of_tensors(folder, &names);
    if (code < 0)
        return wfs_fail_memory(err);
    if (code == 0)
        return names.has_parts ? fail_unfinished(&names, err) : 0;
    auto_catalog struct wfs_catalog *catalog = NULL;
    const struct dcp_reading begun = {
        .context = context, .folder = folder, .directory = directory, .err = err};
    if (!is_described)
        code = dcp_parts_load(folder, names.tensors.names, names.tensors.n, context, &catalog, err);
    else if (names.has_metadata)
        code = load_described(&begun, whole, 1, NULL, &catalog);
    else
        code = load_described(&begun, names.ranks.names, names.ranks.n, NULL, &catalog);
    if (code < 0)
        return code;
    if ((is_described && add_beside(directory, folder, catalog) < 0) ||
        tell_rest(&names, folder, context, catalog) < 0)
        return wfs_fail_memory(err);
    autoclose int readable = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (readable >= 0)
        wfs_access_add(&catalog->sources.access, readable);
    *out = steal(&catalog);
    return 1;
}

bool dcp_is_described(const char *folder)
{
    cleanup(names_done) struct names names = {0};
    return list(folder, &names) == 0 &&
           (names.ranks.n > 0 || (names.has_metadata && names.has_parts));
}

int dcp_refuse_url(const char *url, struct wfs_error *err)
{
    autofree char *name = url_name(url);
    if (name == NULL)
        return wfs_fail_memory(err);
    if (text_ends(name, ".distcp"))
        return wfs_fail(
            err, EISDIR,
            "is one file of a PyTorch distributed checkpoint: name the .metadata beside "
            "it");
    return is_rank_name(name)
               ? wfs_fail(
                     err, EOPNOTSUPP,
                     "is one of several files of metadata, which a URL does not list: download "
                     "the directory")
               : 0;
}

int dcp_load_url(struct source *source, const struct load_context *context,
                 struct wfs_catalog **out, struct wfs_error *err)
{
    autofree char *name = url_name(remote_source_url(source));
    if (name != NULL && strcmp(name, metadata_name) != 0)
        return 0;
    autofree char *folder =
        strndup(source->path, (size_t)(strrchr(source->path, '/') + 1 - source->path));
    if (name == NULL || folder == NULL) {
        source_free(source);
        return wfs_fail_memory(err);
    }
    const struct dcp_reading begun = {
        .context = context, .folder = folder, .directory = -1, .err = err};
    autofree char *companion = NULL;
    if (url_below(remote_source_url(source), DCP_COMPANION, &companion, NULL) == 0)
        remote_source_open_early(context->remote, companion);
    auto_catalog struct wfs_catalog *catalog = NULL;
    const int code = load_described(&begun, whole, 1, source, &catalog);
    if (code < 0)
        return code;
    if (add_beside(-1, folder, catalog) < 0)
        return wfs_fail_memory(err);
    *out = steal(&catalog);
    return 1;
}

int dcp_load(const char *path, const struct load_context *context, struct wfs_catalog **out,
             struct wfs_error *err)
{
    struct stat st;
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    autofree char *folder = NULL;
    if (stat(path, &st) < 0)
        return 0;
    if (S_ISDIR(st.st_mode)) {
        if (asprintf(&folder, "%s%s", path, text_ends(path, "/") ? "" : "/") < 0)
            return wfs_fail_memory(err);
        return load_folder(folder, context, out, err);
    }
    if (text_ends(name, ".distcp"))
        return wfs_fail(err, EISDIR,
                        "is one file of a PyTorch distributed checkpoint: name its directory");
    if (strcmp(name, metadata_name) != 0 && !is_rank_name(name))
        return 0;
    folder = slash == NULL ? strdup("./") : strndup(path, (size_t)(slash + 1 - path));
    return folder == NULL ? wfs_fail_memory(err) : load_folder(folder, context, out, err);
}
/* ---- reading back ---- */

struct comparing {
    const struct directory *directory;
    const struct directory_files *files;
    const struct wfs_save_options *options;
    const struct wfs_catalog *found;
    const struct text_index *keys; /* of the tensors that were found */
    struct wfs_error *err;
};

static int fail_lost(const struct comparing *c, const char *what, const char *key)
{
    return wfs_fail(c->err, EIO, "internal error: the output has lost the %s '%s'", what,
                    wfs_quote(key).text);
}

static const struct wfs_layout *layout_of(const struct comparing *c, const char *name)
{
    for (size_t i = 0; i < c->directory->n_layouts; i++)
        if (strcmp(c->files->names[i], name) == 0)
            return c->directory->layouts[i];
    return NULL;
}

/* Finds where the elements of a tensor of one part lie, if they are dense. */
static const struct wfs_layout *find_place(const struct comparing *c,
                                           const struct wfs_tensor *tensor, struct wfs_tensor *ret)
{
    const struct source *assembly = c->found->own->assembled;
    int code;
    *ret = *tensor;
    if (tensor->stored.source != assembly)
        return NULL;
    const struct dcp_tables *tables = dcp_assembly_tables(assembly);
    const uint32_t n =
        (uint32_t)search_starts(tables->tensors, tables->n_tensors, sizeof(*tables->tensors),
                                offsetof(struct dcp_tensor, start), tensor->stored.offset);
    if (n == 0 || tables->tensors[n - 1].start != tensor->stored.offset ||
        tables->tensors[n - 1].n_parts != 1 || dcp_assembly_open(assembly, n - 1, &code) != NULL)
        return NULL;
    const struct dcp_part *part = &tables->tensors[n - 1].parts[0];
    const struct dcp_file *file = &tables->files[tables->items[part->item].file];
    if (part->data == 0 || part->is_odd)
        return NULL;
    ret->stored.source = file->source;
    ret->stored.offset = part->data - 1;
    return layout_of(c, file->name);
}

static int compare_tensor(struct comparing *c, const char *key, size_t n_key,
                          const struct wfs_tensor *wanted)
{
    struct wfs_tensor placed;
    const uint32_t i = text_index_find(c->keys, key, n_key);
    const struct wfs_tensor *found = i == TEXT_INDEX_NONE ? NULL : &c->found->tensors[i];
    if (found == NULL || found->trouble != NULL || found->dtype != wanted->dtype ||
        found->n_bytes != wanted->n_bytes || !wfs_shape_is_equal(&found->shape, &wanted->shape))
        return fail_lost(c, "tensor", key);
    const struct wfs_layout *layout = find_place(c, found, &placed);
    return readback_compare_bytes(layout, c->options, wanted, &placed, c->err);
}

/* Those that are items, then those in values. */
static int compare_tensors(struct comparing *c)
{
    const struct dcp_leaves *leaves = dcp_plan_leaves(c->directory);
    const struct wfs_catalog *wanted = c->directory->catalog;
    size_t n = 0;
    int code = 0;
    for (size_t i = 0; i < leaves->n && code == 0; i++) {
        const struct dcp_leaf *leaf = &leaves->leaves[i];
        if (leaf->tensor != NULL) {
            code = compare_tensor(c, leaf->key, leaf->n_key, leaf->tensor);
            n++;
        }
    }
    for (size_t i = 0; i < wanted->n_tensors && code == 0; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(wanted, i);
        const char *key = tensor->key;
        const uint32_t leaf = text_index_find(&leaves->names, key, strlen(key));
        if (leaf != TEXT_INDEX_NONE && leaves->leaves[leaf].tensor != NULL)
            continue;
        code = compare_tensor(c, key, strlen(key), tensor);
        n++;
    }
    if (code == 0 && n != c->found->n_tensors)
        return wfs_fail(c->err, EIO, "internal error: the output has %s, expected %zu",
                        wfs_count(c->found->n_tensors, "tensor").text, n);
    return code;
}

static int compare_value(const struct comparing *c, const struct text_index *names, const char *key,
                         uint32_t id)
{
    autofree char *a = NULL, *b = NULL;
    size_t n_a = 0, n_b = 0;
    struct wfs_error unwanted = {0};
    int code = catalog_value_text(c->directory->catalog, id, &a, &n_a);
    if (code == 0)
        code = catalog_config_by(c->found, names, key, &b, &n_b, &unwanted);
    if (code == -ENOMEM)
        return wfs_fail_memory(c->err);
    return code < 0 || n_a != n_b || memcmp(a, b, n_a) != 0 ? fail_lost(c, "value", key) : 0;
}

/* Compares those that were edited, which are in the graph of the catalog; all others are the loaded
 * objects themselves. */
static int compare_values(const struct comparing *c)
{
    const struct dcp_leaves *leaves = dcp_plan_leaves(c->directory);
    const struct wfs_catalog *wanted = c->directory->catalog;
    cleanup(text_index_done) struct text_index names = {0};
    int code = catalog_index_values(c->found, &names) < 0 ? wfs_fail_memory(c->err) : 0;
    for (size_t i = 0; i < leaves->n && code == 0; i++) {
        const struct dcp_leaf *leaf = &leaves->leaves[i];
        if (leaf->is_edited && leaf->tensor == NULL)
            code = compare_value(c, &names, leaf->key, leaf->id);
    }
    for (size_t i = 0; i < wanted->values.n && code == 0; i++) {
        const struct catalog_value *value = &wanted->values.list[i];
        if (value->is_edited && value->place != 0 &&
            dcp_companion_has(wanted, 0, wanted->values.places[value->place].id))
            code = compare_value(c, &names, value->name, value->id);
    }
    return code;
}

/* Compares what loading the output gives with what was planned: keys, dtypes, shapes, bytes and
 * edited values. -EIO, -ENOMEM, or what the progress of the options says. */
static int compare(const struct directory *directory, const struct directory_files *files,
                   const struct wfs_save_options *options, const struct wfs_catalog *found,
                   struct wfs_error *err)
{
    cleanup(text_index_done) struct text_index keys = {0};
    struct comparing c = {.directory = directory,
                          .files = files,
                          .options = options,
                          .found = found,
                          .keys = &keys,
                          .err = err};
    uint32_t number;
    int code = text_index_reserve(&keys, found->n_tensors);
    for (size_t i = 0; i < found->n_tensors && code == 0; i++)
        code = text_index_add(&keys, found->tensors[i].key, strlen(found->tensors[i].key), &number);
    if (code < 0)
        return wfs_fail_memory(err);
    /* Loading leaves out a value that cannot be read, and puts keys to the top whose path it cannot
     * follow. */
    for (size_t i = 0; i < found->findings.n; i++)
        if ((found->findings.list[i].flags & WFS_FINDING_LOSS) != 0)
            return wfs_fail(err, EIO, "internal error: the output is damaged: %s",
                            found->findings.list[i].text);
    code = compare_tensors(&c);
    return code < 0 ? code : compare_values(&c);
}

/* ---- the format ---- */

/* By what is in a file nothing is recognised: its parts are files of other formats. */
static bool probe(const uint8_t *head, size_t n_head, uint64_t n_bytes)
{
    (void)head;
    (void)n_head;
    (void)n_bytes;
    return false;
}

static const char *const extensions[] = {NULL};

/* Reads back what was written: every file has its temporary name still. */
static int read_back(const struct directory *directory, const struct directory_files *files,
                     const struct wfs_save_options *options, struct wfs_catalog **out,
                     struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *found = NULL;
    char temporary[WFS_OUTPUT_NAME_MAX];
    const char *const names[] = {temporary};
    struct load_context context = {0};
    limits_max(&context.limits, &directory->catalog->values.listing);
    wfs_output_temporary(metadata_name, temporary);
    const struct dcp_reading begun = {.context = &context,
                                      .folder = files->folder,
                                      .directory = files->fd,
                                      .is_new = true,
                                      .err = err};
    int code = load_described(&begun, names, 1, NULL, &found);
    if (code == 0)
        code = compare(directory, files, options, found, err);
    if (code == 0)
        *out = steal(&found);
    return code;
}

static const struct directory_functions directory_functions = {
    .beside = beside,
    .plan = dcp_plan_make,
    .done = dcp_plan_done,
    .name = dcp_plan_name,
    .is_name = dcp_plan_is_name,
    .describe = dcp_plan_describe,
    .list = dcp_metadata_list,
    .read_back = read_back,
};

static const struct format_functions functions = {.probe = probe,
                                                  .stores = dcp_plan_stores,
                                                  .check = torch_record_check,
                                                  .purge = torch_purge,
                                                  .directory = &directory_functions};

const struct wfs_format format_dcp = {
    .name = "dcp",
    .title = "PyTorch DCP",
    .extensions = extensions,
    .set_name = metadata_name,
    .convention = WFS_CONVENTION_TORCH,
    .values = WFS_VALUES_ANY,
    .directory = "a distributed checkpoint of one rank",
    .is_directory = true,
    .limits = dcp_limits,
    .functions = &functions,
};
