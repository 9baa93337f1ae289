/* SPDX-License-Identifier: MIT */
/*
 * An item is the zip that torch.save writes of one tensor. It is read as any file of PyTorch is,
 * into a catalog of its own, and its tensor compared with the chunk.
 */
#include "format/dcp/dcp_item.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/dcp/dcp_window.h"
#include "format/pytorch/object/torch_builder.h"
#include "format/pytorch/object/torch_cache.h"
#include "format/pytorch/torch_zip.h"

/* Reads the one tensor of a zip, and compares it with the part. */
static int read_tensor(const struct dcp_opening *o, struct torch *torch, struct wfs_error *err)
{
    cleanup(zip_close) struct zip zip = {0};
    struct torch_records records;
    struct torch_tensor tensor;
    uint32_t root;
    int code = torch_zip_read(torch, o->item->offset, o->item->n_bytes, &zip, &records, &root);
    if (code < 0)
        return dcp_opening_fail(o, code, torch->err->text, err);
    torch->find = torch_records_find_storage;
    torch->container = &records;
    code = torch_builder_read(torch, root, &tensor);
    if (code < 0)
        return dcp_opening_fail(o, code, torch->err->text, err);
    if (code == 0)
        return dcp_opening_fail(o, -EBADMSG, "what is stored is not a tensor", err);
    if (tensor.trouble != NULL)
        return dcp_opening_fail(o, -EBADMSG, tensor.trouble, err);
    if (dcp_opening_compare(o, tensor.dtype, tensor.dims, tensor.rank, err) < 0)
        return -EBADMSG;
    code = torch_tensor_add(torch, "", 0, &tensor);
    if (code < 0)
        return dcp_opening_fail(o, code, torch->err->text, err);
    const struct wfs_tensor *added = &torch->catalog->tensors[0];
    return added->trouble == NULL ? 0 : dcp_opening_fail(o, -EBADMSG, added->trouble, err);
}

static const uint64_t *copy_numbers(struct wfs_catalog *catalog, const uint64_t *numbers,
                                    uint32_t n)
{
    uint64_t *copy = arena_calloc(&catalog->arena, (size_t)n + 1, sizeof(*copy));
    return copy == NULL || n == 0 ? copy : memcpy(copy, numbers, n * sizeof(*copy));
}

/* Leaves of a catalog that described an item its tensor alone: there may be very many of them. */
static int shrink(struct wfs_catalog **catalog, const struct source *file)
{
    auto_catalog struct wfs_catalog *small = NULL;
    const struct wfs_tensor *tensor = &(*catalog)->tensors[0];
    if (tensor->stored.source != file)
        return 0; /* its bytes are made of others, by what is in the catalog */
    if (catalog_new(&small) < 0)
        return -ENOMEM;
    struct wfs_tensor *copy = catalog_add(small);
    if (copy == NULL)
        return -ENOMEM;
    *copy = *tensor;
    copy->key = "";
    copy->attrs = NULL;
    copy->shape.dims = copy_numbers(small, tensor->shape.dims, tensor->shape.rank);
    if (tensor->stored.strides != NULL)
        copy->stored.strides = copy_numbers(small, tensor->stored.strides, tensor->shape.rank);
    if (copy->shape.dims == NULL ||
        (tensor->stored.strides != NULL && copy->stored.strides == NULL))
        return -ENOMEM;
    wfs_catalog_free(*catalog);
    *catalog = steal(&small);
    return 0;
}

static int open_zip(const struct dcp_opening *o, uint64_t *ret_data, struct wfs_catalog **ret_odd,
                    struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    struct wfs_error inner = {0};
    if (catalog_new(&catalog) < 0)
        return wfs_fail_memory(err);
    catalog->arena.limit = o->limits->index_memory;
    catalog->graph.arena = &catalog->arena;
    struct torch torch = {.catalog = catalog,
                          .graph = &catalog->graph,
                          .limits = o->limits,
                          .err = &inner,
                          .source = o->file,
                          .budget = pickle_budget_of(o->limits)};
    const int code = read_tensor(o, &torch, err);
    torch_cache_done(&torch);
    free(torch.scratch);
    if (code < 0)
        return code;
    if (torch.has_failed)
        return wfs_fail_memory(err);
    const struct wfs_tensor *tensor = &catalog->tensors[0];
    if (wfs_tensor_is_plain(tensor) && tensor->stored.source == o->file) {
        *ret_data = tensor->stored.offset;
        return 0;
    }
    if (shrink(&catalog, o->file) < 0)
        return wfs_fail_memory(err);
    *ret_odd = steal(&catalog);
    return 0;
}

int dcp_item_open(const struct dcp_opening *o, uint64_t *ret_data, struct wfs_catalog **ret_odd,
                  struct wfs_error *err)
{
    const int is_window = dcp_window_probe(o->file, o->item->offset);
    if (is_window < 0)
        return dcp_opening_fail(o, is_window, "it cannot be read", err);
    return is_window ? dcp_window_find(o, ret_data, err) : open_zip(o, ret_data, ret_odd, err);
}
