/* SPDX-License-Identifier: MIT */
/*
 * Values as JSON, for people and for other programs, and values from what they made of it. Plain
 * data is written here; for the rest the notation of the graph is asked.
 */
#ifndef WFS_VALUE_JSON_H
#define WFS_VALUE_JSON_H

#include <weightfs/error.h>
#include <weightfs/json_out.h>
#include "value/value.h"

/* What is being written. A failure shows as text.has_failed or error, a limit as text.is_cut. It
 * must not be moved. */
struct json_writer {
    const struct graph *graph;
    struct json_out out; /* into the text */
    struct strbuf text;
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

/* Writes one value. */
void json_write(struct json_writer *writer, uint32_t id);

/* Opens an object on one line, and names its first member. */
void json_write_row(struct json_writer *writer, const char *name);

/* Writes {"NAME": "..."} in base64. */
void json_write_memory(struct json_writer *writer, const char *name, const uint8_t *bytes,
                       size_t n_bytes);

/* Writes a float; what is not finite as {"$float": "nan"}. */
void json_write_real(struct json_writer *writer, double real);

/* Remembers a failure: -ENOMEM, or the code of a read. */
void json_writer_fail(struct json_writer *writer, int code);

/* Writes plain data: what JSON has no word for is null. The caller bounds the recursion. */
void value_put_json(struct json_out *out, const struct graph *graph, uint32_t id);

/* A zeroed struct with a graph has weighed nothing. */
struct weighing {
    const struct graph *graph;
    uint64_t *weights; /* malloc'ed; by value, 0: not known */
    struct weighing_step *steps;
    size_t n_steps, n_step_room;
};

/* Computes about how many bytes of text the value takes, with everything in it as often as it is in
 * it: at most WEIGHT_MAX. Values are weighed once, however often they are used. -ENOMEM. */
int value_weigh(struct weighing *weighing, uint32_t id, uint64_t *ret);
void weighing_done(struct weighing *weighing);

/* ---- and back ---- */

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
