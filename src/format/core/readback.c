/* SPDX-License-Identifier: MIT */
/*
 * Reading an output back before it is published. Every tensor must be there with the key, type,
 * shape and bytes that it had when it was asked for. What the layout says about a range of the file
 * counts as read where the file is known to have the bytes of the layout; all else is read and
 * compared with the tensor itself.
 */
#include "format/core/readback.h"

#include <weightfs/cleanup.h>
#include <weightfs/value.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/core/format.h"
#include "tensor/tied.h"

enum { N_PIECE = 1 << 20 };

static int compare_names(const void *a, const void *b)
{
    const struct wfs_text *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* The texts by name, malloc'ed; NULL when out of memory. */
static const struct wfs_text **sorted_meta(const struct wfs_text *meta, size_t *ret_n)
{
    size_t n = 0;
    for (const struct wfs_text *text = meta; text != NULL; text = text->next)
        n++;
    const struct wfs_text **texts = calloc(n + 1, sizeof(*texts));
    *ret_n = n;
    if (texts == NULL)
        return NULL;
    n = 0;
    for (const struct wfs_text *text = meta; text != NULL; text = text->next)
        texts[n++] = text;
    qsort(texts, n, sizeof(*texts), compare_names);
    return texts;
}

/* A format may add texts of its own, but every expected one must be in the file. */
static int compare_meta(const struct wfs_text *wanted, const struct wfs_text *found,
                        struct wfs_error *err)
{
    size_t n_wanted, n_found, j = 0;
    autofree const struct wfs_text **a = sorted_meta(wanted, &n_wanted);
    autofree const struct wfs_text **b = sorted_meta(found, &n_found);
    if (a == NULL || b == NULL)
        return wfs_fail_memory(err);
    for (size_t i = 0; i < n_wanted; i++) {
        while (j < n_found && strcmp(b[j]->name, a[i]->name) < 0)
            j++;
        if (j == n_found || strcmp(b[j]->name, a[i]->name) != 0 || a[i]->n_bytes != b[j]->n_bytes ||
            memcmp(a[i]->value, b[j]->value, a[i]->n_bytes) != 0)
            return wfs_fail(err, EIO, "internal error: the output has lost the metadata '%s'",
                            wfs_quote(a[i]->name).text);
    }
    return 0;
}

/* ---- bytes ---- */

/* Returns the bytes from the start of the first element to the end of the last; 0: not known. */
static uint64_t extent_of(const struct wfs_tensor *tensor)
{
    const unsigned bits = wfs_dtype_bits((enum wfs_dtype)tensor->stored.dtype);
    uint64_t last = 0, n_bytes, step;
    if (tensor->stored.strides == NULL)
        return tensor->dtype == tensor->stored.dtype ? tensor->n_bytes : 0;
    for (uint32_t i = 0; i < tensor->shape.rank; i++) {
        if (!checked_mul(tensor->shape.dims[i] - 1, tensor->stored.strides[i], &step) ||
            !checked_add(last, step, &last))
            return 0;
    }
    return bits >= 8 && checked_add(last, (uint64_t)1, &last) &&
                   checked_mul(last, (uint64_t)(bits / 8), &n_bytes)
               ? n_bytes
               : 0;
}

/*
 * Returns whether the expected bytes are those which the layout has where the found tensor lies, so
 * that the outfile's own check, or the kernel that copied them, speaks for them.
 */
static bool is_in_place(const struct wfs_layout *layout, const struct wfs_tensor *wanted,
                        const struct wfs_tensor *found)
{
    const struct layout_segment *segment =
        layout == NULL || found->stored.source == NULL || found->stored.source->fd < 0
            ? NULL
            : layout_segment_at(layout, found->stored.offset);
    if (segment == NULL || segment->tensor == NULL || found->stored.offset < segment->offset)
        return false;
    const struct wfs_tensor *content = segment->tensor;
    const uint64_t n_before = found->stored.offset - segment->offset;
    if (n_before == 0 && wfs_tensor_is_plain(found) && content->n_bytes == wanted->n_bytes &&
        catalog_stamp(content) == catalog_stamp(wanted))
        return true;
    const uint64_t n_bytes = extent_of(found);
    return wfs_tensor_is_plain(content) && content->stored.source == wanted->stored.source &&
           content->stored.offset + n_before == wanted->stored.offset && n_bytes > 0 &&
           n_bytes <= segment->n_bytes - n_before && tied_are_stored_alike(wanted, found);
}

struct readback {
    const struct wfs_layout *layout;
    const struct wfs_save_options *options;
    struct wfs_error *err;
};

static int fail_tensor(const struct readback *readback, const struct wfs_tensor *tensor)
{
    return wfs_fail(readback->err, EIO, "internal error: the output has lost the tensor '%s'",
                    wfs_quote(tensor->key).text);
}

static int compare_piece(const struct readback *readback, const struct wfs_tensor *wanted,
                         const struct wfs_tensor *found, uint64_t offset, char *pieces)
{
    const struct wfs_save_options *options = readback->options;
    const ssize_t n = wfs_tensor_read(wanted, offset, pieces, N_PIECE);
    if (n == -ENOMEM)
        return wfs_fail_memory(readback->err);
    if (n <= 0)
        return wfs_fail(readback->err, EIO,
                        "tensor '%s' cannot be read to compare it with the output",
                        wfs_quote(wanted->key).text);
    if (wfs_tensor_read(found, offset, pieces + N_PIECE, N_PIECE) != n ||
        memcmp(pieces, pieces + N_PIECE, (size_t)n) != 0)
        return wfs_fail(readback->err, EIO,
                        "internal error: the output has other bytes of the tensor '%s'",
                        wfs_quote(wanted->key).text);
    const uint64_t n_all = readback->layout == NULL ? 0 : readback->layout->n_bytes;
    const int code = options->progress == NULL ? 0 : options->progress(options->ctx, n_all, n_all);
    return code == 0 ? (int)n
                     : wfs_fail(readback->err, -code, "interrupted while the output was read back");
}

static int compare_bytes(const struct readback *readback, const struct wfs_tensor *wanted,
                         const struct wfs_tensor *found)
{
    if (wanted->n_bytes == 0 || is_in_place(readback->layout, wanted, found))
        return 0;
    autofree char *pieces = malloc((size_t)2 * N_PIECE);
    if (pieces == NULL)
        return wfs_fail_memory(readback->err);
    for (uint64_t at = 0; at < wanted->n_bytes;) {
        const int n = compare_piece(readback, wanted, found, at, pieces);
        if (n < 0)
            return n;
        at += (uint64_t)n;
    }
    return 0;
}

int readback_compare_bytes(const struct wfs_layout *layout, const struct wfs_save_options *options,
                           const struct wfs_tensor *wanted, const struct wfs_tensor *found,
                           struct wfs_error *err)
{
    const struct readback readback = {layout, options, err};
    return compare_bytes(&readback, wanted, found);
}

/* Compares one value as JSON text. A new one may have become part of a larger one. */
static int compare_value(const struct readback *readback, size_t i, const struct wfs_catalog *found)
{
    const struct wfs_catalog *wanted = readback->layout->catalog;
    autofree char *a = NULL, *b = NULL;
    size_t n_a = 0, n_b = 0;
    struct wfs_error unwanted = {0};
    int code = wfs_catalog_value_text(wanted, i, &a, &n_a);
    if (code == 0)
        code = wfs_catalog_config(found, wanted->values[i].name, &b, &n_b, &unwanted);
    if (code == -ENOMEM)
        return wfs_fail_memory(readback->err);
    return code == 0 && n_a == n_b && memcmp(a, b, n_a) == 0
               ? 0
               : wfs_fail(readback->err, EIO, "internal error: the output has lost the value '%s'",
                          wfs_quote(wanted->values[i].name).text);
}

/* Compares those that were edited. All others are the loaded objects themselves. */
static int compare_values(const struct readback *readback, const struct wfs_catalog *found)
{
    const struct wfs_catalog *wanted = readback->layout->catalog;
    int code = 0;
    for (size_t i = 0; i < wanted->n_values && code == 0; i++) {
        if (wanted->values[i].is_edited)
            code = compare_value(readback, i, found);
    }
    return code;
}

static int compare(const struct readback *readback, const struct wfs_catalog *found)
{
    const struct wfs_layout *layout = readback->layout;
    const struct wfs_catalog *wanted = layout->catalog;
    if (found->n_tensors != wanted->n_tensors)
        return wfs_fail(readback->err, EIO, "internal error: the output has %s, expected %zu",
                        wfs_count(found->n_tensors, "tensor").text, wanted->n_tensors);
    for (size_t i = 0; i < wanted->n_tensors; i++) {
        const struct wfs_tensor *a = layout->order != NULL ? layout->order[i] : &wanted->tensors[i];
        const struct wfs_tensor *b = &found->tensors[i];
        if (strcmp(a->key, b->key) != 0 || a->dtype != b->dtype || a->n_bytes != b->n_bytes ||
            !wfs_shape_is_equal(&a->shape, &b->shape))
            return fail_tensor(readback, a);
        const int code = compare_bytes(readback, a, b);
        if (code < 0)
            return code;
    }
    const int code = compare_values(readback, found);
    if (code < 0 || !layout->format->keeps_metadata)
        return code;
    return compare_meta(layout->meta != NULL ? layout->meta : wanted->meta, found->meta,
                        readback->err);
}

int readback_load(const struct wfs_format *format, const struct outfile *outfile,
                  const struct wfs_catalog *wanted, struct wfs_catalog **out, struct wfs_error *err)
{
    struct load_context context = {0};
    struct source *source;
    uint8_t head[FORMAT_HEAD];
    limits_max(&context.limits, &wanted->listing);
    const int code = source_open(outfile_path(outfile), &source, err);
    if (code < 0)
        return code;
    const size_t n_head = source->n_bytes < FORMAT_HEAD ? (size_t)source->n_bytes : FORMAT_HEAD;
    const int failure =
        source_read(source, 0, head, n_head) < 0 ? wfs_fail(err, EIO, "cannot read the output back")
        : !format->functions->probe(head, n_head, source->n_bytes)
            ? wfs_fail(err, EIO, "internal error: the output does not begin like a %s file",
                       format->name)
            : 0;
    if (failure < 0) {
        source_free(source);
        return failure;
    }
    return format_load(format, source, &context, out, err);
}

int readback_load_same(const struct wfs_layout *layout, const struct wfs_save_options *options,
                       const struct outfile *outfile, struct wfs_catalog **out,
                       struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *found = NULL;
    int code = readback_load(layout->format, outfile, layout->catalog, &found, err);
    const struct readback readback = {layout, options, err};
    if (code == 0)
        code = compare(&readback, found);
    if (code == 0)
        *out = steal(&found);
    return code;
}
