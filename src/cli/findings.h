/* SPDX-License-Identifier: MIT */
/*
 * What the loader found odd, printed.
 */
#ifndef WFS_FINDINGS_H
#define WFS_FINDINGS_H

#include <weightfs/catalog.h>

#include "cli/jsonout.h"

/* "SEVERITY: text" and a line end on stdout. */
void findings_print(const struct wfs_finding *finding);

/* {"severity", "text"} as an item of the open array. */
void findings_json_item(struct jsonout *out, const struct wfs_finding *finding);

/* All of the catalog as the member "findings". */
void findings_json(struct jsonout *out, const struct wfs_catalog *catalog);

#endif
