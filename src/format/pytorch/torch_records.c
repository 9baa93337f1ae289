/* SPDX-License-Identifier: MIT */
/*
 * Finding and opening records, and the storages among them that no tensor shows at all, which are a
 * finding; views of a part of a storage are usual.
 */
#include "format/pytorch/torch_containers.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "archive/derived.h"
#include "archive/zip.h"
#include "base/bytes.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_storage.h"
#include "catalog/hidden.h"

enum { CHECKED_MAX = 64 << 20 };

bool torch_records_has_suffix(const struct zip_entry *entry, const char *suffix)
{
    const size_t n = strlen(suffix);
    return entry->n_name >= n && memcmp(entry->name + entry->n_name - n, suffix, n) == 0;
}

bool torch_records_is_in(const struct torch_records *records, const struct zip_entry *entry,
                         const char *folder)
{
    const size_t n_folder = strlen(folder);
    return entry->n_name >= records->n_root + n_folder &&
           memcmp(entry->name, records->root, records->n_root) == 0 &&
           memcmp(entry->name + records->n_root, folder, n_folder) == 0;
}

/* Returns whether the first n_bytes of a name lead into a folder ".data". */
static bool is_internal(const char *name, size_t n_bytes)
{
    static const char folder[] = ".data/";
    const size_t n = sizeof(folder) - 1;
    for (size_t i = 0; i + n <= n_bytes; i++)
        if (memcmp(name + i, folder, n) == 0 && (i == 0 || name[i - 1] == '/'))
            return true;
    return false;
}

struct zip_entry *torch_records_search(const struct zip *zip, const char *name)
{
    const size_t n = strlen(name);
    struct zip_entry *found = NULL;
    size_t depth = SIZE_MAX;
    for (uint32_t i = 0; i < zip->n_entries; i++) {
        struct zip_entry *entry = &zip->entries[i];
        if (!torch_records_has_suffix(entry, name) ||
            (entry->n_name > n && entry->name[entry->n_name - n - 1] != '/') ||
            is_internal(entry->name, entry->n_name - n))
            continue;
        size_t n_slashes = 0;
        for (size_t k = 0; k < entry->n_name - n; k++)
            n_slashes += entry->name[k] == '/';
        n_slashes = n_slashes == 0 ? 2 : n_slashes; /* without a folder is the last choice */
        if (n_slashes < depth) {
            found = entry;
            depth = n_slashes;
        }
    }
    return found;
}

void torch_records_set_root(struct torch_records *records, const struct zip_entry *entry,
                            const char *name)
{
    records->root = entry->name;
    records->n_root = entry->n_name - strlen(name);
}

/* Returns the record ROOT FOLDER KEY SUFFIX, or NULL. */
static struct zip_entry *find_record(const struct torch_records *records, const char *folder,
                                     const char *key, size_t n_key, const char *suffix)
{
    char name[TORCH_RECORD_NAME_MAX];
    const size_t n_folder = strlen(folder), n_suffix = strlen(suffix);
    if (n_key > sizeof(name) || records->n_root > sizeof(name) ||
        records->n_root + n_folder + n_key + n_suffix > sizeof(name))
        return NULL;
    char *at = mempcpy(name, records->root, records->n_root);
    at = mempcpy(mempcpy(mempcpy(at, folder, n_folder), key, n_key), suffix, n_suffix);
    return zip_find(records->zip, name, (size_t)(at - name));
}

struct zip_entry *torch_records_find(const struct torch_records *records, const char *name)
{
    return find_record(records, "", name, strlen(name), "");
}

int torch_records_open(struct torch *torch, struct zip *zip, struct zip_entry *entry,
                       struct value_bytes *ret, struct wfs_error *err)
{
    struct source *derived;
    int code = zip_locate(zip, entry, err);
    if (code < 0)
        return code;
    *ret = (struct value_bytes){torch->source, entry->data, entry->n_bytes};
    if (entry->method == ZIP_STORED)
        return 0;
    if ((code = torch_derived(torch, &derived)) < 0)
        return code;
    if (!entry->is_derived) {
        const struct deflated member = {entry->data, entry->n_packed, entry->n_bytes};
        code = derived_add_deflated(derived, &member, &entry->data);
        if (code < 0)
            return torch_fail_derived(err, code);
        entry->is_derived = true;
    }
    *ret = (struct value_bytes){derived, entry->data, entry->n_bytes};
    return 0;
}

int torch_records_find_storage(struct torch *torch, const struct torch_storage_id *id,
                               struct torch_storage *ret)
{
    const struct torch_records *records = torch->container;
    struct zip_entry *entry = NULL;
    struct value_bytes bytes;
    struct wfs_error err = {0};
    /* The keys of TorchScript in a package have the suffix, those of its other pickles do not. */
    const size_t n = strlen(records->suffix);
    const bool has_suffix =
        id->n_key >= n && memcmp(id->key + id->n_key - n, records->suffix, n) == 0;
    const char *suffix = has_suffix ? "" : records->suffix;
    for (const char *const *folder = records->folders; *folder != NULL && entry == NULL; folder++)
        entry = find_record(records, *folder, id->key, id->n_key, suffix);
    if (entry == NULL) {
        ret->trouble = torch_print(torch, "record %s%s%s is not in the zip", records->folders[0],
                                   wfs_quote_n(id->key, id->n_key).text, suffix);
        return 0;
    }
    if (id->n_items != 5) {
        ret->trouble = "its storage is described by six items, as in a legacy stream";
        return 0;
    }
    const int code = torch_records_open(torch, records->zip, entry, &bytes, &err);
    if (code < 0 && !torch_is_trouble(code))
        return wfs_fail(torch->err, -code, "%s", err.text);
    if (code < 0) {
        ret->trouble = torch_print(torch, "%s", err.text);
        return 0;
    }
    const uint8_t tag = (uint8_t)(id->class->dtype + 1);
    const bool is_mixed = entry->tag != 0 && entry->tag != tag;
    torch->n_mixed += is_mixed;
    torch->n_mixed_empty += is_mixed && entry->n_bytes == 0;
    entry->tag = entry->tag == 0 ? tag : entry->tag;
    ret->source = bytes.source;
    ret->offset = bytes.offset;
    ret->n_bytes = bytes.n_bytes;
    ret->is_big_endian = torch->is_big_endian;
    ret->crc = entry->crc;
    /* 0 in a zip that was written without checksums. */
    ret->has_crc = entry->n_bytes == id->n_bytes && entry->crc != 0;
    torch_storage_fit(torch, id, ret);
    return 0;
}

int torch_records_read_text(struct torch *torch, const struct torch_records *records,
                            const char *name, char text[32], bool *ret_exists)
{
    struct zip_entry *entry = torch_records_find(records, name);
    struct value_bytes bytes;
    *ret_exists = entry != NULL;
    text[0] = '\0';
    if (entry == NULL)
        return 0;
    int code = torch_records_open(torch, records->zip, entry, &bytes, torch->err);
    if (code < 0)
        return code;
    const size_t n = bytes.n_bytes < 31 ? (size_t)bytes.n_bytes : 31;
    if ((code = source_read(bytes.source, bytes.offset, text, n)) < 0)
        return torch_fail_read(torch, code, torch_print(torch, "the record '%s'", name));
    text[n] = '\0';
    return 0;
}

int torch_records_read_byteorder(struct torch *torch, const struct torch_records *records)
{
    char text[32];
    bool exists;
    const int code = torch_records_read_text(torch, records, "byteorder", text, &exists);
    if (code < 0)
        return code;
    torch->is_big_endian = strcmp(text, "big") == 0;
    if (exists && !torch->is_big_endian && strcmp(text, "little") != 0)
        return wfs_fail(torch->err, EOPNOTSUPP, "byte order '%s' is neither 'little' nor 'big'",
                        wfs_quote(text).text);
    return 0;
}

int torch_records_report_strays(struct torch *torch, const struct torch_records *records)
{
    size_t n_strays = 0;
    for (uint32_t i = 0; i < records->zip->n_entries; i++) {
        const struct zip_entry *entry = &records->zip->entries[i];
        n_strays += entry->n_name < records->n_root ||
                    memcmp(entry->name, records->root, records->n_root) != 0;
    }
    int code = 0;
    if (n_strays > 0)
        code = catalog_add_finding(
            torch->catalog, WFS_LOW, "%s outside of its folder '%s'; PyTorch rejects such a file",
            wfs_count_as(n_strays, "entry of the zip is", "entries of the zip are").text,
            wfs_quote_n(records->root, records->n_root).text);
    if (code == 0 && records->n_root == 0)
        code = catalog_add_finding(torch->catalog, WFS_LOW,
                                   "the records are not in a folder; PyTorch rejects such a file");
    return code < 0 ? wfs_fail_memory(torch->err) : 0;
}

int torch_records_read_pickle(struct torch *torch, const struct torch_records *records,
                              struct zip_entry *entry, uint32_t *ret_root)
{
    struct value_bytes bytes;
    int code = zip_locate(records->zip, entry, torch->err);
    if (code == 0 && entry->n_bytes <= CHECKED_MAX && !entry->is_derived)
        code = zip_verify(records->zip, entry, torch->err);
    if (code < 0)
        return code;
    uint64_t n_max;
    if (entry->method == ZIP_DEFLATED &&
        (!checked_mul(entry->n_packed, torch->limits->inflate_ratio, &n_max) ||
         entry->n_bytes > n_max))
        return wfs_fail(torch->err, E2BIG,
                        "zip: entry %s inflates %s to %llu, above the limit (limit inflate_ratio)",
                        wfs_quote_n(entry->name, entry->n_name).text,
                        wfs_count(entry->n_packed, "byte").text,
                        (unsigned long long)entry->n_bytes);
    if ((code = torch_records_open(torch, records->zip, entry, &bytes, torch->err)) < 0)
        return code;
    uint64_t offset = bytes.offset;
    if ((code = torch_read_pickle(torch, bytes.source, &offset, bytes.offset + bytes.n_bytes,
                                  ret_root)) < 0)
        return code;
    torch->find = torch_records_find_storage;
    torch->container = records;
    torch->catalog->values.pickle = bytes;
    torch->catalog->values.pickle_crc = entry->crc;
    return 0;
}

/* ---- hidden storages ---- */

/* Adds a finding about the storages that were found after the first n_before. */
static int report(struct torch *torch, size_t n_before)
{
    const struct wfs_catalog *catalog = torch->catalog;
    const struct wfs_hidden *first = NULL;
    uint64_t n_storages = 0, n_bytes = 0;
    for (size_t i = n_before; i < catalog->own->n_hidden; i++) {
        const struct wfs_hidden *hidden = &catalog->own->hidden[i].public;
        if (hidden->key != NULL)
            continue;
        first = first == NULL ? hidden : first;
        n_storages++;
        n_bytes += hidden->n_bytes;
    }
    if (n_storages == 0)
        return 0;
    return catalog_add_finding(torch->catalog, WFS_MEDIUM,
                               "%s not shown by any tensor, with %s; the first is '%s'",
                               wfs_count_as(n_storages, "storage is", "storages are").text,
                               wfs_count(n_bytes, "byte").text, wfs_quote(first->storage).text);
}

static int search(struct torch *torch, struct hidden_storage *storages, size_t n)
{
    cleanup(hidden_done) struct hidden_search search;
    struct wfs_catalog *catalog = torch->catalog;
    const size_t n_before = catalog->own->n_hidden;
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
        calloc((size_t)catalog->own->n_storages + 1, sizeof(*storages));
    if (storages == NULL)
        return wfs_fail_memory(torch->err);
    for (uint32_t i = 0; i < catalog->own->n_storages; i++) {
        const struct catalog_storage *storage = &catalog->own->storages[i];
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
    return search(torch, storages, catalog->own->n_storages);
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
