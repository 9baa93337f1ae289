/* SPDX-License-Identifier: MIT */
/*
 * A zip as torch likes it: entries stored, data at multiples of 64, zip64 end records always. It is
 * laid out, not written; checksums that nobody knows yet are computed when their bytes are asked
 * for.
 */
#ifndef WFS_ZIP_LAYOUT_H
#define WFS_ZIP_LAYOUT_H

#include "format/core/layout.h"

struct zip_record {
    const char *name;
    uint32_t n_name;
    uint32_t crc;
    struct layout_crc *lazy; /* instead of crc; NULL: crc is it */
    uint64_t n_bytes;
    uint64_t header; /* of the local one */
};

/* A zeroed one with a layout is empty. One that does not begin the file has start and offset. */
struct zip_writer {
    struct wfs_layout *layout;
    uint64_t start;             /* of the zip in the file, a multiple of 64 */
    struct zip_record *records; /* malloc'ed */
    size_t n_records, n_room;
    uint64_t offset; /* of what comes next */
};

/*
 * Begins an entry: whoever called adds its n_bytes at *ret_data. The name must live as long as the
 * layout. -ENOMEM, -EFBIG.
 */
int zip_begin(struct zip_writer *zip, const struct zip_record *record, uint64_t *ret_data);

/* The directory. As above; nothing can be added afterwards. */
int zip_finish(struct zip_writer *zip);
void zip_writer_done(struct zip_writer *zip);

/* CRC-32 of more bytes; begins with 0. */
uint32_t zip_crc(uint32_t crc, const void *bytes, size_t n_bytes);

#endif
