/* SPDX-License-Identifier: MIT */
/*
 * Reads every record of a zip once, in bounded pieces, and compares it with its checksum.
 */
#include "format/pytorch/torch_checksums.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <string.h>

#include "archive/zip_checksum.h"
#include "format/pytorch/object/torch.h"
#include "format/pytorch/torch_zip.h"

enum { MAX_FINDINGS = 64 };

static int check_entries(struct wfs_catalog *catalog, struct zip *zip, struct wfs_error *err)
{
    size_t n_bad = 0, n_without = 0;
    for (uint32_t i = 0; i < zip->n_entries; i++) {
        struct zip_entry *entry = &zip->entries[i];
        struct wfs_error first = {0};
        int code = zip_locate(zip, entry, &first);
        if (code == 0)
            code = zip_checksum_verify(zip, entry, &first);
        if (code < 0 && !torch_is_trouble(code))
            return wfs_fail(err, -code, "%s", first.text);
        n_without += code == 0 && entry->crc == 0 && entry->n_bytes > 0;
        if (code < 0 && n_bad++ < MAX_FINDINGS &&
            catalog_add_finding(catalog, WFS_FINDING_PT_CHECKSUM, "%s", first.text) < 0)
            return wfs_fail_memory(err);
    }
    if (n_bad > MAX_FINDINGS &&
        catalog_add_finding(catalog, WFS_FINDING_PT_CHECKSUM, "and %s",
                            wfs_count(n_bad - MAX_FINDINGS, "more entry").text) < 0)
        return wfs_fail_memory(err);
    if (n_without > 0 &&
        catalog_add_finding(catalog, WFS_FINDING_PT_NO_CHECKSUM, "%s no checksum",
                            wfs_count_as(n_without, "entry has", "entries have").text) < 0)
        return wfs_fail_memory(err);
    return torch_zip_tell(catalog, zip) < 0 ? wfs_fail_memory(err) : 0;
}

int torch_checksums_verify(const struct source *source, struct wfs_catalog *catalog,
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
