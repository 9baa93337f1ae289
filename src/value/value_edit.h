/* SPDX-License-Identifier: MIT */
/*
 * Values from JSON text, in the notation that json_write has, beside the values that they were.
 */
#ifndef WFS_VALUE_EDIT_H
#define WFS_VALUE_EDIT_H

#include <weightfs/error.h>
#include <weightfs/strbuf.h>

#include "value/value.h"

/* The value that is edited and what json_write made of it, with a line feed behind; id 0: there was
 * none, and text is not looked at. */
struct value_old {
    uint32_t id;
    const struct strbuf *text;
};

/*
 * Makes the value that the text describes, in a graph of the caller's own (see graph_fork). What is
 * as it was keeps its id; lists stay tuples where they were, dicts keep their class and keys, and
 * integers are floats where there were floats. file is for messages. -EBADMSG: the text is not
 * JSON, or changes what is not plain data; err has the place. -ENOMEM.
 */
int value_edit(struct graph *graph, struct value_old old, const char *file, const char *text,
               size_t n_bytes, uint32_t *ret_id, struct wfs_error *err);

#endif
