/* SPDX-License-Identifier: MIT */
/*
 * How the attributes of a tensor file are made, and what setting one does. Those that describe the
 * tensor are listed, so that copies carry them; those that describe where it lies are not, since
 * they differ from copy to copy.
 */
#include "tree/attrs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "tensor/shape.h"
#include "tree/content.h"
#include "tree/digests.h"
#include "tree/file/description.h"
#include "tree/node/entry.h"
#include "tree/node/edit.h"
#include "tree/stage/stage.h"

int attrs_look(const struct wfs_tree *tree, const struct wfs_node *node, struct look *look)
{
    *look = (struct look){.tree = tree, .node = node};
    int code = sibling_describe(tree, node, node->entry, &look->arena, &look->description, NULL);
    if (code < 0 && !description_is_of_header(code))
        return code;
    return description_tensor(tree, node, node->entry, &look->description, NULL, &look->arena,
                              &look->tensor);
}

void attrs_look_done(struct look *look)
{
    arena_done(&look->arena);
}

/* ---- the table: what there is to get ---- */

static int put(struct strbuf *text, const char *value)
{
    if (value == NULL)
        return -ENODATA;
    strbuf_puts(text, value);
    return 0;
}

/* Adds the key that a name of the file spells. */
static int add_key(const struct look *look, uint32_t id, struct strbuf *text)
{
    return entry_key(look->tree, id,
                     look->description.is_framed && entry_has_suffix(look->tree, id), text);
}

/* Adds the key in the source of what a name of the file was loaded with. */
static int add_origin(const struct look *look, uint32_t id, struct strbuf *text)
{
    if (entry_at(look->tree, id)->order >= wfs_catalog_n_tensors(look->tree->catalog))
        return -ENOENT;
    strbuf_puts(text, wfs_tensor_origin(description_base(look->tree, look->node, id)));
    return 0;
}

/* Adds a line for each name of the file, the oldest first; names without one are left out. */
static int add_lines(const struct look *look,
                     int (*add)(const struct look *, uint32_t, struct strbuf *),
                     struct strbuf *text)
{
    enum { N_MOST = 1024 };
    uint32_t ids[N_MOST];
    size_t n = 0;
    for (uint32_t id = look->node->entry; id != 0; id = entry_at(look->tree, id)->next) {
        if (n == N_MOST)
            return -ENODATA;
        ids[n++] = id;
    }
    size_t n_found = 0;
    while (n > 0) {
        const size_t n_before = text->n_bytes;
        strbuf_add(text, "\n", n_found > 0);
        const int code = add(look, ids[--n], text);
        if (code == -ENOENT || code == -ENOKEY)
            text->n_bytes = n_before;
        else if (code < 0)
            return code;
        n_found += code == 0;
    }
    return n_found > 0 ? 0 : -ENODATA;
}

static int get_key(const struct look *look, struct strbuf *text)
{
    return add_lines(look, add_key, text);
}

static int get_dtype(const struct look *look, struct strbuf *text)
{
    return put(text, look->description.has_dtype
                         ? wfs_dtype_name((enum wfs_dtype)look->description.dtype)
                         : NULL);
}

static int get_shape(const struct look *look, struct strbuf *text)
{
    if (!look->description.has_shape)
        return -ENODATA;
    shape_print(text, &look->description.shape);
    return 0;
}

static int get_file(const struct look *look, struct strbuf *text)
{
    const int i = edit_is_staged(look->node) || look->node->tensor == NULL
                      ? -1
                      : wfs_catalog_source_of(look->tree->catalog, look->node->tensor);
    return put(text, i < 0 ? NULL : wfs_catalog_source_path(look->tree->catalog, (size_t)i));
}

static int get_offset(const struct look *look, struct strbuf *text)
{
    int fd;
    uint64_t offset;
    if (edit_is_staged(look->node) || !wfs_tensor_extent(look->node->tensor, &fd, &offset))
        return -ENODATA;
    strbuf_printf(text, "%" PRIu64, offset);
    return 0;
}

static int get_source_key(const struct look *look, struct strbuf *text)
{
    const int code = look->node->tensor == NULL ? -ENODATA : add_lines(look, add_origin, text);
    return code == -ENODATA ? put(text, look->tensor.origin) : code;
}

static int get_source_dtype(const struct look *look, struct strbuf *text)
{
    const struct wfs_tensor *tensor = look->node->tensor;
    return put(text, tensor == NULL ? NULL : wfs_dtype_name((enum wfs_dtype)tensor->stored.dtype));
}

static int get_changes(const struct look *look, struct strbuf *text)
{
    return put(text, look->tensor.changes);
}

static int get_param_id(const struct look *look, struct strbuf *text)
{
    return put(text, wfs_tensor_attr(&look->tensor, "param_id"));
}

static int get_record_id(const struct look *look, struct strbuf *text)
{
    return put(text, wfs_tensor_attr(&look->tensor, "record_id"));
}

static int get_quantization(const struct look *look, struct strbuf *text)
{
    return put(text, wfs_tensor_attr(&look->tensor, "quantization"));
}

static int get_role(const struct look *look, struct strbuf *text)
{
    return put(text, wfs_tensor_attr(&look->tensor, "role"));
}

static int get_part_of(const struct look *look, struct strbuf *text)
{
    return put(text, wfs_tensor_attr(&look->tensor, "part_of"));
}

static int get_sparse(const struct look *look, struct strbuf *text)
{
    return put(text, wfs_tensor_attr(&look->tensor, "sparse"));
}

/* It describes elements that no other dtype has. */
static int get_numpy(const struct look *look, struct strbuf *text)
{
    return put(text,
               look->tensor.dtype == WFS_OPAQUE ? wfs_tensor_attr(&look->tensor, "numpy") : NULL);
}

static int get_xxh3(const struct look *look, struct strbuf *text)
{
    return digests_xxh3(look->tree, look->node, text);
}

static int get_stats(const struct look *look, struct strbuf *text)
{
    return look->description.has_dtype && look->description.has_shape
               ? digests_stats(look->tree, look->node, text)
               : -ENODATA;
}

/* ---- the table: what can be set ---- */

/* A new dtype or shape needs a copy of the bytes as they are shown: those of a tensor in the source
 * that is not stored so. */
static int make_describable(struct wfs_tree *tree, struct wfs_node *node)
{
    const bool needs_copy = node->kind == NODE_FILE && !edit_is_staged(node) &&
                            node->tensor != NULL && !wfs_tensor_is_plain(node->tensor) &&
                            !tree->is_replaying;
    return needs_copy ? staging_begin(tree, node, content_n_bytes(tree, node)) : 0;
}

/* The kernel may have cached a generated header. */
static void note_new_header(struct edit *edit)
{
    edit->has_new_header |= !edit->is_staged;
}

static int set_dtype(struct wfs_tree *tree, struct wfs_node *node, const char *value,
                     size_t n_bytes)
{
    enum wfs_dtype dtype;
    if (!wfs_dtype_parse(value, n_bytes, &dtype))
        return -EINVAL;
    struct edit *edit = edit_of(tree, node);
    int code = edit == NULL ? -ENOMEM : make_describable(tree, node);
    if (code == 0)
        code = notes_attr(tree, node, "dtype", value, n_bytes);
    if (code < 0)
        return code;
    edit->has_dtype = true;
    edit->dtype = (uint8_t)dtype;
    note_new_header(edit);
    return 0;
}

static int set_shape(struct wfs_tree *tree, struct wfs_node *node, const char *value,
                     size_t n_bytes)
{
    struct arena arena = {0};
    struct wfs_shape shape;
    int code = attrs_parse_shape(value, n_bytes, &arena, &shape);
    struct edit *edit = code < 0 ? NULL : edit_of(tree, node);
    if (code == 0)
        code = edit == NULL ? -ENOMEM : make_describable(tree, node);
    if (code == 0)
        code = notes_attr(tree, node, "shape", value, n_bytes);
    if (code == 0)
        code = notes_settle(tree, node, edit_set_shape(edit, &shape));
    if (code == 0)
        note_new_header(edit);
    arena_done(&arena);
    return code;
}

static int set_text(struct wfs_tree *tree, struct wfs_node *node, enum tensor_text which,
                    const char *value, size_t n_bytes)
{
    struct edit *edit = edit_of(tree, node);
    if (memchr(value, '\0', n_bytes) != NULL || utf8_valid(value, n_bytes) != n_bytes)
        return -EINVAL;
    char *copy = edit == NULL ? NULL : strndup(value, n_bytes);
    const int code =
        copy == NULL ? -ENOMEM : notes_attr(tree, node, tensor_text_names[which], value, n_bytes);
    if (code < 0) {
        free(copy);
        return code;
    }
    free(edit->texts[which]);
    edit->texts[which] = copy;
    return 0;
}

static int set_param_id(struct wfs_tree *tree, struct wfs_node *node, const char *value,
                        size_t n_bytes)
{
    return set_text(tree, node, TENSOR_PARAM_ID, value, n_bytes);
}

/* Set by copies. It has a meaning for types that can be quantized only. */
static int set_quantization(struct wfs_tree *tree, struct wfs_node *node, const char *value,
                            size_t n_bytes)
{
    return set_text(tree, node, TENSOR_QUANTIZATION, value, n_bytes);
}

/*
 * Remembers the part if a name would be too short for it. The name need not be one that the file
 * has: copies get their keys before their other names. -EEXIST: another part has the short name.
 */
static int learn_cut(struct wfs_tree *tree, const struct wfs_node *node, const char *part,
                     size_t n_part)
{
    struct key_name encoded;
    key_encode(part, n_part, strlen(KEY_NPY), &encoded);
    if (!encoded.is_cut)
        return 0;
    const char *known = key_cuts_find(&tree->cuts, encoded.text, encoded.n_bytes);
    if (known != NULL)
        return strlen(known) == n_part && memcmp(known, part, n_part) == 0 ? 0 : -EEXIST;
    const int code = notes_attr(tree, node, "key", part, n_part);
    return code < 0 ? code
                    : notes_settle(tree, node,
                                   key_cuts_add(&tree->cuts, &tree->arena, &encoded, part, n_part));
}

/* The key, or what follows its last dot, may be the part. */
static int learn_key(struct wfs_tree *tree, const struct wfs_node *node, const char *key,
                     size_t n_key)
{
    const char *dot = memrchr(key, '.', n_key);
    int code = learn_cut(tree, node, key, n_key);
    if (code == 0 && dot != NULL)
        code = learn_cut(tree, node, dot + 1, n_key - (size_t)(dot + 1 - key));
    return code;
}

/*
 * A copy of a file with a shortened name brings its key with it, or all its keys, one on each line.
 * Setting a key changes nothing else.
 */
static int set_key(struct wfs_tree *tree, struct wfs_node *node, const char *value, size_t n_bytes)
{
    if (node->entry == 0 || memchr(value, '\0', n_bytes) != NULL)
        return 0;
    const char *end = memchr(value, '\n', n_bytes);
    int code = learn_key(tree, node, value, n_bytes);
    while (code == 0 && end != NULL) {
        const char *line = value;
        value = end + 1;
        n_bytes -= (size_t)(value - line);
        code = learn_key(tree, node, line, (size_t)(end - line));
        end = memchr(value, '\n', n_bytes);
        if (code == 0 && end == NULL)
            code = learn_key(tree, node, value, n_bytes);
    }
    return code;
}

static void unset_dtype(struct edit *edit)
{
    edit->has_dtype = false;
    note_new_header(edit);
}

static void unset_shape(struct edit *edit)
{
    edit->has_shape = false;
    note_new_header(edit);
}

static void unset_text(struct edit *edit, enum tensor_text which)
{
    free(edit->texts[which]);
    edit->texts[which] = NULL;
}

static void unset_param_id(struct edit *edit)
{
    unset_text(edit, TENSOR_PARAM_ID);
}

static void unset_quantization(struct edit *edit)
{
    unset_text(edit, TENSOR_QUANTIZATION);
}

/* The most needed first: the list ends when it is long enough. */
const struct attr attrs_table[] = {
    {"dtype", true, get_dtype, set_dtype, unset_dtype},
    {"shape", true, get_shape, set_shape, unset_shape},
    {"key", true, get_key, set_key, NULL},
    {"param_id", true, get_param_id, set_param_id, unset_param_id},
    {"quantization", true, get_quantization, set_quantization, unset_quantization},
    {"role", true, get_role, NULL, NULL},
    {"changes", true, get_changes, NULL, NULL},
    {"part_of", true, get_part_of, NULL, NULL},
    {"sparse", true, get_sparse, NULL, NULL},
    {"numpy", true, get_numpy, NULL, NULL},
    {"file", false, get_file, NULL, NULL},
    {"offset", false, get_offset, NULL, NULL},
    {"record_id", false, get_record_id, NULL, NULL},
    {"source_key", false, get_source_key, NULL, NULL},
    {"source_dtype", false, get_source_dtype, NULL, NULL},
    {"xxh3", false, get_xxh3, NULL, NULL},
    {"stats", false, get_stats, NULL, NULL},
};

const size_t attrs_table_n = sizeof(attrs_table) / sizeof(*attrs_table);

int attrs_change(struct wfs_tree *tree, struct wfs_node *node, const char *name, const char *value)
{
    const struct attr *attr = attrs_table;
    while (attr < attrs_table + attrs_table_n && strcmp(attr->name, name) != 0)
        attr++;
    if (node->kind != NODE_FILE || attr == attrs_table + attrs_table_n)
        return -ENODATA;
    int code = 0;
    if (value != NULL && attr->set != NULL)
        code = attr->set(tree, node, value, strlen(value));
    else if (value == NULL && attr->unset != NULL && node->edit != NULL)
        attr->unset(node->edit);
    if (code == 0 && attr->unset != NULL && node->edit != NULL)
        edit_mark(tree, node->edit);
    return code;
}

int attrs_parse_shape(const char *text, size_t n_bytes, struct arena *arena, struct wfs_shape *ret)
{
    /* Two bytes a dimension at least: a digit and a comma. */
    uint64_t *dims = arena_calloc(arena, n_bytes / 2 + 1, sizeof(*dims));
    uint32_t rank = 0;
    size_t i = 0;
    if (dims == NULL)
        return -ENOMEM;
    if (n_bytes < 2 || text[i++] != '[')
        return -EINVAL;
    for (;; i++) {
        size_t n_digits = 0;
        while (i < n_bytes && text[i] == ' ')
            i++;
        for (; i < n_bytes && text[i] >= '0' && text[i] <= '9'; i++, n_digits++) {
            if (!checked_mul(dims[rank], (uint64_t)10, &dims[rank]) ||
                !checked_add(dims[rank], (uint64_t)(text[i] - '0'), &dims[rank]))
                return -EINVAL;
        }
        while (i < n_bytes && text[i] == ' ')
            i++;
        const bool is_end = i < n_bytes && text[i] == ']';
        if (i >= n_bytes || (!is_end && text[i] != ',') ||
            (n_digits == 0 && !(is_end && rank == 0)))
            return -EINVAL;
        rank += n_digits > 0;
        if (is_end)
            break;
        if (rank >= ATTRS_RANK_MAX)
            return -EINVAL;
    }
    *ret = (struct wfs_shape){rank, dims};
    return i + 1 == n_bytes ? 0 : -EINVAL;
}
