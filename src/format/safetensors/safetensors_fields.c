/* SPDX-License-Identifier: MIT */
/*
 * One entry of a safetensors header: dtype, shape and data_offsets, as an object or, which only the
 * reference takes, as an array.
 */
#include <weightfs/array.h>

#include "format/safetensors/safetensors_parse.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The dtype's name is a string, or the only key of an object, with null. */
static int take_dtype_text(struct safetensors_parse *parse, struct json_text *ret)
{
    struct json *json = &parse->json;
    struct json_text rest;
    if (json_kind(json) != JSON_KIND_OBJECT)
        return json_take_string(json, ret) ? 0 : safetensors_fail_json(parse, NULL);
    json_open_object(json);
    if (!json_next_key(json, ret))
        return safetensors_fail_json(parse, "expected a dtype");
    if (!json_take_null(json))
        return safetensors_fail_json(parse, NULL);
    if (json_next_key(json, &rest))
        return safetensors_fail_json(parse, "more than one dtype");
    if (json->error != NULL)
        return safetensors_fail_json(parse, NULL);
    if (safetensors_is_first(parse->load, ODD_FORM))
        parse->load->odd[ODD_FORM].text =
            arena_print(&parse->load->catalog->arena,
                        "the dtype of tensor '%s' is an object, which only the reference reads",
                        safetensors_quote(&parse->tensor).text);
    return 0;
}

static int take_dtype(struct safetensors_parse *parse, struct safetensors_entry *entry)
{
    struct safetensors_load *load = parse->load;
    struct json_text text;
    enum wfs_dtype dtype;
    const int code = take_dtype_text(parse, &text);
    if (code < 0)
        return code;
    if (safetensors_is_text(&text, wfs_dtype_name((enum wfs_dtype)parse->last_dtype))) {
        entry->dtype = parse->last_dtype;
        return 0;
    }
    if (wfs_dtype_parse(text.bytes, text.n_bytes, &dtype) && dtype <= SAFETENSORS_LAST_DTYPE) {
        entry->dtype = parse->last_dtype = (uint8_t)dtype;
        return 0;
    }
    const struct wfs_quoted key = safetensors_quote(&parse->tensor),
                            name = safetensors_quote(&text);
    if (!load->context->force)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "InvalidHeaderDeserialization: tensor '%s' at byte %" PRIu64
                        ": unknown dtype '%s'",
                        key.text, safetensors_at(&parse->tensor), name.text);
    entry->dtype = WFS_OPAQUE;
    entry->dtype_text = text.bytes;
    if (safetensors_is_first(load, ODD_DTYPE))
        load->odd[ODD_DTYPE].text = arena_print(
            &load->catalog->arena, "tensor '%s' has the unknown dtype '%s'", key.text, name.text);
    return 0;
}

static int take_shape(struct safetensors_parse *parse, struct safetensors_entry *entry)
{
    struct safetensors_load *load = parse->load;
    size_t rank = 0;
    json_open_array(&parse->json);
    while (json_next_item(&parse->json)) {
        if (rank == load->context->limits.rank || rank == UINT32_MAX)
            return wfs_fail(load->err, E2BIG,
                            "tensor '%s' has more than %zu dimensions (limit rank)",
                            safetensors_quote(&parse->tensor).text, rank);
        if (array_reserve(&parse->dims, sizeof(*parse->dims), rank, 1, &parse->dims_room) < 0)
            return wfs_fail_memory(load->err);
        if (!json_take_uint(&parse->json, &parse->dims[rank]))
            break;
        rank++;
    }
    if (parse->json.error != NULL)
        return safetensors_fail_json(parse, NULL);
    entry->rank = (uint32_t)rank;
    if (rank == 0)
        return 0;
    uint64_t *dims = arena_calloc(&load->catalog->arena, rank, sizeof(*dims));
    if (dims == NULL)
        return safetensors_fail_memory(load);
    memcpy(dims, parse->dims, rank * sizeof(*dims));
    entry->dims = dims;
    return 0;
}

static int take_offsets(struct safetensors_parse *parse, struct safetensors_entry *entry)
{
    struct json *json = &parse->json;
    uint64_t *const offsets[] = {&entry->begin, &entry->end};
    json_open_array(json);
    for (int i = 0; i < 2; i++) {
        if (!json_next_item(json))
            return safetensors_fail_json(parse, "expected two offsets, found fewer");
        if (!json_take_uint(json, offsets[i]))
            return safetensors_fail_json(parse, NULL);
    }
    if (json_next_item(json))
        return safetensors_fail_json(parse, "expected two offsets, found more");
    return json->error != NULL ? safetensors_fail_json(parse, NULL) : 0;
}

#define FIELD(name, take)                                                                          \
    {                                                                                              \
        name, sizeof(name) - 1, take, "missing field '" name "'", "duplicate field '" name "'"     \
    }

/* In the order of the array form. */
static const struct field {
    const char *name;
    size_t n_name;
    int (*take)(struct safetensors_parse *parse, struct safetensors_entry *entry);
    const char *missing, *twice;
} fields[] = {
    FIELD("dtype", take_dtype),
    FIELD("shape", take_shape),
    FIELD("data_offsets", take_offsets),
};

enum { N_FIELDS = sizeof(fields) / sizeof(fields[0]) };

static size_t find_field(const struct json_text *name)
{
    size_t i = 0;
    while (i < N_FIELDS && (name->n_bytes != fields[i].n_name ||
                            memcmp(name->bytes, fields[i].name, name->n_bytes) != 0))
        i++;
    return i;
}

static int skip_field(struct safetensors_parse *parse, const struct json_text *name)
{
    struct safetensors_load *load = parse->load;
    if (safetensors_is_first(load, ODD_FIELD))
        load->odd[ODD_FIELD].text =
            arena_print(&load->catalog->arena, "tensor '%s' has the unknown field '%s'",
                        safetensors_quote(&parse->tensor).text, safetensors_quote(name).text);
    return json_skip(&parse->json) ? 0 : safetensors_fail_json(parse, NULL);
}

static int take_object(struct safetensors_parse *parse, struct safetensors_entry *entry)
{
    bool has[N_FIELDS] = {false};
    struct json_text name;
    json_open_object(&parse->json);
    while (json_next_key(&parse->json, &name)) {
        const size_t i = find_field(&name);
        if (i < N_FIELDS && has[i])
            return safetensors_fail_json(parse, fields[i].twice);
        const int code = i < N_FIELDS ? fields[i].take(parse, entry) : skip_field(parse, &name);
        if (code < 0)
            return code;
        if (i < N_FIELDS)
            has[i] = true;
    }
    if (parse->json.error != NULL)
        return safetensors_fail_json(parse, NULL);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (!has[i])
            return safetensors_fail_json(parse, fields[i].missing);
    }
    return 0;
}

static int take_array(struct safetensors_parse *parse, struct safetensors_entry *entry)
{
    struct safetensors_load *load = parse->load;
    json_open_array(&parse->json);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (!json_next_item(&parse->json))
            return safetensors_fail_json(parse, "expected three fields, found fewer");
        const int code = fields[i].take(parse, entry);
        if (code < 0)
            return code;
    }
    if (json_next_item(&parse->json))
        return safetensors_fail_json(parse, "expected three fields, found more");
    if (parse->json.error != NULL)
        return safetensors_fail_json(parse, NULL);
    if (safetensors_is_first(load, ODD_FORM))
        load->odd[ODD_FORM].text =
            arena_print(&load->catalog->arena,
                        "tensor '%s' is described by an array, which only the reference reads",
                        safetensors_quote(&parse->tensor).text);
    return 0;
}

int safetensors_take_fields(struct safetensors_parse *parse, struct safetensors_entry *entry)
{
    switch (json_kind(&parse->json)) {
    case JSON_KIND_OBJECT:
        return take_object(parse, entry);
    case JSON_KIND_ARRAY:
        return take_array(parse, entry);
    default:
        return safetensors_fail_json(parse, "expected dtype, shape and data_offsets");
    }
}
