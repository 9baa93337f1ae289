/* SPDX-License-Identifier: MIT */
/*
 * Values as JSON, for people and for other programs. Plain data is written here; for the rest
 * the notation of the graph is asked.
 */
#ifndef WFS_VALUE_JSON_H
#define WFS_VALUE_JSON_H

#include <weightfs/json_out.h>
#include "value/value.h"

/* What is being written. A failure shows as text.has_failed or error, a limit as text.is_cut. */
struct json_writer {
    const struct graph *graph;
    struct strbuf text;
    unsigned depth; /* of indentation */
    unsigned n_open;
    uint64_t n_left;    /* values that may still be written; sharing must not multiply them */
    uint32_t open[257]; /* ids on the way here */
    int error;          /* of a read that failed: negative errno */
    /* Returns the key of the tensor that the value is listed as; NULL: it is not one. May be NULL
     * itself. */
    const char *(*tensor_key)(struct json_writer *writer, uint32_t id);
};

void json_writer_init(struct json_writer *writer, const struct graph *graph);
void json_writer_done(struct json_writer *writer);

/* Writes one value, at the present depth. */
void json_write(struct json_writer *writer, uint32_t id);

/* Starts a line and indents it. */
void json_write_line(struct json_writer *writer);

/* Starts a member of a container: a comma where one is due, a new line, and the key; NULL: it has
 * none. */
void json_write_member(struct json_writer *writer, bool is_first, const char *key);

/* Remembers a failure: -ENOMEM, or the code of a read. */
void json_writer_fail(struct json_writer *writer, int code);

void json_write_memory(struct json_writer *writer, const char *name, const uint8_t *bytes,
                       size_t n_bytes);

/* Writes plain data: what JSON has no word for is null. The caller bounds the recursion. */
void value_put_json(struct json_out *out, const struct graph *graph, uint32_t id);

#endif
