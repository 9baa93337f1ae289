/* SPDX-License-Identifier: MIT */
/*
 * Edits that a user asks for one by one, of a checkpoint that is loaded.
 */
#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/patch.h>
#include <weightfs/value.h>
#include "base/bytes.h"
#include "edits/edits.h"
#include "tensor/npy.h"
#include "tensor/tensor.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *copy_text(struct wfs_patch *patch, const char *text)
{
    return arena_copy(&patch->contents->arena, text, strlen(text));
}

/* All requests of a patch are of one checkpoint, which is indexed for the first one. -ENOMEM. */
static int begin(struct wfs_patch *patch, const struct wfs_catalog *of, struct wfs_error *err)
{
    if (patch->requests != NULL) {
        assert(patch->requests->of == of);
        return 0;
    }
    struct patch_requests *requests = calloc(1, sizeof(*requests));
    if (requests == NULL)
        return wfs_fail_memory(err);
    requests->of = of;
    patch->requests = requests;
    int code = meta_index_init(&requests->metas, wfs_catalog_meta(of));
    for (unsigned kind = 0; kind < PATCH_N_KINDS && code == 0; kind++)
        code = patch_keys_init(&requests->keys[kind], of, kind == PATCH_VALUES);
    return code < 0 ? wfs_fail_memory(err) : 0;
}

/* Returns the tensor of the checkpoint with the key; NULL: none. */
static const struct wfs_tensor *find_tensor(const struct wfs_patch *patch, const char *key)
{
    const struct patch_keys *keys = &patch->requests->keys[PATCH_TENSORS];
    const size_t i = patch_keys_find(keys, key);
    return i == SIZE_MAX ? NULL : wfs_catalog_tensor(keys->catalog, i);
}

static struct patch_edit *find_named(struct wfs_patch *patch, unsigned kind,
                                     const struct patch_named *named, const char *key)
{
    const uint32_t i = text_index_find(&named->keys, key, strlen(key));
    return i == TEXT_INDEX_NONE ? NULL : &patch->edits[kind].items[named->edits[i]];
}

/* Returns the edit whose result has the key; NULL: none. */
static struct patch_edit *find_made(struct wfs_patch *patch, unsigned kind, const char *key)
{
    return find_named(patch, kind, &patch->requests->made[kind], key);
}

/* Returns the edit that removes what has the key, or gives it another one; NULL: none. */
static struct patch_edit *find_taken(struct wfs_patch *patch, unsigned kind, const char *key)
{
    return find_named(patch, kind, &patch->requests->taken[kind], key);
}

/* The key is not in the list yet. */
static int add_named(struct patch_named *named, const char *key, size_t edit)
{
    uint32_t i;
    if (text_index_add(&named->keys, key, strlen(key), &i) < 0 ||
        array_reserve(&named->edits, sizeof(*named->edits), i, 1, &named->n_room) < 0)
        return -ENOMEM;
    named->edits[i] = (uint32_t)edit;
    return 0;
}

/* Adds an edit that makes `to` of `from`. NULL, and a message, when out of memory. */
static struct patch_edit *add_edit(struct wfs_patch *patch, unsigned kind, const char *from,
                                   const char *to, struct wfs_error *err)
{
    const size_t n = patch->edits[kind].n_items;
    struct patch_requests *requests = patch->requests;
    const char *from_copy = from == NULL ? NULL : copy_text(patch, from);
    const char *to_copy = to == NULL ? NULL : copy_text(patch, to);
    int code = (from != NULL && from_copy == NULL) || (to != NULL && to_copy == NULL) ? -ENOMEM : 0;
    if (code == 0 && to != NULL)
        code = add_named(&requests->made[kind], to_copy, n);
    if (code == 0 && from != NULL && (to == NULL || strcmp(from, to) != 0))
        code = add_named(&requests->taken[kind], from_copy, n);
    struct patch_edit *edit = code == 0 ? patch_add(patch, kind) : NULL;
    if (edit == NULL) {
        wfs_fail_memory(err);
        return NULL;
    }
    edit->from = from_copy;
    edit->to = to_copy;
    return edit;
}

static int fail_twice(const char *key, struct wfs_error *err)
{
    return wfs_fail(err, EEXIST, "'%s' is edited twice", wfs_quote(key).text);
}

static int fail_missing(const char *what, const char *key, struct wfs_error *err)
{
    return wfs_fail(err, ENOKEY, "no %s '%s'", what, wfs_quote(key).text);
}

/* ---- renaming and removing ---- */

static bool is_removed(struct wfs_patch *patch, unsigned kind, const char *key)
{
    const struct patch_edit *taken = find_taken(patch, kind, key);
    return taken != NULL && taken->to == NULL;
}

/* Returns whether an edit is of what has the key: its content, its description, its key. */
static bool is_edited(struct wfs_patch *patch, unsigned kind, const char *key)
{
    const struct patch_edit *made = find_made(patch, kind, key);
    return find_taken(patch, kind, key) != NULL ||
           (made != NULL && made->from != NULL && strcmp(made->from, key) == 0);
}

int wfs_patch_rename(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                     const char *new_key, struct wfs_error *err)
{
    if (begin(patch, of, err) < 0)
        return -ENOMEM;
    if (find_tensor(patch, key) == NULL)
        return fail_missing("tensor", key, err);
    if (strcmp(key, new_key) == 0)
        return 0;
    if (is_edited(patch, PATCH_TENSORS, key))
        return fail_twice(key, err);
    if (find_made(patch, PATCH_TENSORS, new_key) != NULL)
        return fail_twice(new_key, err);
    return add_edit(patch, PATCH_TENSORS, key, new_key, err) == NULL ? -ENOMEM : 0;
}

int wfs_patch_remove(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                     struct wfs_error *err)
{
    int code = begin(patch, of, err);
    bool is_found = false;
    for (unsigned kind = 0; kind < PATCH_N_KINDS && code == 0; kind++) {
        if (patch_keys_find(&patch->requests->keys[kind], key) == SIZE_MAX)
            continue;
        is_found = true;
        if (is_removed(patch, kind, key))
            continue;
        if (is_edited(patch, kind, key))
            code = fail_twice(key, err);
        else if (add_edit(patch, kind, key, NULL, err) == NULL)
            code = -ENOMEM;
    }
    return code < 0 ? code : is_found;
}

/* ---- new contents ---- */

/* A tensor that gets another key may get other content, too. */
static int put(struct wfs_patch *patch, const struct wfs_tensor *base, const char *key,
               const struct wfs_tensor *tensor, struct wfs_error *err)
{
    struct patch_edit *edit = find_made(patch, PATCH_TENSORS, key);
    const bool is_renaming =
        edit != NULL && edit->from != NULL && strcmp(edit->from, edit->to) != 0;
    if (is_removed(patch, PATCH_TENSORS, key) ||
        (edit != NULL &&
         (!is_renaming || edit->content != 0 || edit->has_dtype || edit->has_shape)))
        return fail_twice(key, err);
    if (edit == NULL)
        edit = add_edit(patch, PATCH_TENSORS, base == NULL ? NULL : base->key, key, err);
    if (edit == NULL || patch_add_content(patch, tensor, &edit->content) < 0)
        return wfs_fail_memory(err);
    edit->has_dtype = edit->has_shape = true;
    edit->dtype = tensor->dtype;
    edit->shape = tensor->shape;
    return 0;
}

int wfs_patch_put(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                  const struct wfs_tensor *content, struct wfs_error *err)
{
    struct wfs_tensor tensor = {.key = "",
                                .shape = content->shape,
                                .n_bytes = content->n_bytes,
                                .stored = content->stored,
                                .dtype = content->dtype};
    if (begin(patch, of, err) < 0 || shape_own(&tensor.shape, &patch->contents->arena) < 0)
        return wfs_fail_memory(err);
    const bool is_free = find_taken(patch, PATCH_TENSORS, key) != NULL;
    return put(patch, is_free ? NULL : find_tensor(patch, key), key, &tensor, err);
}

/* ---- .npy files ---- */

static int read_front(const struct source *source, char **ret, size_t *ret_n)
{
    const size_t n = source->n_bytes < NPY_FRONT_MAX ? (size_t)source->n_bytes : NPY_FRONT_MAX;
    autofree char *front = malloc(n + 1);
    if (front == NULL)
        return -ENOMEM;
    const int code = source_read(source, 0, front, n);
    if (code < 0)
        return code;
    *ret = steal(&front);
    *ret_n = n;
    return 0;
}

/* numpy has no names for some types: the file has the bytes of the tensor that it replaces. */
static bool takes_dtype_of(const struct npy_header *header, const struct wfs_tensor *base)
{
    return base != NULL && strcmp(wfs_dtype_descr((enum wfs_dtype)base->dtype), header->descr) == 0;
}

static int describe(struct wfs_patch *patch, const struct npy_header *header,
                    const struct wfs_tensor *base, const char *path, struct wfs_tensor *tensor,
                    struct wfs_error *err)
{
    const bool is_of_base = takes_dtype_of(header, base);
    if (!is_of_base && !header->has_dtype)
        return wfs_fail(err, EOPNOTSUPP,
                        "'%s': numpy has no name for its dtype '%s': use an array of another one, "
                        "or replace a tensor that has it",
                        wfs_quote(path).text, header->descr);
    tensor->dtype = is_of_base ? base->dtype : (uint8_t)header->dtype;
    tensor->shape = header->shape;
    /* Elements of less than a byte are bytes in the file. */
    const unsigned n_bits = wfs_dtype_bits((enum wfs_dtype)tensor->dtype);
    if (n_bits < 8 && tensor->shape.rank > 0) {
        if (shape_own(&tensor->shape, &patch->contents->arena) < 0)
            return wfs_fail_memory(err);
        uint64_t *last = (uint64_t *)(uintptr_t)&tensor->shape.dims[tensor->shape.rank - 1];
        *last = npy_unpack((enum wfs_dtype)tensor->dtype, *last);
    }
    if (base != NULL && base->dtype == tensor->dtype && base->n_bytes == tensor->n_bytes &&
        n_bits < 8)
        tensor->shape = base->shape;
    return 0;
}

/* Makes the content a tensor that is in the file. */
static int read_npy(struct wfs_patch *patch, const struct wfs_tensor *base, const char *path,
                    struct wfs_tensor *tensor, struct wfs_error *err)
{
    autofree char *front = NULL;
    size_t n_front = 0;
    struct source *source;
    struct npy_header header;
    const char *reason = NULL;
    struct wfs_error own = {0};
    int code = source_open(path, &source, &own);
    if (code < 0)
        return wfs_fail(err, -code, "'%s': %s", wfs_quote(path).text, own.text);
    if (catalog_adopt_source(patch->contents, source) < 0)
        return wfs_fail_memory(err);
    code = read_front(source, &front, &n_front);
    if (code == 0)
        code = npy_parse(front, n_front, &patch->contents->arena, &header, &reason);
    if (code < 0)
        return wfs_fail(err, -code, "'%s' %s", wfs_quote(path).text,
                        reason != NULL ? reason : strerror(-code));
    wfs_access_add(&patch->access, source->fd);
    *tensor = (struct wfs_tensor){.key = "",
                                  .n_bytes = source->n_bytes - header.n_bytes,
                                  .stored = {.source = source, .offset = header.n_bytes}};
    code = describe(patch, &header, base, path, tensor, err);
    if (code < 0)
        return code;
    tensor->stored.dtype = tensor->dtype;
    uint64_t n_bytes;
    if (wfs_shape_bytes(&tensor->shape, (enum wfs_dtype)tensor->dtype, &n_bytes) < 0 ||
        n_bytes != tensor->n_bytes)
        return wfs_fail(err, EBADMSG, "'%s': its header does not describe the %s that follow it",
                        wfs_quote(path).text, wfs_count(tensor->n_bytes, "byte").text);
    return 0;
}

static int put_npy(struct wfs_patch *patch, const struct wfs_tensor *base, const char *key,
                   const char *path, struct wfs_error *err)
{
    struct wfs_tensor tensor;
    if (is_removed(patch, PATCH_TENSORS, key) || find_made(patch, PATCH_TENSORS, key) != NULL)
        return fail_twice(key, err);
    const int code = read_npy(patch, base, path, &tensor, err);
    return code < 0 ? code : put(patch, base, key, &tensor, err);
}

int wfs_patch_add_npy(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                      const char *path, struct wfs_error *err)
{
    if (begin(patch, of, err) < 0)
        return -ENOMEM;
    if (find_tensor(patch, key) != NULL)
        return wfs_fail(err, EEXIST, "tensor '%s' exists: it can be replaced, but not added",
                        wfs_quote(key).text);
    return put_npy(patch, NULL, key, path, err);
}

int wfs_patch_replace_npy(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                          const char *path, struct wfs_error *err)
{
    if (begin(patch, of, err) < 0)
        return -ENOMEM;
    const struct wfs_tensor *base = find_tensor(patch, key);
    return base == NULL ? fail_missing("tensor", key, err) : put_npy(patch, base, key, path, err);
}

/* ---- descriptions ---- */

/* Finds or makes the edit that a tensor is described by. */
static int find_described(struct wfs_patch *patch, const char *key, struct patch_edit **ret,
                          struct wfs_error *err)
{
    struct patch_edit *edit = find_made(patch, PATCH_TENSORS, key);
    if (edit == NULL)
        edit = find_taken(patch, PATCH_TENSORS, key);
    if (edit != NULL && edit->to == NULL)
        return fail_twice(key, err);
    if (edit == NULL && find_tensor(patch, key) == NULL)
        return fail_missing("tensor", key, err);
    *ret = edit != NULL ? edit : add_edit(patch, PATCH_TENSORS, key, key, err);
    return *ret == NULL ? -ENOMEM : 0;
}

static int set_dtype(struct patch_edit *edit, const char *value, struct wfs_error *err)
{
    enum wfs_dtype dtype;
    if (!wfs_dtype_spelled(value, strlen(value), &dtype))
        return wfs_fail(err, EINVAL, "no dtype '%s': dtypes are F32, F16, BF16, I64 and so on",
                        wfs_quote(value).text);
    edit->has_dtype = true;
    edit->dtype = (uint8_t)dtype;
    return 0;
}

int patch_parse_shape(const char *text, size_t n_bytes, struct arena *arena, struct wfs_shape *ret)
{
    /* Two bytes a dimension at least: a digit and a comma. */
    uint64_t *dims = arena_calloc(arena, n_bytes / 2 + 1, sizeof(*dims));
    const char *end = text + n_bytes;
    uint32_t rank = 0;
    if (dims == NULL)
        return -ENOMEM;
    text += strspn(text, " ");
    for (bool has_more = text < end; has_more; rank++) {
        const char *digits = text;
        while (text < end && *text >= '0' && *text <= '9')
            text++;
        if (rank == PATCH_RANK_MAX || !digits_parse(digits, (size_t)(text - digits), &dims[rank]))
            return -EINVAL;
        text += strspn(text, " ");
        has_more = text < end;
        if (has_more && *text++ != ',')
            return -EINVAL;
        text += has_more ? strspn(text, " ") : 0;
    }
    *ret = (struct wfs_shape){rank, dims};
    return 0;
}

/* "2,3", also in brackets and with spaces; nothing for a scalar. */
static int set_shape(struct wfs_patch *patch, struct patch_edit *edit, const char *value,
                     struct wfs_error *err)
{
    const size_t n = strlen(value);
    const bool has_brackets = n > 1 && value[0] == '[' && value[n - 1] == ']';
    const size_t n_inside = n - 2 * (size_t)has_brackets;
    const int code =
        patch_parse_shape(value + has_brackets, n_inside, &patch->contents->arena, &edit->shape);
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    if (code < 0 || (edit->shape.rank == 0 && n_inside > 0))
        return wfs_fail(err, EINVAL, "'%s' is not a shape, such as 2,3", wfs_quote(value).text);
    edit->has_shape = true;
    return 0;
}

int wfs_patch_set(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                  const char *name, const char *value, struct wfs_error *err)
{
    struct patch_edit *edit = NULL;
    int code = begin(patch, of, err);
    if (code == 0)
        code = find_described(patch, key, &edit, err);
    if (code < 0)
        return code;
    if (strcmp(name, "dtype") == 0)
        return set_dtype(edit, value, err);
    if (strcmp(name, "shape") == 0)
        return set_shape(patch, edit, value, err);
    if (strcmp(name, tensor_text_names[TENSOR_PARAM_ID]) != 0)
        return wfs_fail(err, EINVAL, "'%s' cannot be set; dtype, shape and param_id can",
                        wfs_quote(name).text);
    edit->texts[TENSOR_PARAM_ID] = copy_text(patch, value);
    return edit->texts[TENSOR_PARAM_ID] == NULL ? wfs_fail_memory(err) : 0;
}

/* ---- values and metadata ---- */

int wfs_patch_set_value(struct wfs_patch *patch, const struct wfs_catalog *of, const char *name,
                        const char *json, struct wfs_error *err)
{
    struct source *source;
    const char *text = copy_text(patch, json);
    if (begin(patch, of, err) < 0)
        return -ENOMEM;
    if (is_removed(patch, PATCH_VALUES, name) || find_made(patch, PATCH_VALUES, name) != NULL)
        return fail_twice(name, err);
    const bool exists = patch_keys_find(&patch->requests->keys[PATCH_VALUES], name) != SIZE_MAX;
    struct patch_edit *edit = add_edit(patch, PATCH_VALUES, exists ? name : NULL, name, err);
    if (text == NULL || edit == NULL ||
        source_new_memory("a value", text, strlen(text), &source) < 0 ||
        patch_add_bytes(patch, source, &edit->content) < 0)
        return wfs_fail_memory(err);
    return 0;
}

int wfs_patch_set_metadata(struct wfs_patch *patch, const struct wfs_catalog *of, const char *name,
                           const char *value, struct wfs_error *err)
{
    if (begin(patch, of, err) < 0)
        return -ENOMEM;
    struct patch_requests *requests = patch->requests;
    const struct wfs_text *was = meta_index_find(&requests->metas, name);
    uint32_t number;
    if (text_index_find(&requests->edited_metas, name, strlen(name)) != TEXT_INDEX_NONE)
        return fail_twice(name, err);
    if (value == NULL && was == NULL)
        return fail_missing("metadata", name, err);
    struct patch_meta *meta = patch_add_meta(patch);
    if (meta == NULL)
        return wfs_fail_memory(err);
    meta->name = copy_text(patch, name);
    meta->was = was == NULL ? NULL : was->value;
    meta->n_was = was == NULL ? 0 : was->n_bytes;
    meta->value = value == NULL ? NULL : copy_text(patch, value);
    meta->n_value = value == NULL ? 0 : strlen(value);
    return meta->name == NULL || (value != NULL && meta->value == NULL) ||
                   text_index_add(&requests->edited_metas, meta->name, strlen(name), &number) < 0
               ? wfs_fail_memory(err)
               : 0;
}
