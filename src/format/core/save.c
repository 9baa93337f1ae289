/* SPDX-License-Identifier: MIT */
/*
 * From a layout to a published file: emit, sync, read back, rename. Untouched bytes of a source are
 * copied as ranges, whatever tensors they belong to, so that the kernel can do it.
 */
#include "format/core/save.h"

#include <weightfs/cleanup.h>
#include <weightfs/interruption.h>
#include <weightfs/value.h>
#include "base/bytes.h"
#include "base/outfile.h"
#include "catalog/catalog_values.h"
#include "format/core/format.h"
#include "format/core/layout.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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
    size_t n_found;        /* tensors, so far */
    struct hasher *hasher; /* of what was found; NULL: nobody asks for it */
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
    const int code = save_tell_progress(options, n_all, n_all);
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
    const struct readback readback = {.layout = layout, .options = options, .err = err};
    return compare_bytes(&readback, wanted, found);
}

/* Compares one value as JSON text. A new one may have become part of a larger one. */
static int compare_value(const struct readback *readback, size_t i, const struct wfs_catalog *found,
                         const struct text_index *names)
{
    const struct wfs_catalog *wanted = readback->layout->catalog;
    autofree char *a = NULL, *b = NULL;
    size_t n_a = 0, n_b = 0;
    struct wfs_error unwanted = {0};
    int code = wfs_catalog_value_text(wanted, i, &a, &n_a);
    if (code == 0)
        code = catalog_config_by(found, names, wanted->values.list[i].name, &b, &n_b, &unwanted);
    if (code == -ENOMEM)
        return wfs_fail_memory(readback->err);
    return code == 0 && n_a == n_b && memcmp(a, b, n_a) == 0
               ? 0
               : wfs_fail(readback->err, EIO, "internal error: the output has lost the value '%s'",
                          wfs_quote(wanted->values.list[i].name).text);
}

/* Compares those that were edited. All others are the loaded objects themselves. */
static int compare_values(const struct readback *readback, const struct wfs_catalog *found)
{
    const struct wfs_catalog *wanted = readback->layout->catalog;
    cleanup(text_index_done) struct text_index names = {0};
    if (catalog_index_values(found, &names) < 0)
        return wfs_fail_memory(readback->err);
    int code = 0;
    for (size_t i = 0; i < wanted->values.n && code == 0; i++) {
        if (wanted->values.list[i].is_edited)
            code = compare_value(readback, i, found, &names);
    }
    return code;
}

/* The `take` of a loader: compares a tensor with the next one that is expected. */
static int take_found(void *ctx, const struct wfs_tensor *found)
{
    struct readback *readback = ctx;
    const struct wfs_layout *layout = readback->layout;
    const size_t i = readback->n_found++;
    if (i >= layout->catalog->n_tensors)
        return 0; /* they are counted */
    const struct wfs_tensor *wanted =
        layout->order != NULL ? layout->order[i] : wfs_catalog_tensor(layout->catalog, i);
    if (strcmp(wanted->key, found->key) != 0 || wanted->dtype != found->dtype ||
        wanted->n_bytes != found->n_bytes || !wfs_shape_is_equal(&wanted->shape, &found->shape))
        return fail_tensor(readback, wanted);
    if (readback->hasher != NULL)
        catalog_digest_add(readback->hasher, found);
    return compare_bytes(readback, wanted, found);
}

/* Compares what the loader did not give away. */
static int compare(struct readback *readback, const struct wfs_catalog *found)
{
    const struct wfs_layout *layout = readback->layout;
    const struct wfs_catalog *wanted = layout->catalog;
    const size_t n_found = readback->n_found + found->n_tensors;
    if (n_found != wanted->n_tensors)
        return wfs_fail(readback->err, EIO, "internal error: the output has %s, expected %zu",
                        wfs_count(n_found, "tensor").text, wanted->n_tensors);
    int code = 0;
    for (size_t i = 0; code == 0 && i < found->n_tensors; i++)
        code = take_found(readback, &found->tensors[i]);
    if (code == 0)
        code = compare_values(readback, found);
    if (code < 0 || !layout->format->keeps_metadata)
        return code;
    return compare_meta(layout->meta != NULL ? layout->meta : wanted->meta.first, found->meta.first,
                        readback->err);
}

int readback_load(const struct wfs_format *format, const struct outfile *outfile,
                  const struct wfs_catalog *wanted, const struct load_taker *taker,
                  struct wfs_catalog **out, struct wfs_error *err)
{
    struct load_context context = {.taker = taker};
    struct source *source;
    uint8_t head[FORMAT_HEAD];
    limits_max(&context.limits, &wanted->values.listing);
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
    int code = readback_load(layout->format, outfile, layout->catalog, NULL, &found, err);
    struct readback readback = {.layout = layout, .options = options, .err = err};
    if (code == 0)
        code = compare(&readback, found);
    if (code == 0)
        *out = steal(&found);
    return code;
}

/* As readback_load_same, and finds the digest of all where the options ask for it; the tensors may
 * not be in the catalog. */
static int digest_same(const struct wfs_layout *layout, const struct wfs_save_options *options,
                       const struct outfile *outfile, struct wfs_catalog **out, uint64_t *ret,
                       struct wfs_error *err)
{
    auto_hasher struct hasher *hasher =
        options->complete == NULL ? NULL : catalog_digest_new(layout->catalog->n_tensors);
    struct readback readback = {layout, options, err, 0, hasher};
    const struct load_taker taker = {take_found, &readback};
    if (options->complete != NULL && hasher == NULL)
        return wfs_fail_memory(err);
    int code = readback_load(layout->format, outfile, layout->catalog, &taker, out, err);
    if (code == 0)
        code = compare(&readback, *out);
    if (code == 0 && hasher != NULL && catalog_digest_end(hasher, *out, ret) < 0)
        return wfs_fail_memory(err);
    return code;
}

/* Bytes that a thread makes at once, where a tensor does not need more; all together until progress
 * is reported; ranges that are read with what is made around them. */
enum { N_PART = 1 << 20, N_PARTS = 32, N_ROUND = 64 << 20, N_SMALL = 1 << 14 };

struct save {
    const struct wfs_layout *layout;
    const struct wfs_save_options *options;
    struct outfile *outfile;
    struct wfs_error *err;
    atomic_uint_fast64_t n_done; /* bytes of the output that are written, or at least made */
    struct wfs_io io;
    /* What is made: segments that are in no part yet, parts of those before them. */
    const struct layout_segment *at, *end;
    struct written_range parts[N_PARTS];
    const struct layout_segment *failed[N_PARTS]; /* where the part cannot be read */
};

static int tell_progress(const struct save *save)
{
    return save_tell_progress(save->options, save->n_done, save->layout->n_bytes);
}

static int report_progress(struct save *save)
{
    save->n_done = outfile_offset(save->outfile);
    const int code = tell_progress(save);
    return code == 0 ? 0
                     : wfs_fail(save->err, -code, "interrupted at byte %" PRIu64 " of %" PRIu64,
                                outfile_offset(save->outfile), save->layout->n_bytes);
}

int save_fail_write(const struct outfile *outfile, int code, struct wfs_error *err)
{
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    return wfs_fail(err, -code, "cannot write the output at byte %" PRIu64 ": %s",
                    outfile_offset(outfile), strerror(-code));
}

/* An interruption is reported with how far the output is. */
static int fail_write(struct save *save, int code)
{
    return code == -EINTR && report_progress(save) < 0
               ? code
               : save_fail_write(save->outfile, code, save->err);
}

static int fail_reading(struct save *save, const struct wfs_tensor *tensor, int code)
{
    return code == -EINTR && report_progress(save) < 0
               ? code
               : wfs_tensor_fail_read(save->err, tensor, code);
}

static bool is_range(const struct layout_segment *segment)
{
    return segment->tensor != NULL && segment->tensor->stored.source != NULL &&
           wfs_tensor_is_plain(segment->tensor) && wfs_tensor_computed(segment->tensor) == NULL;
}

/* How many segments from the first on lie in one source as they will in the output. */
static size_t count_adjacent(const struct layout_segment *first, const struct layout_segment *end)
{
    size_t n = 1;
    for (; first + n < end; n++) {
        const struct layout_segment *a = &first[n - 1], *b = &first[n];
        if (!is_range(b) || a->offset + a->n_bytes != b->offset ||
            a->tensor->stored.source != b->tensor->stored.source ||
            a->tensor->stored.offset + a->n_bytes != b->tensor->stored.offset)
            break;
    }
    return n;
}

static int emit_range(struct save *save, const struct layout_segment *first, size_t n_segments)
{
    const struct layout_segment *last = &first[n_segments - 1];
    const struct wfs_stored *stored = &first->tensor->stored;
    const uint64_t n_all = last->offset + last->n_bytes - first->offset;
    const struct layout_segment *at = first; /* where the copy stands, for messages */
    for (uint64_t n_done = 0; n_done < n_all;) {
        uint64_t n = 0;
        int code = outfile_copy(&save->io, save->outfile, stored->source, stored->offset + n_done,
                                n_all - n_done, &n);
        if (code < 0 && outfile_cannot_read(save->outfile))
            return fail_reading(save, at->tensor, code);
        if (code < 0)
            return fail_write(save, code);
        n_done += n;
        while (at < last && at->offset + at->n_bytes <= first->offset + n_done)
            at++;
        code = report_progress(save);
        if (code < 0)
            return code;
    }
    return 0;
}

/* ---- what is made ---- */

/* Returns the tensor that is read for it. */
static const struct wfs_tensor *tensor_of(const struct layout_segment *segment)
{
    return segment->crc != NULL ? segment->crc->tensor : segment->tensor;
}

static uint64_t end_of(const struct layout_segment *segment)
{
    return segment->offset + segment->n_bytes;
}

/* Returns the first of those behind that is not made, nor a few bytes between such. */
static const struct layout_segment *end_of_made(const struct layout_segment *first,
                                                const struct layout_segment *end)
{
    const struct layout_segment *at = first;
    for (size_t n_more = 0; at < end;) {
        const size_t n = is_range(at) ? count_adjacent(at, end) : 1;
        if (is_range(at) && (n_more == 0 || end_of(&at[n - 1]) - at->offset > N_SMALL ||
                             at->tensor->stored.source->is_remote))
            break;
        n_more = is_range(at) ? n_more - 1 : n_more + (at->tensor != NULL);
        at += n;
    }
    return at;
}

/* Takes a piece of a large tensor, or small ones and what is between them. */
static uint64_t next_part(struct save *save, uint64_t offset)
{
    const struct layout_segment *at = save->at;
    if (at->n_bytes >= N_PART && at->offset <= offset) {
        const size_t n_piece = at->tensor == NULL ? N_PART : wfs_tensor_piece_bytes(at->tensor);
        const uint64_t n_left = end_of(at) - offset;
        save->at += n_left <= n_piece;
        return n_left < n_piece ? n_left : n_piece;
    }
    while (at < save->end && at->n_bytes < N_PART &&
           (at == save->at || at->offset < offset + N_PART))
        at++;
    save->at = at;
    return (at < save->end && at->n_bytes >= N_PART ? at->offset : end_of(&at[-1])) - offset;
}

static int make_part(void *ctx, size_t i, char *bytes)
{
    struct save *save = ctx;
    const struct wfs_layout *layout = save->layout;
    uint64_t offset = save->parts[i].offset;
    const uint64_t end = offset + save->parts[i].n_bytes;
    const struct layout_segment *at = layout_segment_at(layout, offset);
    for (; offset < end; at++) {
        const uint64_t until =
            at < layout->segments + layout->n_segments && end_of(at) < end ? end_of(at) : end;
        const ssize_t n =
            wfs_layout_read(&save->io, layout, offset, bytes, (size_t)(until - offset));
        if (n <= 0) {
            save->failed[i] = at;
            return n < 0 ? (int)n : -EIO;
        }
        bytes += n;
        offset += (uint64_t)n;
        save->n_done += (uint64_t)n;
    }
    return 0;
}

/* A few bytes wait for others; a thread each is for more. */
static int write_parts(struct save *save, size_t n)
{
    char bytes[N_SMALL];
    if (n > 1 || save->parts[0].n_bytes > N_SMALL)
        return outfile_make(&save->io, save->outfile, save->parts, n, make_part, save);
    const int code = save->parts[0].code = make_part(save, 0, bytes);
    return code < 0 ? code : outfile_write(save->outfile, bytes, (size_t)save->parts[0].n_bytes);
}

/* Makes and writes what lies in a round. */
static int emit_round(struct save *save)
{
    const uint64_t start = outfile_offset(save->outfile);
    uint64_t offset = start;
    size_t n = 0, i = 0;
    while (save->at < save->end && n < N_PARTS && (n < 2 || offset - start < N_ROUND)) {
        save->failed[n] = NULL;
        save->parts[n] = (struct written_range){offset, next_part(save, offset), 0, 0};
        offset += save->parts[n++].n_bytes;
    }
    const int code = write_parts(save, n);
    while (code < 0 && i < n && save->parts[i].code != code)
        i++;
    if (code < 0 && i < n && save->failed[i] != NULL)
        return fail_reading(save, tensor_of(save->failed[i]), code);
    return code < 0 ? fail_write(save, code) : report_progress(save);
}

/*
 * Tells a source on the network how far it will be read on from the segment: over all segments that
 * follow in its file, and the short gaps between them. Returns the first that does not.
 */
static const struct layout_segment *
expect_run(struct save *save, const struct layout_segment *first, const struct layout_segment *end)
{
    enum { N_GAP = 1 << 20 };
    const struct source *source = first->tensor->stored.source;
    uint64_t behind = first->tensor->stored.offset;
    const struct layout_segment *at = first;
    for (; at < end; at++) {
        const struct wfs_stored *stored = at->tensor != NULL ? &at->tensor->stored : NULL;
        if (stored == NULL)
            continue;
        if (!is_range(at) || stored->source != source || stored->offset < behind ||
            stored->offset - behind > N_GAP)
            break;
        behind = stored->offset + at->n_bytes;
    }
    const uint64_t offset = first->tensor->stored.offset;
    save->io = source_expect(&save->io, source, offset, behind - offset);
    return at;
}

static int emit(struct save *save)
{
    const struct wfs_layout *layout = save->layout;
    const struct layout_segment *end = layout->segments + layout->n_segments, *run = NULL;
    for (const struct layout_segment *at = layout->segments; at < end;) {
        if (!is_range(at)) {
            save->at = at;
            at = save->end = end_of_made(at, end);
            while (save->at < save->end) {
                const int code = emit_round(save);
                if (code < 0)
                    return code;
            }
            continue;
        }
        if (at->tensor->stored.source->is_remote && (run == NULL || at >= run))
            run = expect_run(save, at, end);
        int code = outfile_pad(save->outfile, at->offset);
        if (code < 0)
            return fail_write(save, code);
        const size_t n_segments = count_adjacent(at, end);
        code = emit_range(save, at, n_segments);
        if (code < 0)
            return code;
        at += n_segments;
    }
    return 0;
}

/* Once more before anybody sees the output: no source may have changed under the copy. */
int save_check_sources(const struct wfs_layout *layout, struct wfs_error *err)
{
    const struct source *checked = NULL;
    for (size_t i = 0; i < layout->n_segments; i++) {
        const struct wfs_tensor *tensor = layout->segments[i].tensor;
        if (tensor == NULL || tensor->stored.source == checked)
            continue;
        if (wfs_tensor_check_source(tensor) < 0)
            return wfs_tensor_fail_read(err, tensor, -EIO);
        checked = tensor->stored.source;
    }
    return 0;
}

static int tell_complete(const struct wfs_save_options *options, const struct outfile *outfile,
                         uint64_t digest, struct wfs_error *err)
{
    struct wfs_identity identity;
    if (options->complete == NULL)
        return 0;
    const int code = outfile_identity(outfile, &identity);
    return code < 0 ? save_fail_write(outfile, code, err)
                    : options->complete(options->ctx, &identity, digest, err);
}

int save_tell_complete(const struct wfs_save_options *options, const struct outfile *outfile,
                       const struct wfs_catalog *found, struct wfs_error *err)
{
    uint64_t digest = 0;
    if (options->complete != NULL && wfs_catalog_digest(found, &digest) < 0)
        return wfs_fail_memory(err);
    return tell_complete(options, outfile, digest, err);
}

static bool is_danger(const struct wfs_finding *finding)
{
    return (finding->flags & WFS_FINDING_CODE) != 0;
}

bool save_has_dangers(const struct wfs_catalog *found)
{
    for (size_t i = 0; i < found->findings.n; i++)
        if (is_danger(&found->findings.list[i]))
            return true;
    return false;
}

int save_tell_dangers(const struct wfs_save_options *options, const struct wfs_catalog *planned,
                      const struct wfs_catalog *found, struct wfs_error *err)
{
    if (planned->output.is_safe && save_has_dangers(found))
        return wfs_fail(err, EIO, "internal error: the output still has names that may run code");
    for (size_t i = 0; options->danger != NULL && i < found->findings.n; i++) {
        if (is_danger(&found->findings.list[i]))
            options->danger(options->ctx, found->findings.list[i].text);
    }
    return 0;
}

static bool is_stopped(void *ctx)
{
    return tell_progress(ctx) != 0;
}

/* A checksum needs all of a tensor between two writes: reads ask about progress, too. */
int save_emit(const struct wfs_layout *layout, const struct wfs_save_options *options,
              struct outfile *outfile, struct wfs_error *err)
{
    struct save save = {.layout = layout, .options = options, .outfile = outfile, .err = err};
    save.io = (struct wfs_io){.is_stopped = is_stopped, .ctx = &save, .team = options->team};
    return emit(&save);
}

static int run(struct wfs_layout *layout, const struct wfs_save_options *options,
               struct outfile *outfile, struct wfs_save_report *report, struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *found = NULL;
    uint64_t digest = 0;
    report->step = "write";
    int code = save_emit(layout, options, outfile, err);
    if (code < 0)
        return code;
    report->step = "sync";
    code = outfile_sync(outfile, err);
    if (code < 0)
        return code;
    report->step = "verify";
    code = outfile_check(outfile, options, err);
    if (code == 0)
        code = digest_same(layout, options, outfile, &found, &digest, err);
    if (code == 0)
        code = save_check_sources(layout, err);
    if (code == 0)
        code = save_tell_dangers(options, layout->catalog, found, err);
    if (code == 0)
        code = tell_complete(options, outfile, digest, err);
    return code < 0 ? code : outfile_publish(outfile, report, err);
}

int wfs_save(struct wfs_layout *layout, const char *path, const struct wfs_save_options *options,
             struct wfs_save_report *report, struct wfs_error *err)
{
    struct wfs_save_report unwanted;
    struct outfile *outfile = NULL;
    report = report != NULL ? report : &unwanted;
    *report = (struct wfs_save_report){.step = "create"};
    int code = outfile_new(path, layout->n_bytes, options, &outfile, err);
    if (code == 0)
        code = run(layout, options, outfile, report, err);
    outfile_free(outfile);
    return code;
}
