/* SPDX-License-Identifier: MIT */
/*
 * A patch file and its list of edits:
 *
 *   {"version": 1,
 *    "tensors":  [{"from": KEY, "to": KEY or null, "is_copy": true, "place": KEY or null,
 *                  "content": NAME, "dtype": D, "shape": [N, ...], "param_id": TEXT,
 *                  "quantization": TEXT, "was": {"dtype": D, "shape": [...], "xxh3": HEX}}, ...],
 *    "values":   [the same without dtype and shape],
 *    "metadata": [{"name": TEXT, "was": TEXT or null, "value": TEXT or null}, ...]}
 *
 * Everything but "to" and "name" may be missing. Members that are not known are an error: to leave
 * an edit out without a word would be one. Keys are written as weightfs prints them: what JSON or a
 * terminal cannot hold is \xHH.
 */
#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/json_out.h>
#include <weightfs/patch.h>
#include <weightfs/percent.h>
#include <weightfs/strbuf.h>
#include "base/text_index.h"
#include "base/utf8.h"
#include "edits/edits.h"
#include "tensor/tensor.h"
#include "text/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    struct wfs_patch *patch;
    const struct wfs_catalog *file;
    struct patch_keys contents; /* of the file, by name */
    struct json json;
    struct wfs_error *err;
};

/* Reports malformed JSON; the parser is in error. */
static int fail_json(struct reading *reading)
{
    return wfs_fail(reading->err, EBADMSG, "its list of edits: %s at byte %zu",
                    reading->json.error != NULL ? reading->json.error : "malformed",
                    json_offset(&reading->json));
}

static int fail_edit(struct reading *reading, const struct patch_edit *edit, const char *reason)
{
    const char *key = edit->to != NULL ? edit->to : edit->from;
    return wfs_fail(reading->err, EBADMSG, "its edit of '%s' %s",
                    wfs_quote(key != NULL ? key : "").text, reason);
}

static bool is_member(const struct json_text *member, const char *name)
{
    return member->n_bytes == strlen(name) && memcmp(member->bytes, name, member->n_bytes) == 0;
}

/* ---- simple values ---- */

/* The text stays in the copy of the JSON, which the patch owns. */
static int take_text(struct reading *reading, const char **ret, size_t *ret_n)
{
    struct json_text text;
    if (!json_take_string(&reading->json, &text))
        return fail_json(reading);
    *ret = text.bytes;
    if (ret_n != NULL)
        *ret_n = text.n_bytes;
    else if (strlen(text.bytes) != text.n_bytes)
        return wfs_fail(reading->err, EBADMSG, "its list of edits: a name has a NUL at byte %zu",
                        text.offset);
    return 0;
}

static int take_text_or_null(struct reading *reading, const char **ret, size_t *ret_n)
{
    *ret = NULL;
    if (json_kind(&reading->json) != JSON_KIND_NULL)
        return take_text(reading, ret, ret_n);
    return json_take_null(&reading->json) ? 0 : fail_json(reading);
}

static int take_key(struct reading *reading, const char **ret)
{
    const int code = take_text_or_null(reading, ret, NULL);
    if (code == 0 && *ret != NULL)
        wfs_unescape((char *)(uintptr_t)*ret);
    return code;
}

static int take_dtype(struct reading *reading, uint8_t *ret)
{
    enum wfs_dtype dtype;
    const char *name;
    const int code = take_text(reading, &name, NULL);
    if (code < 0)
        return code;
    if (!wfs_dtype_parse(name, strlen(name), &dtype))
        return wfs_fail(reading->err, EBADMSG, "its list of edits: no dtype '%s'",
                        wfs_quote(name).text);
    *ret = (uint8_t)dtype;
    return 0;
}

static int take_shape(struct reading *reading, struct wfs_shape *ret)
{
    autofree uint64_t *dims = NULL;
    size_t n_dims = 0, n_room = 0;
    if (!json_open_array(&reading->json))
        return fail_json(reading);
    while (json_next_item(&reading->json)) {
        if (n_dims >= PATCH_RANK_MAX)
            return wfs_fail(reading->err, E2BIG,
                            "its list of edits: a shape has more than %d dimensions",
                            (int)PATCH_RANK_MAX);
        if (array_reserve(&dims, sizeof(*dims), n_dims, 1, &n_room) < 0)
            return wfs_fail_memory(reading->err);
        if (!json_take_uint(&reading->json, &dims[n_dims++]))
            break;
    }
    if (reading->json.error != NULL)
        return fail_json(reading);
    uint64_t *copy = arena_calloc(&reading->patch->contents->arena, n_dims + 1, sizeof(*copy));
    if (copy == NULL)
        return wfs_fail_memory(reading->err);
    if (n_dims > 0)
        memcpy(copy, dims, n_dims * sizeof(*copy));
    *ret = (struct wfs_shape){(uint32_t)n_dims, copy};
    return 0;
}

static int take_digest(struct reading *reading, uint64_t *ret)
{
    const char *text;
    uint32_t high, low;
    const int code = take_text(reading, &text, NULL);
    if (code < 0)
        return code;
    if (strlen(text) != 16 || !hex_decode(text, 8, &high) || !hex_decode(text + 8, 8, &low))
        return wfs_fail(reading->err, EBADMSG, "its list of edits: '%s' is not an xxh3",
                        wfs_quote(text).text);
    *ret = (uint64_t)high << 32 | low;
    return 0;
}

static int take_true(struct reading *reading, bool *ret)
{
    if (json_kind(&reading->json) != JSON_KIND_BOOL || *reading->json.at != 't') {
        json_fail(&reading->json, "expected true");
        return fail_json(reading);
    }
    *ret = true;
    return json_skip(&reading->json) ? 0 : fail_json(reading);
}

static int fail_member(struct reading *reading, const struct json_text *member)
{
    return wfs_fail(reading->err, EBADMSG,
                    "its list of edits has '%s' at byte %zu, which this version does not know",
                    wfs_quote_n(member->bytes, member->n_bytes).text, member->offset);
}

/* ---- edits ---- */

static int take_was(struct reading *reading, bool is_value, struct patch_was *was)
{
    struct json_text member;
    bool has_dtype = false, has_shape = false;
    if (!json_open_object(&reading->json))
        return fail_json(reading);
    while (json_next_key(&reading->json, &member)) {
        int code;
        if (is_member(&member, "xxh3")) {
            was->has_digest = true;
            code = take_digest(reading, &was->digest);
        } else if (!is_value && is_member(&member, "dtype")) {
            has_dtype = true;
            code = take_dtype(reading, &was->dtype);
        } else if (!is_value && is_member(&member, "shape")) {
            has_shape = true;
            code = take_shape(reading, &was->shape);
        } else {
            code = fail_member(reading, &member);
        }
        if (code < 0)
            return code;
    }
    was->is_known = has_dtype && has_shape;
    return reading->json.error != NULL ? fail_json(reading) : 0;
}

static int take_content(struct reading *reading, uint32_t *ret)
{
    const char *name = NULL;
    const int code = take_text(reading, &name, NULL);
    if (code < 0)
        return code;
    const size_t i = patch_keys_find(&reading->contents, name);
    if (i == SIZE_MAX)
        return wfs_fail(reading->err, EBADMSG, "its list of edits names '%s', which it lacks",
                        wfs_quote(name).text);
    *ret = (uint32_t)i + 1; /* contents are in the order of the file */
    return 0;
}

static int take_place(struct reading *reading, struct patch_edit *edit, bool is_value)
{
    edit->has_place = true;
    edit->is_place_of_value = is_value;
    return take_key(reading, &edit->place);
}

static int take_tensor_member(struct reading *reading, const struct json_text *member,
                              struct patch_edit *edit)
{
    if (is_member(member, "is_copy"))
        return take_true(reading, &edit->is_copy);
    if (is_member(member, "dtype")) {
        edit->has_dtype = true;
        return take_dtype(reading, &edit->dtype);
    }
    if (is_member(member, "shape")) {
        edit->has_shape = true;
        return take_shape(reading, &edit->shape);
    }
    for (unsigned i = 0; i < TENSOR_N_TEXTS; i++) {
        if (is_member(member, tensor_text_names[i]))
            return take_text(reading, &edit->texts[i], NULL);
    }
    return fail_member(reading, member);
}

static int take_member(struct reading *reading, const struct json_text *member, bool is_value,
                       struct patch_edit *edit)
{
    if (is_member(member, "from"))
        return take_key(reading, &edit->from);
    if (is_member(member, "to"))
        return take_key(reading, &edit->to);
    if (is_member(member, "place"))
        return take_place(reading, edit, false);
    if (is_member(member, "place_of_value"))
        return take_place(reading, edit, true);
    if (is_member(member, "content"))
        return take_content(reading, &edit->content);
    if (is_member(member, "was"))
        return take_was(reading, is_value, &edit->was);
    return is_value ? fail_member(reading, member) : take_tensor_member(reading, member, edit);
}

/* The content must be what dtype and shape say. */
static int check_content(struct reading *reading, const struct patch_edit *edit, bool is_value)
{
    const struct wfs_tensor *content = wfs_catalog_tensor(reading->file, edit->content - 1);
    uint64_t n_bytes;
    if (is_value)
        return content->n_bytes <= PATCH_VALUE_MAX
                   ? 0
                   : fail_edit(reading, edit, "has a value of more than 64 MiB");
    if (!edit->has_dtype || !edit->has_shape)
        return fail_edit(reading, edit, "has new content, but no dtype or no shape");
    if (edit->dtype == WFS_OPAQUE)
        return 0;
    if (wfs_shape_bytes(&edit->shape, (enum wfs_dtype)edit->dtype, &n_bytes) < 0 ||
        n_bytes != content->n_bytes)
        return fail_edit(reading, edit, "has new content of another size than its dtype and shape");
    return 0;
}

static int check_edit(struct reading *reading, const struct patch_edit *edit, bool is_value)
{
    if (edit->from == NULL && edit->to == NULL)
        return wfs_fail(reading->err, EBADMSG, "its list of edits has one without a key");
    if (edit->from == NULL && edit->content == 0)
        return fail_edit(reading, edit, "adds it, but there is no content");
    if (edit->to == NULL && (edit->content != 0 || edit->is_copy || edit->has_dtype ||
                             edit->has_shape || edit->has_place))
        return fail_edit(reading, edit, "removes it and does something else, too");
    if (edit->from == NULL && edit->is_copy)
        return fail_edit(reading, edit, "is a copy of nothing");
    return edit->content == 0 ? 0 : check_content(reading, edit, is_value);
}

static int fail_many(const struct reading *reading)
{
    return wfs_fail(reading->err, E2BIG, "it has more than %d edits", (int)PATCH_EDITS_MAX);
}

static int take_edit(struct reading *reading, unsigned kind)
{
    struct json_text member;
    if (reading->patch->edits[kind].n_items >= PATCH_EDITS_MAX)
        return fail_many(reading);
    struct patch_edit *edit = patch_add(reading->patch, kind);
    if (edit == NULL)
        return wfs_fail_memory(reading->err);
    if (!json_open_object(&reading->json))
        return fail_json(reading);
    while (json_next_key(&reading->json, &member)) {
        const int code = take_member(reading, &member, kind == PATCH_VALUES, edit);
        if (code < 0)
            return code;
    }
    return reading->json.error != NULL ? fail_json(reading)
                                       : check_edit(reading, edit, kind == PATCH_VALUES);
}

/* Takes an array of edits of a kind, or of entries of the metadata. */
static int take_each(struct reading *reading, int (*take)(struct reading *reading, unsigned kind),
                     unsigned kind)
{
    if (!json_open_array(&reading->json))
        return fail_json(reading);
    while (json_next_item(&reading->json)) {
        const int code = take(reading, kind);
        if (code < 0)
            return code;
    }
    return reading->json.error != NULL ? fail_json(reading) : 0;
}

/* ---- metadata ---- */

static int take_meta(struct reading *reading, unsigned kind)
{
    struct json_text member;
    if (reading->patch->n_metas >= PATCH_EDITS_MAX)
        return fail_many(reading);
    struct patch_meta *meta = patch_add_meta(reading->patch);
    if (meta == NULL)
        return wfs_fail_memory(reading->err);
    if (!json_open_object(&reading->json))
        return fail_json(reading);
    while (json_next_key(&reading->json, &member)) {
        const int code =
            is_member(&member, "name")    ? take_text(reading, &meta->name, NULL)
            : is_member(&member, "was")   ? take_text_or_null(reading, &meta->was, &meta->n_was)
            : is_member(&member, "value") ? take_text_or_null(reading, &meta->value, &meta->n_value)
                                          : fail_member(reading, &member);
        if (code < 0)
            return code;
    }
    if (reading->json.error != NULL)
        return fail_json(reading);
    return meta->name != NULL
               ? 0
               : wfs_fail(reading->err, EBADMSG, "its list of edits has metadata without a name");
}

/* ---- the whole ---- */

static int take_version(struct reading *reading)
{
    uint64_t version;
    if (!json_take_uint(&reading->json, &version))
        return fail_json(reading);
    return version == 1
               ? 0
               : wfs_fail(reading->err, EOPNOTSUPP,
                          "is a patch of version %" PRIu64 ", and only 1 is known", version);
}

static int take_all(struct reading *reading)
{
    struct json_text member;
    bool has_version = false;
    if (!json_open_object(&reading->json))
        return fail_json(reading);
    while (json_next_key(&reading->json, &member)) {
        int code;
        if (is_member(&member, "version")) {
            has_version = true;
            code = take_version(reading);
        } else if (is_member(&member, "tensors")) {
            code = take_each(reading, take_edit, PATCH_TENSORS);
        } else if (is_member(&member, "values")) {
            code = take_each(reading, take_edit, PATCH_VALUES);
        } else if (is_member(&member, "metadata")) {
            code = take_each(reading, take_meta, 0);
        } else {
            code = fail_member(reading, &member);
        }
        if (code < 0)
            return code;
    }
    if (!json_end(&reading->json))
        return fail_json(reading);
    return has_version ? 0 : wfs_fail(reading->err, EBADMSG, "its list of edits has no version");
}

/* No two edits may be of one tensor, or make one. A value's content is its own: texts of values are
 * copied. */
static int check_twice(struct reading *reading, const struct patch_edits *edits, bool is_value)
{
    cleanup(text_index_done) struct text_index from = {0};
    cleanup(text_index_done) struct text_index to = {0};
    autofree bool *is_used = calloc(wfs_catalog_n_tensors(reading->file) + 1, sizeof(*is_used));
    if (is_used == NULL)
        return wfs_fail_memory(reading->err);
    for (size_t i = 0; i < edits->n_items; i++) {
        const struct patch_edit *edit = &edits->items[i];
        const size_t n_from = from.n_texts, n_to = to.n_texts;
        const bool is_source = edit->from != NULL && !edit->is_copy;
        uint32_t number;
        if ((is_source && text_index_add(&from, edit->from, strlen(edit->from), &number) < 0) ||
            (edit->to != NULL && text_index_add(&to, edit->to, strlen(edit->to), &number) < 0))
            return wfs_fail_memory(reading->err);
        if ((is_source && from.n_texts == n_from) || (edit->to != NULL && to.n_texts == n_to))
            return fail_edit(reading, edit, "is one of two");
        if (!is_value || edit->content == 0)
            continue;
        if (is_used[edit->content - 1])
            return fail_edit(reading, edit, "has the content of another one");
        is_used[edit->content - 1] = true;
    }
    return 0;
}

static int read_all(struct reading *reading)
{
    for (size_t i = 0; i < wfs_catalog_n_tensors(reading->file); i++) {
        uint32_t number;
        if (patch_add_content(reading->patch, wfs_catalog_tensor(reading->file, i), &number) < 0)
            return wfs_fail_memory(reading->err);
    }
    int code = take_all(reading);
    for (unsigned kind = 0; kind < PATCH_N_KINDS && code == 0; kind++)
        code = check_twice(reading, &reading->patch->edits[kind], kind == PATCH_VALUES);
    return code;
}

/* The text of the list, which is taken apart in place. */
static int copy_list(struct reading *reading)
{
    const struct wfs_text *list = text_find(wfs_catalog_meta(reading->file), WFS_PATCH_TEXT);
    if (list == NULL)
        return wfs_fail(reading->err, EMEDIUMTYPE,
                        "is not a patch: its metadata has no '" WFS_PATCH_TEXT "'");
    if (utf8_valid(list->value, list->n_bytes) != list->n_bytes)
        return wfs_fail(reading->err, EBADMSG, "its list of edits is not UTF-8");
    char *copy = arena_copy(&reading->patch->contents->arena, list->value, list->n_bytes);
    if (copy == NULL)
        return wfs_fail_memory(reading->err);
    reading->json = json_of(copy, list->n_bytes);
    return 0;
}

int wfs_patch_parse(const struct wfs_catalog *file, struct wfs_patch **out, struct wfs_error *err)
{
    auto_patch struct wfs_patch *patch = NULL;
    struct reading reading = {.file = file, .err = err};
    if (wfs_patch_new(&patch) < 0 || patch_keys_init(&reading.contents, file, false) < 0)
        return wfs_fail_memory(err);
    reading.patch = patch;
    int code = copy_list(&reading);
    if (code == 0)
        code = read_all(&reading);
    patch_keys_done(&reading.contents);
    if (code < 0)
        return code;
    *out = steal(&patch);
    return 0;
}

struct writing {
    const struct wfs_patch *patch;
    struct wfs_catalog *file;
    struct text_index names;    /* of contents */
    const char **content_names; /* of each content, NULL: not written yet. malloc'ed */
    struct strbuf json;
    struct json_out row; /* into that: an edit, or an entry of the metadata */
    bool has_digests;
    struct wfs_error *err;
};

static struct json_out *open_row(struct writing *writing)
{
    writing->row = (struct json_out){.text = &writing->json, .is_part = true};
    json_out_open(&writing->row, NULL, '{', JSON_ROW);
    return &writing->row;
}

static void put_name(struct writing *writing, const char *label, const char *key)
{
    autostrbuf struct strbuf spelled = {0};
    strbuf_puts(&spelled, "");
    if (key != NULL)
        strbuf_escape(&spelled, key, strlen(key));
    json_out_text(&writing->row, label, key == NULL ? NULL : spelled.bytes);
    if (spelled.has_failed)
        strbuf_fail(&writing->json);
}

/* ---- contents ---- */

/* Those that the format of a patch stores come first. */
static bool is_stored_as_it_is(const struct wfs_tensor *tensor)
{
    return tensor->dtype <= WFS_U64;
}

/* Adds the bytes of a tensor of another dtype. */
static int add_bytes(struct writing *writing, const struct wfs_tensor *content,
                     struct wfs_tensor *tensor)
{
    struct source *source;
    uint64_t *dims = arena_calloc(&writing->file->arena, 1, sizeof(*dims));
    if (dims == NULL || shown_source(content, &source) < 0 ||
        catalog_adopt_source(writing->file, source) < 0)
        return -ENOMEM;
    dims[0] = content->n_bytes;
    *tensor = (struct wfs_tensor){.dtype = WFS_U8,
                                  .shape = {1, dims},
                                  .n_bytes = content->n_bytes,
                                  .stored = {.source = source, .dtype = WFS_U8}};
    return 0;
}

/* Returns a name for a content that no other one has, in the arena of the file; NULL: no memory. */
static const char *name_content(struct writing *writing, const struct patch_edit *edit,
                                bool is_value)
{
    autostrbuf struct strbuf name = {0};
    strbuf_escape(&name, edit->to, strlen(edit->to));
    strbuf_puts(&name, is_value ? ".json" : "");
    const size_t n_name = name.n_bytes;
    for (unsigned i = 2; !name.has_failed; i++) {
        const bool is_free =
            n_name > 0 && strcmp(name.bytes, "__metadata__") != 0 &&
            text_index_find(&writing->names, name.bytes, name.n_bytes) == TEXT_INDEX_NONE;
        if (is_free) {
            uint32_t number;
            const char *copy = arena_copy(&writing->file->arena, name.bytes, name.n_bytes);
            return copy == NULL || text_index_add(&writing->names, copy, name.n_bytes, &number) < 0
                       ? NULL
                       : copy;
        }
        name.n_bytes = n_name;
        strbuf_printf(&name, "#%u", i);
    }
    return NULL;
}

static int add_content(struct writing *writing, const struct patch_edit *edit, bool is_value)
{
    const size_t i = edit->content - 1;
    const struct wfs_tensor *content = wfs_catalog_tensor(writing->patch->contents, i);
    if (writing->content_names[i] != NULL)
        return 0;
    struct wfs_tensor *tensor = catalog_add(writing->file);
    writing->content_names[i] = name_content(writing, edit, is_value);
    if (tensor == NULL || writing->content_names[i] == NULL)
        return -ENOMEM;
    *tensor = *content;
    if (!is_stored_as_it_is(content) && add_bytes(writing, content, tensor) < 0)
        return -ENOMEM;
    tensor->key = writing->content_names[i];
    return 0;
}

/* ---- edits ---- */

static void put_description(struct json_out *row, bool has_dtype, unsigned dtype, bool has_shape,
                            const struct wfs_shape *shape)
{
    if (has_dtype)
        json_out_text(row, "dtype", wfs_dtype_name((enum wfs_dtype)dtype));
    if (has_shape)
        json_out_u64s(row, "shape", shape->dims, shape->rank);
}

static int put_was(struct writing *writing, const struct patch_edit *edit, bool is_value)
{
    struct json_out *row = &writing->row;
    const struct patch_was *was = &edit->was;
    uint64_t digest = was->digest;
    char text[17];
    if (!was->is_known && !was->has_digest && was->values == NULL)
        return 0;
    json_out_open(row, "was", '{', JSON_ROW);
    if (was->is_known && !is_value)
        put_description(row, true, was->dtype, true, &was->shape);
    if (was->tensor != NULL && writing->has_digests) {
        const int code = wfs_tensor_digest(was->tensor, &digest);
        if (code < 0)
            return wfs_fail(writing->err, -code, "tensor '%s' cannot be read: %s",
                            wfs_quote(was->tensor->key).text, strerror(-code));
    }
    if (was->values != NULL && patch_digest_value(was->values, was->value, &digest) < 0)
        return wfs_fail_memory(writing->err);
    snprintf(text, sizeof(text), "%016" PRIx64, digest);
    if (was->has_digest || was->tensor != NULL || was->values != NULL)
        json_out_text(row, "xxh3", text);
    json_out_close(row);
    return 0;
}

static int put_edit(struct writing *writing, const struct patch_edit *edit, bool is_value)
{
    struct json_out *row = open_row(writing);
    if (edit->from != NULL)
        put_name(writing, "from", edit->from);
    put_name(writing, "to", edit->to);
    if (edit->is_copy)
        json_out_bool(row, "is_copy", true);
    if (edit->has_place)
        put_name(writing, edit->is_place_of_value ? "place_of_value" : "place", edit->place);
    if (edit->content != 0) {
        if (add_content(writing, edit, is_value) < 0)
            return wfs_fail_memory(writing->err);
        json_out_text(row, "content", writing->content_names[edit->content - 1]);
    }
    put_description(row, edit->has_dtype, edit->dtype, edit->has_shape, &edit->shape);
    for (unsigned i = 0; i < TENSOR_N_TEXTS; i++) {
        if (edit->texts[i] != NULL)
            json_out_text(row, tensor_text_names[i], edit->texts[i]);
    }
    const int code = put_was(writing, edit, is_value);
    json_out_close(row);
    return code;
}

static int put_edits(struct writing *writing, unsigned kind, const char *label)
{
    const struct patch_edits *edits = &writing->patch->edits[kind];
    int code = 0;
    strbuf_printf(&writing->json, ",\n\"%s\": [", label);
    for (size_t i = 0; i < edits->n_items && code == 0; i++) {
        strbuf_puts(&writing->json, i > 0 ? ",\n" : "\n");
        code = put_edit(writing, &edits->items[i], kind == PATCH_VALUES);
    }
    strbuf_puts(&writing->json, "]");
    return code;
}

static void put_text(struct json_out *row, const char *label, const char *text, size_t n_bytes)
{
    if (text == NULL)
        json_out_text(row, label, NULL);
    else
        json_out_text_n(row, label, text, n_bytes);
}

static void put_metas(struct writing *writing)
{
    strbuf_puts(&writing->json, ",\n\"metadata\": [");
    for (size_t i = 0; i < writing->patch->n_metas; i++) {
        const struct patch_meta *meta = &writing->patch->metas[i];
        strbuf_puts(&writing->json, i > 0 ? ",\n" : "\n");
        struct json_out *row = open_row(writing);
        json_out_text(row, "name", meta->name);
        put_text(row, "was", meta->was, meta->n_was);
        put_text(row, "value", meta->value, meta->n_value);
        json_out_close(row);
    }
    strbuf_puts(&writing->json, "]}\n");
}

/* ---- the whole ---- */

static int write_all(struct writing *writing)
{
    strbuf_puts(&writing->json, "{\"version\": 1");
    int code = put_edits(writing, PATCH_TENSORS, "tensors");
    if (code == 0)
        code = put_edits(writing, PATCH_VALUES, "values");
    if (code < 0)
        return code;
    put_metas(writing);
    if (writing->json.has_failed ||
        catalog_add_meta_bytes(writing->file, WFS_PATCH_TEXT, writing->json.bytes,
                               writing->json.n_bytes) < 0)
        return wfs_fail_memory(writing->err);
    return 0;
}

int wfs_patch_file(const struct wfs_patch *patch, bool has_digests, struct wfs_catalog **out,
                   struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *file = NULL;
    autofree const char **names =
        calloc(wfs_catalog_n_tensors(patch->contents) + 1, sizeof(*names));
    if (names == NULL || catalog_new(&file) < 0)
        return wfs_fail_memory(err);
    struct writing writing = {.patch = patch,
                              .file = file,
                              .content_names = names,
                              .has_digests = has_digests,
                              .err = err};
    const int code = write_all(&writing);
    strbuf_done(&writing.json);
    text_index_done(&writing.names);
    if (code < 0)
        return code;
    *out = steal(&file);
    return 0;
}
