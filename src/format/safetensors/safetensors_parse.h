/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files that parse a safetensors header: the state of the parse, and what both need
 * of it.
 */
#ifndef WFS_SAFETENSORS_PARSE_H
#define WFS_SAFETENSORS_PARSE_H

#include "format/safetensors/safetensors.h"

#include <string.h>

struct safetensors_parse {
    struct safetensors_load *load;
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

/* Fails with what the JSON parser has found wrong, and with error if it has found nothing. */
int safetensors_fail_json(struct safetensors_parse *parse, const char *error);

/* The value of a tensor's key, an object or an array, into entry. */
int safetensors_take_fields(struct safetensors_parse *parse, struct safetensors_entry *entry);

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
