/* SPDX-License-Identifier: MIT */
/*
 * The header of a .npy file needs its first bytes; everything else is known without reading.
 * Siblings are looked for in the directories beside each one on the path. A sibling is not
 * described by one of its own, so nothing is looked for twice.
 */
#include "tree/file/description.h"

#include <weightfs/cleanup.h>
#include "base/bytes.h"
#include "base/source.h"
#include "tensor/npy.h"
#include "tensor/tensor.h"
#include "tree/file/editfile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"
#include "tree/node/node.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns code, with a message when it is an error. */
static int fail_content(const struct wfs_tree *tree, uint32_t id, int code, struct wfs_error *err)
{
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    return code < 0 ? wfs_fail(err, -code, "cannot read '%s': %s", entry_quoted(tree, id).text,
                               strerror(-code))
                    : 0;
}

/* ---- .npy files ---- */

/* Reads the beginning of the staged file: as much as a header may take. */
static int read_front(const struct wfs_tree *tree, const struct wfs_node *node, char **ret,
                      size_t *ret_n_bytes)
{
    const struct edit *edit = node->edit;
    const size_t n = edit->n_bytes < NPY_FRONT_MAX ? (size_t)edit->n_bytes : NPY_FRONT_MAX;
    autofree char *front = malloc(n + 1);
    if (front == NULL)
        return -ENOMEM;
    const ssize_t n_read = n == 0 ? 0 : editfile_read(tree, node, 0, front, n);
    if (n_read < 0)
        return (int)n_read;
    *ret = steal(&front);
    *ret_n_bytes = (size_t)n_read;
    return 0;
}

static bool has_magic(const char *front, size_t n_bytes)
{
    return n_bytes >= NPY_MAGIC_BYTES && memcmp(front, NPY_MAGIC, NPY_MAGIC_BYTES) == 0;
}

/* Returns 1 when the staged content has a .npy header at its front, 0 when not; -EIO, -ENOMEM. */
static int begins_like_npy(const struct wfs_tree *tree, const struct wfs_node *node)
{
    char front[NPY_MAGIC_BYTES];
    if (!edit_is_staged(node) || node->edit->n_bytes < sizeof(front) || edit_is_lost(node))
        return 0; /* a commit says that a file is lost */
    const ssize_t n = editfile_read(tree, node, 0, front, sizeof(front));
    return n < 0 ? (int)n : has_magic(front, (size_t)n);
}

int description_hides_suffix(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id)
{
    if (!entry_has_suffix(tree, id))
        return 0;
    return tree->options.files == WFS_FILES_NPY ? 1 : begins_like_npy(tree, node);
}

/*
 * Returns 1 when the header is the one that the tensor would have had: of bytes, where numpy has no
 * such type. Else 0, or -ENOMEM.
 */
static int is_header_of(const struct npy_header *header, const struct wfs_tensor *tensor,
                        struct arena *arena)
{
    struct npy_header own;
    const char *reason;
    const size_t n = wfs_npy_header(tensor, NULL, 0);
    autofree char *bytes = malloc(n);
    if (bytes == NULL)
        return -ENOMEM;
    wfs_npy_header(tensor, bytes, n);
    const int code = npy_parse(bytes, n, arena, &own, &reason);
    if (code < 0)
        return code == -ENOMEM ? code : 0;
    return strcmp(own.descr, header->descr) == 0 && wfs_shape_is_equal(&own.shape, &header->shape);
}

/* Types of less than a byte appear in the header as bytes. */
static int unpack_shape(struct description *description, struct arena *arena)
{
    const unsigned n_bits = wfs_dtype_bits((enum wfs_dtype)description->dtype);
    if (!description->has_dtype || n_bits >= 8 || description->shape.rank == 0)
        return 0;
    uint64_t *dims = arena_calloc(arena, description->shape.rank, sizeof(*dims));
    if (dims == NULL)
        return -ENOMEM;
    memcpy(dims, description->shape.dims, description->shape.rank * sizeof(*dims));
    uint64_t *last = &dims[description->shape.rank - 1];
    /* A remainder is found when the sizes are compared. */
    *last = npy_unpack((enum wfs_dtype)description->dtype, *last);
    description->shape.dims = dims;
    return 0;
}

static int take_header(const struct wfs_node *node, const struct npy_header *header,
                       struct arena *arena, struct description *description)
{
    const struct wfs_tensor *base = node->tensor;
    description->is_framed = true;
    description->data_offset = header->n_bytes;
    description->n_bytes -= header->n_bytes;
    description->has_shape = true;
    description->shape = header->shape;
    if (base != NULL && strcmp(wfs_dtype_descr((enum wfs_dtype)base->dtype), header->descr) == 0) {
        description->has_dtype = true;
        description->dtype = base->dtype;
        const int is_same =
            base->n_bytes == description->n_bytes ? is_header_of(header, base, arena) : 0;
        if (is_same > 0)
            description->shape = base->shape;
        if (is_same != 0)
            return is_same < 0 ? is_same : 0;
    } else {
        description->has_dtype = header->has_dtype;
        description->dtype = (uint8_t)header->dtype;
    }
    if (node->edit->has_dtype) {
        description->has_dtype = true;
        description->dtype = node->edit->dtype;
    }
    return unpack_shape(description, arena);
}

static int look_for_header(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                           struct arena *arena, struct description *description,
                           struct wfs_error *err)
{
    autofree char *front = NULL;
    struct npy_header header;
    const char *reason;
    size_t n_front = 0;
    int code = read_front(tree, node, &front, &n_front);
    const bool is_needed = tree->options.files == WFS_FILES_NPY && entry_has_suffix(tree, id);
    if (code < 0 || (!is_needed && !has_magic(front, n_front)))
        return fail_content(tree, id, code, err);
    code = npy_parse(front, n_front, arena, &header, &reason);
    if (code < 0 && code != -ENOMEM)
        return wfs_fail(err, -code, "'%s' %s", entry_quoted(tree, id).text, reason);
    if (code == 0)
        code = take_header(node, &header, arena, description);
    return fail_content(tree, id, code, err);
}

/* ---- the whole ---- */

/*
 * Describes a node by the entry id; 0: it has no name any more. An error of the .npy header, or of
 * reading it; err names the file. Whatever else is known is filled in even then.
 */
static int description_make(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                            struct arena *arena, struct description *ret, struct wfs_error *err)
{
    const bool is_npy = tree->options.files == WFS_FILES_NPY;
    const struct edit *edit = node->edit;
    int code = 0;
    *ret = (struct description){.n_bytes = edit_n_bytes(node)};
    if (!edit_is_staged(node))
        ret->is_framed = is_npy;
    else if (id != 0 && (is_npy || entry_has_suffix(tree, id)))
        code = look_for_header(tree, node, id, arena, ret, err);
    if (node->tensor != NULL && !(edit_is_staged(node) && ret->is_framed)) {
        ret->has_dtype = ret->has_shape = true;
        ret->dtype = node->tensor->dtype;
        ret->shape = node->tensor->shape;
    }
    if (edit != NULL && edit->has_dtype) {
        ret->has_dtype = true;
        ret->dtype = edit->dtype;
    }
    if (edit != NULL && edit->has_shape) {
        ret->has_shape = true;
        ret->shape = edit->shape;
    }
    return code;
}

static int fail_unknown(const struct wfs_tree *tree, uint32_t id,
                        const struct description *description, struct wfs_error *err)
{
    const struct wfs_quoted path = entry_quoted(tree, id);
    if (description->is_framed)
        return wfs_fail(err, EINVAL,
                        "'%s': numpy has no name for its dtype: set user.weightfs.dtype "
                        "(setfattr -n user.weightfs.dtype -v BF16)",
                        path.text);
    if (description->has_dtype)
        return wfs_fail(err, EINVAL,
                        "'%s' has no shape: set user.weightfs.shape (setfattr -n "
                        "user.weightfs.shape -v '[2, 3]')",
                        path.text);
    if (description->has_shape)
        return wfs_fail(err, EINVAL,
                        "'%s' has no dtype: set user.weightfs.dtype (setfattr -n "
                        "user.weightfs.dtype -v F32)",
                        path.text);
    return wfs_fail(err, EINVAL,
                    "'%s' is not a tensor: its dtype and shape are unknown; copy tensors with 'cp "
                    "-a', save arrays as .npy, set user.weightfs.dtype and user.weightfs.shape, or "
                    "delete it",
                    path.text);
}

/* code is that of the size that dtype and shape make, n_bytes. */
static int fail_size(const struct wfs_tree *tree, uint32_t id,
                     const struct description *description, int code, uint64_t n_bytes,
                     struct wfs_error *err)
{
    autostrbuf struct strbuf shape = {0};
    shape_print(&shape, &description->shape);
    const char *dtype = wfs_dtype_name((enum wfs_dtype)description->dtype);
    const struct wfs_quoted path = entry_quoted(tree, id);
    const struct wfs_quoted dims = wfs_quote(shape.bytes == NULL ? "" : shape.bytes);
    if (code < 0)
        return wfs_fail(err, EINVAL, "'%s': %s %s is not a whole number of bytes below 2^64",
                        path.text, dtype, dims.text);
    return wfs_fail(err, EINVAL,
                    "'%s' has %s, but %s %s takes %" PRIu64
                    ": replace its content, or set user.weightfs.dtype and user.weightfs.shape",
                    path.text, wfs_count(description->n_bytes, "byte").text, dtype, dims.text,
                    n_bytes);
}

/* The size that dtype and shape make; that of a type without sizes is what it is. */
static int find_size(const struct wfs_node *node, const struct description *description,
                     uint64_t *ret_n_bytes)
{
    const bool is_opaque = description->dtype == WFS_OPAQUE;
    *ret_n_bytes = 0;
    if (is_opaque && node->edit != NULL && node->edit->texts[TENSOR_QUANTIZATION] != NULL)
        *ret_n_bytes = description->n_bytes;
    else if (is_opaque && node->tensor != NULL && node->tensor->dtype == WFS_OPAQUE)
        *ret_n_bytes = node->tensor->n_bytes;
    else
        return wfs_shape_bytes(&description->shape, (enum wfs_dtype)description->dtype,
                               ret_n_bytes);
    return 0;
}

int description_check(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                      const struct description *description, struct wfs_error *err)
{
    uint64_t n_bytes;
    if (!description->has_dtype || !description->has_shape)
        return fail_unknown(tree, id, description, err);
    const int code = find_size(node, description, &n_bytes);
    if (code == 0 && n_bytes == description->n_bytes)
        return 0;
    const int is_npy = description->is_framed ? 0 : begins_like_npy(tree, node);
    if (is_npy < 0)
        return fail_content(tree, id, is_npy, err);
    if (is_npy > 0)
        return wfs_fail(err, EINVAL, "'%s' contains a .npy file: give it a name that ends in .npy",
                        entry_quoted(tree, id).text);
    return fail_size(tree, id, description, code, n_bytes, err);
}

/* ---- the tensor ---- */

struct wfs_tensor description_shown(const struct wfs_node *node)
{
    struct wfs_tensor tensor = *node->tensor;
    const struct edit *edit = node->edit;
    if (edit == NULL || !(edit->has_dtype || edit->has_shape))
        return tensor;
    tensor.dtype = edit->has_dtype ? edit->dtype : tensor.dtype;
    tensor.shape = edit->has_shape ? edit->shape : tensor.shape;
    /* Only content that is stored as it is shown gets a new description without a copy. */
    tensor.stored = (struct wfs_stored){
        .source = tensor.stored.source, .offset = tensor.stored.offset, .dtype = tensor.dtype};
    return tensor;
}

const struct wfs_tensor *description_base(const struct wfs_tree *tree, const struct wfs_node *node,
                                          uint32_t id)
{
    const struct wfs_tensor *base = node->tensor;
    const uint32_t order = id == 0 ? ORDER_NEW : entry_at(tree, id)->order;
    if (base == NULL || order >= wfs_catalog_n_tensors(tree->catalog))
        return base;
    const struct wfs_tensor *own = wfs_catalog_tensor(tree->catalog, order);
    return own == base || tied_are_same(own, base) ? own : base;
}

int description_tensor(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                       const struct description *description, struct source *source,
                       struct arena *arena, struct wfs_tensor *ret)
{
    const struct wfs_tensor *base = description_base(tree, node, id);
    const struct edit *edit = node->edit;
    *ret = base == NULL ? (struct wfs_tensor){0} : *base;
    if (base != NULL)
        ret->origin = wfs_tensor_origin(base);
    if (edit_is_staged(node)) {
        ret->stored = (struct wfs_stored){
            .source = source, .offset = description->data_offset, .dtype = description->dtype};
        ret->changes = NULL;
        ret->trouble = NULL;
    } else if (edit != NULL && (edit->has_dtype || edit->has_shape)) {
        ret->stored = description_shown(node).stored;
    }
    ret->dtype = description->dtype;
    ret->shape = description->shape;
    ret->n_bytes = description->n_bytes;
    return tensor_texts_make(edit == NULL ? NULL : (const char *const *)edit->texts, base,
                             (enum wfs_dtype)description->dtype, arena, &ret->attrs);
}

enum { LOOKED_AT_MAX = 16384, DEPTH_MAX = 64 };

struct search {
    const struct wfs_tree *tree;
    uint32_t path[DEPTH_MAX]; /* entries, the file's first */
    uint64_t n_bytes;
    struct arena arena;
    struct description description; /* of found */
    uint32_t found;
    unsigned n_looked_at;
    bool is_over; /* there is no answer */
};

/* Follows the names of the path below the directory, down to the file's. */
static uint32_t descend(const struct search *search, const struct wfs_node *dir, unsigned level)
{
    uint32_t id = 0;
    while (level-- > 0) {
        id = entry_find(search->tree, dir, entry_at(search->tree, search->path[level])->name);
        if (id == 0)
            return 0;
        dir = entry_at(search->tree, id)->node;
        if ((dir->kind == NODE_DIR) != (level > 0))
            return 0;
    }
    return id;
}

static void compare(struct search *search, uint32_t id)
{
    const struct wfs_node *node = entry_at(search->tree, id)->node;
    struct description other;
    if (node->kind != NODE_FILE || edit_n_bytes(node) != search->n_bytes ||
        description_make(search->tree, node, id, &search->arena, &other, NULL) < 0 ||
        !other.has_dtype || !other.has_shape || other.is_framed)
        return;
    if (search->found == 0) {
        search->found = id;
        search->description = other;
    } else if (other.dtype != search->description.dtype ||
               !wfs_shape_is_equal(&other.shape, &search->description.shape)) {
        search->is_over = true;
    }
}

/* Looks beside the directory at that level of the path, in the one that holds it. */
static void look_beside(struct search *search, unsigned level)
{
    const uint32_t own = search->path[level];
    const struct wfs_node *dir = entry_at(search->tree, own)->dir;
    for (uint32_t i = 0; i < dir->directory->n_ids && !search->is_over; i++) {
        const uint32_t id = dir->directory->ids[i];
        const struct entry *entry = id == 0 ? NULL : entry_at(search->tree, id);
        if (entry == NULL || id == own || entry->node == NULL || entry->node->kind != NODE_DIR ||
            entry->name[0] == '.')
            continue;
        search->is_over = search->n_looked_at++ == LOOKED_AT_MAX;
        const uint32_t file = descend(search, entry->node, level);
        if (file != 0)
            compare(search, file);
    }
}

/* Finds a described file of the same size whose path differs in the name of one directory. None is
 * found where two of them differ in dtype or shape, or there are too many to look at. */
static void find(struct search *search, uint32_t id)
{
    unsigned depth = 0;
    for (uint32_t at = id; at != 0 && depth < DEPTH_MAX;
         at = entry_at(search->tree, at)->dir->entry)
        search->path[depth++] = at;
    for (unsigned level = 1; level < depth && depth < DEPTH_MAX && !search->is_over; level++)
        look_beside(search, level);
}

int sibling_describe(const struct wfs_tree *tree, const struct wfs_node *node, uint32_t id,
                     struct arena *arena, struct description *ret, struct wfs_error *err)
{
    struct search search = {.tree = tree, .n_bytes = edit_n_bytes(node)};
    const int code = description_make(tree, node, id, arena, ret, err);
    if (code < 0 || id == 0 || !edit_is_staged(node) || ret->has_dtype || ret->has_shape ||
        ret->is_framed)
        return code;
    find(&search, id);
    arena_done(&search.arena);
    if (search.found == 0 || search.is_over)
        return 0;
    /* The shape is that of the catalog or of an edit: only headers have one in the arena. */
    ret->sibling = search.found;
    ret->has_dtype = ret->has_shape = true;
    ret->dtype = search.description.dtype;
    ret->shape = search.description.shape;
    return 0;
}

/* Returns true when a header is generated for the content. */
static bool is_framed(const struct wfs_tree *tree, const struct wfs_node *node)
{
    return tree->options.files == WFS_FILES_NPY && node->kind == NODE_FILE && !edit_is_staged(node);
}

size_t frame_header_n_bytes(const struct wfs_tree *tree, const struct wfs_node *node)
{
    if (!is_framed(tree, node))
        return 0;
    const struct wfs_tensor tensor = description_shown(node);
    return wfs_npy_header(&tensor, NULL, 0);
}

ssize_t frame_read(const struct wfs_io *io, const struct wfs_tensor *tensor, size_t n_header,
                   uint64_t offset, void *buf, size_t n_bytes)
{
    size_t n_front = 0;
    if (offset < n_header) {
        autofree char *header = malloc(n_header);
        if (header == NULL)
            return -ENOMEM;
        wfs_npy_header(tensor, header, n_header);
        n_front = n_header - (size_t)offset;
        n_front = n_front < n_bytes ? n_front : n_bytes;
        memcpy(buf, header + offset, n_front);
        offset = n_header;
    }
    const ssize_t n = n_front == n_bytes
                          ? 0
                          : wfs_tensor_read_for(io, tensor, offset - n_header,
                                                (char *)buf + n_front, n_bytes - n_front);
    return n < 0 ? n : (ssize_t)n_front + n;
}
