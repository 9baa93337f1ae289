/* SPDX-License-Identifier: MIT */
/*
 * What PyTorch puts into zips: checkpoints, TorchScript, packages, exported programs. Which it is,
 * only the names of the records say.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "archive/derived.h"
#include "format/pytorch/pytorch_check.h"

enum { CHECKED_MAX = 64 << 20, MAX_DEPTH = 1, NAME_MAX_BYTES = 4096 };

/* Where the records of one pickle are: in these folders, tried in this order. */
struct records {
    struct zip *zip;
    const char *root; /* of the names, with the slash; may be empty */
    size_t n_root;
    const char *const *folders; /* ended by NULL */
    const char *suffix;
};

static const char *const checkpoint_folders[] = {"data/", NULL};
static const char *const script_folders[] = {"data/", "constants/", NULL};
static const char *const constant_folders[] = {"constants/", "data/", NULL};
static const char *const package_folders[] = {".data/", NULL};

static bool has_suffix(const struct zip_entry *entry, const char *suffix)
{
    const size_t n = strlen(suffix);
    return entry->n_name >= n && memcmp(entry->name + entry->n_name - n, suffix, n) == 0;
}

/* The record ROOT FOLDER KEY SUFFIX, or NULL. */
static struct zip_entry *find_record(const struct records *records, const char *folder,
                                     const char *key, size_t n_key, const char *suffix)
{
    char name[NAME_MAX_BYTES];
    const size_t n_folder = strlen(folder), n_suffix = strlen(suffix);
    if (n_key > sizeof(name) || records->n_root > sizeof(name) ||
        records->n_root + n_folder + n_key + n_suffix > sizeof(name))
        return NULL;
    memcpy(name, records->root, records->n_root);
    memcpy(name + records->n_root, folder, n_folder);
    memcpy(name + records->n_root + n_folder, key, n_key);
    memcpy(name + records->n_root + n_folder + n_key, suffix, n_suffix);
    return zip_find(records->zip, name, records->n_root + n_folder + n_key + n_suffix);
}

static struct zip_entry *find_named(const struct records *records, const char *name)
{
    return find_record(records, "", name, strlen(name), "");
}

int torch_open_entry(struct torch *torch, struct zip *zip, struct zip_entry *entry,
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
        if (derived_add_deflated(derived, &member, &entry->data) < 0)
            return wfs_fail_memory(err);
        entry->is_derived = true;
    }
    *ret = (struct value_bytes){derived, entry->data, entry->n_bytes};
    return 0;
}

static int find_storage(struct torch *torch, const struct torch_storage_id *id,
                        struct torch_storage *ret)
{
    const struct records *records = torch->container;
    struct zip_entry *entry = NULL;
    struct value_bytes bytes;
    struct wfs_error err = {0};
    for (const char *const *folder = records->folders; *folder != NULL && entry == NULL; folder++)
        entry = find_record(records, *folder, id->key, id->n_key, records->suffix);
    if (entry == NULL) {
        ret->trouble = torch_print(torch, "record %s%s%s is not in the zip", records->folders[0],
                                   wfs_quote_n(id->key, id->n_key).text, records->suffix);
        return 0;
    }
    if (id->n_items != 5) {
        ret->trouble = "its storage is described by a tuple of six, as in streams";
        return 0;
    }
    const int code = torch_open_entry(torch, records->zip, entry, &bytes, &err);
    if (code == -ENOMEM || code == -EIO)
        return wfs_fail(torch->err, -code, "%s", err.text);
    if (code < 0) {
        ret->trouble = torch_print(torch, "%s", err.text);
        return 0;
    }
    const uint8_t tag = (uint8_t)(id->class->dtype + 1);
    torch->n_mixed += entry->tag != 0 && entry->tag != tag;
    entry->tag = entry->tag == 0 ? tag : entry->tag;
    ret->source = bytes.source;
    ret->offset = bytes.offset;
    ret->n_bytes = bytes.n_bytes;
    ret->is_big_endian = torch->is_big_endian;
    ret->crc = entry->crc;
    /* A zip can be written without checksums; they are 0 then. */
    ret->has_crc = entry->n_bytes == id->n_bytes && entry->crc != 0;
    torch_fit(torch, id, ret);
    return 0;
}

/* A whole small record as text; false when it is missing or large. */
static int read_small(struct torch *torch, const struct records *records, const char *name,
                      char text[32], bool *ret_is_there)
{
    struct zip_entry *entry = find_named(records, name);
    struct value_bytes bytes;
    *ret_is_there = entry != NULL;
    text[0] = '\0';
    if (entry == NULL)
        return 0;
    int code = torch_open_entry(torch, records->zip, entry, &bytes, torch->err);
    if (code < 0)
        return code;
    const size_t n = bytes.n_bytes < 31 ? (size_t)bytes.n_bytes : 31;
    if ((code = source_read(bytes.source, bytes.offset, text, n)) == -ENOMEM)
        return wfs_fail_memory(torch->err);
    if (code < 0)
        return wfs_fail(torch->err, EBADMSG, "the record '%s' cannot be read", name);
    text[n] = '\0';
    return 0;
}

static int read_byteorder(struct torch *torch, const struct records *records)
{
    char text[32];
    bool is_there;
    const int code = read_small(torch, records, "byteorder", text, &is_there);
    if (code < 0)
        return code;
    torch->is_big_endian = strcmp(text, "big") == 0;
    if (is_there && !torch->is_big_endian && strcmp(text, "little") != 0)
        return wfs_fail(torch->err, EOPNOTSUPP, "byte order '%s' is neither little nor big",
                        wfs_quote(text).text);
    return 0;
}

static int read_version(struct torch *torch, const struct records *records)
{
    char text[32];
    bool is_there, is_hidden = false;
    unsigned version = 0;
    int code = read_small(torch, records, "version", text, &is_there);
    if (code == 0 && !is_there)
        code = read_small(torch, records, ".data/version", text, &is_hidden);
    if (code < 0)
        return code;
    for (const char *at = text; *at >= '0' && *at <= '9' && version < 1000; at++)
        version = version * 10 + (unsigned)(*at - '0');
    if (!is_there && !is_hidden)
        code = catalog_add_finding(torch->catalog, WFS_LOW,
                                   "there is no record 'version'; PyTorch refuses such a file");
    else if (version < 1 || version > 10)
        code = catalog_add_finding(torch->catalog, WFS_LOW,
                                   "version '%s' is not one of 1 to 10, which PyTorch knows",
                                   wfs_quote(text).text);
    return code < 0 ? wfs_fail_memory(torch->err) : 0;
}

static int report_strays(struct torch *torch, const struct records *records)
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
            torch->catalog, WFS_LOW,
            "%zu entries of the zip lie outside of its folder '%s'; PyTorch refuses such a file",
            n_strays, wfs_quote_n(records->root, records->n_root).text);
    if (code == 0 && records->n_root == 0)
        code = catalog_add_finding(torch->catalog, WFS_LOW,
                                   "the records lie in no folder; PyTorch refuses such a file");
    return code < 0 ? wfs_fail_memory(torch->err) : 0;
}

/* One of the pickles, and what it holds, under a prefix. */
static int load_pickle(struct torch *torch, const struct records *records, struct zip_entry *entry,
                       const char *prefix, uint32_t *ret_root)
{
    struct value_bytes bytes;
    int code = zip_locate(records->zip, entry, torch->err);
    if (code == 0 && entry->n_bytes <= CHECKED_MAX && !entry->is_derived)
        code = zip_check(records->zip, entry, torch->err);
    if (code < 0)
        return code;
    uint64_t n_max;
    if (entry->method == ZIP_DEFLATED &&
        (!checked_mul(entry->n_packed, torch->limits->inflate_ratio, &n_max) ||
         entry->n_bytes > n_max))
        return wfs_fail(
            torch->err, E2BIG,
            "zip: entry %s inflates %llu bytes to %llu, above the limit (inflate_ratio)",
            wfs_quote_n(entry->name, entry->n_name).text, (unsigned long long)entry->n_packed,
            (unsigned long long)entry->n_bytes);
    if ((code = torch_open_entry(torch, records->zip, entry, &bytes, torch->err)) < 0)
        return code;
    uint64_t offset = bytes.offset;
    if ((code = torch_pickle(torch, bytes.source, &offset, bytes.offset + bytes.n_bytes,
                             ret_root)) < 0)
        return code;
    torch->find = find_storage;
    torch->container = records;
    torch->catalog->pickle = bytes;
    torch->catalog->pickle_crc = entry->crc;
    return torch_walk(torch, *ret_root, prefix);
}

static int load_checkpoint(struct torch *torch, struct records *records, struct zip_entry *pickle)
{
    struct zip_entry *constants = find_named(records, "constants.pkl");
    const bool is_lite = find_named(records, "bytecode.pkl") != NULL;
    uint32_t unused;
    int code;
    torch->catalog->container = is_lite             ? "lite interpreter"
                                : constants != NULL ? "TorchScript"
                                                    : "zip checkpoint";
    records->folders = constants != NULL || is_lite ? script_folders : checkpoint_folders;
    if ((code = report_strays(torch, records)) < 0 || (code = read_version(torch, records)) < 0 ||
        (code = read_byteorder(torch, records)) < 0 ||
        (code = load_pickle(torch, records, pickle, "", &torch->catalog->root)) < 0)
        return code;
    if (constants == NULL) {
        names_done(&torch->names); /* all are made, and storages take as much */
        return is_lite ? 0 : torch_keep_storages(torch);
    }
    records->folders = constant_folders;
    return load_pickle(torch, records, constants, "constants", &unused);
}

/* A pickle of a package: a record outside of .data that ends in .pkl. */
static bool is_package_pickle(const struct records *records, const struct zip_entry *entry)
{
    return entry->n_name > records->n_root && has_suffix(entry, ".pkl") &&
           memcmp(entry->name, records->root, records->n_root) == 0 &&
           strncmp(entry->name + records->n_root, ".data/", 6) != 0;
}

static int load_package(struct torch *torch, struct records *records)
{
    uint32_t n_pickles = 0, root;
    int code = read_byteorder(torch, records);
    torch->catalog->container = "torch.package";
    records->folders = package_folders;
    records->suffix = ".storage";
    for (uint32_t i = 0; i < records->zip->n_entries; i++)
        n_pickles += is_package_pickle(records, &records->zip->entries[i]);
    for (uint32_t i = 0; i < records->zip->n_entries && code == 0; i++) {
        struct zip_entry *entry = &records->zip->entries[i];
        if (!is_package_pickle(records, entry))
            continue;
        char prefix[NAME_MAX_BYTES];
        const size_t n = entry->n_name - records->n_root - strlen(".pkl");
        snprintf(prefix, sizeof(prefix), "%.*s", n_pickles == 1 ? 0 : (int)n,
                 entry->name + records->n_root);
        for (char *at = prefix; *at != '\0'; at++)
            *at = *at == '/' ? '.' : *at;
        code = load_pickle(torch, records, entry, prefix, &root);
        if (n_pickles == 1)
            torch->catalog->root = root;
    }
    return code;
}

/* The first entry with that name in a folder, the nearer to the top the better. */
static struct zip_entry *find_anywhere(const struct zip *zip, const char *name)
{
    const size_t n = strlen(name);
    struct zip_entry *found = NULL;
    size_t depth = SIZE_MAX;
    for (uint32_t i = 0; i < zip->n_entries; i++) {
        struct zip_entry *entry = &zip->entries[i];
        if (!has_suffix(entry, name) ||
            (entry->n_name > n && entry->name[entry->n_name - n - 1] != '/'))
            continue;
        size_t n_slashes = 0;
        for (size_t k = 0; k < entry->n_name - n; k++)
            n_slashes += entry->name[k] == '/';
        n_slashes = n_slashes == 0 ? 2 : n_slashes; /* no folder is odder than one */
        if (n_slashes < depth) {
            found = entry;
            depth = n_slashes;
        }
    }
    return found;
}

static void set_root(struct records *records, const struct zip_entry *entry, const char *name)
{
    records->root = entry->name;
    records->n_root = entry->n_name - strlen(name);
}

struct foreign {
    const char *name; /* of a record, or the end of one */
    const char *what;
};

static int fail_foreign(struct torch *torch, const struct zip *zip)
{
    static const struct foreign kinds[] = {
        {".npy", "an npz archive of numpy"},
        {"model.weights.h5", "a Keras model"},
        {"[Content_Types].xml", "an Office document"},
        {"META-INF/MANIFEST.MF", "a Java archive"},
        {"MAR-INF/MANIFEST.json", "a TorchServe model archive; the .pt in it can be read"},
        {".safetensors", "a zip with a safetensors file in it; unpack it first"},
        {".pth", "a zip with a .pth file in it; unpack it first"},
        {".pt", "a zip with a .pt file in it; unpack it first"},
        {"pytorch_model.bin", "a zip with a pytorch_model.bin in it; unpack it first"},
    };
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
        for (uint32_t i = 0; i < zip->n_entries; i++)
            if (has_suffix(&zip->entries[i], kinds[k].name))
                return wfs_fail(torch->err, EMEDIUMTYPE, "is not a PyTorch file: %s",
                                kinds[k].what);
    return wfs_fail(torch->err, EMEDIUMTYPE,
                    "is not a PyTorch file: a zip with %u entries, but without a data.pkl",
                    zip->n_entries);
}

/* A file of an exported program of old that holds its state as a checkpoint. */
static int load_nested(struct torch *torch, struct zip *zip, struct zip_entry *entry,
                       unsigned depth)
{
    const int code = zip_locate(zip, entry, torch->err);
    if (code < 0)
        return code;
    if (depth >= MAX_DEPTH || entry->method != ZIP_STORED)
        return wfs_fail(torch->err, EOPNOTSUPP,
                        "the checkpoint %s in the zip is not stored as it is",
                        wfs_quote_n(entry->name, entry->n_name).text);
    return torch_load_zip(torch, entry->data, entry->n_bytes, depth + 1);
}

static int load_other(struct torch *torch, struct records *records, unsigned depth)
{
    const struct zip *zip = records->zip;
    struct zip_entry *entry;
    if ((entry = find_anywhere(zip, "archive_format")) != NULL) {
        set_root(records, entry, "archive_format");
        torch->catalog->container = "exported program";
        return torch_load_export(torch, records->zip, records->root, records->n_root, depth);
    }
    if ((entry = find_anywhere(zip, "serialized_state_dict.pt")) != NULL) {
        const int code = load_nested(torch, records->zip, entry, depth);
        torch->catalog->container = "exported program";
        return code;
    }
    if ((entry = find_anywhere(zip, ".data/version")) != NULL) {
        set_root(records, entry, ".data/version");
        return load_package(torch, records);
    }
    if (find_anywhere(zip, "model.json") != NULL && find_anywhere(zip, "attributes.pkl") != NULL)
        return wfs_fail(
            torch->err, EOPNOTSUPP,
            "is TorchScript of PyTorch 1.0 or 1.1, which is not supported: load and save "
            "it with a later version");
    return fail_foreign(torch, zip);
}

int torch_load_zip(struct torch *torch, uint64_t start, uint64_t n_bytes, unsigned depth)
{
    cleanup(zip_close) struct zip zip = {0};
    struct records records = {.zip = &zip, .suffix = ""};
    const int code = zip_open(&zip, torch->source, start, n_bytes, torch->limits, torch->err);
    if (code < 0)
        return code;
    if (zip.n_trailing > 0 &&
        catalog_add_finding(torch->catalog, WFS_INFO, "%llu bytes follow the zip",
                            (unsigned long long)zip.n_trailing) < 0)
        return wfs_fail_memory(torch->err);
    struct zip_entry *pickle = find_anywhere(&zip, "data.pkl");
    if (pickle == NULL)
        return load_other(torch, &records, depth);
    set_root(&records, pickle, "data.pkl");
    return load_checkpoint(torch, &records, pickle);
}
