/* SPDX-License-Identifier: MIT */
/*
 * What is known of a tensor without reading it (shape, texts, ties), and reading it as it is shown.
 * A quantization belongs to a dtype: it goes with it. What a tensor shows is a source without a
 * file, so no two of them count as the same bytes; reading it checks the file that the tensor is
 * in.
 */
#include "tensor/tensor.h"

#include <weightfs/interruption.h>
#include <weightfs/strbuf.h>
#include <weightfs/tensor.h>
#include "base/arena.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/source.h"
#include "tensor/gather.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST_PIECE = 1 << 20 }; /* bytes */

const char *wfs_tensor_origin(const struct wfs_tensor *tensor)
{
    return tensor->origin != NULL ? tensor->origin : tensor->key;
}

const struct wfs_text *text_find(const struct wfs_text *list, const char *name)
{
    while (list != NULL && strcmp(list->name, name) != 0)
        list = list->next;
    return list;
}

const char *wfs_tensor_attr(const struct wfs_tensor *tensor, const char *name)
{
    const struct wfs_text *text = text_find(tensor->attrs, name);
    return text == NULL ? NULL : text->value;
}

/* Row-major and dense, whatever the strides of dimensions of size 1 say. */
static bool is_dense(const struct wfs_tensor *tensor)
{
    const uint64_t *strides = tensor->stored.strides;
    if (strides == NULL || tensor->n_bytes == 0 || tensor->dtype == WFS_OPAQUE)
        return true;
    uint64_t step = 1;
    for (uint32_t i = tensor->shape.rank; i-- > 0;) {
        const uint64_t dim = tensor->shape.dims[i];
        if (dim != 1 && strides[i] != step)
            return false;
        step *= dim; /* at most the number of elements */
    }
    return true;
}

static bool is_verbatim(const struct wfs_stored *stored, enum wfs_dtype dtype)
{
    const bool is_swapped = stored->is_big_endian && wfs_dtype_bits(dtype) > 8;
    return stored->dtype == dtype && !is_swapped && !stored->is_conjugate && !stored->is_negative;
}

bool wfs_tensor_is_plain(const struct wfs_tensor *tensor)
{
    return is_verbatim(&tensor->stored, (enum wfs_dtype)tensor->dtype) && is_dense(tensor);
}

bool wfs_tensor_extent(const struct wfs_tensor *tensor, int *ret_fd, uint64_t *ret_offset)
{
    const struct wfs_stored *stored = &tensor->stored;
    if (tensor->trouble != NULL || stored->source == NULL || !source_is_file(stored->source) ||
        !wfs_tensor_is_plain(tensor))
        return false;
    /* Whoever copies from the descriptor would not notice a tensor that is cut short. */
    if (stored->offset > stored->source->n_bytes ||
        tensor->n_bytes > stored->source->n_bytes - stored->offset)
        return false;
    *ret_fd = stored->source->fd;
    *ret_offset = stored->offset;
    return true;
}

/* Returns how many bytes of its source the elements span, from its offset on. */
static uint64_t n_spanned(const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    const unsigned n_bits = wfs_dtype_bits((enum wfs_dtype)stored->dtype);
    uint64_t n_bytes = tensor->n_bytes, last = 0, step;
    if (is_dense(tensor)) {
        if (tensor->dtype != stored->dtype && tensor->dtype != WFS_OPAQUE)
            (void)wfs_shape_bytes(&tensor->shape, (enum wfs_dtype)stored->dtype, &n_bytes);
        return n_bytes;
    }
    for (uint32_t i = 0; i < tensor->shape.rank; i++) {
        if (!checked_mul(tensor->shape.dims[i] - 1, stored->strides[i], &step) ||
            !checked_add(last, step, &last))
            return UINT64_MAX;
    }
    return last < UINT64_MAX / 128 ? (last * n_bits + n_bits + 7) / 8 : UINT64_MAX;
}

/* Returns why it cannot be read, where that is known of the tensor itself. */
static const char *own_trouble(const struct wfs_tensor *tensor)
{
    const struct source *source = tensor->stored.source;
    uint64_t end;
    if (tensor->trouble != NULL || source == NULL || tensor->n_bytes == 0 ||
        (checked_add(tensor->stored.offset, n_spanned(tensor), &end) && end <= source->n_bytes))
        return tensor->trouble;
    return "its data runs past the end of the file";
}

/* Says how far a reader of the tensor may go on in its source. */
static struct wfs_io expect(const struct wfs_io *io, const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    return source_expect(io, stored->source, stored->offset, n_spanned(tensor));
}

/* A range that is made in parts, each by a thread. */
struct making {
    const struct wfs_io *io;
    const struct wfs_tensor *tensor;
    uint64_t offset;
    char *buf;
    size_t n_bytes, n_part;
    atomic_int code; /* of a part that failed */
};

static void make_part(void *ctx, size_t i)
{
    struct making *making = ctx;
    const size_t start = i * making->n_part, n_left = making->n_bytes - start;
    const int code =
        band_read(making->io, making->tensor, making->offset + start, making->buf + start,
                  n_left < making->n_part ? n_left : making->n_part);
    if (code < 0)
        atomic_store(&making->code, code);
}

static int make(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t offset,
                void *buf, size_t n_bytes)
{
    enum { N_PART = 3 << 16 }; /* bytes; whole elements of every dtype */
    if (io == NULL || io->team == NULL || n_bytes < 2 * N_PART || gather_band_bytes(tensor) > 0)
        return band_read(io, tensor, offset, buf, n_bytes);
    struct making making = {io, tensor, offset, buf, n_bytes, N_PART, 0};
    wfs_io_share(io, (n_bytes + N_PART - 1) / N_PART, make_part, &making);
    return making.code;
}

ssize_t wfs_tensor_read_for(const struct wfs_io *io, const struct wfs_tensor *tensor,
                            uint64_t offset, void *buf, size_t n_bytes)
{
    if (tensor->trouble != NULL)
        return -EIO;
    if (offset >= tensor->n_bytes)
        return 0;
    const uint64_t n_left = tensor->n_bytes - offset;
    size_t n = n_bytes < n_left ? n_bytes : (size_t)n_left;
    n = n < SSIZE_MAX ? n : SSIZE_MAX;
    const struct source *source = tensor->stored.source;
    const uint64_t start = tensor->stored.offset;
    if (source == NULL)
        return -EIO;
    int code = wfs_io_check(io);
    struct wfs_io expecting;
    if (source->is_remote && source_expected(io, source, start) == 0) {
        expecting = expect(io, tensor);
        io = &expecting;
    }
    if (code == 0)
        code = wfs_tensor_is_plain(tensor) ? source_read_for(io, source, start + offset, buf, n)
                                           : make(io, tensor, offset, buf, n);
    return code < 0 ? code : (ssize_t)n;
}

ssize_t wfs_tensor_read(const struct wfs_tensor *tensor, uint64_t offset, void *buf, size_t n_bytes)
{
    return wfs_tensor_read_for(NULL, tensor, offset, buf, n_bytes);
}

/* Nothing to read from, or nothing to be made. */
static bool is_read_as_it_is(const struct wfs_tensor *tensor)
{
    return tensor->trouble != NULL || tensor->stored.source == NULL || wfs_tensor_is_plain(tensor);
}

size_t wfs_tensor_piece_bytes(const struct wfs_tensor *tensor)
{
    const uint64_t n_band = is_read_as_it_is(tensor) ? 0 : gather_band_bytes(tensor);
    const uint64_t n_piece = n_band == 0 ? SMALLEST_PIECE : n_band;
    return (size_t)(n_piece < tensor->n_bytes ? n_piece : tensor->n_bytes);
}

void wfs_tensor_read_ahead(const struct wfs_io *io, const struct wfs_tensor *tensor,
                           uint64_t offset)
{
    if (offset < tensor->n_bytes && !is_read_as_it_is(tensor))
        band_read_ahead(io, tensor, offset);
}

const char *wfs_tensor_trouble(const struct wfs_tensor *tensor)
{
    const struct source *source = tensor->stored.source;
    const char *own = own_trouble(tensor);
    return own != NULL || source == NULL || source->kind->trouble == NULL
               ? own
               : source->kind->trouble(source, tensor->stored.offset);
}

bool wfs_tensor_is_damaged(const struct wfs_tensor *tensor)
{
    return own_trouble(tensor) != NULL ||
           (wfs_tensor_trouble(tensor) != NULL && !source_file(tensor->stored.source)->is_remote);
}

int wfs_tensor_fail_read(struct wfs_error *err, const struct wfs_tensor *tensor, int code)
{
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    const struct source *source = tensor->stored.source;
    const struct wfs_quoted key = wfs_quote(tensor->key);
    const char *trouble = wfs_tensor_trouble(tensor);
    if (code == -EINTR)
        return wfs_fail(err, EINTR, "interrupted while tensor '%s' was read", key.text);
    if (tensor->trouble == NULL && trouble != NULL && own_trouble(tensor) == trouble)
        return wfs_fail(err, EIO,
                        "tensor '%s': %s: %s from byte %" PRIu64 " on, and the file has %" PRIu64,
                        key.text, trouble, wfs_count(n_spanned(tensor), "byte").text,
                        tensor->stored.offset, source->n_bytes);
    if (trouble != NULL)
        return wfs_fail(err, EIO, "tensor '%s': %s", key.text, trouble);
    if (code == -EBADMSG)
        return wfs_fail(err, EBADMSG, "tensor '%s': its compressed data is damaged", key.text);
    const bool has_changed = wfs_tensor_check_source(tensor) < 0;
    const bool is_told = code < 0 && code != -EIO && !has_changed;
    return wfs_fail(err, is_told ? -code : EIO, "tensor '%s': %s %s%s", key.text,
                    source != NULL ? wfs_quote(source->path).text : "its file",
                    has_changed ? "was changed by another program"
                    : is_told   ? "cannot be read: "
                                : "is short or failing",
                    is_told ? strerror(-code) : "");
}

const char *wfs_tensor_computed(const struct wfs_tensor *tensor)
{
    const struct source *source = tensor->stored.source;
    return source == NULL || source->kind->describe == NULL ? NULL : source->kind->describe(source);
}

int wfs_tensor_check_source(const struct wfs_tensor *tensor)
{
    const struct source *source = tensor->stored.source;
    return source == NULL ? 0 : source_check_at(source, tensor->stored.offset);
}

int wfs_shape_count(const struct wfs_shape *shape, uint64_t *ret_n_elems)
{
    uint64_t n_elems = 1;
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (!checked_mul(n_elems, shape->dims[i], &n_elems))
            return -EOVERFLOW;
    }
    *ret_n_elems = n_elems;
    return 0;
}

bool wfs_shape_is_equal(const struct wfs_shape *a, const struct wfs_shape *b)
{
    return a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dims, b->dims, a->rank * sizeof(*a->dims)) == 0);
}

int wfs_shape_bytes(const struct wfs_shape *shape, enum wfs_dtype dtype, uint64_t *ret_n_bytes)
{
    const struct wfs_block block = wfs_dtype_block(dtype);
    uint64_t n_elems, n_bits;
    const int code = wfs_shape_count(shape, &n_elems);
    if (code < 0)
        return code;
    const uint64_t n_row = shape->rank == 0 ? 1 : shape->dims[shape->rank - 1];
    const bool is_whole =
        (wfs_dtype_has_blocks(dtype) && n_elems > 0 ? n_row : n_elems) % block.n_elems == 0;
    if (!checked_mul(n_elems / block.n_elems + !is_whole, (uint64_t)block.n_bytes * 8, &n_bits))
        return -EOVERFLOW;
    if (!is_whole)
        return -EDOM;
    *ret_n_bytes = n_bits / 8;
    return 0;
}

int shape_own(struct wfs_shape *shape, struct arena *arena)
{
    uint64_t *dims = arena_calloc(arena, shape->rank, sizeof(*dims));
    if (shape->rank == 0)
        return 0;
    if (dims == NULL)
        return -ENOMEM;
    memcpy(dims, shape->dims, shape->rank * sizeof(*dims));
    shape->dims = dims;
    return 0;
}

void shape_print(struct strbuf *text, const struct wfs_shape *shape)
{
    strbuf_puts(text, "[");
    for (uint32_t i = 0; i < shape->rank; i++)
        strbuf_printf(text, "%s%" PRIu64, i == 0 ? "" : ", ", shape->dims[i]);
    strbuf_puts(text, "]");
}

/* Appends as snprintf would, counting what does not fit. */
static void append(char *buf, size_t n_bytes, size_t *n_used, const char *text)
{
    const size_t n_text = strlen(text);
    for (size_t i = 0; i < n_text; i++) {
        if (*n_used + i + 1 < n_bytes)
            buf[*n_used + i] = text[i];
    }
    *n_used += n_text;
    if (n_bytes > 0)
        buf[*n_used < n_bytes ? *n_used : n_bytes - 1] = '\0';
}

size_t wfs_shape_format(const struct wfs_shape *shape, char *buf, size_t n_bytes)
{
    size_t n_used = 0;
    char number[24];
    append(buf, n_bytes, &n_used, "[");
    for (uint32_t i = 0; i < shape->rank; i++) {
        snprintf(number, sizeof(number), "%s%" PRIu64, i == 0 ? "" : ", ", shape->dims[i]);
        append(buf, n_bytes, &n_used, number);
    }
    append(buf, n_bytes, &n_used, "]");
    return n_used;
}

static bool are_same_strides(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const uint64_t *of_a = a->stored.strides, *of_b = b->stored.strides;
    if (of_a == NULL || of_b == NULL || a->shape.rank == 0)
        return of_a == of_b || a->shape.rank == 0;
    return memcmp(of_a, of_b, a->shape.rank * sizeof(*of_a)) == 0;
}

bool tied_are_stored_alike(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const struct wfs_stored *x = &a->stored, *y = &b->stored;
    return x->dtype == y->dtype && x->is_big_endian == y->is_big_endian &&
           x->is_conjugate == y->is_conjugate && x->is_negative == y->is_negative &&
           are_same_strides(a, b);
}

bool tied_are_same(const struct wfs_tensor *a, const struct wfs_tensor *b)
{
    const struct wfs_stored *x = &a->stored, *y = &b->stored;
    if (a->n_bytes == 0 || x->source == NULL || a->trouble != NULL || b->trouble != NULL)
        return false;
    return x->source == y->source && x->offset == y->offset && a->n_bytes == b->n_bytes &&
           a->dtype == b->dtype && wfs_shape_is_equal(&a->shape, &b->shape) &&
           tied_are_stored_alike(a, b);
}

uint64_t tied_hash(const struct wfs_tensor *tensor)
{
    const struct {
        const struct source *source;
        uint64_t offset, n_bytes, dtype, rank;
    } place = {tensor->stored.source, tensor->stored.offset, tensor->n_bytes, tensor->dtype,
               tensor->shape.rank};
    uint64_t hash = hash_bytes(&place, sizeof(place), hash_seed());
    if (tensor->shape.rank > 0)
        hash = hash_bytes(tensor->shape.dims, tensor->shape.rank * sizeof(uint64_t), hash);
    if (tensor->shape.rank > 0 && tensor->stored.strides != NULL)
        hash = hash_bytes(tensor->stored.strides, tensor->shape.rank * sizeof(uint64_t), hash);
    return hash;
}

const char *const tensor_text_names[TENSOR_N_TEXTS] = {"param_id", "quantization"};

bool tensor_can_be_quantized(enum wfs_dtype dtype)
{
    return dtype == WFS_OPAQUE || (dtype >= WFS_QI8 && dtype <= WFS_QU2X4);
}

static bool is_of_quantization(const char *name)
{
    const char *prefix = tensor_text_names[TENSOR_QUANTIZATION];
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Returns the text that was set, if the type of the file can have it. */
static const char *text_of(const char *const *set, enum tensor_text which, enum wfs_dtype dtype)
{
    const bool is_fit = which != TENSOR_QUANTIZATION || tensor_can_be_quantized(dtype);
    return set == NULL || !is_fit ? NULL : set[which];
}

/* A quantization belongs to the type that the tensor was loaded with. */
static bool is_attr_kept(const struct wfs_text *attr, const char *const *set,
                         const struct wfs_tensor *base, enum wfs_dtype dtype)
{
    if (is_of_quantization(attr->name))
        return base->dtype == dtype && text_of(set, TENSOR_QUANTIZATION, dtype) == NULL;
    return strcmp(attr->name, tensor_text_names[TENSOR_PARAM_ID]) != 0 ||
           text_of(set, TENSOR_PARAM_ID, dtype) == NULL;
}

static int add_attr(struct wfs_text **end, const struct wfs_text *attr, struct arena *arena)
{
    struct wfs_text *copy = arena_calloc(arena, 1, sizeof(*copy));
    if (copy == NULL)
        return -ENOMEM;
    *copy = (struct wfs_text){attr->name, attr->value, attr->n_bytes, *end};
    *end = copy;
    return 0;
}

int tensor_texts_make(const char *const *set, const struct wfs_tensor *base, enum wfs_dtype dtype,
                      struct arena *arena, const struct wfs_text **ret)
{
    const struct wfs_text *attrs = base == NULL ? NULL : base->attrs;
    bool is_same = true;
    struct wfs_text *made = NULL, **end = &made;
    for (unsigned i = 0; i < TENSOR_N_TEXTS; i++) {
        const char *value = text_of(set, (enum tensor_text)i, dtype);
        if (value == NULL)
            continue;
        const struct wfs_text text = {tensor_text_names[i], value, strlen(value), NULL};
        if (add_attr(end, &text, arena) < 0)
            return -ENOMEM;
        end = &(*end)->next;
        is_same = false;
    }
    for (const struct wfs_text *attr = attrs; attr != NULL; attr = attr->next)
        is_same = is_same && is_attr_kept(attr, set, base, dtype);
    for (const struct wfs_text *attr = attrs; attr != NULL && !is_same; attr = attr->next) {
        if (!is_attr_kept(attr, set, base, dtype))
            continue;
        if (add_attr(end, attr, arena) < 0)
            return -ENOMEM;
        end = &(*end)->next;
    }
    *ret = is_same ? attrs : made;
    return 0;
}

static int read_shown(const struct source *source, const struct wfs_io *io, uint64_t offset,
                      void *buf, size_t n_bytes)
{
    const ssize_t n = wfs_tensor_read_for(io, source->ctx, offset, buf, n_bytes);
    return n < 0 ? (int)n : (size_t)n < n_bytes ? -EIO : 0;
}

static const char *trouble_of_shown(const struct source *source, uint64_t offset)
{
    return wfs_tensor_trouble(source->ctx);
}

static void free_shown(void *ctx)
{
    free(ctx);
}

int shown_source(const struct wfs_tensor *tensor, struct source **out)
{
    static const struct source_kind kind = {
        .read = read_shown, .done = free_shown, .trouble = trouble_of_shown};
    struct wfs_tensor *copy = malloc(sizeof(*copy));
    if (copy == NULL)
        return -ENOMEM;
    *copy = *tensor;
    return source_new(&kind, "an edit", copy, tensor->n_bytes, out);
}
