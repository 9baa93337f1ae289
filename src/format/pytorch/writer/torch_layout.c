/* SPDX-License-Identifier: MIT */
/*
 * From a plan to a layout: writing the pickle decides the records and their order, then all of it
 * is laid out as a zip. The pickle of an item with a tensor is always the same call, so that it is
 * written without a graph; bytes of pickles of items are copied into the layout at their size:
 * there may be very many items.
 */
#include "format/pytorch/writer/torch_plan.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/core/zip_layout.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_storage.h"
#include "pickle/pickle_output.h"

/* Returns the class of a persistent value that also has its source text, in old files; 0: it is
 * another value. */
static uint32_t class_of(const struct graph *graph, const struct value *value)
{
    const uint32_t class = value->kind == VALUE_PERSISTENT &&
                                   value_is_text(graph, torch_arg(graph, value->id, 0), "module")
                               ? torch_arg(graph, value->id, 1)
                               : 0;
    return class != 0 && graph_at(graph, class)->kind == VALUE_GLOBAL ? class : 0;
}

static bool is_storage(const void *ctx, uint32_t id)
{
    const struct torch_plan *plan = ctx;
    const struct value *value = graph_at(&plan->graph, id);
    if (value->kind == VALUE_PERSISTENT)
        return torch_is_storage(&plan->graph, id) || class_of(&plan->graph, value) != 0;
    return value->kind == VALUE_RECORD ||
           (value->kind == VALUE_CALL && torch_plan_storage(plan, id) != NULL);
}

/* Writes ('storage', class, key, location, number of elements) for a record. */
static void put_record(struct torch_plan *plan, struct pickle_writer *writer, uint32_t i)
{
    struct torch_record *record = &plan->records[i];
    char key[16];
    if (record->number == 0) {
        plan->order[plan->n_order++] = i;
        record->number = plan->n_order;
    }
    record->key = NULL;
    pickle_put(&writer->out, "(", 1);
    pickle_put_shared(writer, plan->storage);
    pickle_put_shared(writer, record->class);
    const int n = snprintf(key, sizeof(key), "%u", record->number - 1);
    pickle_put_text(&writer->out, key, (size_t)n);
    pickle_put_shared(writer, record->location);
    pickle_put_integer(&writer->out, (int64_t)record->n_units);
    pickle_put(&writer->out, "tQ", 2);
}

static int put_storage(struct pickle_writer *writer, uint32_t id)
{
    struct torch_plan *plan = writer->ctx;
    const struct value *value = graph_at(&plan->graph, id);
    const uint32_t class = class_of(&plan->graph, value);
    uint32_t number = value->id;
    if (class != 0) {
        pickle_put_shared(writer, class);
        return 0;
    }
    if (value->kind != VALUE_RECORD) {
        const struct catalog_storage *storage = torch_plan_storage(plan, id);
        if (storage == NULL)
            return wfs_fail(plan->err, EIO, "a storage that no listed tensor uses cannot be read");
        const struct torch_record *record = torch_record_of(plan, storage);
        if (record == NULL)
            return -ENOMEM;
        number = (uint32_t)(record - plan->records);
    }
    put_record(plan, writer, number);
    return 0;
}

/* Makes a tensor of a range of a source. */
static const struct wfs_tensor *tensor_of(struct torch_plan *plan, const struct source *source,
                                          uint64_t offset, uint64_t n_bytes)
{
    const struct wfs_stored stored = {
        .source = (struct source *)(uintptr_t)source, .offset = offset, .dtype = WFS_U8};
    return torch_record_range(plan, "a value", &stored, n_bytes);
}

/* Reports what code means for a layout, unless the reason was reported: out of memory, or too
 * large. */
static int finish_layout(struct torch_plan *plan, int code)
{
    if (code == 0)
        return 0;
    if (code == -ENOMEM)
        return wfs_fail_memory(plan->err);
    return wfs_fail(plan->err, -code, "the file would have more than 2^63 bytes");
}

/* Names a record of the zip: FOLDER/INNER NAME. */
static int name_record(struct torch_plan *plan, struct zip_record *record, const char *inner,
                       const char *name, size_t n_name)
{
    const size_t n_folder = strlen(plan->folder), n_inner = strlen(inner);
    char *at = arena_chars(&plan->layout->arena, n_folder + 1 + n_inner + n_name + 1);
    if (at == NULL)
        return -ENOMEM;
    record->name = at;
    record->n_name = (uint32_t)(n_folder + 1 + n_inner + n_name);
    at = mempcpy(at, plan->folder, n_folder);
    *at++ = '/';
    memcpy(mempcpy(at, inner, n_inner), name, n_name);
    return 0;
}

/* Computes the CRC of all pieces now: a pickle is small, and ranges in it are rare. */
static int crc_of(struct torch_plan *plan, const struct pickle_output *output, uint32_t *ret,
                  uint64_t *ret_n)
{
    *ret = 0;
    *ret_n = 0;
    autofree char *chunk = malloc(1 << 16);
    if (chunk == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < output->n_pieces; i++) {
        const struct pickle_piece *piece = &output->pieces[i];
        *ret_n += piece->n_bytes;
        if (piece->bytes != NULL) {
            *ret = zip_crc(*ret, piece->bytes, (size_t)piece->n_bytes);
            continue;
        }
        for (uint64_t at = 0; at < piece->n_bytes;) {
            const uint64_t n_left = piece->n_bytes - at;
            const size_t n = n_left < 1 << 16 ? (size_t)n_left : 1 << 16;
            const int code = source_read(piece->source, piece->offset + at, chunk, n);
            if (code < 0)
                return wfs_fail(plan->err, -code, "cannot read %s of a value in %s",
                                wfs_count(n, "byte").text, wfs_quote(piece->source->path).text);
            *ret = zip_crc(*ret, chunk, n);
            at += n;
        }
    }
    return 0;
}

/* Adds the record data.pkl. */
static int add_pickle(struct torch_plan *plan, struct zip_writer *zip,
                      const struct pickle_output *output)
{
    struct zip_record record = {0};
    uint64_t at;
    int code = crc_of(plan, output, &record.crc, &record.n_bytes);
    if (code == 0)
        code = name_record(plan, &record, "", "data.pkl", 8);
    if (code == 0)
        code = zip_begin(zip, &record, &at);
    for (size_t i = 0; code == 0 && i < output->n_pieces; i++) {
        const struct pickle_piece *piece = &output->pieces[i];
        if (piece->bytes != NULL) {
            code = layout_add_bytes(plan->layout, at, piece->bytes, piece->n_bytes);
        } else {
            const struct wfs_tensor *tensor =
                tensor_of(plan, piece->source, piece->offset, piece->n_bytes);
            code = tensor == NULL ? -ENOMEM : layout_add_tensor(plan->layout, at, tensor);
        }
        at += piece->n_bytes;
    }
    return code;
}

static int add_text(struct torch_plan *plan, struct zip_writer *zip, const char *name,
                    const char *text)
{
    const size_t n = strlen(text);
    struct zip_record record = {.crc = zip_crc(0, text, n), .n_bytes = n};
    uint64_t at;
    int code = name_record(plan, &record, "", name, strlen(name));
    if (code == 0)
        code = zip_begin(zip, &record, &at);
    return code < 0 ? code : layout_add_bytes(plan->layout, at, text, n);
}

/* Adds a record with the bytes of a tensor. A checksum that is unknown is computed when the header
 * is written. */
static int add_tensor(struct torch_plan *plan, struct zip_writer *zip, struct zip_record *record,
                      const struct wfs_tensor *tensor, bool has_crc)
{
    uint64_t at;
    record->n_bytes = tensor->n_bytes;
    if (!has_crc && record->n_bytes > 0) {
        record->lazy = arena_calloc(&plan->layout->arena, 1, sizeof(*record->lazy));
        if (record->lazy == NULL)
            return -ENOMEM;
        record->lazy->tensor = tensor;
    }
    const int code = zip_begin(zip, record, &at);
    return code < 0 ? code : layout_add_tensor(plan->layout, at, tensor);
}

/* Adds data/KEY with the bytes of a storage. */
static int add_data(struct torch_plan *plan, struct zip_writer *zip,
                    const struct torch_record *storage)
{
    struct zip_record record = {.crc = storage->crc};
    char number[16];
    const int n = snprintf(number, sizeof(number), "%u", storage->number - 1);
    const int code = storage->key != NULL
                         ? name_record(plan, &record, "data/", storage->key, storage->n_key)
                         : name_record(plan, &record, "data/", number, (size_t)n);
    return code < 0 ? code : add_tensor(plan, zip, &record, storage->content, storage->has_crc);
}

/* Adds a pickle and the records that it names. */
static int add_all(struct torch_plan *plan, struct zip_writer *zip,
                   const struct pickle_output *output)
{
    int code = output == NULL ? 0 : add_pickle(plan, zip, output);
    if (code == 0)
        code = add_text(plan, zip, "byteorder", "little");
    for (uint32_t i = 0; code == 0 && i < plan->n_order; i++)
        code = add_data(plan, zip, &plan->records[plan->order[i]]);
    if (code == 0)
        code = add_text(plan, zip, "version", "3\n");
    return code < 0 ? code : zip_finish(zip);
}

/* Copies the pickle of the source: its storages keep their keys. */
static int add_same_pickle(struct torch_plan *plan, struct zip_writer *zip)
{
    const struct wfs_catalog *catalog = plan->catalog;
    const struct value_bytes *pickle = &catalog->values.pickle;
    const struct wfs_tensor *tensor =
        tensor_of(plan, pickle->source, pickle->offset, pickle->n_bytes);
    for (uint32_t i = 0; i < catalog->own->n_storages; i++) {
        struct torch_record *storage = torch_record_of(plan, &catalog->own->storages[i]);
        if (storage == NULL)
            return -ENOMEM;
        if (storage->number != 0)
            continue;
        plan->order[plan->n_order++] = (uint32_t)(storage - plan->records);
        storage->number = plan->n_order;
    }
    struct zip_record record = {.crc = catalog->values.pickle_crc};
    int code = tensor == NULL ? -ENOMEM : name_record(plan, &record, "", "data.pkl", 8);
    if (code == 0)
        code = add_tensor(plan, zip, &record, tensor, record.crc != 0);
    return code < 0 ? code : add_all(plan, zip, NULL);
}

static void set_writer(struct torch_plan *plan, struct arena *arena, struct pickle_writer *writer)
{
    writer->out = (struct pickle_output){.arena = arena, .err = plan->err};
    writer->graph = &plan->graph;
    writer->is_special = is_storage;
    writer->put_special = put_storage;
    writer->ctx = plan;
}

/* Makes room for the order of records, and forgets the numbers that they had in a pickle before. */
static int reset_order(struct torch_plan *plan)
{
    const size_t n_room = (size_t)plan->n_records + plan->catalog->own->n_storages + 1;
    if (plan->order == NULL)
        plan->order = calloc(n_room, sizeof(*plan->order));
    if (plan->order == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < plan->n_order; i++)
        plan->records[plan->order[i]].number = 0;
    plan->n_order = 0;
    return 0;
}

int torch_layout_make(struct torch_plan *plan)
{
    cleanup(zip_writer_done) struct zip_writer zip = {.layout = plan->layout};
    const bool is_same = plan->catalog->values.pickle.source != NULL &&
                         plan->catalog->values.is_object && !plan->is_changed &&
                         plan->root == plan->catalog->values.root;
    cleanup(pickle_writer_done) struct pickle_writer writer = {0};
    int code = reset_order(plan);
    if (code == 0 && is_same)
        return finish_layout(plan, add_same_pickle(plan, &zip));
    set_writer(plan, &plan->layout->arena, &writer);
    if (code == 0)
        code = pickle_write(&writer, plan->root, plan->first, plan->n_first);
    if (code == 0)
        code = add_all(plan, &zip, &writer.out);
    return finish_layout(plan, code);
}

/* ---- items ---- */

enum { ALIGNMENT = 64 };

/* Begins a zip behind what the layout has. */
static int begin_item(struct torch_plan *plan, struct zip_writer *zip)
{
    *zip = (struct zip_writer){.layout = plan->layout};
    if (!checked_round_up(plan->layout->n_bytes, ALIGNMENT, &zip->start))
        return -EFBIG;
    zip->offset = zip->start;
    return 0;
}

/* Adds the zip of an item. The bytes of its pickle move out of the arena that they were written to.
 */
static int add_item(struct torch_plan *plan, struct zip_writer *zip, struct pickle_output *output,
                    struct torch_item *ret)
{
    for (size_t i = 0; i < output->n_pieces; i++) {
        struct pickle_piece *piece = &output->pieces[i];
        if (piece->bytes == NULL)
            continue;
        char *copy = arena_chars(&plan->layout->arena, (size_t)piece->n_bytes);
        if (copy == NULL)
            return -ENOMEM;
        piece->bytes = memcpy(copy, piece->bytes, (size_t)piece->n_bytes);
    }
    const int code = add_all(plan, zip, output);
    *ret = (struct torch_item){zip->start, plan->layout->n_bytes - zip->start};
    return code;
}

static void put(struct pickle_output *out, const char *codes)
{
    pickle_put(out, codes, strlen(codes));
}

static void put_string(struct pickle_output *out, const char *text)
{
    pickle_put_text(out, text, strlen(text));
}

/* Writes the persistent id ('storage', class, '0', 'cpu', number of elements). */
static void put_only_storage(struct pickle_output *out, const struct wfs_tensor *tensor,
                             const char *class)
{
    const uint64_t n_unit = class == NULL ? 1 : wfs_dtype_bits((enum wfs_dtype)tensor->dtype) / 8;
    put(out, "(");
    put_string(out, "storage");
    put(out, class == NULL ? "ctorch.storage\n" : "ctorch\n");
    put(out, class == NULL ? "UntypedStorage" : class);
    put(out, "\n");
    put_string(out, "0");
    put_string(out, "cpu");
    pickle_put_integer(out, (int64_t)(tensor->n_bytes / n_unit));
    put(out, "tQ");
}

static void put_numbers(struct pickle_output *out, const uint64_t *numbers, uint32_t n)
{
    put(out, "(");
    for (uint32_t i = 0; i < n; i++)
        pickle_put_integer(out, (int64_t)numbers[i]);
    put(out, "t");
}

/* Writes the call that makes the tensor: dense, without gradient and hooks. */
static int put_tensor(struct pickle_output *out, const struct wfs_tensor *tensor)
{
    const struct torch_spelling *spelling = torch_spelling_of((enum wfs_dtype)tensor->dtype);
    const bool is_late = spelling->class == NULL;
    const uint32_t rank = tensor->shape.rank;
    autofree uint64_t *numbers = calloc(2 * (size_t)rank + 1, sizeof(*numbers));
    if (numbers == NULL)
        return -ENOMEM;
    torch_spelling_shape(tensor, numbers, numbers + rank);
    put(out, "\x80\2ctorch._utils\n");
    put(out, is_late ? "_rebuild_tensor_v3\n(" : "_rebuild_tensor_v2\n(");
    put_only_storage(out, tensor, spelling->class);
    pickle_put_integer(out, 0);
    put_numbers(out, numbers, rank);
    put_numbers(out, numbers + rank, rank);
    put(out, "\x89"
             "ccollections\nOrderedDict\n)R");
    if (is_late) {
        put(out, "ctorch\n");
        put(out, spelling->dtype);
        put(out, "\n");
    }
    put(out, "tR.");
    return out->code;
}

int torch_item_tensor(struct wfs_layout *layout, const struct wfs_tensor *tensor,
                      struct torch_item *ret, struct wfs_error *err)
{
    struct torch_record record = {.content = tensor, .number = 1};
    uint32_t order = 0;
    struct torch_plan plan = {.layout = layout,
                              .err = err,
                              .folder = "archive",
                              .records = &record,
                              .order = &order,
                              .n_order = 1};
    cleanup(arena_done) struct arena arena = {0};
    cleanup(pickle_output_done) struct pickle_output out = {.arena = &arena, .err = err};
    cleanup(zip_writer_done) struct zip_writer zip;
    int code = begin_item(&plan, &zip);
    if (code == 0)
        code = put_tensor(&out, tensor);
    if (code == 0)
        code = add_item(&plan, &zip, &out, ret);
    return finish_layout(&plan, code);
}

int torch_item_value(struct torch_plan *plan, struct pickle_writer *writer, uint32_t id,
                     struct torch_item *ret)
{
    cleanup(arena_done) struct arena arena = {0};
    cleanup(zip_writer_done) struct zip_writer zip;
    set_writer(plan, &arena, writer);
    int code = begin_item(plan, &zip);
    if (code == 0)
        code = reset_order(plan);
    if (code == 0)
        code = pickle_write(writer, id, NULL, 0);
    if (code == 0)
        code = add_item(plan, &zip, &writer->out, ret);
    pickle_writer_clear(writer);
    return finish_layout(plan, code);
}
