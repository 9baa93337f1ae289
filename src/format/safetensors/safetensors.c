/* SPDX-License-Identifier: MIT */
/*
 * The safetensors format: recognising a file, and loading one. The header is one object of tensors
 * and, under "__metadata__", an object of texts. Accepts what the reference accepts, which is more
 * than its documentation says, and notes what is odd. The order of the checks is that of the
 * reference, so that a file with two faults gets the same verdict.
 */
#include "format/safetensors/safetensors.h"

#include <weightfs/array.h>
#include "base/bytes.h"
#include "base/utf8.h"
#include "format/core/format.h"
#include "format/core/keys.h"
#include "format/safetensors/safetensors_load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { N_HUB_HEADER = 25000000 };

static uint64_t place_of(const struct json_text *text)
{
    return SAFETENSORS_PREFIX + (uint64_t)text->offset;
}

static struct wfs_quoted quote(const struct json_text *text)
{
    return wfs_quote_n(text->bytes, text->n_bytes);
}

static bool is_text(const struct json_text *text, const char *word)
{
    return text->n_bytes == strlen(word) && memcmp(text->bytes, word, text->n_bytes) == 0;
}

/* Fails with what the JSON parser has found wrong, and with error if it has found nothing. */
static int fail_json(struct safetensors_load *load, const char *error)
{
    struct json *json = &load->json;
    json_fail(json, error);
    const uint64_t at = SAFETENSORS_PREFIX + (uint64_t)json_offset(json);
    if (load->tensor.bytes == NULL)
        return wfs_fail(load->err, EBADMSG, "invalid JSON in header: %s at byte %" PRIu64,
                        json->error, at);
    return wfs_fail(load->err, EBADMSG,
                    "invalid JSON in header: tensor '%s': %s at byte "
                    "%" PRIu64,
                    quote(&load->tensor).text, json->error, at);
}

/* ---- a tensor: an object or, which only the reference takes, an array ---- */

/* The dtype's name is a string, or the only key of an object, with null. */
static int take_dtype_text(struct safetensors_load *load, struct json_text *ret)
{
    struct json *json = &load->json;
    struct json_text rest;
    if (json_kind(json) != JSON_KIND_OBJECT)
        return json_take_string(json, ret) ? 0 : fail_json(load, NULL);
    json_open_object(json);
    if (!json_next_key(json, ret))
        return fail_json(load, "expected a dtype");
    if (!json_take_null(json))
        return fail_json(load, NULL);
    if (json_next_key(json, &rest))
        return fail_json(load, "more than one dtype");
    if (json->error != NULL)
        return fail_json(load, NULL);
    if (tally_count(&load->tally, ST_FORM))
        tally_describe(
            &load->tally, &load->catalog->arena, WFS_MEDIUM, ST_FORM,
            "the dtype of tensor '%s' is an object, which only the reference implementation reads",
            quote(&load->tensor).text);
    return 0;
}

static int take_dtype(struct safetensors_load *load, struct safetensors_entry *entry)
{
    struct json_text text;
    enum wfs_dtype dtype;
    const int code = take_dtype_text(load, &text);
    if (code < 0)
        return code;
    if (is_text(&text, wfs_dtype_name((enum wfs_dtype)load->last_dtype))) {
        entry->dtype = load->last_dtype;
        return 0;
    }
    if (wfs_dtype_parse(text.bytes, text.n_bytes, &dtype) && dtype <= SAFETENSORS_LAST_DTYPE) {
        entry->dtype = load->last_dtype = (uint8_t)dtype;
        return 0;
    }
    const struct wfs_quoted key = quote(&load->tensor), name = quote(&text);
    if (!load->context->force)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "tensor '%s' at byte %" PRIu64 ": unknown dtype '%s'", key.text,
                        place_of(&load->tensor), name.text);
    entry->dtype = WFS_OPAQUE;
    entry->dtype_text = text.bytes;
    if (tally_count(&load->tally, ST_DTYPE))
        tally_describe(&load->tally, &load->catalog->arena, WFS_HIGH, ST_DTYPE,
                       "tensor '%s' has the unknown dtype '%s'", key.text, name.text);
    return 0;
}

/* Many tensors have few shapes. NULL when out of memory. */
static const uint64_t *keep_dims(struct safetensors_load *load, size_t rank)
{
    const size_t n_bytes = rank * sizeof(uint64_t);
    const uint32_t known = text_index_find(&load->shapes, (const char *)load->dims, n_bytes);
    if (known != TEXT_INDEX_NONE)
        return (const void *)load->shapes.texts[known].bytes;
    uint64_t *dims = arena_calloc(&load->catalog->arena, rank, sizeof(*dims));
    uint32_t number;
    if (dims == NULL)
        return NULL;
    memcpy(dims, load->dims, n_bytes);
    return text_index_add(&load->shapes, (const char *)dims, n_bytes, &number) < 0 ? NULL : dims;
}

static int take_shape(struct safetensors_load *load, struct safetensors_entry *entry)
{
    size_t rank = 0;
    json_open_array(&load->json);
    while (json_next_item(&load->json)) {
        if (rank == load->context->limits.rank || rank == UINT32_MAX)
            return wfs_fail(load->err, E2BIG, "tensor '%s' has more than %s (limit rank)",
                            quote(&load->tensor).text, wfs_count(rank, "dimension").text);
        if (array_reserve(&load->dims, sizeof(*load->dims), rank, 1, &load->dims_room) < 0)
            return wfs_fail_memory(load->err);
        if (!json_take_uint(&load->json, &load->dims[rank]))
            break;
        rank++;
    }
    if (load->json.error != NULL)
        return fail_json(load, NULL);
    entry->rank = (uint32_t)rank;
    if (rank == 0)
        return 0;
    entry->dims = keep_dims(load, rank);
    return entry->dims == NULL ? catalog_fail_memory(load->catalog, load->err) : 0;
}

static int take_offsets(struct safetensors_load *load, struct safetensors_entry *entry)
{
    struct json *json = &load->json;
    uint64_t *const offsets[] = {&entry->begin, &entry->end};
    json_open_array(json);
    for (int i = 0; i < 2; i++) {
        if (!json_next_item(json))
            return fail_json(load, "expected two offsets, found fewer");
        if (!json_take_uint(json, offsets[i]))
            return fail_json(load, NULL);
    }
    if (json_next_item(json))
        return fail_json(load, "expected two offsets, found more");
    return json->error != NULL ? fail_json(load, NULL) : 0;
}

#define FIELD(name, take)                                                                          \
    {                                                                                              \
        name, take, "missing field '" name "'", "duplicate field '" name "'"                       \
    }

/* In the order of the array form. */
static const struct field {
    const char *name;
    int (*take)(struct safetensors_load *load, struct safetensors_entry *entry);
    const char *missing, *twice;
} fields[] = {
    FIELD("dtype", take_dtype),
    FIELD("shape", take_shape),
    FIELD("data_offsets", take_offsets),
};

enum { N_FIELDS = sizeof(fields) / sizeof(fields[0]) };

static int skip_field(struct safetensors_load *load, const struct json_text *name)
{
    if (tally_count(&load->tally, ST_FIELD))
        tally_describe(&load->tally, &load->catalog->arena, WFS_INFO, ST_FIELD,
                       "tensor '%s' has the unknown field '%s'", quote(&load->tensor).text,
                       quote(name).text);
    return json_skip(&load->json) ? 0 : fail_json(load, NULL);
}

static int take_object(struct safetensors_load *load, struct safetensors_entry *entry)
{
    bool has[N_FIELDS] = {false};
    struct json_text name;
    json_open_object(&load->json);
    while (json_next_key(&load->json, &name)) {
        size_t i = 0;
        while (i < N_FIELDS && !is_text(&name, fields[i].name))
            i++;
        if (i < N_FIELDS && has[i])
            return fail_json(load, fields[i].twice);
        const int code = i < N_FIELDS ? fields[i].take(load, entry) : skip_field(load, &name);
        if (code < 0)
            return code;
        if (i < N_FIELDS)
            has[i] = true;
    }
    if (load->json.error != NULL)
        return fail_json(load, NULL);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (!has[i])
            return fail_json(load, fields[i].missing);
    }
    return 0;
}

static int take_array(struct safetensors_load *load, struct safetensors_entry *entry)
{
    json_open_array(&load->json);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (!json_next_item(&load->json))
            return fail_json(load, "expected three fields, found fewer");
        const int code = fields[i].take(load, entry);
        if (code < 0)
            return code;
    }
    if (json_next_item(&load->json))
        return fail_json(load, "expected three fields, found more");
    if (load->json.error != NULL)
        return fail_json(load, NULL);
    if (tally_count(&load->tally, ST_FORM))
        tally_describe(
            &load->tally, &load->catalog->arena, WFS_MEDIUM, ST_FORM,
            "tensor '%s' is described by an array, which only the reference implementation reads",
            quote(&load->tensor).text);
    return 0;
}

/* Takes the value of a tensor's key, an object or an array, into entry. */
static int take_fields(struct safetensors_load *load, struct safetensors_entry *entry)
{
    switch (json_kind(&load->json)) {
    case JSON_KIND_OBJECT:
        return take_object(load, entry);
    case JSON_KIND_ARRAY:
        return take_array(load, entry);
    default:
        return fail_json(load, "expected dtype, shape and data_offsets");
    }
}

/* As a path it would leave the directory that it is taken in. */
static bool leads_elsewhere(const struct json_text *key)
{
    const char *end = key->bytes + key->n_bytes;
    for (const char *at = key->bytes; at < end;) {
        const char *slash = memchr(at, '/', (size_t)(end - at));
        const char *stop = slash != NULL ? slash : end;
        if (stop - at == 2 && at[0] == '.' && at[1] == '.')
            return true;
        at = stop + 1;
    }
    return key->n_bytes > 0 && key->bytes[0] == '/';
}

static void note_key(struct safetensors_load *load, const struct json_text *key)
{
    const bool has_slash = memchr(key->bytes, '/', key->n_bytes) != NULL;
    if (!has_slash && !is_text(key, ".."))
        return;
    const bool is_path = leads_elsewhere(key);
    const enum st_finding kind = is_path ? ST_PATH : ST_SLASH;
    if (tally_count(&load->tally, kind))
        tally_describe(&load->tally, &load->catalog->arena, is_path ? WFS_HIGH : WFS_INFO, kind,
                       "the key '%s' %s", quote(key).text,
                       is_path ? "would lead out of the directory if a tool used it as a path"
                               : "contains a slash");
}

static int check_key(struct safetensors_load *load)
{
    const struct json_text *key = &load->tensor;
    const uint64_t at = place_of(key);
    if (key->n_bytes > load->context->limits.key)
        return wfs_fail(load->err, E2BIG,
                        "the key '%s' at byte %" PRIu64 " is longer than %s (limit key)",
                        quote(key).text, at, wfs_count(load->context->limits.key, "byte").text);
    note_key(load, key);
    return 0;
}

static void note_duplicate(struct safetensors_load *load, const struct safetensors_entry *first)
{
    if (!tally_count(&load->tally, ST_DUPLICATE))
        return;
    struct arena *arena = &load->catalog->arena;
    load->duplicate =
        arena_print(arena, "duplicate key '%s' at byte %" PRIu64 ", first at byte %" PRIu32,
                    quote(&load->tensor).text, place_of(&load->tensor), first->offset);
    if (load->duplicate != NULL)
        tally_describe(&load->tally, arena, WFS_HIGH, ST_DUPLICATE, "%s: the last one counts",
                       load->duplicate);
}

/* The last of several entries of one key takes the place of the others. */
static int keep(struct safetensors_load *load, const struct safetensors_entry *entry)
{
    uint32_t id;
    if (text_index_add(&load->keys, entry->key, entry->n_key, &id) < 0)
        return wfs_fail_memory(load->err);
    if (id < load->n_entries) {
        note_duplicate(load, &load->entries[id]);
        load->entries[id] = *entry;
        return 0;
    }
    if (load->n_entries == load->context->limits.tensors)
        return wfs_fail(load->err, E2BIG, "it has more than %s (limit tensors)",
                        wfs_count(load->n_entries, "tensor").text);
    if (array_reserve(&load->entries, sizeof(*entry), load->n_entries, 1, &load->n_room) < 0)
        return wfs_fail_memory(load->err);
    load->entries[load->n_entries++] = *entry;
    return 0;
}

/* Escapes the NULs of a key, or refuses it. Returns 1 if there are any. */
static int escape(struct safetensors_load *load, struct json_text *key, const char *what)
{
    const int code = nul_key_escape(load->context->force || load->context->escapes_nul,
                                    &load->catalog->arena, &key->bytes, &key->n_bytes);
    if (code == -EOPNOTSUPP)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "the %s '%s' at byte %" PRIu64
                        " contains a NUL, which no file name can" NUL_KEY_HINT,
                        what, quote(key).text, place_of(key));
    return code < 0 ? catalog_fail_memory(load->catalog, load->err) : code;
}

static int take_tensor(struct safetensors_load *load, const struct json_text *key)
{
    load->tensor = *key;
    int code = check_key(load);
    const int has_nul = code < 0 ? code : escape(load, &load->tensor, "key");
    if (has_nul < 0)
        return has_nul;
    struct safetensors_entry entry = {
        .key = load->tensor.bytes,
        .n_key = (uint32_t)load->tensor.n_bytes,
        .offset = (uint32_t)place_of(key),
        .has_nul = has_nul > 0,
    };
    code = take_fields(load, &entry);
    if (code == 0)
        code = load->context->taker != NULL ? safetensors_entry_give(load, &entry)
                                            : keep(load, &entry);
    load->tensor = (struct json_text){0};
    return code;
}

/* ---- metadata ---- */

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static int keep_meta(struct safetensors_load *load, const struct json_text *name,
                     const struct json_text *value)
{
    const size_t n = load->meta_names.n_texts;
    uint32_t id;
    if (array_reserve(&load->meta, sizeof(*value), n, 1, &load->meta_room) < 0 ||
        text_index_add(&load->meta_names, name->bytes, name->n_bytes, &id) < 0)
        return wfs_fail_memory(load->err);
    load->meta[id] = *value;
    if (id < n && tally_count(&load->tally, ST_META_DUPLICATE))
        tally_describe(&load->tally, &load->catalog->arena, WFS_MEDIUM, ST_META_DUPLICATE,
                       "metadata key '%s' is a duplicate, at byte %" PRIu64 ": the last one counts",
                       quote(name).text, place_of(name));
    return 0;
}

static void note_metadata(struct safetensors_load *load, bool is_null)
{
    struct arena *arena = &load->catalog->arena;
    const bool has_format = text_index_find(&load->meta_names, "format", 6) != TEXT_INDEX_NONE;
    const size_t n = load->meta_names.n_texts;
    if (n == 0 && tally_count(&load->tally, ST_META_EMPTY))
        tally_describe(&load->tally, arena, WFS_LOW, ST_META_EMPTY,
                       "the metadata is %s, which some loaders refuse", is_null ? "null" : "empty");
    if (n > 0 && !has_format && tally_count(&load->tally, ST_META_FORMAT))
        tally_describe(&load->tally, arena, WFS_LOW, ST_META_FORMAT,
                       "the metadata has no 'format', which some loaders refuse");
}

/* Returns where the member of a JSON object ends whose value, or key, begins here; end: not before
 * that. */
static const char *end_of_member(const char *start, const char *end)
{
    const char *at = start;
    unsigned depth = 0;
    bool is_string = false;
    for (; at < end && (is_string || depth > 0 || strchr(",}", *at) == NULL); at++) {
        if (is_string && *at == '\\' && at + 1 < end)
            at++;
        else if (*at == '"')
            is_string = !is_string;
        else if (!is_string && (*at == '{' || *at == '['))
            depth++;
        else if (!is_string && (*at == '}' || *at == ']') && depth > 0)
            depth--;
    }
    return at;
}

/* Returns how long the JSON value is that begins here. Strings in it are unescaped when it is
 * parsed, so it is to be copied before. */
static size_t value_bytes(const char *start, const char *end)
{
    const char *at = end_of_member(start, end);
    while (at > start && is_space((uint8_t)at[-1]))
        at--;
    return (size_t)(at - start);
}

/* A value that is not a string is one only by force: its JSON. */
static int take_meta_value(struct safetensors_load *load, const struct json_text *name,
                           struct json_text *ret)
{
    struct json *json = &load->json;
    if (json_kind(json) == JSON_KIND_STRING)
        return json_take_string(json, ret) ? 0 : fail_json(load, NULL);
    const uint64_t at = SAFETENSORS_PREFIX + (uint64_t)json_offset(json);
    *ret = (struct json_text){.n_bytes = value_bytes(json->at, json->end)};
    ret->bytes = arena_copy(&load->catalog->arena, json->at, ret->n_bytes);
    if (ret->bytes == NULL)
        return catalog_fail_memory(load->catalog, load->err);
    if (!json_skip(json))
        return fail_json(load, NULL);
    if (!load->context->force)
        return wfs_fail(load->err, EBADMSG,
                        "metadata '%s' at byte %" PRIu64
                        ": expected a string, found %s; --force reads it as that text",
                        quote(name).text, at, quote(ret).text);
    if (tally_count(&load->tally, ST_META_TYPE))
        tally_describe(&load->tally, &load->catalog->arena, WFS_MEDIUM, ST_META_TYPE,
                       "metadata '%s' is not a string, but %s", quote(name).text, quote(ret).text);
    return 0;
}

static int take_metadata(struct safetensors_load *load)
{
    struct json *json = &load->json;
    struct json_text name, value;
    if (load->has_metadata)
        return fail_json(load, "duplicate field '" SAFETENSORS_METADATA "'");
    load->has_metadata = true;
    const bool is_null = json_kind(json) == JSON_KIND_NULL;
    if (is_null)
        json_take_null(json);
    else
        json_open_object(json);
    while (!is_null && json_next_key(json, &name)) {
        int code = escape(load, &name, "metadata key");
        if (code < 0)
            return code;
        code = take_meta_value(load, &name, &value);
        if (code == 0)
            code = keep_meta(load, &name, &value);
        if (code < 0)
            return code;
    }
    if (json->error != NULL)
        return fail_json(load, NULL);
    load->catalog->meta.exists = !is_null;
    note_metadata(load, is_null);
    for (size_t i = 0; i < load->meta_names.n_texts; i++) {
        if (catalog_add_meta_bytes(load->catalog, load->meta_names.texts[i].bytes,
                                   load->meta[i].bytes, load->meta[i].n_bytes) < 0)
            return catalog_fail_memory(load->catalog, load->err);
    }
    return 0;
}

/* ---- the file ---- */

static size_t skip_space(const uint8_t *head, size_t i, size_t n_head)
{
    while (i < n_head && is_space(head[i]))
        i++;
    return i;
}

/* The format has no magic number: an object begins at byte 8, after a length that is not text. */
static bool probe(const uint8_t *head, size_t n_head, uint64_t n_bytes)
{
    bool is_text = true;
    for (size_t i = 0; i < SAFETENSORS_PREFIX && i < n_head; i++)
        is_text = is_text && (is_space(head[i]) || (head[i] >= 0x20 && head[i] < 0x7f));
    size_t i = skip_space(head, SAFETENSORS_PREFIX, n_head);
    if (is_text || i >= n_head || head[i] != '{')
        return false;
    i = skip_space(head, i + 1, n_head);
    return i >= n_head || head[i] == '"' || head[i] == '}';
}

static bool foresee(const uint8_t *head, size_t n_head, uint64_t n_bytes, uint64_t *ret_offset,
                    uint64_t *ret_n_bytes)
{
    const uint64_t n_header = n_head < SAFETENSORS_PREFIX ? 0 : load_le64(head);
    *ret_offset = 0;
    return !__builtin_add_overflow(SAFETENSORS_PREFIX, n_header, ret_n_bytes);
}

static int check_length(const struct safetensors_load *load, uint64_t n_header)
{
    enum { LARGEST = INT32_MAX }; /* entries keep offsets in 32 bits */
    const uint64_t n_bytes = load->source->n_bytes, n_rest = n_bytes - SAFETENSORS_PREFIX;
    uint64_t limit = load->context->limits.header;
    limit = limit < LARGEST ? limit : LARGEST;
    if (n_header > limit) {
        if (n_header > n_rest)
            return wfs_fail(load->err, EBADMSG,
                            "truncated: the header should have %s, the file has %" PRIu64,
                            wfs_count(n_header, "byte").text, n_bytes);
        return wfs_fail(load->err, E2BIG,
                        "the header has %s, the limit is %" PRIu64 " (limit header)",
                        wfs_count(n_header, "byte").text, limit);
    }
    if (n_header > n_rest)
        return wfs_fail(load->err, EBADMSG,
                        "truncated: the header ends at byte %" PRIu64 ", the file has %" PRIu64,
                        SAFETENSORS_PREFIX + n_header, n_bytes);
    return 0;
}

/* JSON has no zeros. A file that was not written to its end, or not at all, has many. */
static int check_zeros(const struct safetensors_load *load, uint8_t next)
{
    enum { N_MANY = 16 };
    const char *start = load->header, *end = start + load->n_read;
    const char *first = load->n_read == 0 ? NULL : memchr(start, 0, (size_t)load->n_read);
    const char *last = first;
    if (load->n_header == 0 && next != '{')
        return wfs_fail(load->err, EMEDIUMTYPE,
                        "the length of its header is 0: a failed "
                        "download?");
    while (last != NULL && last < end && *last == 0)
        last++;
    if (last - first < N_MANY)
        return 0;
    return wfs_fail(load->err, first == start ? EMEDIUMTYPE : EBADMSG,
                    "invalid JSON in header: %s from byte %" PRIu64 " on: a failed download?",
                    wfs_count((uint64_t)(last - first), "zero").text,
                    SAFETENSORS_PREFIX + (uint64_t)(first - start));
}

/* Reads what there is room for behind the first n bytes, which are not parsed yet. */
static int read_text(struct safetensors_load *load, size_t n)
{
    const uint64_t n_room = load->n_header_room - n, n_left = load->n_header - load->n_read;
    const size_t n_more = (size_t)(n_room < n_left ? n_room : n_left);
    if (source_read(load->source, SAFETENSORS_PREFIX + load->n_read, load->header + n, n_more) < 0)
        return wfs_fail(load->err, EIO, "cannot read its header of %s",
                        wfs_count(load->n_header, "byte").text);
    load->n_read += n_more;
    json_move(&load->json, load->header, n + n_more);
    return 0;
}

/* A part may end within a character. */
static int check_utf8(const struct safetensors_load *load)
{
    enum { N_CUT = 3 };
    const size_t n = (size_t)(load->json.end - load->json.at);
    const size_t n_valid = utf8_valid(load->json.at, n);
    if (n_valid == n || (load->n_read < load->n_header && n - n_valid <= N_CUT))
        return 0;
    return wfs_fail(load->err, EBADMSG, "invalid UTF-8 in header at byte %" PRIu64,
                    SAFETENSORS_PREFIX + load->n_read - (n - n_valid));
}

static int read_header(struct safetensors_load *load)
{
    enum { N_PART = 1 << 20 };
    uint8_t prefix[SAFETENSORS_PREFIX];
    if (load->source->n_bytes < sizeof(prefix))
        return wfs_fail(load->err, EBADMSG, "truncated: the file has %s, expected at least 8",
                        wfs_count(load->source->n_bytes, "byte").text);
    if (source_read(load->source, 0, prefix, sizeof(prefix)) < 0)
        return wfs_fail(load->err, EIO, "cannot read the length of its header");
    int code = check_length(load, load->n_header = load_le64(prefix));
    if (code < 0)
        return code;
    const bool is_part = load->context->taker != NULL && load->n_header > N_PART;
    load->n_header_room = is_part ? N_PART : (size_t)load->n_header;
    load->header = malloc(load->n_header > 0 ? load->n_header_room : 1);
    if (load->header == NULL)
        return wfs_fail_memory(load->err);
    code = read_text(load, 0);
    if (code < 0)
        return code;
    uint8_t next = '{'; /* an object follows, or nothing */
    if (load->n_header == 0 && load->source->n_bytes > sizeof(prefix))
        (void)!source_read(load->source, sizeof(prefix), &next, 1);
    code = check_zeros(load, next);
    return code < 0 ? code : check_utf8(load);
}

static void note_header(struct safetensors_load *load)
{
    struct arena *arena = &load->catalog->arena;
    const uint64_t n_header = load->n_header;
    if (n_header > 0 && load->header[0] != '{' && tally_count(&load->tally, ST_LEADING))
        tally_describe(&load->tally, arena, WFS_MEDIUM, ST_LEADING,
                       "the header begins with white space, which some readers refuse");
    if (n_header % 8 != 0 && tally_count(&load->tally, ST_DATA_START))
        tally_describe(&load->tally, arena, WFS_LOW, ST_DATA_START,
                       "the data begins at byte %" PRIu64 ", which is not a multiple of 8",
                       SAFETENSORS_PREFIX + n_header);
    if (n_header > N_HUB_HEADER && tally_count(&load->tally, ST_HEADER_SIZE))
        tally_describe(&load->tally, arena, WFS_LOW, ST_HEADER_SIZE,
                       "the header has %s, model hubs show files of up to %d",
                       wfs_count(n_header, "byte").text, N_HUB_HEADER);
}

/* Reads on where the next member, or what may follow the last one, is not all there. */
static int read_on(struct safetensors_load *load)
{
    enum { N_BEHIND = 1 << 16 };
    const struct json *json = &load->json;
    while (load->n_read < load->n_header && json->error == NULL) {
        const size_t n = (size_t)(json->end - json->at);
        const char *start = json->at + (n > 0 && *json->at == ',');
        if (n > N_BEHIND && end_of_member(start, json->end) < json->end)
            return 0;
        memmove(load->header, json->at, n);
        if (n > load->n_header_room / 2) {
            char *header = realloc(load->header, 2 * load->n_header_room);
            if (header == NULL)
                return wfs_fail_memory(load->err);
            load->header = header;
            load->n_header_room *= 2;
        }
        int code = read_text(load, n);
        if (code == 0)
            code = check_utf8(load);
        if (code < 0)
            return code;
    }
    return 0;
}

static int parse_header(struct safetensors_load *load)
{
    struct json *json = &load->json;
    struct json_text key;
    int code;
    json_open_object(json);
    while ((code = read_on(load)) == 0 && json_next_key(json, &key)) {
        code = is_text(&key, SAFETENSORS_METADATA) ? take_metadata(load) : take_tensor(load, &key);
        if (code < 0)
            return code;
    }
    const char *padding = json->at;
    if (code < 0 || !json_end(json) || load->n_read < load->n_header)
        return code < 0 ? code : fail_json(load, "the text continues");
    for (; padding < json->end; padding++) {
        if (*padding == ' ')
            continue;
        if (tally_count(&load->tally, ST_PADDING))
            tally_describe(&load->tally, &load->catalog->arena, WFS_MEDIUM, ST_PADDING,
                           "the header is padded with white space that is not spaces");
        break;
    }
    return 0;
}

static int run(struct safetensors_load *load)
{
    int code = read_header(load);
    if (code < 0)
        return code;
    note_header(load);
    code = parse_header(load);
    text_index_done(&load->keys); /* the catalog, which comes next, needs the room */
    if (code == 0)
        code = safetensors_entries_check(load);
    if (code == 0)
        code = safetensors_entries_fill(load);
    if (code < 0)
        return code;
    return tally_report(&load->tally, load->catalog) < 0
               ? catalog_fail_memory(load->catalog, load->err)
               : 0;
}

static int load_file(struct source *source, const struct load_context *context,
                     struct wfs_catalog *catalog, struct wfs_error *err)
{
    static const struct wfs_container container = {.name = "safetensors"};
    struct safetensors_load load = {
        .source = source, .context = context, .catalog = catalog, .err = err};
    catalog->container = &container;
    const int code = run(&load);
    text_index_done(&load.meta_names);
    text_index_done(&load.shapes);
    free(load.dims);
    free(load.meta);
    free(load.entries);
    free(load.header);
    return code;
}

/* Older loaders of transformers refuse a file that does not name its library. */
static int settle(struct wfs_catalog *catalog, struct wfs_error *err)
{
    const struct wfs_format *from = catalog->format;
    if (from == NULL || from->convention != WFS_CONVENTION_TORCH)
        return 0;
    for (const struct wfs_text *text = catalog->meta.first; text != NULL; text = text->next) {
        if (strcmp(text->name, "format") == 0)
            return 0;
    }
    return catalog_add_meta(catalog, "format", "pt") < 0 ? catalog_fail_memory(catalog, err) : 0;
}

static const char *const extensions[] = {".safetensors", NULL};

static const struct format_functions functions = {
    .probe = probe,
    .foresee = foresee,
    .load = load_file,
    .settle = settle,
    .stores = safetensors_layout_stores,
    .plan = safetensors_layout_plan,
};

const struct wfs_format format_safetensors = {
    .name = "safetensors",
    .title = "safetensors",
    .extensions = extensions,
    .set_name = "model.safetensors",
    .reserved_key = SAFETENSORS_METADATA,
    .needs_utf8 = true,
    .keeps_metadata = true,
    .functions = &functions,
};
