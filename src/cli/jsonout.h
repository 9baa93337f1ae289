/* SPDX-License-Identifier: MIT */
/*
 * JSON written piece by piece, so that a listing of any length needs no memory. Members keep the
 * order of the calls, numbers are exact, and every byte of the output is ASCII; bytes that are not
 * UTF-8 come out as U+FFFD.
 */
#ifndef WFS_JSONOUT_H
#define WFS_JSONOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <weightfs/catalog.h>

/*
 * A zeroed struct with a file is ready to use. Each item of the two outer levels gets its own line.
 */
struct jsonout {
    FILE *file;
    unsigned depth;
    bool has_items; /* in the array or object that is open */
};

/* name is NULL in arrays and for the outermost value. */
void jsonout_open_object(struct jsonout *out, const char *name);
void jsonout_close_object(struct jsonout *out);
void jsonout_open_array(struct jsonout *out, const char *name);
void jsonout_close_array(struct jsonout *out);

/* NULL is null. */
void jsonout_text(struct jsonout *out, const char *name, const char *text);
void jsonout_text_n(struct jsonout *out, const char *name, const char *bytes, size_t n_bytes);
void jsonout_u64(struct jsonout *out, const char *name, uint64_t number);
/* null when it is not finite. */
void jsonout_double(struct jsonout *out, const char *name, double number);
void jsonout_shape(struct jsonout *out, const char *name, const struct wfs_shape *shape);
/* Writes a value that is JSON already. */
void jsonout_raw(struct jsonout *out, const char *name, const char *json);
/* {"severity", "text"}, as an item of the open array. */
void jsonout_finding(struct jsonout *out, const struct wfs_finding *finding);

#endif
