/* SPDX-License-Identifier: MIT */
/*
 * Every zip has a CRC-32 for each of its records. Items that no tensor or value needs are passed
 * over: their files are not open.
 */
#include "format/dcp/dcp_verify.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>

#include "archive/zip.h"
#include "archive/zip_checksum.h"
#include "format/dcp/dcp_assembly.h"
#include "format/dcp/dcp_window.h"

enum { MAX_TOLD = 20 };

/* Returns the first thing that is wrong with the records of an item in err. */
static int verify_item(const struct source *file, const struct dcp_item *item,
                       const struct limits *limits, struct wfs_error *err)
{
    cleanup(zip_close) struct zip zip = {0};
    int code = zip_open(&zip, file, item->offset, item->n_bytes, limits, err);
    for (uint32_t i = 0; code == 0 && i < zip.n_entries; i++) {
        code = zip_locate(&zip, &zip.entries[i], err);
        if (code == 0)
            code = zip_checksum_verify(&zip, &zip.entries[i], err);
    }
    return code;
}

int dcp_verify(const struct wfs_catalog *from, struct wfs_catalog *catalog, struct wfs_error *err)
{
    const struct dcp_tables *tables = dcp_assembly_tables(from->assembled);
    size_t n_bad = 0;
    for (uint32_t i = 0; i < tables->n_items; i++) {
        const struct dcp_item *item = &tables->items[i];
        struct wfs_error inner = {0};
        if (item->trouble != NULL || tables->files[item->file].source == NULL)
            continue;
        const struct dcp_file *file = &tables->files[item->file];
        if (dcp_window_probe(file->source, item->offset) != 0)
            continue;
        const int code = verify_item(file->source, item, &tables->limits, &inner);
        if (code == -ENOMEM)
            return wfs_fail_memory(err);
        if (code == 0 || n_bad++ >= MAX_TOLD)
            continue;
        if (catalog_add_finding(catalog, WFS_FINDING_PT_CHECKSUM,
                                "the %s at byte %" PRIu64 " of '%s': %s",
                                wfs_count(item->n_bytes, "byte").text, item->offset,
                                wfs_quote(file->name).text, inner.text) < 0)
            return wfs_fail_memory(err);
    }
    if (n_bad > MAX_TOLD && catalog_add_finding(catalog, WFS_FINDING_PT_CHECKSUM, "and %s of files",
                                                wfs_count(n_bad - MAX_TOLD, "more part").text) < 0)
        return wfs_fail_memory(err);
    return 0;
}
