/* SPDX-License-Identifier: MIT */
/*
 * Inside of the safetensors reader and writer. A file is
 *
 *   n (8 bytes, little-endian) | header: n bytes of JSON, padded | data
 *
 * and offsets in the header count from the start of the data.
 */
#ifndef WFS_SAFETENSORS_H
#define WFS_SAFETENSORS_H

#include "base/hash.h"
#include "format/core/format.h"
#include "format/core/layout.h"
#include "text/json.h"
#include "format/core/oddities.h"

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
};

/* What a reader may stumble over, worst first. Only the first case of each is told, with a count.
 */
enum oddity {
    ODD_TRAILING,
    ODD_SHORT,
    ODD_OFFSET,
    ODD_SIZE,
    ODD_DTYPE,
    ODD_DUPLICATE,
    ODD_PATH,
    ODD_FORM,
    ODD_LEADING,
    ODD_PADDING,
    ODD_META_DUPLICATE,
    ODD_META_EMPTY,
    ODD_META_FORMAT,
    ODD_DATA_START,
    ODD_UNALIGNED,
    ODD_HEADER_SIZE,
    ODD_SLASH,
    ODD_ORDER,
    ODD_FIELD,
    ODD_EMPTY,
    N_ODDITIES
};

/* A load on its way: everything that its steps share. */
struct safetensors_load {
    struct source *source;
    const struct load_context *context;
    struct wfs_catalog *catalog;
    struct wfs_error *err;
    char *header; /* malloc'ed, n_header bytes; strings in it get unescaped */
    uint64_t n_header;
    struct safetensors_entry *entries; /* malloc'ed; as in the header, later as in the data */
    size_t n_entries, n_room;
    const char *duplicate; /* what to say of the first key that stands twice; NULL: none does */
    struct odd_count odd[N_ODDITIES];
};

/* Counts one more, and is true for the first, whose text the caller then puts down. */
bool safetensors_is_first(struct safetensors_load *load, enum oddity oddity);

/* Parses the header into entries, metadata and oddities. */
int safetensors_parse(struct safetensors_load *load);

/* Sorts the entries by their place in the data and compares them with each other and the file. */
int safetensors_check(struct safetensors_load *load);

/* Fills the catalog with the checked entries. */
int safetensors_fill(struct safetensors_load *load);

int safetensors_fail_memory(const struct safetensors_load *load);

/* How the reference orders tensors: by dtype, last of the table first, then by the bytes of the
 * key. */
int safetensors_compare(uint8_t dtype_a, const char *key_a, size_t n_key_a, uint8_t dtype_b,
                        const char *key_b, size_t n_key_b);

/* Lays a catalog out in the canonical form. */
int safetensors_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                     struct wfs_error *err);

extern const struct wfs_format format_safetensors;

#endif
