/* SPDX-License-Identifier: MIT */
/*
 * The kinds of zips that PyTorch writes: checkpoints, TorchScript, packages, exported programs. The
 * names of the records decide which one it is.
 */
#include "format/pytorch/torch_containers.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "format/pytorch/object/torch.h"
#include "format/pytorch/object/torch_listing.h"
#include "format/pytorch/object/torch_storage.h"

enum { MAX_DEPTH = 1 };

static const char *const checkpoint_folders[] = {"data/", NULL};
static const char *const script_folders[] = {"data/", "constants/", NULL};
static const char *const constant_folders[] = {"constants/", "data/", NULL};

static int read_version(struct torch *torch, const struct torch_records *records)
{
    char text[32];
    bool exists, is_hidden = false;
    unsigned version = 0;
    int code = torch_records_read_text(torch, records, "version", text, &exists);
    if (code == 0 && !exists)
        code = torch_records_read_text(torch, records, ".data/version", text, &is_hidden);
    if (code < 0)
        return code;
    for (const char *at = text; *at >= '0' && *at <= '9' && version < 1000; at++)
        version = version * 10 + (unsigned)(*at - '0');
    if (!exists && !is_hidden)
        code = catalog_add_finding(torch->catalog, WFS_LOW,
                                   "the record 'version' is missing; PyTorch rejects such a file");
    else if (version < 1 || version > 10)
        code = catalog_add_finding(torch->catalog, WFS_LOW,
                                   "version '%s' is not one that PyTorch knows (1 to 10)",
                                   wfs_quote(text).text);
    return code < 0 ? wfs_fail_memory(torch->err) : 0;
}

/* Loads one pickle, and lists it under a prefix. */
static int load_pickle(struct torch *torch, const struct torch_records *records,
                       struct zip_entry *entry, const char *prefix, uint32_t *ret_root)
{
    const int code = torch_records_read_pickle(torch, records, entry, ret_root);
    return code < 0 ? code : torch_listing_add(torch, *ret_root, prefix);
}

static int load_checkpoint(struct torch *torch, struct torch_records *records,
                           struct zip_entry *pickle)
{
    static const struct wfs_container containers[] = {
        {.name = "zip checkpoint"}, {.name = "TorchScript"}, {.name = "lite interpreter"}};
    struct zip_entry *constants = torch_records_find(records, "constants.pkl");
    const bool is_lite = torch_records_find(records, "bytecode.pkl") != NULL;
    uint32_t unused;
    int code;
    torch->catalog->container = &containers[is_lite ? 2 : constants != NULL];
    records->folders = constants != NULL || is_lite ? script_folders : checkpoint_folders;
    if ((code = torch_records_report_strays(torch, records)) < 0 ||
        (code = read_version(torch, records)) < 0 ||
        (code = torch_records_read_byteorder(torch, records)) < 0 ||
        (code = load_pickle(torch, records, pickle, "", &torch->catalog->values.root)) < 0)
        return code;
    if (constants == NULL) {
        names_done(&torch->names); /* all keys exist by now, and storages need as much memory */
        code = is_lite ? 0 : torch_storage_list(torch);
    } else {
        records->folders = constant_folders;
        code = load_pickle(torch, records, constants, "constants", &unused);
    }
    return code < 0 ? code : torch_hidden_find_records(torch, records);
}

struct foreign {
    const char *name; /* the end of the name of a record */
    const char *what;
};

static int fail_foreign(struct torch *torch, const struct zip *zip)
{
    static const struct foreign kinds[] = {
        {".npy", "a NumPy archive (.npz), not a checkpoint"},
        {"model.weights.h5", "a Keras model, which is not supported"},
        {"[Content_Types].xml", "an Office document, not a checkpoint"},
        {"META-INF/MANIFEST.MF", "a Java archive, not a checkpoint"},
        {"MAR-INF/MANIFEST.json", "a TorchServe model archive: unpack the .pt in it"},
        {".safetensors", "a zip with a safetensors file in it: unpack it first"},
        {".pth", "a zip with a .pth file in it: unpack it first"},
        {".pt", "a zip with a .pt file in it: unpack it first"},
        {"pytorch_model.bin", "a zip with a pytorch_model.bin in it: unpack it first"},
    };
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
        for (uint32_t i = 0; i < zip->n_entries; i++)
            if (torch_records_has_suffix(&zip->entries[i], kinds[k].name))
                return wfs_fail(torch->err, EMEDIUMTYPE, "is %s", kinds[k].what);
    return wfs_fail(torch->err, EMEDIUMTYPE, "is a zip with %s but no data.pkl, not a checkpoint",
                    wfs_count(zip->n_entries, "entry").text);
}

/* Loads a checkpoint within the zip: the state of an old exported program. */
static int load_nested(struct torch *torch, struct zip *zip, struct zip_entry *entry,
                       unsigned depth)
{
    const int code = zip_locate(zip, entry, torch->err);
    if (code < 0)
        return code;
    if (depth >= MAX_DEPTH || entry->method != ZIP_STORED)
        return wfs_fail(torch->err, EOPNOTSUPP,
                        "the checkpoint %s in the zip is %s: unpack it first",
                        wfs_quote_n(entry->name, entry->n_name).text,
                        depth >= MAX_DEPTH ? "another zip with a checkpoint" : "compressed");
    return torch_zip_load(torch, entry->data, entry->n_bytes, depth + 1);
}

/* Loads an exported program. Weights and constants are lists of raw records, or checkpoints in
 * zips of their own. */
static const struct wfs_container exported_program = {.name = "exported program"};

static int load_exported(struct torch *torch, struct torch_records *records, unsigned depth)
{
    struct zip *zip = records->zip;
    uint32_t n_lists = 0;
    int code = torch_records_read_byteorder(torch, records);
    for (uint32_t i = 0; i < zip->n_entries && code == 0; i++) {
        struct zip_entry *entry = &zip->entries[i];
        const bool is_weight = torch_records_is_in(records, entry, "data/weights/"),
                   is_constant = torch_records_is_in(records, entry, "data/constants/");
        if ((is_weight || is_constant) && torch_records_has_suffix(entry, "_config.json"))
            code = torch_weights_load(torch, zip, entry, is_constant ? "constant" : NULL);
        else if (is_weight && torch_records_has_suffix(entry, ".pt"))
            code = load_nested(torch, zip, entry, depth);
        else
            continue;
        n_lists++;
    }
    torch->catalog->container = &exported_program;
    if (code == 0 && n_lists == 0)
        return wfs_fail(torch->err, EOPNOTSUPP, "is an exported program without readable weights");
    return code;
}

static int load_other(struct torch *torch, struct torch_records *records, unsigned depth)
{
    const struct zip *zip = records->zip;
    struct zip_entry *entry;
    if ((entry = torch_records_search(zip, "archive_format")) != NULL) {
        torch_records_set_root(records, entry, "archive_format");
        return load_exported(torch, records, depth);
    }
    if ((entry = torch_records_search(zip, "serialized_state_dict.pt")) != NULL) {
        const int code = load_nested(torch, records->zip, entry, depth);
        torch->catalog->container = &exported_program;
        return code;
    }
    if (torch_package_is(records, NULL))
        return torch_package_load(torch, records);
    if (torch_records_search(zip, "model.json") != NULL &&
        torch_records_search(zip, "attributes.pkl") != NULL)
        return wfs_fail(torch->err, EOPNOTSUPP,
                        "is TorchScript from PyTorch 1.0 or 1.1, which is not supported: load and "
                        "save it with a later version");
    return fail_foreign(torch, zip);
}

#define LOOSE "to no record: another checkpoint may be in the file, or what was removed"
#define OTHER_CRC "another checksum than the directory"

/* Returns whether a finding has such words, perhaps since the file was loaded. */
static bool has_finding(const struct wfs_catalog *catalog, const char *words)
{
    for (size_t i = 0; i < wfs_catalog_n_findings(catalog); i++) {
        if (strstr(wfs_catalog_finding(catalog, i)->text, words) != NULL)
            return true;
    }
    return false;
}

/*
 * Adds findings about bytes of the zip that belong to no record and about local headers, as far as
 * entries are located, and unless the catalog has them. -ENOMEM.
 */
static int tell_loose(struct wfs_catalog *catalog, const struct zip *zip)
{
    const uint64_t n_loose = has_finding(catalog, LOOSE) ? 0 : zip_count_loose(zip);
    size_t n_other = 0;
    const char *first = NULL;
    for (uint32_t i = 0; i < zip->n_entries; i++) {
        const struct zip_entry *entry = &zip->entries[i];
        if (entry->has_other_crc && n_other++ == 0)
            first = entry->name;
    }
    if (n_loose > 0 &&
        catalog_add_finding(
            catalog, WFS_MEDIUM, "%s " LOOSE,
            wfs_count_as(n_loose, "byte of the zip belongs", "bytes of the zip belong").text) < 0)
        return -ENOMEM;
    if (n_other > 0 && !has_finding(catalog, OTHER_CRC) &&
        catalog_add_finding(catalog, WFS_LOW, "%s " OTHER_CRC ": %s",
                            wfs_count_as(n_other, "local header has", "local headers have").text,
                            wfs_quote(first).text) < 0)
        return -ENOMEM;
    return 0;
}

int torch_zip_read(struct torch *torch, uint64_t start, uint64_t n_bytes, struct zip *zip,
                   struct torch_records *records, uint32_t *ret_root)
{
    *records = (struct torch_records){.zip = zip, .folders = checkpoint_folders, .suffix = ""};
    int code = zip_open(zip, torch->source, start, n_bytes, torch->limits, torch->err);
    if (code < 0)
        return code;
    if (zip->n_trailing > 0)
        return wfs_fail(torch->err, EBADMSG, "%s the zip",
                        wfs_count_as(zip->n_trailing, "byte follows", "bytes follow").text);
    for (uint32_t i = 0; i < zip->n_entries; i++) {
        const struct zip_entry *entry = &zip->entries[i];
        if (entry->method != ZIP_STORED)
            return wfs_fail(torch->err, EOPNOTSUPP, "zip: entry %s is compressed",
                            wfs_quote_n(entry->name, entry->n_name).text);
    }
    struct zip_entry *pickle = torch_records_search(zip, "data.pkl");
    if (pickle == NULL)
        return wfs_fail(torch->err, EBADMSG, "the zip has no data.pkl");
    torch_records_set_root(records, pickle, "data.pkl");
    code = torch_records_read_byteorder(torch, records);
    return code < 0 ? code : torch_records_read_pickle(torch, records, pickle, ret_root);
}

int torch_zip_load(struct torch *torch, uint64_t start, uint64_t n_bytes, unsigned depth)
{
    cleanup(zip_close) struct zip zip = {0};
    struct torch_records records = {.zip = &zip, .suffix = ""};
    int code = zip_open(&zip, torch->source, start, n_bytes, torch->limits, torch->err);
    if (code < 0)
        return code;
    if (zip.n_trailing > 0 &&
        catalog_add_finding(torch->catalog, WFS_INFO, "%s the zip",
                            wfs_count_as(zip.n_trailing, "byte follows", "bytes follow").text) < 0)
        return wfs_fail_memory(torch->err);
    struct zip_entry *pickle = torch_records_search(&zip, "data.pkl");
    if (pickle == NULL) {
        code = load_other(torch, &records, depth);
    } else if (torch_package_is(&records, pickle)) {
        code = torch_package_load(torch, &records);
    } else {
        torch_records_set_root(&records, pickle, "data.pkl");
        code = load_checkpoint(torch, &records, pickle);
    }
    if (code == 0 && tell_loose(torch->catalog, &zip) < 0)
        return wfs_fail_memory(torch->err);
    return code;
}

/* ---- checksums ---- */

enum { MAX_FINDINGS = 64 };

static int check_entries(struct wfs_catalog *catalog, struct zip *zip, struct wfs_error *err)
{
    size_t n_bad = 0, n_without = 0;
    for (uint32_t i = 0; i < zip->n_entries; i++) {
        struct zip_entry *entry = &zip->entries[i];
        struct wfs_error first = {0};
        int code = zip_locate(zip, entry, &first);
        if (code == 0)
            code = zip_verify(zip, entry, &first);
        if (code < 0 && !torch_is_trouble(code))
            return wfs_fail(err, -code, "%s", first.text);
        n_without += code == 0 && entry->crc == 0 && entry->n_bytes > 0;
        if (code < 0 && n_bad++ < MAX_FINDINGS &&
            catalog_add_finding(catalog, WFS_HIGH, "%s", first.text) < 0)
            return wfs_fail_memory(err);
    }
    if (n_bad > MAX_FINDINGS &&
        catalog_add_finding(catalog, WFS_HIGH, "and %s",
                            wfs_count(n_bad - MAX_FINDINGS, "more entry").text) < 0)
        return wfs_fail_memory(err);
    if (n_without > 0 &&
        catalog_add_finding(catalog, WFS_INFO, "%s no checksum",
                            wfs_count_as(n_without, "entry has", "entries have").text) < 0)
        return wfs_fail_memory(err);
    return tell_loose(catalog, zip) < 0 ? wfs_fail_memory(err) : 0;
}

int torch_zip_verify(const struct source *source, struct wfs_catalog *catalog,
                     struct wfs_error *err)
{
    cleanup(zip_close) struct zip zip = {0};
    struct limits limits;
    char head[4];
    limits_init(&limits);
    /* It was within the limits when it was loaded, whatever they were. */
    limits.zip_entries = limits.zip_directory = limits.zip_name = UINT64_MAX;
    if (source->n_bytes < sizeof(head))
        return 0;
    int code = source_read(source, 0, head, sizeof(head));
    if (code < 0)
        return wfs_fail(err, -code, "cannot read its first %s",
                        wfs_count(sizeof(head), "byte").text);
    if (memcmp(head, "PK\3\4", sizeof(head)) != 0)
        return 0;
    code = zip_open(&zip, source, 0, source->n_bytes, &limits, err);
    return code < 0 ? code : check_entries(catalog, &zip, err);
}
