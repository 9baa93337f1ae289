/* SPDX-License-Identifier: MIT */
/*
 * One entry of a safetensors header: dtype, shape and data_offsets, as an object or, which only the
 * reference takes, as an array.
 */
#include "format/safetensors/safetensors_fields.h"

#include <weightfs/array.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The dtype's name is a string, or the only key of an object, with null. */
static int take_dtype_text(struct safetensors_load *load, struct json_text *ret)
{
    struct json *json = &load->json;
    struct json_text rest;
    if (json_kind(json) != JSON_KIND_OBJECT)
        return json_take_string(json, ret) ? 0 : safetensors_load_fail_json(load, NULL);
    json_open_object(json);
    if (!json_next_key(json, ret))
        return safetensors_load_fail_json(load, "expected a dtype");
    if (!json_take_null(json))
        return safetensors_load_fail_json(load, NULL);
    if (json_next_key(json, &rest))
        return safetensors_load_fail_json(load, "more than one dtype");
    if (json->error != NULL)
        return safetensors_load_fail_json(load, NULL);
    if (tally_count(&load->tally, WFS_FINDING_ST_FORM))
        tally_describe(
            &load->tally, &load->catalog->arena, WFS_FINDING_ST_FORM,
            "the dtype of tensor '%s' is an object, which only the reference implementation reads",
            safetensors_quote(&load->tensor).text);
    return 0;
}

static int take_dtype(struct safetensors_load *load, struct safetensors_entry *entry)
{
    struct json_text text;
    enum wfs_dtype dtype;
    const int code = take_dtype_text(load, &text);
    if (code < 0)
        return code;
    if (safetensors_is_text(&text, wfs_dtype_name((enum wfs_dtype)load->last_dtype))) {
        entry->dtype = load->last_dtype;
        return 0;
    }
    if (wfs_dtype_parse(text.bytes, text.n_bytes, &dtype) && dtype <= SAFETENSORS_LAST_DTYPE) {
        entry->dtype = load->last_dtype = (uint8_t)dtype;
        return 0;
    }
    const struct wfs_quoted key = safetensors_quote(&load->tensor), name = safetensors_quote(&text);
    if (!load->context->force)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "InvalidHeaderDeserialization: tensor '%s' at byte %" PRIu64
                        ": unknown dtype '%s'",
                        key.text, safetensors_at(&load->tensor), name.text);
    entry->dtype = WFS_OPAQUE;
    entry->dtype_text = text.bytes;
    if (tally_count(&load->tally, WFS_FINDING_ST_DTYPE))
        tally_describe(&load->tally, &load->catalog->arena, WFS_FINDING_ST_DTYPE,
                       "tensor '%s' has the unknown dtype '%s'", key.text, name.text);
    return 0;
}

static int take_shape(struct safetensors_load *load, struct safetensors_entry *entry)
{
    size_t rank = 0;
    json_open_array(&load->json);
    while (json_next_item(&load->json)) {
        if (rank == load->context->limits.rank || rank == UINT32_MAX)
            return wfs_fail(load->err, E2BIG, "tensor '%s' has more than %s (limit rank)",
                            safetensors_quote(&load->tensor).text,
                            wfs_count(rank, "dimension").text);
        if (array_reserve(&load->dims, sizeof(*load->dims), rank, 1, &load->dims_room) < 0)
            return wfs_fail_memory(load->err);
        if (!json_take_uint(&load->json, &load->dims[rank]))
            break;
        rank++;
    }
    if (load->json.error != NULL)
        return safetensors_load_fail_json(load, NULL);
    entry->rank = (uint32_t)rank;
    if (rank == 0)
        return 0;
    uint64_t *dims = arena_calloc(&load->catalog->arena, rank, sizeof(*dims));
    if (dims == NULL)
        return catalog_fail_memory(load->catalog, load->err);
    memcpy(dims, load->dims, rank * sizeof(*dims));
    entry->dims = dims;
    return 0;
}

static int take_offsets(struct safetensors_load *load, struct safetensors_entry *entry)
{
    struct json *json = &load->json;
    uint64_t *const offsets[] = {&entry->begin, &entry->end};
    json_open_array(json);
    for (int i = 0; i < 2; i++) {
        if (!json_next_item(json))
            return safetensors_load_fail_json(load, "expected two offsets, found fewer");
        if (!json_take_uint(json, offsets[i]))
            return safetensors_load_fail_json(load, NULL);
    }
    if (json_next_item(json))
        return safetensors_load_fail_json(load, "expected two offsets, found more");
    return json->error != NULL ? safetensors_load_fail_json(load, NULL) : 0;
}

#define FIELD(name, take)                                                                          \
    {                                                                                              \
        name, sizeof(name) - 1, take, "missing field '" name "'", "duplicate field '" name "'"     \
    }

/* In the order of the array form. */
static const struct field {
    const char *name;
    size_t n_name;
    int (*take)(struct safetensors_load *load, struct safetensors_entry *entry);
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

static int skip_field(struct safetensors_load *load, const struct json_text *name)
{
    if (tally_count(&load->tally, WFS_FINDING_ST_FIELD))
        tally_describe(&load->tally, &load->catalog->arena, WFS_FINDING_ST_FIELD,
                       "tensor '%s' has the unknown field '%s'",
                       safetensors_quote(&load->tensor).text, safetensors_quote(name).text);
    return json_skip(&load->json) ? 0 : safetensors_load_fail_json(load, NULL);
}

static int take_object(struct safetensors_load *load, struct safetensors_entry *entry)
{
    bool has[N_FIELDS] = {false};
    struct json_text name;
    json_open_object(&load->json);
    while (json_next_key(&load->json, &name)) {
        const size_t i = find_field(&name);
        if (i < N_FIELDS && has[i])
            return safetensors_load_fail_json(load, fields[i].twice);
        const int code = i < N_FIELDS ? fields[i].take(load, entry) : skip_field(load, &name);
        if (code < 0)
            return code;
        if (i < N_FIELDS)
            has[i] = true;
    }
    if (load->json.error != NULL)
        return safetensors_load_fail_json(load, NULL);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (!has[i])
            return safetensors_load_fail_json(load, fields[i].missing);
    }
    return 0;
}

static int take_array(struct safetensors_load *load, struct safetensors_entry *entry)
{
    json_open_array(&load->json);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (!json_next_item(&load->json))
            return safetensors_load_fail_json(load, "expected three fields, found fewer");
        const int code = fields[i].take(load, entry);
        if (code < 0)
            return code;
    }
    if (json_next_item(&load->json))
        return safetensors_load_fail_json(load, "expected three fields, found more");
    if (load->json.error != NULL)
        return safetensors_load_fail_json(load, NULL);
    if (tally_count(&load->tally, WFS_FINDING_ST_FORM))
        tally_describe(
            &load->tally, &load->catalog->arena, WFS_FINDING_ST_FORM,
            "tensor '%s' is described by an array, which only the reference implementation reads",
            safetensors_quote(&load->tensor).text);
    return 0;
}

int safetensors_fields_take(struct safetensors_load *load, struct safetensors_entry *entry)
{
    switch (json_kind(&load->json)) {
    case JSON_KIND_OBJECT:
        return take_object(load, entry);
    case JSON_KIND_ARRAY:
        return take_array(load, entry);
    default:
        return safetensors_load_fail_json(load, "expected dtype, shape and data_offsets");
    }
}
