/* SPDX-License-Identifier: MIT */
/*
 * The file .metadata of a new checkpoint.
 */
#ifndef WFS_DCP_DESCRIBE_H
#define WFS_DCP_DESCRIBE_H

#include "format/core/directory.h"

/* For struct directory_functions. */
int dcp_describe(const struct directory *directory, const char *const *names, struct arena *arena,
                 const char **ret, size_t *ret_n, struct wfs_error *err);

#endif
