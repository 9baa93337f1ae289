/* SPDX-License-Identifier: MIT */
/*
 * An exported program: weights are records of raw bytes, and data/weights/MODEL_weights_config.json
 * lists their names, dtypes and shapes (the same for constants). Older programs have a checkpoint
 * in data/weights instead.
 */
#include "format/pytorch/torch_containers.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "format/pytorch/object/torch_tensor.h"
#include "text/json.h"

enum { N_SCALAR_TYPES = 33 };

/* The numbers of dtypes in the schema of exported programs. 0: not supported, otherwise dtype +
 * 1. */
static const uint8_t scalar_types[N_SCALAR_TYPES] = {
    [1] = WFS_U8 + 1,       [2] = WFS_I8 + 1,           [3] = WFS_I16 + 1,
    [4] = WFS_I32 + 1,      [5] = WFS_I64 + 1,          [6] = WFS_F16 + 1,
    [7] = WFS_F32 + 1,      [8] = WFS_F64 + 1,          [9] = WFS_C32 + 1,
    [10] = WFS_C64 + 1,     [11] = WFS_C128 + 1,        [12] = WFS_BOOL + 1,
    [13] = WFS_BF16 + 1,    [28] = WFS_U16 + 1,         [29] = WFS_F8_E4M3 + 1,
    [30] = WFS_F8_E5M2 + 1, [31] = WFS_F8_E4M3FNUZ + 1, [32] = WFS_F8_E5M2FNUZ + 1,
};

struct export
{
    struct torch *torch;
    struct zip *zip;
    char folder[TORCH_RECORD_NAME_MAX]; /* of the records, with the slash */
    size_t n_folder;
    struct json json;
    const char *role; /* of all weights of the list; NULL: they are the state dict */
    uint64_t n_pickled;
};

struct weight {
    struct json_text path;
    bool is_pickled, has_strides;
    uint32_t n_strides;
    struct torch_tensor tensor;
};

static bool is_key(const struct json_text *text, const char *key)
{
    return text->n_bytes == strlen(key) && memcmp(text->bytes, key, text->n_bytes) == 0;
}

/* Parses {"as_int": 3}. Dimensions that are only known at run time have other keys. */
static bool parse_number(struct export *export, struct weight *weight, uint64_t *ret)
{
    struct json *json = &export->json;
    struct json_text key;
    *ret = UINT64_MAX;
    if (!json_open_object(json))
        return false;
    while (json_next_key(json, &key))
        if (is_key(&key, "as_int") ? !json_take_uint(json, ret) : !json_skip(json))
            return false;
    if (*ret > INT64_MAX)
        torch_tensor_spoil(&weight->tensor, "its shape is not made of integers");
    return json->error == NULL;
}

/* PyTorch has at most 64 dimensions. */
static uint32_t rank_max(const struct torch *torch)
{
    return torch->limits->rank < 64 ? (uint32_t)torch->limits->rank : 64;
}

static bool parse_numbers(struct export *export, struct weight *weight, bool is_stride)
{
    struct torch *torch = export->torch;
    struct torch_tensor *tensor = &weight->tensor;
    struct json *json = &export->json;
    uint64_t *const numbers = is_stride ? tensor->dims + torch->n_scratch : tensor->dims;
    const uint32_t n_max = rank_max(torch);
    uint32_t n = 0;
    if (!json_open_array(json))
        return false;
    for (; json_next_item(json); n++) {
        uint64_t number;
        if (!parse_number(export, weight, &number))
            return false;
        if (n < n_max)
            numbers[n] = number;
    }
    if (n > n_max) {
        torch_tensor_spoil(
            tensor, torch_print(torch, "%s above the limit of %u (limit rank)",
                                wfs_count_as(n, "dimension is", "dimensions are").text, n_max));
        n = 0;
    }
    if (is_stride)
        weight->n_strides = n;
    else
        tensor->rank = n;
    weight->has_strides = weight->has_strides || is_stride;
    return json->error == NULL;
}

static bool parse_dtype(struct export *export, struct weight *weight)
{
    uint64_t number;
    if (!json_take_uint(&export->json, &number))
        return false;
    if (number < N_SCALAR_TYPES && scalar_types[number] != 0)
        weight->tensor.dtype = scalar_types[number] - 1;
    else
        torch_tensor_spoil(&weight->tensor, "its dtype is not supported");
    return true;
}

static bool parse_meta(struct export *export, struct weight *weight)
{
    struct json *json = &export->json;
    struct json_text key;
    if (json_kind(json) == JSON_KIND_NULL)
        return json_skip(json);
    if (!json_open_object(json))
        return false;
    while (json_next_key(json, &key)) {
        const bool is_good = is_key(&key, "dtype")     ? parse_dtype(export, weight)
                             : is_key(&key, "sizes")   ? parse_numbers(export, weight, false)
                             : is_key(&key, "strides") ? parse_numbers(export, weight, true)
                             : is_key(&key, "storage_offset")
                                 ? parse_number(export, weight, &weight->tensor.offset)
                                 : json_skip(json);
        if (!is_good)
            return false;
    }
    return json->error == NULL;
}

/* The first letter of a literal decides. */
static bool parse_truth(struct json *json, bool *ret)
{
    if (json_kind(json) != JSON_KIND_BOOL)
        return json_fail(json, "expected true or false");
    *ret = *json->at == 't';
    return json_skip(json);
}

static bool parse_weight(struct export *export, struct weight *weight)
{
    struct json *json = &export->json;
    struct json_text key;
    if (!json_open_object(json))
        return false;
    while (json_next_key(json, &key)) {
        const bool is_good = is_key(&key, "path_name")     ? json_take_string(json, &weight->path)
                             : is_key(&key, "use_pickle")  ? parse_truth(json, &weight->is_pickled)
                             : is_key(&key, "tensor_meta") ? parse_meta(export, weight)
                                                           : json_skip(json);
        if (!is_good)
            return false;
    }
    return json->error == NULL;
}

static int set_storage(struct export *export, struct weight *weight)
{
    struct torch *torch = export->torch;
    struct torch_tensor *tensor = &weight->tensor;
    struct zip_entry *entry = NULL;
    struct value_bytes bytes = {0};
    struct wfs_error err = {0};
    if (weight->path.n_bytes <= sizeof(export->folder) - export->n_folder) {
        memcpy(export->folder + export->n_folder, weight->path.bytes, weight->path.n_bytes);
        entry = zip_find(export->zip, export->folder, export->n_folder + weight->path.n_bytes);
    }
    if (entry == NULL) {
        torch_tensor_spoil(tensor,
                           torch_print(torch, "record %s is not in the zip",
                                       wfs_quote_n(weight->path.bytes, weight->path.n_bytes).text));
        return 0;
    }
    const int code = torch_records_open(torch, export->zip, entry, &bytes, &err);
    if (code < 0 && !torch_is_trouble(code))
        return wfs_fail(torch->err, -code, "%s", err.text);
    if (code < 0)
        torch_tensor_spoil(tensor, torch_print(torch, "%s", err.text));
    tensor->storage = (struct torch_storage){.source = bytes.source,
                                             .offset = bytes.offset,
                                             .n_bytes = bytes.n_bytes,
                                             .is_big_endian = torch->is_big_endian};
    return 0;
}

static int add_weight(struct export *export, const struct json_text *name, struct weight *weight)
{
    struct torch *torch = export->torch;
    const char *key;
    int code;
    if (memchr(name->bytes, '\0', name->n_bytes) != NULL)
        return wfs_fail(torch->err, EOPNOTSUPP,
                        "the key %s contains a NUL, which no file name can have",
                        wfs_quote_n(name->bytes, name->n_bytes).text);
    if (name->n_bytes > torch->limits->key)
        return wfs_fail(torch->err, E2BIG, "a key of %s is above the limit (limit key)",
                        wfs_count(name->n_bytes, "byte").text);
    if (names_make(&torch->names, &torch->catalog->arena, name->bytes, name->n_bytes, NULL, &key) <
        0)
        return wfs_fail_memory(torch->err);
    if (!weight->has_strides)
        weight->tensor.strides = NULL;
    else if (weight->n_strides != weight->tensor.rank)
        torch_tensor_spoil(&weight->tensor, "it does not have as many strides as dimensions");
    if (weight->path.bytes == NULL)
        torch_tensor_spoil(&weight->tensor, "it has no record");
    else if ((code = set_storage(export, weight)) < 0)
        return code;
    return torch_tensor_add(torch, key, 0, &weight->tensor);
}

/* {"config": {NAME: WEIGHT, ...}} */
static int parse_weights(struct export *export)
{
    struct torch *torch = export->torch;
    struct json *json = &export->json;
    struct json_text name;
    if (!json_open_object(json))
        return 0;
    while (json_next_key(json, &name)) {
        struct weight weight = {
            .tensor = {.dtype = WFS_OPAQUE, .attr_name = "role", .attr_value = export->role}};
        int code = torch_tensor_reserve(torch, &weight.tensor, rank_max(torch));
        if (code < 0)
            return code;
        if (!parse_weight(export, &weight))
            return 0;
        if (weight.is_pickled) {
            export->n_pickled++;
            continue;
        }
        if ((code = add_weight(export, &name, &weight)) < 0)
            return code;
    }
    return 0;
}

static int parse_config(struct export *export, char *text, size_t n_bytes)
{
    struct json *json = &export->json;
    struct json_text key;
    int code = 0;
    *json = json_of(text, n_bytes);
    if (utf8_valid(text, n_bytes) != n_bytes)
        return wfs_fail(export->torch->err, EBADMSG, "the list of weights is not UTF-8");
    json_open_object(json);
    while (code == 0 && json->error == NULL && json_next_key(json, &key)) {
        if (is_key(&key, "config"))
            code = parse_weights(export);
        else
            json_skip(json);
    }
    if (code == 0 && json->error != NULL)
        return wfs_fail(export->torch->err, EBADMSG, "the list of weights, byte %zu: %s",
                        json_offset(json), json->error);
    return code;
}

int torch_weights_load(struct torch *torch, struct zip *zip, struct zip_entry *entry,
                       const char *role)
{
    struct export export = {.torch = torch, .zip = zip, .role = role};
    struct value_bytes bytes;
    int code = torch_records_open(torch, zip, entry, &bytes, torch->err);
    if (code < 0)
        return code;
    if (bytes.n_bytes > torch->limits->header || entry->n_name > sizeof(export.folder))
        return wfs_fail(torch->err, E2BIG,
                        "a list of weights of %s is above the limit (limit header)",
                        wfs_count(bytes.n_bytes, "byte").text);
    autofree char *text = malloc((size_t)bytes.n_bytes + 1);
    if (text == NULL)
        return wfs_fail_memory(torch->err);
    if ((code = source_read(bytes.source, bytes.offset, text, (size_t)bytes.n_bytes)) < 0)
        return torch_fail_read(torch, code, "the list of weights");
    const char *slash = memrchr(entry->name, '/', entry->n_name);
    export.n_folder = slash == NULL ? 0 : (size_t)(slash + 1 - entry->name);
    memcpy(export.folder, entry->name, export.n_folder);
    if ((code = parse_config(&export, text, (size_t)bytes.n_bytes)) < 0)
        return code;
    if (export.n_pickled > 0 &&
        catalog_add_finding(torch->catalog, WFS_MEDIUM, "%s and not listed",
                            wfs_count_as(export.n_pickled, "weight is a pickled object",
                                         "weights are pickled objects")
                                .text) < 0)
        return wfs_fail_memory(torch->err);
    return 0;
}
