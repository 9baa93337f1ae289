/* SPDX-License-Identifier: MIT */
/*
 * How the attributes of a tensor file are made, and what setting one does. Those that describe the
 * tensor are listed, so that copies carry them; those that describe where it lies are not, since
 * they differ from copy to copy.
 */
#include "tree/attrs.h"

#include "base/utf8.h"
#include "edits/edits.h"
#include "tensor/tensor.h"
#include "tree/content.h"
#include "tree/file/description.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/stage/stage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- what there is to get ---- */

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
    return put(text, tensor == NULL || tensor->stored.is_unrounded
                         ? NULL
                         : wfs_dtype_name((enum wfs_dtype)tensor->stored.dtype));
}

static int get_changes(const struct look *look, struct strbuf *text)
{
    return put(text, look->tensor.changes);
}

static int get_computed(const struct look *look, struct strbuf *text)
{
    return put(text, edit_is_staged(look->node) ? NULL : wfs_tensor_computed(&look->tensor));
}

/* It describes elements that no other dtype has. */
static int get_numpy(const struct look *look, struct strbuf *text)
{
    return put(text,
               look->tensor.dtype == WFS_OPAQUE ? wfs_tensor_attr(&look->tensor, "numpy") : NULL);
}

static int get_xxh3(const struct look *look, struct strbuf *text)
{
    return digests_get(look->tree, look->node, DIGEST_XXH3, text);
}

static int get_stats(const struct look *look, struct strbuf *text)
{
    return look->description.has_dtype && look->description.has_shape
               ? digests_get(look->tree, look->node, DIGEST_STATS, text)
               : -ENODATA;
}

/* The most needed first: the list ends when it is long enough. */
const struct attr attrs_table[] = {
    {"dtype", true, ATTR_DTYPE, get_dtype},
    {"shape", true, ATTR_SHAPE, get_shape},
    {"key", true, ATTR_KEY, get_key},
    {"param_id", true, ATTR_TEXT, NULL},
    {"quantization", true, ATTR_TEXT, NULL}, /* set by copies */
    {"role", true, ATTR_FIXED, NULL},
    {"changes", true, ATTR_FIXED, get_changes},
    {"computed", true, ATTR_FIXED, get_computed},
    {"part_of", true, ATTR_FIXED, NULL},
    {"sparse", true, ATTR_FIXED, NULL},
    {"numpy", true, ATTR_FIXED, get_numpy},
    {"file", false, ATTR_FIXED, get_file},
    {"offset", false, ATTR_FIXED, get_offset},
    {"record_id", false, ATTR_FIXED, NULL},
    {"source_key", false, ATTR_FIXED, get_source_key},
    {"source_dtype", false, ATTR_FIXED, get_source_dtype},
    {"xxh3", false, ATTR_FIXED, get_xxh3},
    {"stats", false, ATTR_FIXED, get_stats},
};

const size_t attrs_table_n = sizeof(attrs_table) / sizeof(*attrs_table);

const struct attr *attrs_find(const char *name)
{
    for (size_t i = 0; i < attrs_table_n; i++) {
        if (strcmp(attrs_table[i].name, name) == 0)
            return &attrs_table[i];
    }
    return NULL;
}

int attrs_get(const struct look *look, const struct attr *attr, struct strbuf *text)
{
    return attr->get != NULL ? attr->get(look, text)
                             : put(text, wfs_tensor_attr(&look->tensor, attr->name));
}

/* ---- what can be set ---- */

static int parse_shape(const char *text, size_t n_bytes, struct arena *arena, struct wfs_shape *ret)
{
    if (n_bytes < 2 || text[0] != '[' || text[n_bytes - 1] != ']')
        return -EINVAL;
    return patch_parse_shape(text + 1, n_bytes - 2, arena, ret);
}

/* A new dtype or shape needs a copy of the bytes as they are shown: those of a tensor in the source
 * that is not stored so. The kernel may have cached a generated header. */
static int set_description(struct wfs_tree *tree, struct wfs_node *node, const struct attr *attr,
                           const char *value, size_t n_bytes)
{
    cleanup(arena_done) struct arena arena = {0};
    enum wfs_dtype dtype = WFS_OPAQUE;
    struct wfs_shape shape = {0};
    int code = attr->effect == ATTR_SHAPE ? parse_shape(value, n_bytes, &arena, &shape)
               : wfs_dtype_spelled(value, n_bytes, &dtype) ? 0
                                                           : -EINVAL;
    struct edit *edit = code < 0 ? NULL : edit_of(tree, node);
    if (code == 0 && edit == NULL)
        code = -ENOMEM;
    const bool needs_copy = node->kind == NODE_FILE && !edit_is_staged(node) &&
                            node->tensor != NULL && !wfs_tensor_is_plain(node->tensor) &&
                            !tree->is_replaying;
    if (code == 0 && needs_copy)
        code = staging_begin(tree, node, content_n_bytes(tree, node));
    if (code == 0)
        code = notes_attr(tree, node, attr->name, value, n_bytes);
    if (code == 0 && attr->effect == ATTR_SHAPE)
        code = notes_settle(tree, node, edit_set_shape(edit, &shape));
    if (code < 0)
        return code;
    if (attr->effect == ATTR_DTYPE) {
        edit->has_dtype = true;
        edit->dtype = (uint8_t)dtype;
    }
    edit->has_new_header |= !edit->is_staged;
    return 0;
}

static char **text_of(struct edit *edit, const struct attr *attr)
{
    const bool is_first = strcmp(attr->name, tensor_text_names[TENSOR_PARAM_ID]) == 0;
    return &edit->texts[is_first ? TENSOR_PARAM_ID : TENSOR_QUANTIZATION];
}

static int set_text(struct wfs_tree *tree, struct wfs_node *node, const struct attr *attr,
                    const char *value, size_t n_bytes)
{
    struct edit *edit = edit_of(tree, node);
    if (memchr(value, '\0', n_bytes) != NULL || utf8_valid(value, n_bytes) != n_bytes)
        return -EINVAL;
    autofree char *copy = edit == NULL ? NULL : strndup(value, n_bytes);
    const int code = copy == NULL ? -ENOMEM : notes_attr(tree, node, attr->name, value, n_bytes);
    if (code < 0)
        return code;
    free(*text_of(edit, attr));
    *text_of(edit, attr) = steal(&copy);
    return 0;
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
    const char *end = value + n_bytes;
    const bool has_lines = memchr(value, '\n', n_bytes) != NULL;
    if (node->entry == 0 || memchr(value, '\0', n_bytes) != NULL)
        return 0;
    int code = learn_key(tree, node, value, n_bytes);
    for (const char *line = value, *stop; code == 0 && has_lines && line <= end; line = stop + 1) {
        stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop == NULL ? end : stop;
        code = learn_key(tree, node, line, (size_t)(stop - line));
    }
    return code;
}

/* What is set back to what the source has is not an edit any more, as long as the content is the
 * source's. */
static void drop_loaded(struct edit *edit, const struct wfs_tensor *tensor)
{
    if (edit->is_staged || tensor == NULL)
        return;
    edit->has_dtype &= edit->dtype != tensor->dtype;
    edit->has_shape &= edit->has_shape && !wfs_shape_is_equal(&edit->shape, &tensor->shape);
    for (unsigned i = 0; i < TENSOR_N_TEXTS; i++) {
        const char *loaded = wfs_tensor_attr(tensor, tensor_text_names[i]);
        if (loaded == NULL || edit->texts[i] == NULL || strcmp(loaded, edit->texts[i]) != 0)
            continue;
        free(edit->texts[i]);
        edit->texts[i] = NULL;
    }
}

int attrs_set(struct wfs_tree *tree, struct wfs_node *node, const struct attr *attr,
              const char *value, size_t n_bytes)
{
    const int code = attr->effect == ATTR_FIXED ? 0
                     : attr->effect == ATTR_KEY ? set_key(tree, node, value, n_bytes)
                     : attr->effect == ATTR_TEXT
                         ? set_text(tree, node, attr, value, n_bytes)
                         : set_description(tree, node, attr, value, n_bytes);
    if (code == 0 && attr->effect >= ATTR_TEXT) {
        drop_loaded(node->edit, node_loaded(node) == 0 ? NULL : node->tensor);
        edit_mark(tree, node->edit);
    }
    return code;
}

bool attrs_is_set(struct edit *edit, const struct attr *attr)
{
    return (attr->effect == ATTR_DTYPE && edit->has_dtype) ||
           (attr->effect == ATTR_SHAPE && edit->has_shape) ||
           (attr->effect == ATTR_TEXT && *text_of(edit, attr) != NULL);
}

void attrs_unset(struct wfs_tree *tree, struct edit *edit, const struct attr *attr)
{
    if (attr->effect == ATTR_TEXT) {
        free(*text_of(edit, attr));
        *text_of(edit, attr) = NULL;
    } else {
        edit->has_dtype &= attr->effect != ATTR_DTYPE;
        edit->has_shape &= attr->effect != ATTR_SHAPE;
        edit->has_new_header |= !edit->is_staged;
    }
    edit_mark(tree, edit);
}
