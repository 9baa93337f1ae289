/* SPDX-License-Identifier: MIT */
/*
 * What a writer needs to know of the containers: where the bytes of every storage that the graph
 * names are, whether or not a tensor of it is listed.
 */
#include <errno.h>

#include "format/pytorch/object/torch.h"

static bool is_storage(const struct torch *torch, uint32_t id)
{
    const struct value *value = graph_at(torch->graph, id);
    if (value->kind == VALUE_PERSISTENT)
        return torch_is_storage(torch->graph, id);
    return torch_what_of(torch->graph, value) == WHAT_LOAD_FROM_BYTES;
}

static int keep(struct torch *torch, uint32_t id, struct catalog_storage *ret)
{
    struct torch_storage storage;
    struct torch_storage_id parsed;
    const char *trouble;
    const int code = torch_storage(torch, id, &storage);
    if (code <= 0)
        return code;
    if (storage.is_absent || storage.trouble != NULL)
        return 0;
    *ret = (struct catalog_storage){.source = storage.source,
                                    .offset = storage.offset,
                                    .n_bytes = storage.n_bytes,
                                    .id = id,
                                    .crc = storage.crc,
                                    .dtype = (uint8_t)storage.dtype,
                                    .has_crc = storage.has_crc,
                                    .is_big_endian = storage.is_big_endian};
    if (graph_at(torch->graph, id)->kind != VALUE_PERSISTENT ||
        !torch_storage_id(torch, id, &parsed, &trouble))
        return 1;
    ret->is_untyped = parsed.class->what == WHAT_UNTYPED_STORAGE;
    if (parsed.view_bytes == UINT64_MAX)
        ret->n_bytes = parsed.n_bytes;
    return 1;
}

int torch_keep_storages(struct torch *torch)
{
    struct wfs_catalog *catalog = torch->catalog;
    const uint32_t n_values = torch->graph->n_values;
    uint32_t n = 0;
    for (uint32_t id = 1; id <= n_values; id++)
        n += is_storage(torch, id);
    catalog->storages = arena_calloc(&catalog->arena, n, sizeof(*catalog->storages));
    if (catalog->storages == NULL)
        return catalog_fail_memory(catalog, torch->err);
    for (uint32_t id = 1; id <= n_values && catalog->n_storages < n; id++) {
        if (!is_storage(torch, id))
            continue;
        const int code = keep(torch, id, &catalog->storages[catalog->n_storages]);
        if (code < 0)
            return code;
        catalog->n_storages += code == 1;
    }
    /* One that does not keep the rules of torch cannot be copied as it is. */
    if (torch->n_mixed > 0 || torch->is_big_endian || catalog->n_storages < n ||
        (torch->notes & PICKLE_TEXT_ID) != 0)
        catalog->pickle.source = NULL;
    catalog->is_object = true;
    return 0;
}
