/* SPDX-License-Identifier: MIT */
/*
 * The registry of formats: the one place that knows which formats exist, how a file is recognised,
 * and what every file goes through when it is loaded, verified or made to fit another format. Rooms
 * below get what they need of it as a struct format_table.
 */
#ifndef WFS_REGISTRY_H
#define WFS_REGISTRY_H

#include <weightfs/format.h>

#include "format/burnpack/burnpack.h"
#include "format/dcp/dcp.h"
#include "format/dcp/dcp_parts.h"
#include "format/gguf/gguf.h"
#include "format/pytorch/pytorch.h"
#include "format/records/records.h"
#include "format/safetensors/safetensors.h"

extern const struct format_table registry_table;

/* Returns the limits that formats declare one by one; NULL after the last. */
const struct wfs_limit *registry_limit(size_t i); /* for tests */

/*
 * Loads an open source, recognised by its content. The catalog owns the source; on failure it is
 * freed. Errors as wfs_load.
 */
int load_source(struct source *source, const struct load_context *context, struct wfs_catalog **out,
                struct wfs_error *err); /* for tests */

#endif
