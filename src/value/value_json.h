/* SPDX-License-Identifier: MIT */
/*
 * Values as JSON text, for people and for other programs.
 */
#ifndef WFS_VALUE_JSON_H
#define WFS_VALUE_JSON_H

#include "tensor/catalog.h"
#include "value/value_text.h"

/* What is being written. */
struct json_writer {
    const struct wfs_catalog *catalog;
    const struct graph *graph;
    struct text text;
    unsigned depth; /* of indentation */
    unsigned n_open;
    uint64_t n_left;    /* values that may still be written; sharing must not multiply them */
    uint32_t open[257]; /* ids on the way here */
    uint32_t *tensors;  /* positions in the catalog, by value; made when one is met */
    size_t n_tensors;
};

void json_writer_init(struct json_writer *writer, const struct wfs_catalog *catalog);
void json_writer_done(struct json_writer *writer);

/* One value, at the present depth. What goes wrong shows as text.is_cut. */
void json_write(struct json_writer *writer, uint32_t id);

/* A JSON string; surrogates are escaped, other bytes that are no UTF-8 are characters of Latin-1.
 */
void json_write_string(struct json_writer *writer, const char *bytes, size_t n_bytes);

/* Line feed and indentation. */
void json_write_line(struct json_writer *writer);

/* Members of a container: a comma where one is due, a new line, and the key. */
void json_write_member(struct json_writer *writer, bool is_first, const char *key);

/* ---- value_object.c ---- */

/* A call, a global or a persistent value. */
void json_write_object(struct json_writer *writer, uint32_t id);

/* {"$bytes": "..."}, in base64. */
void json_write_bytes(struct json_writer *writer, const char *name,
                      const struct value_bytes *bytes);
void json_write_memory(struct json_writer *writer, const char *name, const uint8_t *bytes,
                       size_t n_bytes);

/* ---- value_numpy.c ---- */

/* A scalar of numpy. False: the call is none, and nothing was written. */
bool json_write_numpy(struct json_writer *writer, uint32_t id);

#endif
