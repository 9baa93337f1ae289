/* SPDX-License-Identifier: MIT */
/*
 * The checksum of an entry, computed in bounded pieces.
 */
#include "archive/zip_checksum.h"

#include <errno.h>

#include "archive/inflate.h"

int zip_checksum_verify(const struct zip *zip, const struct zip_entry *entry, struct wfs_error *err)
{
    const struct wfs_quoted name = wfs_quote_n(entry->name, entry->n_name);
    uint64_t n_bytes = entry->n_bytes;
    uint32_t crc;
    int code;
    if (entry->method == ZIP_DEFLATED) {
        const struct deflated member = {entry->data, entry->n_packed, entry->n_bytes};
        code = inflate_crc(zip->source, &member, &crc, &n_bytes);
    } else {
        code = stored_crc(zip->source, entry->data, entry->n_bytes, &crc);
    }
    if (code == -EBADMSG)
        return wfs_fail(err, EBADMSG, "zip: the compressed data of entry %s is damaged", name.text);
    if (code < 0)
        return wfs_fail(err, -code, "cannot read entry %s", name.text);
    if (n_bytes != entry->n_bytes)
        return wfs_fail(err, EBADMSG, "zip: entry %s inflates to %s than %s", name.text,
                        n_bytes < entry->n_bytes ? "fewer" : "more",
                        wfs_count(entry->n_bytes, "byte").text);
    /* PyTorch has an option not to compute any. */
    if (entry->crc != crc && entry->crc != 0)
        return wfs_fail(err, EBADMSG, "zip: entry %s has the checksum %08x, expected %08x",
                        name.text, crc, entry->crc);
    return 0;
}
