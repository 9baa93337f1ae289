/* SPDX-License-Identifier: MIT */
/*
 * The pickle of a tensor is always the same call, so that it is written without a graph. Bytes of
 * pickles are copied into the layout at their size: there may be very many items.
 */
#include "format/pytorch/writer/torch_item.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/core/zip_layout.h"
#include "format/pytorch/writer/torch_layout.h"
#include "format/pytorch/writer/torch_spelling.h"

enum { ALIGNMENT = 64 };

/* Begins a zip behind what the layout has. */
static int begin(struct torch_plan *plan, struct zip_writer *zip)
{
    *zip = (struct zip_writer){.layout = plan->layout};
    if (!checked_round_up(plan->layout->n_bytes, ALIGNMENT, &zip->start))
        return torch_layout_fail(plan, -EFBIG);
    zip->offset = zip->start;
    return 0;
}

static int finish(struct torch_plan *plan, struct zip_writer *zip, struct torch_item *ret)
{
    int code = torch_layout_add_text(plan, zip, "version", "3\n");
    if (code < 0)
        return code;
    code = zip_finish(zip);
    *ret = (struct torch_item){zip->start, plan->layout->n_bytes - zip->start};
    return code < 0 ? torch_layout_fail(plan, code) : 0;
}

/* Moves the bytes of a pickle out of the arena that it was written to. */
static int move_pieces(struct torch_plan *plan, struct pickle_output *output)
{
    for (size_t i = 0; i < output->n_pieces; i++) {
        struct pickle_piece *piece = &output->pieces[i];
        if (piece->bytes == NULL)
            continue;
        char *copy = arena_chars(&plan->layout->arena, (size_t)piece->n_bytes);
        if (copy == NULL)
            return wfs_fail_memory(plan->err);
        piece->bytes = memcpy(copy, piece->bytes, (size_t)piece->n_bytes);
    }
    return 0;
}

/* ---- tensors ---- */

static void put_global(struct pickle_output *out, const char *module, const char *name)
{
    pickle_put_code(out, 'c');
    pickle_put(out, module, strlen(module));
    pickle_put_code(out, '\n');
    pickle_put(out, name, strlen(name));
    pickle_put_code(out, '\n');
}

static void put_string(struct pickle_output *out, const char *text)
{
    pickle_put_text(out, text, strlen(text));
}

/* Writes the persistent id ('storage', class, '0', 'cpu', number of elements). */
static void put_storage(struct pickle_output *out, const struct wfs_tensor *tensor,
                        const struct torch_spelling *spelling)
{
    const uint64_t n_unit =
        spelling->class == NULL ? 1 : wfs_dtype_bits((enum wfs_dtype)tensor->dtype) / 8;
    pickle_put_code(out, '(');
    put_string(out, "storage");
    if (spelling->class == NULL)
        put_global(out, "torch.storage", "UntypedStorage");
    else
        put_global(out, "torch", spelling->class);
    put_string(out, "0");
    put_string(out, "cpu");
    pickle_put_integer(out, (int64_t)(tensor->n_bytes / n_unit));
    pickle_put(out, "tQ", 2);
}

static void put_numbers(struct pickle_output *out, const uint64_t *numbers, uint32_t n)
{
    pickle_put_code(out, '(');
    for (uint32_t i = 0; i < n; i++)
        pickle_put_integer(out, (int64_t)numbers[i]);
    pickle_put_code(out, 't');
}

/* Writes the call that makes the tensor: dense, without gradient and hooks. */
static int put_tensor(struct pickle_output *out, const struct wfs_tensor *tensor)
{
    const struct torch_spelling *spelling = torch_spelling_of((enum wfs_dtype)tensor->dtype);
    const uint32_t rank = tensor->shape.rank;
    autofree uint64_t *numbers = calloc(2 * (size_t)rank + 1, sizeof(*numbers));
    if (numbers == NULL)
        return wfs_fail_memory(out->err);
    torch_spelling_shape(tensor, numbers, numbers + rank);
    pickle_put(out, "\x80\2", 2);
    put_global(out, "torch._utils",
               spelling->class == NULL ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    pickle_put_code(out, '(');
    put_storage(out, tensor, spelling);
    pickle_put_integer(out, 0);
    put_numbers(out, numbers, rank);
    put_numbers(out, numbers + rank, rank);
    pickle_put_code(out, 0x89);
    put_global(out, "collections", "OrderedDict");
    pickle_put(out, ")R", 2);
    if (spelling->class == NULL)
        put_global(out, "torch", spelling->dtype);
    pickle_put(out, "tR.", 3);
    return out->has_failed ? wfs_fail_memory(out->err) : 0;
}

static int add_tensor(struct torch_plan *plan, struct zip_writer *zip, struct pickle_output *out,
                      const struct wfs_tensor *tensor)
{
    const struct torch_record record = {.content = tensor, .number = 1};
    int code = put_tensor(out, tensor);
    if (code == 0)
        code = move_pieces(plan, out);
    if (code == 0)
        code = torch_layout_add_pickle(plan, zip, out);
    if (code == 0)
        code = torch_layout_add_text(plan, zip, "byteorder", "little");
    return code < 0 ? code : torch_layout_add_data(plan, zip, &record);
}

int torch_item_tensor(struct wfs_layout *layout, const struct wfs_tensor *tensor,
                      struct torch_item *ret, struct wfs_error *err)
{
    struct torch_plan plan = {.layout = layout, .err = err, .folder = "archive"};
    cleanup(arena_done) struct arena arena = {0};
    cleanup(pickle_output_done) struct pickle_output out = {.arena = &arena, .err = err};
    cleanup(zip_writer_done) struct zip_writer zip;
    int code = begin(&plan, &zip);
    if (code == 0)
        code = add_tensor(&plan, &zip, &out, tensor);
    return code < 0 ? code : finish(&plan, &zip, ret);
}

/* ---- values ---- */

/* Forgets the numbers that records had in the pickle before. */
static int reset_records(struct torch_plan *plan)
{
    const size_t n_room = (size_t)plan->n_records + plan->catalog->n_storages + 1;
    if (plan->order == NULL)
        plan->order = calloc(n_room, sizeof(*plan->order));
    if (plan->order == NULL)
        return wfs_fail_memory(plan->err);
    for (uint32_t i = 0; i < plan->n_order; i++)
        plan->records[plan->order[i]].number = 0;
    plan->n_order = 0;
    return 0;
}

static int add_value(struct torch_plan *plan, struct zip_writer *zip, struct pickle_writer *writer,
                     uint32_t id)
{
    int code = reset_records(plan);
    if (code == 0)
        code = pickle_write(writer, id, NULL, 0);
    if (code == 0)
        code = move_pieces(plan, &writer->out);
    if (code == 0)
        code = torch_layout_add_pickle(plan, zip, &writer->out);
    if (code == 0)
        code = torch_layout_add_text(plan, zip, "byteorder", "little");
    for (uint32_t i = 0; code == 0 && i < plan->n_order; i++)
        code = torch_layout_add_data(plan, zip, &plan->records[plan->order[i]]);
    return code;
}

int torch_item_value(struct torch_plan *plan, struct pickle_writer *writer, uint32_t id,
                     struct torch_item *ret)
{
    cleanup(arena_done) struct arena arena = {0};
    cleanup(zip_writer_done) struct zip_writer zip;
    writer->out = (struct pickle_output){.arena = &arena, .err = plan->err};
    writer->graph = &plan->graph;
    writer->is_special = torch_layout_is_storage;
    writer->put_special = torch_layout_put_storage;
    writer->ctx = plan;
    int code = begin(plan, &zip);
    if (code == 0)
        code = add_value(plan, &zip, writer, id);
    pickle_writer_clear(writer);
    return code < 0 ? code : finish(plan, &zip, ret);
}
