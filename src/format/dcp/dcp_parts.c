/* SPDX-License-Identifier: MIT */
/*
 * Every file is loaded as the safetensors file that it is, then the tensors with one key become the
 * parts of one tensor. Its shape is where the last parts end: that one is missing can only be seen
 * where the others do not fill a box.
 */
#include "format/dcp/dcp_parts.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/dcp/dcp_assembly.h"
#include "format/dcp/dcp_item.h"
#include "format/dcp/dcp_reading.h"
#include "format/safetensors/safetensors.h"
#include "catalog/catalog.h"

/* A tensor of a file, which is a part of one. */
struct piece {
    const struct wfs_tensor *tensor; /* of the catalog of its file */
    uint32_t key, file;
    uint32_t box; /* in the numbers */
    bool is_bad;  /* its offsets do not fit it */
};

struct joining {
    const char *folder;
    const struct load_context *context;
    struct wfs_catalog *catalog;
    struct wfs_error *err;
    struct dcp_tables tables;
    struct text_index keys;
    struct piece *pieces; /* malloc'ed */
    size_t n_pieces, n_piece_room;
    size_t n_numbers, n_number_room;
};

static void joining_done(struct joining *j)
{
    const int saved = errno;
    dcp_tables_done(&j->tables);
    text_index_done(&j->keys);
    free(j->pieces);
    errno = saved;
}

/* Looks for the name in the header of an open file. */
static int find_info(const struct source *source)
{
    enum { N_MOST = 1 << 20 };
    static const char name[] = "\"DCP_SHARDING_INFO\"";
    uint8_t length[8];
    if (source->n_bytes <= sizeof(length) || source_read(source, 0, length, sizeof(length)) < 0)
        return 0;
    const uint64_t n_rest = source->n_bytes - sizeof(length), n_header = load_le64(length);
    uint64_t n = n_header < n_rest ? n_header : n_rest;
    n = n > N_MOST ? N_MOST : n;
    autofree char *text = malloc((size_t)n + 1);
    if (text == NULL)
        return -ENOMEM;
    return source_read(source, sizeof(length), text, (size_t)n) == 0 &&
           memmem(text, (size_t)n, name, sizeof(name) - 1) != NULL;
}

int dcp_parts_probe(const char *path)
{
    struct source *source;
    int code = source_open(path, &source, NULL);
    if (code < 0)
        return code == -ENOMEM ? code : 0;
    code = find_info(source);
    source_free(source);
    return code;
}

/* "shard-00002-model-00001-of-00001.safetensors": the name of a part. */
static bool is_part_name(const char *name)
{
    unsigned rank, number, all;
    int n = 0;
    return sscanf(name, "shard-%5u-model-%5u-of-%5u.safetensors%n", &rank, &number, &all, &n) ==
               3 &&
           n > 0 && name[n] == '\0';
}

/* ---- pieces ---- */

/* Adds the box of a piece: where it begins, and its shape. */
static int add_box(struct joining *j, struct piece *piece, const struct dcp_sharding *sharding,
                   const struct dcp_sharding_offsets *offsets)
{
    const struct wfs_shape *shape = &piece->tensor->shape;
    const uint32_t rank = shape->rank;
    if (array_reserve(&j->tables.numbers, sizeof(*j->tables.numbers), j->n_numbers, 2 * rank,
                      &j->n_number_room) < 0)
        return wfs_fail_memory(j->err);
    int64_t *box = j->tables.numbers + j->n_numbers;
    piece->box = (uint32_t)j->n_numbers;
    piece->is_bad = offsets != NULL && (offsets->is_bad || offsets->rank != rank);
    for (uint32_t i = 0; i < rank; i++) {
        int64_t end;
        box[i] = offsets == NULL || piece->is_bad ? 0 : sharding->numbers[offsets->first + i];
        box[rank + i] = (int64_t)shape->dims[i];
        piece->is_bad = piece->is_bad || box[i] < 0 || box[rank + i] < 0 ||
                        !checked_add(box[i], box[rank + i], &end);
    }
    j->n_numbers += 2 * rank;
    return 0;
}

static int add_pieces(struct joining *j, const struct wfs_catalog *part, const char *name,
                      const struct dcp_sharding *sharding)
{
    const uint64_t n_most = limits_own(&j->context->limits, &dcp_limits[DCP_LIMIT_CHUNKS]);
    for (size_t i = 0; i < part->n_tensors; i++) {
        const struct wfs_tensor *tensor = &part->tensors[i];
        const struct dcp_sharding_offsets *offsets =
            sharding == NULL ? NULL : dcp_sharding_find(sharding, tensor->key);
        if (sharding != NULL && offsets == NULL)
            return wfs_fail(j->err, EBADMSG, "'%s': DCP_SHARDING_INFO does not have the key '%s'",
                            wfs_quote(name).text, wfs_quote(tensor->key).text);
        if (j->n_pieces >= n_most)
            return wfs_fail(j->err, E2BIG, "more than %s of tensors (limit chunks)",
                            wfs_count(n_most, "part").text);
        if (array_reserve(&j->pieces, sizeof(*j->pieces), j->n_pieces, 1, &j->n_piece_room) < 0)
            return wfs_fail_memory(j->err);
        struct piece *piece = &j->pieces[j->n_pieces];
        *piece = (struct piece){.tensor = tensor, .file = j->tables.n_files - 1};
        if (text_index_add(&j->keys, tensor->key, strlen(tensor->key), &piece->key) < 0)
            return wfs_fail_memory(j->err);
        const int code = add_box(j, piece, sharding, offsets);
        if (code < 0)
            return code;
        j->n_pieces++;
    }
    return 0;
}

static int load_file(struct joining *j, const char *name, struct wfs_catalog **out)
{
    struct source *source;
    struct wfs_error err = {0};
    autofree char *path = NULL;
    if (asprintf(&path, "%s%s", j->folder, name) < 0)
        return wfs_fail_memory(j->err);
    int code = source_open(path, &source, &err);
    if (code == 0)
        code = format_load(&format_safetensors, source, j->context, out, &err);
    if (code == -ENOMEM)
        return wfs_fail_memory(j->err);
    return code == 0 ? 0 : wfs_fail(j->err, -code, "'%s': %s", wfs_quote(name).text, err.text);
}

/* Loads a file, which becomes a part of the catalog, and adds what it has. */
static int add_file(struct joining *j, const char *name)
{
    cleanup(dcp_sharding_done) struct dcp_sharding sharding = {0};
    struct wfs_catalog *part;
    struct wfs_error err = {0};
    int code = load_file(j, name, &part);
    if (code < 0)
        return code;
    struct dcp_file *file = &j->tables.files[j->tables.n_files++];
    *file = (struct dcp_file){.source = part->sources.list[0],
                              .name = arena_copy(&j->tables.arena, name, strlen(name))};
    const int has_info = dcp_sharding_read(&sharding, part, &err);
    if (has_info == -ENOMEM)
        code = wfs_fail_memory(j->err);
    else if (has_info < 0)
        code = wfs_fail(j->err, -has_info, "'%s': %s", wfs_quote(name).text, err.text);
    else if (has_info == 0 && is_part_name(name))
        code = wfs_fail(j->err, EBADMSG,
                        "'%s' has the name of a part of tensors, but no DCP_SHARDING_INFO",
                        wfs_quote(name).text);
    else
        code = add_pieces(j, part, name, has_info ? &sharding : NULL);
    if (catalog_adopt_part(j->catalog, part) < 0 || file->name == NULL)
        return wfs_fail_memory(j->err);
    return code;
}

/* ---- tensors ---- */

/* Sets what all pieces have in common by the first one, and the shape by all of them. */
static int join_piece(struct joining *j, struct dcp_tensor *tensor, const struct piece *piece)
{
    const struct wfs_tensor *from = piece->tensor;
    const int64_t *box = j->tables.numbers + piece->box;
    const unsigned bits = wfs_dtype_bits((enum wfs_dtype)from->dtype);
    if (tensor->n_parts++ == 0) {
        tensor->key = from->key;
        tensor->rank = from->shape.rank;
        tensor->dtype = from->dtype;
        tensor->n_bytes = from->n_bytes;
        tensor->n_elem = bits < 8 ? 1 : bits / 8;
        tensor->dims = arena_calloc(&j->tables.arena, (size_t)tensor->rank + 1, sizeof(uint64_t));
        if (tensor->dims == NULL)
            return wfs_fail_memory(j->err);
    }
    if (from->trouble != NULL)
        dcp_tensor_spoil(tensor, from->trouble);
    if (from->dtype != tensor->dtype)
        dcp_tensor_spoil(tensor, "its parts have different dtypes");
    if (from->shape.rank != tensor->rank || piece->is_bad)
        dcp_tensor_spoil(tensor, "the offsets of one of its parts do not fit the part");
    for (uint32_t i = 0; i < tensor->rank && tensor->trouble == NULL; i++) {
        const uint64_t end = (uint64_t)(box[i] + box[tensor->rank + i]);
        tensor->dims[i] = end > tensor->dims[i] ? end : tensor->dims[i];
    }
    return 0;
}

static void add_part(struct joining *j, const struct piece *piece)
{
    struct dcp_tables *tables = &j->tables;
    struct dcp_tensor *tensor = &tables->tensors[piece->key];
    const int64_t *box = tables->numbers + piece->box;
    const uint32_t rank = piece->tensor->shape.rank;
    if (tensor->trouble != NULL || dcp_box_is_empty(box + rank, rank))
        return;
    struct dcp_part *part = &tensor->parts[tensor->n_parts++];
    part->box = box;
    part->item = tables->n_items++;
    part->data = piece->tensor->stored.offset + 1;
    tables->items[part->item] = (struct dcp_item){.file = piece->file,
                                                  .is_used = true,
                                                  .offset = piece->tensor->stored.offset,
                                                  .n_bytes = piece->tensor->n_bytes};
}

static int join(struct joining *j)
{
    struct dcp_tables *t = &j->tables;
    int code = 0;
    t->n_tensors = (uint32_t)j->keys.n_texts;
    t->n_parts = (uint32_t)j->n_pieces;
    t->tensors = calloc((size_t)t->n_tensors + 1, sizeof(*t->tensors));
    t->parts = calloc(j->n_pieces + 1, sizeof(*t->parts));
    t->items = calloc(j->n_pieces + 1, sizeof(*t->items));
    if (t->tensors == NULL || t->parts == NULL || t->items == NULL)
        return wfs_fail_memory(j->err);
    for (size_t i = 0; i < j->n_pieces && code == 0; i++)
        code = join_piece(j, &t->tensors[j->pieces[i].key], &j->pieces[i]);
    if (code < 0)
        return code;
    for (uint32_t i = 0; i < t->n_tensors; i++) {
        struct dcp_tensor *tensor = &t->tensors[i];
        if (wfs_dtype_bits((enum wfs_dtype)tensor->dtype) >= 8)
            dcp_tensor_spoil(tensor, dcp_tensor_measure(tensor));
        else if (tensor->n_parts > 1)
            dcp_tensor_spoil(tensor, "parts of tensors with packed elements are not supported");
    }
    dcp_tables_divide(t);
    for (size_t i = 0; i < j->n_pieces; i++)
        add_part(j, &j->pieces[i]);
    return dcp_tables_check(t) < 0 ? wfs_fail_memory(j->err) : 0;
}

/* ---- the catalog ---- */

/* A tensor of one part is shown as the file has it. */
static int list_tensor(struct joining *j, const struct dcp_tables *tables, uint32_t number)
{
    const struct dcp_tensor *tensor = &tables->tensors[number];
    struct wfs_tensor *added = catalog_add(j->catalog);
    if (added == NULL)
        return wfs_fail_memory(j->err);
    *added = (struct wfs_tensor){.key = tensor->key,
                                 .shape = {tensor->rank, tensor->dims},
                                 .n_bytes = tensor->n_bytes,
                                 .dtype = tensor->dtype,
                                 .trouble = tensor->trouble};
    added->stored.dtype = tensor->dtype;
    if (tensor->trouble != NULL || tensor->n_bytes == 0)
        return 0;
    added->stored.source = j->catalog->own->assembled;
    added->stored.offset = tensor->start;
    if (tensor->n_parts == 1) {
        const struct dcp_item *item = &tables->items[tensor->parts[0].item];
        added->stored.source = tables->files[item->file].source;
        added->stored.offset = item->offset;
    }
    return 0;
}

static int fill(struct joining *j, const char *const *names, size_t n_names)
{
    j->tables.limits = j->context->limits;
    j->tables.arena.limit = j->context->limits.index_memory;
    j->tables.files = calloc(n_names + 1, sizeof(*j->tables.files));
    if (j->tables.files == NULL)
        return wfs_fail_memory(j->err);
    int code = 0;
    for (size_t i = 0; i < n_names && code == 0; i++)
        code = add_file(j, names[i]);
    if (code == 0)
        code = join(j);
    if (code < 0)
        return code;
    code = dcp_assembly_new(j->folder, &j->tables, &j->catalog->own->assembled);
    if (code < 0)
        return code == -ENOMEM
                   ? wfs_fail_memory(j->err)
                   : wfs_fail(j->err, EBADMSG, "its tensors have 2^63 bytes or more together");
    const struct dcp_tables *tables = dcp_assembly_tables(j->catalog->own->assembled);
    for (uint32_t i = 0; i < tables->n_tensors && code == 0; i++)
        code = list_tensor(j, tables, i);
    return code == 0 && dcp_values_tell(j->catalog) < 0 ? wfs_fail_memory(j->err) : code;
}

int dcp_parts_load(const char *folder, const char *const *names, size_t n_names,
                   const struct load_context *context, struct wfs_catalog **out,
                   struct wfs_error *err)
{
    static const struct wfs_container container = {
        .name = "distributed checkpoint in safetensors files"};
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (n_names > context->limits.files)
        return wfs_fail(err, E2BIG, "it is in %s, the limit is %" PRIu64 " (limit files)",
                        wfs_count(n_names, "file").text, context->limits.files);
    if (catalog_new(&catalog) < 0)
        return wfs_fail_memory(err);
    catalog->arena.limit = context->limits.index_memory;
    catalog->format = &format_safetensors;
    catalog->container = &container;
    cleanup(joining_done) struct joining j = {
        .folder = folder, .context = context, .catalog = catalog, .err = err};
    const int code = fill(&j, names, n_names);
    if (code < 0)
        return code;
    *out = steal(&catalog);
    return 0;
}

int dcp_parts_tell(struct wfs_catalog *catalog, const char *path)
{
    cleanup(dcp_sharding_done) struct dcp_sharding sharding = {0};
    const char *slash = strrchr(path, '/');
    if (catalog->format != &format_safetensors)
        return 0;
    const int code = dcp_sharding_read(&sharding, catalog, NULL);
    if (code == -ENOMEM || code == 0)
        return code;
    bool is_part = is_part_name(slash == NULL ? path : slash + 1);
    for (size_t i = 0; i < sharding.n_numbers; i++)
        is_part = is_part || sharding.numbers[i] != 0;
    return is_part ? catalog_add_finding(catalog, WFS_MEDIUM,
                                         "its tensors are parts of larger ones "
                                         "(DCP_SHARDING_INFO): open the directory for whole ones")
                   : 0;
}
