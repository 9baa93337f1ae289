/* SPDX-License-Identifier: MIT */
/*
 * A load of a safetensors file on its way: everything that its steps share.
 */
#ifndef WFS_SAFETENSORS_LOAD_H
#define WFS_SAFETENSORS_LOAD_H

#include <string.h>

#include "base/hash.h"
#include "format/core/tally.h"
#include "format/safetensors/safetensors_file.h"
#include "format/core/format.h"
#include "text/json.h"

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

struct safetensors_load {
    struct source *source;
    const struct load_context *context;
    struct wfs_catalog *catalog;
    struct wfs_error *err;
    struct tally tally;
    char *header; /* malloc'ed, n_header bytes; strings in it get unescaped */
    uint64_t n_header;
    struct safetensors_entry *entries; /* malloc'ed; as in the header, later as in the data */
    size_t n_entries, n_room;
    const char *duplicate; /* the description of the first duplicate key; NULL: there is none */
    /* While the header is parsed: */
    struct json json;
    struct json_text tensor; /* key of the one at hand; bytes NULL: none */
    struct map keys;         /* of the entries */
    uint64_t *dims;          /* malloc'ed room for a shape */
    size_t dims_room;
    struct json_text *meta; /* malloc'ed; names and values in turn */
    size_t n_meta, meta_room;
    struct map meta_names;
    uint8_t last_dtype; /* few dtypes, many tensors: the last one is tried first */
    bool has_metadata;
};

void safetensors_load_done(struct safetensors_load *load);

/* Fails with what the JSON parser has found wrong, and with error if it has found nothing. */
int safetensors_load_fail_json(struct safetensors_load *load, const char *error);

static inline uint64_t safetensors_at(const struct json_text *text)
{
    return SAFETENSORS_PREFIX + (uint64_t)text->offset;
}

static inline struct wfs_quoted safetensors_quote(const struct json_text *text)
{
    return wfs_quote_n(text->bytes, text->n_bytes);
}

static inline bool safetensors_is_text(const struct json_text *text, const char *word)
{
    return text->n_bytes == strlen(word) && memcmp(text->bytes, word, text->n_bytes) == 0;
}

#endif
