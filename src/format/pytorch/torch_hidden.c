/* SPDX-License-Identifier: MIT */
/*
 * The storages of a file, in a list for the search. One that no tensor shows at all is a finding;
 * views of a part of a storage are usual.
 */
#include "format/pytorch/torch_hidden.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/object/torch_storage_id.h"
#include "tensor/hidden.h"

/* Adds a finding about the storages that were found after the first n_before. */
static int report(struct torch *torch, size_t n_before)
{
    const struct wfs_catalog *catalog = torch->catalog;
    const struct wfs_hidden *first = NULL;
    uint64_t n_storages = 0, n_bytes = 0;
    for (size_t i = n_before; i < catalog->n_hidden; i++) {
        const struct wfs_hidden *hidden = &catalog->hidden[i].public;
        if (hidden->key != NULL)
            continue;
        first = first == NULL ? hidden : first;
        n_storages++;
        n_bytes += hidden->n_bytes;
    }
    if (n_storages == 0)
        return 0;
    return catalog_add_finding(torch->catalog, WFS_FINDING_PT_HIDDEN,
                               "%s not shown by any tensor, with %s; the first is '%s'",
                               wfs_count_as(n_storages, "storage is", "storages are").text,
                               wfs_count(n_bytes, "byte").text, wfs_quote(first->storage).text);
}

static int search(struct torch *torch, struct hidden_storage *storages, size_t n)
{
    cleanup(hidden_done) struct hidden_search search;
    struct wfs_catalog *catalog = torch->catalog;
    const size_t n_before = catalog->n_hidden;
    int code = 0;
    hidden_begin(&search, storages, n);
    for (size_t i = 0; i < catalog->n_tensors && code == 0; i++)
        code = hidden_show(&search, &catalog->tensors[i]);
    for (const struct torch_gathered *at = torch->gathered; at != NULL && code == 0; at = at->next)
        code = hidden_show(&search, &at->tensor);
    if (code == 0)
        code = hidden_end(&search, catalog);
    if (code == 0)
        code = report(torch, n_before);
    return code < 0 ? wfs_fail_memory(torch->err) : 0;
}

int torch_hidden_find(struct torch *torch)
{
    const struct wfs_catalog *catalog = torch->catalog;
    autofree struct hidden_storage *storages =
        calloc((size_t)catalog->n_storages + 1, sizeof(*storages));
    if (storages == NULL)
        return wfs_fail_memory(torch->err);
    for (uint32_t i = 0; i < catalog->n_storages; i++) {
        const struct catalog_storage *storage = &catalog->storages[i];
        struct torch_storage_id id;
        const char *trouble;
        storages[i] = (struct hidden_storage){.source = storage->source,
                                              .offset = storage->offset,
                                              .n_bytes = storage->n_bytes,
                                              .is_named = true};
        if (!torch_storage_id_parse(torch, storage->id, &id, &trouble))
            continue;
        storages[i].n_name = id.n_key;
        storages[i].name = id.key != id.number ? id.key : torch_print(torch, "%s", id.number);
    }
    return search(torch, storages, catalog->n_storages);
}

static bool is_storage(const struct torch_records *records, const struct zip_entry *entry)
{
    for (const char *const *folder = records->folders; *folder != NULL; folder++)
        if (torch_records_is_in(records, entry, *folder) && entry->n_bytes > 0 &&
            torch_records_has_suffix(entry, records->suffix))
            return true;
    return false;
}

int torch_hidden_find_records(struct torch *torch, const struct torch_records *records)
{
    const struct zip *zip = records->zip;
    uint32_t n = 0;
    for (uint32_t i = 0; i < zip->n_entries; i++)
        n += is_storage(records, &zip->entries[i]);
    autofree struct hidden_storage *storages = calloc((size_t)n + 1, sizeof(*storages));
    if (storages == NULL)
        return wfs_fail_memory(torch->err);
    n = 0;
    for (uint32_t i = 0; i < zip->n_entries; i++) {
        struct zip_entry *entry = &zip->entries[i];
        struct value_bytes bytes;
        struct wfs_error err = {0};
        if (!is_storage(records, entry))
            continue;
        const int code = torch_records_open(torch, records->zip, entry, &bytes, &err);
        if (code < 0 && !torch_is_trouble(code))
            return wfs_fail(torch->err, -code, "%s", err.text);
        if (code == 0)
            storages[n++] = (struct hidden_storage){.source = bytes.source,
                                                    .offset = bytes.offset,
                                                    .n_bytes = bytes.n_bytes,
                                                    .name = entry->name + records->n_root,
                                                    .n_name = entry->n_name - records->n_root,
                                                    .is_named = entry->tag != 0};
    }
    return search(torch, storages, n);
}
