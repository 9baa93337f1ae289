/* SPDX-License-Identifier: MIT */
/*
 * Catalogs that are made of others: shards of one checkpoint, overlays.
 */
#ifndef WFS_CATALOG_PARTS_H
#define WFS_CATALOG_PARTS_H

#include "tensor/catalog.h"

/*
 * Takes over a catalog as part of another: its sources become the whole's, its memory lives as
 * long. Its tensors stay its own; copies of them may be added to the whole. Freed in any case.
 * -ENOMEM.
 */
int catalog_adopt_part(struct wfs_catalog *catalog, struct wfs_catalog *part);

/* Adds the metadata that the whole has no value for, and the findings. -ENOMEM. */
int catalog_merge_texts(struct wfs_catalog *catalog, const struct wfs_catalog *part);

#endif
