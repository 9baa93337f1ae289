/* SPDX-License-Identifier: MIT */
/*
 * The room of safetensors from the inside. What a file is made of:
 *
 *   n (8 bytes, little-endian) | header: n bytes of JSON, padded | data
 *
 * Offsets in the header count from the start of the data.
 */
#ifndef WFS_SAFETENSORS_LOAD_H
#define WFS_SAFETENSORS_LOAD_H

#include "base/text_index.h"
#include "format/core/format.h"
#include "format/core/layout.h"
#include "format/core/tally.h"
#include "text/json.h"

/* What can be odd about a file; see tally.h. */
enum st_finding {
    ST_TRAILING,
    ST_SHORT,
    ST_OFFSET,
    ST_SIZE,
    ST_DTYPE,
    ST_DUPLICATE,
    ST_PATH,
    ST_FORM,
    ST_LEADING,
    ST_PADDING,
    ST_META_DUPLICATE,
    ST_META_TYPE,
    ST_META_EMPTY,
    ST_META_FORMAT,
    ST_DATA_START,
    ST_UNALIGNED,
    ST_HEADER_SIZE,
    ST_SLASH,
    ST_ORDER,
    ST_FIELD,
    ST_EMPTY,
};

enum {
    SAFETENSORS_PREFIX = 8,
    SAFETENSORS_HEADER_MAX = 100000000, /* what the reference reads */
};

#define SAFETENSORS_METADATA "__metadata__"

/* The last dtype of the format; those before it in the table are the format's too, in its order. */
#define SAFETENSORS_LAST_DTYPE WFS_U64

/* What the header says of a tensor. Texts lie in the header. */
struct safetensors_entry {
    const char *key;
    const char *dtype_text; /* what an OPAQUE one is called in the file, else NULL */
    const uint64_t *dims;   /* in the arena of the catalog */
    uint64_t begin, end;    /* bytes from the start of the data */
    uint32_t n_key, rank;
    uint32_t offset; /* of the key in the file */
    uint8_t dtype;
    bool has_nul; /* in the file; the key is escaped */
};

/* A load on its way: everything that its steps share. */
struct safetensors_load {
    struct source *source;
    const struct load_context *context;
    struct wfs_catalog *catalog;
    struct wfs_error *err;
    struct tally tally;
    char *header; /* malloc'ed, the whole, or a part for a taker; strings in it get unescaped */
    size_t n_header_room;
    uint64_t n_header, n_read;         /* bytes of the header; of it, those read */
    struct safetensors_entry *entries; /* malloc'ed; as in the header, later as in the data */
    size_t n_entries, n_room;
    uint64_t n_given;      /* bytes of the data that tensors given away have */
    const char *duplicate; /* the description of the first duplicate key; NULL: there is none */
    /* While the header is parsed: */
    struct json json;
    struct json_text tensor; /* key of the one at hand; bytes NULL: none */
    struct text_index keys;  /* of the entries */
    uint64_t *dims;          /* malloc'ed room for a shape */
    size_t dims_room;
    struct text_index shapes; /* their dims, in the arena of the catalog */
    struct text_index meta_names;
    struct json_text *meta; /* malloc'ed; the value of each name */
    size_t meta_room;
    uint8_t last_dtype; /* few dtypes, many tensors: the last one is tried first */
    bool has_metadata;
};

/* Sorts the entries by their place in the data and compares them with each other and the file. */
int safetensors_entries_check(struct safetensors_load *load);

/* Checks that the entry follows the one before in the data, and gives its tensor to the taker. */
int safetensors_entry_give(struct safetensors_load *load, const struct safetensors_entry *entry);

/* Fills the catalog with the checked entries. */
int safetensors_entries_fill(struct safetensors_load *load);

/* The functions of struct format_functions: has the format the dtype of the tensor; lays a catalog
 * out in the canonical form. */
bool safetensors_layout_stores(const struct wfs_tensor *tensor);
int safetensors_layout_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                            struct wfs_error *err);

#endif
