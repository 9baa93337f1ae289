/* SPDX-License-Identifier: MIT */
/*
 * Values from JSON text, in the notation that json_write has, beside the values that they were.
 */
#ifndef WFS_VALUE_EDIT_H
#define WFS_VALUE_EDIT_H

#include "tensor/catalog.h"

/*
 * The value that the text says, in the catalog's graph. What is as it was in `old` (0: there was
 * nothing) keeps its id; lists stay tuples where they were, dicts keep their class and keys, and
 * integers are floats where there were floats. -EBADMSG: no JSON, err has the place, or a change of
 * what only Python can build, which it names. file is for messages. The graph must be the
 * catalog's own, see graph_fork.
 */
int value_edit(struct wfs_catalog *catalog, uint32_t old, const char *file, const char *text,
               size_t n_bytes, uint32_t *ret_id, struct wfs_error *err);

#endif
