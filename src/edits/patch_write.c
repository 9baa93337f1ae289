/* SPDX-License-Identifier: MIT */
/*
 * Keys are written as weightfs prints them: what JSON or a terminal cannot hold is \xHH.
 */
#include <weightfs/patch.h>

#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_index.h"
#include "edits/edits.h"
#include "tensor/shape.h"
#include "tensor/shown.h"

struct writing {
    const struct wfs_patch *patch;
    struct wfs_catalog *file;
    struct text_index names;    /* of contents */
    const char **content_names; /* of each content, NULL: not written yet. malloc'ed */
    struct strbuf json;
    bool has_digests;
    struct wfs_error *err;
};

static void spell(const char *key, struct strbuf *text)
{
    char escaped[WFS_ESCAPE_MAX];
    for (size_t n_left = strlen(key); n_left > 0;) {
        const size_t n = wfs_escape(WFS_ESCAPE_NAME, key, n_left, escaped);
        strbuf_puts(text, escaped);
        key += n;
        n_left -= n;
    }
}

static void put_name(struct strbuf *json, const char *label, const char *key)
{
    autostrbuf struct strbuf spelled = {0};
    strbuf_printf(json, "\"%s\": ", label);
    if (key == NULL) {
        strbuf_puts(json, "null");
        return;
    }
    strbuf_add(&spelled, "", 0);
    spell(key, &spelled);
    if (spelled.has_failed)
        strbuf_fail(json);
    else
        strbuf_json_bytes(json, spelled.bytes == NULL ? "" : spelled.bytes, spelled.n_bytes);
}

/* ---- contents ---- */

/* Those that safetensors stores come first. */
static bool is_of_safetensors(const struct wfs_tensor *tensor)
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
    spell(edit->to, &name);
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
    if (!is_of_safetensors(content) && add_bytes(writing, content, tensor) < 0)
        return -ENOMEM;
    tensor->key = writing->content_names[i];
    return 0;
}

/* ---- edits ---- */

static void put_description(struct strbuf *json, bool has_dtype, unsigned dtype, bool has_shape,
                            const struct wfs_shape *shape)
{
    if (has_dtype)
        strbuf_printf(json, "\"dtype\": \"%s\"", wfs_dtype_name((enum wfs_dtype)dtype));
    if (has_shape) {
        strbuf_puts(json, has_dtype ? ", \"shape\": " : "\"shape\": ");
        shape_print(json, shape);
    }
}

static int put_was(struct writing *writing, const struct patch_edit *edit, bool is_value)
{
    struct strbuf *json = &writing->json;
    const struct patch_was *was = &edit->was;
    uint64_t digest = was->digest;
    if (!was->is_known && !was->has_digest && was->values == NULL)
        return 0;
    strbuf_puts(json, ", \"was\": {");
    if (was->is_known && !is_value)
        put_description(json, true, was->dtype, true, &was->shape);
    if (was->tensor != NULL && writing->has_digests) {
        const int code = wfs_tensor_digest(was->tensor, &digest);
        if (code < 0)
            return wfs_fail(writing->err, -code, "tensor '%s' cannot be read: %s",
                            wfs_quote(was->tensor->key).text, strerror(-code));
    }
    if (was->values != NULL && patch_digest_value(was->values, was->value, &digest) < 0)
        return wfs_fail_memory(writing->err);
    if (was->has_digest || was->tensor != NULL || was->values != NULL)
        strbuf_printf(json, "%s\"xxh3\": \"%016" PRIx64 "\"", is_value ? "" : ", ", digest);
    strbuf_puts(json, "}");
    return 0;
}

static int put_edit(struct writing *writing, const struct patch_edit *edit, bool is_value)
{
    struct strbuf *json = &writing->json;
    strbuf_puts(json, "{");
    if (edit->from != NULL) {
        put_name(json, "from", edit->from);
        strbuf_puts(json, ", ");
    }
    put_name(json, "to", edit->to);
    if (edit->is_copy)
        strbuf_puts(json, ", \"is_copy\": true");
    if (edit->has_place) {
        strbuf_puts(json, ", ");
        put_name(json, edit->is_place_of_value ? "place_of_value" : "place", edit->place);
    }
    if (edit->content != 0) {
        if (add_content(writing, edit, is_value) < 0)
            return wfs_fail_memory(writing->err);
        strbuf_puts(json, ", \"content\": ");
        strbuf_json(json, writing->content_names[edit->content - 1]);
    }
    if (edit->has_dtype || edit->has_shape)
        strbuf_puts(json, ", ");
    put_description(json, edit->has_dtype, edit->dtype, edit->has_shape, &edit->shape);
    for (unsigned i = 0; i < TENSOR_N_TEXTS; i++) {
        if (edit->texts[i] == NULL)
            continue;
        strbuf_printf(json, ", \"%s\": ", tensor_text_names[i]);
        strbuf_json(json, edit->texts[i]);
    }
    const int code = put_was(writing, edit, is_value);
    strbuf_puts(json, "}");
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

static void put_text(struct strbuf *json, const char *label, const char *text, size_t n_bytes)
{
    strbuf_printf(json, ", \"%s\": ", label);
    if (text == NULL)
        strbuf_puts(json, "null");
    else
        strbuf_json_bytes(json, text, n_bytes);
}

static void put_metas(struct writing *writing)
{
    strbuf_puts(&writing->json, ",\n\"metadata\": [");
    for (size_t i = 0; i < writing->patch->n_metas; i++) {
        const struct patch_meta *meta = &writing->patch->metas[i];
        strbuf_puts(&writing->json, i > 0 ? ",\n{\"name\": " : "\n{\"name\": ");
        strbuf_json(&writing->json, meta->name);
        put_text(&writing->json, "was", meta->was, meta->n_was);
        put_text(&writing->json, "value", meta->value, meta->n_value);
        strbuf_puts(&writing->json, "}");
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
        catalog_add_meta_bytes(writing->file, PATCH_TEXT, writing->json.bytes,
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
