/* SPDX-License-Identifier: MIT */
/*
 * Verifying the checksums of a zip, which opening it leaves alone.
 */
#ifndef WFS_ZIP_CHECKSUM_H
#define WFS_ZIP_CHECKSUM_H

#include "archive/zip.h"

/* Reads an entry that zip_locate has found, and compares its size and CRC-32 with the directory.
 * -EBADMSG, -EIO, -ENOMEM. */
int zip_checksum_verify(const struct zip *zip, const struct zip_entry *entry,
                        struct wfs_error *err);

#endif
