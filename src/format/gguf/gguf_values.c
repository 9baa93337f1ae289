/* SPDX-License-Identifier: MIT */
/*
 * From the header of a GGUF to numbers, texts and values. Counts are compared with what is left of
 * the file before memory is taken for them.
 */
#include "format/gguf/gguf_load.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "base/utf8.h"
#include "format/core/keys.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64 }; /* of arrays in arrays */

/* ---- pieces ---- */

static int fail_take(const struct gguf_load *load, int code, uint64_t at)
{
    if (code == -ENODATA)
        return wfs_fail(load->err, EBADMSG,
                        "truncated: the header goes on at byte %" PRIu64 ", the file has %s", at,
                        wfs_count(load->source->n_bytes, "byte").text);
    return code == -ENOMEM ? wfs_fail_memory(load->err)
                           : wfs_fail(load->err, -code, "cannot read its header");
}

int gguf_take_number(struct gguf_load *load, size_t n_bytes, uint64_t *ret)
{
    const uint64_t at = stream_offset(&load->stream);
    const uint8_t *bytes;
    const int code = stream_take(&load->stream, n_bytes, &bytes);
    if (code < 0)
        return fail_take(load, code, at);
    *ret = 0;
    for (size_t i = 0; i < n_bytes; i++)
        *ret |= (uint64_t)bytes[i] << 8 * (load->is_big ? n_bytes - 1 - i : i);
    return 0;
}

int gguf_take_count(struct gguf_load *load, uint64_t *ret)
{
    return gguf_take_number(load, load->version == 1 ? 4 : 8, ret);
}

static int take_text(struct gguf_load *load, uint64_t limit, const char *name,
                     struct gguf_text *ret)
{
    const uint64_t at = stream_offset(&load->stream);
    uint64_t n;
    int code = gguf_take_count(load, &n);
    if (code < 0)
        return code;
    if (n > stream_left(&load->stream))
        return wfs_fail(
            load->err, EBADMSG,
            "truncated: the text at byte %" PRIu64 " has %s, and the file ends after %s of it", at,
            wfs_count(n, "byte").text, wfs_count(stream_left(&load->stream), "byte").text);
    if (n > limit)
        return wfs_fail(load->err, E2BIG,
                        "the text at byte %" PRIu64 " has %s, the limit is %" PRIu64 " (limit %s)",
                        at, wfs_count(n, "byte").text, limit, name);
    char *bytes = arena_chars(&load->catalog->arena, (size_t)n + 1);
    if (bytes == NULL)
        return catalog_fail_memory(load->catalog, load->err);
    code = stream_read(&load->stream, bytes, (size_t)n);
    if (code < 0)
        return fail_take(load, code, at);
    bytes[n] = '\0';
    *ret = (struct gguf_text){bytes, (size_t)n};
    return 0;
}

int gguf_take_key(struct gguf_load *load, const char *what, struct gguf_text *ret)
{
    const uint64_t at = stream_offset(&load->stream);
    const int code = take_text(load, load->context->limits.key, "key", ret);
    if (code < 0)
        return code;
    if (utf8_valid(ret->bytes, ret->n_bytes) != ret->n_bytes)
        return wfs_fail(load->err, EBADMSG, "the %s '%s' at byte %" PRIu64 " is not UTF-8", what,
                        wfs_quote_n(ret->bytes, ret->n_bytes).text, at);
    const int n = nul_key_escape(load->context->force || load->context->escapes_nul,
                                 &load->catalog->arena, &ret->bytes, &ret->n_bytes);
    if (n == -EOPNOTSUPP)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "the %s '%s' at byte %" PRIu64
                        " contains a NUL, which no file name can" NUL_KEY_HINT,
                        what, wfs_quote_n(ret->bytes, ret->n_bytes).text, at);
    return n < 0 ? catalog_fail_memory(load->catalog, load->err) : n;
}

/* ---- values ---- */

/* Returns a number of the file as a token: of less than 64 bits, as one of 64. */
static struct token token_of(enum gguf_type type, uint64_t n)
{
    static const uint8_t kinds[GGUF_N_TYPES] = {
        [GGUF_U8] = TOKEN_UINT,  [GGUF_U16] = TOKEN_UINT, [GGUF_U32] = TOKEN_UINT,
        [GGUF_U64] = TOKEN_UINT, [GGUF_F32] = TOKEN_F32,  [GGUF_F64] = TOKEN_F64,
        [GGUF_BOOL] = TOKEN_BOOL};
    const bool is_signed =
        type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
    if (!is_signed)
        return (struct token){.kind = kinds[type], .n = n};
    const unsigned n_spare = 64 - 8 * gguf_type_bytes(type);
    const int64_t integer = (int64_t)(n << n_spare) >> n_spare;
    return (struct token){.kind = integer < 0 ? TOKEN_NEGATIVE : TOKEN_UINT,
                          .n = (uint64_t)integer};
}

static void note_truth(struct gguf_load *load, uint64_t n, uint64_t at)
{
    if (n > 1 && tally_count(&load->tally, GGUF_TRUTH))
        tally_describe(&load->tally, &load->catalog->arena, WFS_LOW, GGUF_TRUTH,
                       "the BOOL at byte %" PRIu64 " is %" PRIu64 " instead of 0 or 1: it is true",
                       at, n);
}

static int take_scalar(struct gguf_load *load, enum gguf_type type, uint32_t *ret)
{
    struct graph *graph = &load->catalog->values.graph;
    const uint64_t at = stream_offset(&load->stream);
    struct gguf_text text;
    uint64_t n = 0;
    int code = type == GGUF_TEXT ? take_text(load, load->context->limits.text, "text", &text)
                                 : gguf_take_number(load, gguf_type_bytes(type), &n);
    if (code < 0)
        return code;
    const struct token token = token_of(type, n);
    *ret = type == GGUF_TEXT ? value_new_lasting(graph, text.bytes, text.n_bytes)
                             : value_of_token(graph, &token);
    if (*ret == 0)
        return catalog_fail_memory(load->catalog, load->err);
    if (type == GGUF_BOOL)
        note_truth(load, n, at);
    gguf_type_keep(graph_at(graph, *ret), type);
    return 0;
}

static int take_type(struct gguf_load *load, const struct gguf_text *key, enum gguf_type *ret)
{
    const uint64_t at = stream_offset(&load->stream);
    uint64_t type;
    const int code = gguf_take_number(load, 4, &type);
    if (code < 0)
        return code;
    if (type >= GGUF_N_TYPES)
        return wfs_fail(load->err, EBADMSG,
                        "metadata '%s': the type at byte %" PRIu64 " is %" PRIu64
                        ", of types from 0 to %d",
                        wfs_quote_n(key->bytes, key->n_bytes).text, at, type, GGUF_N_TYPES - 1);
    *ret = (enum gguf_type)type;
    return 0;
}

/* Reads the head of an array and compares the number of its items with the rest of the file. */
static int take_array_head(struct gguf_load *load, const struct gguf_text *key,
                           enum gguf_type *ret_type, uint64_t *ret_n)
{
    const uint64_t limit = load->context->limits.values, at = stream_offset(&load->stream);
    const uint64_t n_count = load->version == 1 ? 4 : 8;
    int code = take_type(load, key, ret_type);
    if (code == 0)
        code = gguf_take_count(load, ret_n);
    if (code < 0)
        return code;
    const uint64_t n_least = *ret_type == GGUF_TEXT    ? n_count
                             : *ret_type == GGUF_ARRAY ? 4 + n_count
                                                       : gguf_type_bytes(*ret_type);
    const struct wfs_quoted quoted = wfs_quote_n(key->bytes, key->n_bytes);
    if (*ret_n > stream_left(&load->stream) / n_least)
        return wfs_fail(load->err, EBADMSG,
                        "truncated: metadata '%s': the array at byte %" PRIu64 " has %s of %s, "
                        "but %s follow in the file",
                        quoted.text, at, wfs_count(*ret_n, "item").text, gguf_type_name(*ret_type),
                        wfs_count(stream_left(&load->stream), "byte").text);
    const uint64_t n_values = load->catalog->values.graph.n_values;
    return *ret_n < UINT32_MAX && *ret_n <= limit && n_values <= limit - *ret_n
               ? 0
               : wfs_fail(load->err, E2BIG,
                          "metadata '%s': the array at byte %" PRIu64
                          " has %s, the limit of all is %" PRIu64 " (limit values)",
                          quoted.text, at, wfs_count(*ret_n, "item").text, limit);
}

/* An array whose items are read. */
struct level {
    enum gguf_type type; /* of the items */
    uint64_t n_left;
};

static int open_array(struct gguf_load *load, const struct gguf_text *key, struct build *build,
                      struct level *levels)
{
    struct level *level = &levels[build->depth];
    if (build->depth == DEPTH_MAX)
        return wfs_fail(load->err, E2BIG, "metadata '%s': arrays are nested deeper than %d levels",
                        wfs_quote_n(key->bytes, key->n_bytes).text, DEPTH_MAX);
    if (build->depth == 1)
        tally_note(&load->tally, &load->catalog->arena, WFS_LOW, GGUF_NESTED,
                   "metadata '%s' is an array of arrays, which llama.cpp refuses",
                   wfs_quote_n(key->bytes, key->n_bytes).text);
    const int code = take_array_head(load, key, &level->type, &level->n_left);
    if (code == 0)
        build_open(build, false);
    return code;
}

static void close_array(struct build *build, const struct level *levels)
{
    const enum gguf_type type = levels[build->depth - 1].type;
    const uint32_t id = build_close(build);
    if (id != 0)
        gguf_type_keep(graph_at(build->graph, id), type);
    build_add(build, id);
}

static int take_array(struct gguf_load *load, const struct gguf_text *key, uint32_t *ret)
{
    cleanup(build_done) struct build build = {.graph = &load->catalog->values.graph};
    struct level levels[DEPTH_MAX];
    int code = open_array(load, key, &build, levels);
    while (code == 0 && build.depth > 0 && !build.has_failed) {
        struct level *level = &levels[build.depth - 1];
        uint32_t id = 0;
        if (level->n_left == 0) {
            close_array(&build, levels);
            continue;
        }
        level->n_left--;
        if (level->type == GGUF_ARRAY) {
            code = open_array(load, key, &build, levels);
            continue;
        }
        code = take_scalar(load, level->type, &id);
        if (code == 0)
            build_add(&build, id);
    }
    if (code < 0)
        return code;
    *ret = build.root;
    return build.has_failed ? catalog_fail_memory(load->catalog, load->err) : 0;
}

/* ---- pairs ---- */

static int take_alignment(struct gguf_load *load, enum gguf_type type, uint32_t id)
{
    const int64_t n = type == GGUF_U32 ? graph_at(&load->catalog->values.graph, id)->integer : 0;
    if (type != GGUF_U32)
        return wfs_fail(load->err, EBADMSG, "metadata '" GGUF_ALIGNMENT "' is %s instead of U32",
                        gguf_type_name(type));
    if (n == 0 || (n & (n - 1)) != 0)
        return wfs_fail(load->err, EBADMSG,
                        "metadata '" GGUF_ALIGNMENT "' is %" PRId64 ", which is not a power of 2",
                        n);
    load->alignment = (uint64_t)n;
    return 0;
}

static int add_pair(struct gguf_load *load, const struct gguf_text *key, uint32_t id)
{
    const struct catalog_place place = {.name = key->bytes,
                                        .n_name = (uint32_t)key->n_bytes,
                                        .start = PLACE_FIXED,
                                        .item = PLACE_FIXED,
                                        .id = id,
                                        .kind = PLACE_VALUE};
    const uint32_t number = catalog_add_place(load->catalog, &place);
    return number == 0 || catalog_add_value(load->catalog, key->bytes, id, number) < 0
               ? wfs_fail_memory(load->err)
               : 0;
}

/* A key that no other pair has. */
static int take_name(struct gguf_load *load, struct gguf_text *key)
{
    const uint64_t at = stream_offset(&load->stream);
    const size_t n = load->names.n_texts;
    uint32_t number;
    const int code = gguf_take_key(load, "metadata key", key);
    if (code < 0)
        return code;
    if (key->n_bytes == 0)
        return wfs_fail(load->err, EBADMSG, "the metadata key at byte %" PRIu64 " is empty", at);
    if (text_index_add(&load->names, key->bytes, key->n_bytes, &number) < 0)
        return wfs_fail_memory(load->err);
    return number == n ? 0
                       : wfs_fail(load->err, EBADMSG,
                                  "the metadata key '%s' is a duplicate, at byte %" PRIu64,
                                  wfs_quote_n(key->bytes, key->n_bytes).text, at);
}

bool gguf_describes_part(const char *value)
{
    return strncmp(value, "split.", 6) == 0;
}

/* Notes a number that describes the file as one of several, if it has the type that this needs. */
static void note_part(struct gguf_load *load, const char *key, enum gguf_type type, uint32_t id)
{
    struct catalog_part *part = &load->catalog->notes.part;
    const struct value *value = graph_at(&load->catalog->values.graph, id);
    if (type == GGUF_U16 && strcmp(key, GGUF_PART_NUMBER) == 0)
        part->number = (uint32_t)value->integer;
    else if (type == GGUF_U16 && strcmp(key, GGUF_PART_COUNT) == 0)
        part->n = (uint32_t)value->integer;
    else if (type == GGUF_I32 && strcmp(key, GGUF_PART_TENSORS) == 0)
        part->n_tensors = (uint64_t)value->integer;
}

int gguf_values_take(struct gguf_load *load)
{
    int code = 0;
    for (uint64_t i = 0; i < load->n_pairs && code == 0; i++) {
        struct gguf_text key;
        enum gguf_type type;
        uint32_t id;
        code = take_name(load, &key);
        if (code == 0)
            code = take_type(load, &key, &type);
        if (code == 0)
            code = type == GGUF_ARRAY ? take_array(load, &key, &id) : take_scalar(load, type, &id);
        if (code == 0 && strcmp(key.bytes, GGUF_ALIGNMENT) == 0)
            code = take_alignment(load, type, id);
        if (code == 0)
            note_part(load, key.bytes, type, id);
        if (code == 0)
            code = add_pair(load, &key, id);
    }
    return code;
}
