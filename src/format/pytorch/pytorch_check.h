/* SPDX-License-Identifier: MIT */
/*
 * The checksums of a zip, which loading leaves alone.
 */
#ifndef WFS_PYTORCH_CHECK_H
#define WFS_PYTORCH_CHECK_H

#include "format/pytorch/object/torch.h"

/* For struct wfs_format. */
int pytorch_check(const struct source *source, struct wfs_catalog *catalog, struct wfs_error *err);

/* Compares one located entry with its checksum, size too. -EBADMSG, -EIO, -ENOMEM. */
int zip_check(const struct zip *zip, const struct zip_entry *entry, struct wfs_error *err);

#endif
