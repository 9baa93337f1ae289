/* SPDX-License-Identifier: MIT */
/*
 * From a layout to a published file: emit, sync, read back, rename. Untouched bytes of a source are
 * copied as ranges, whatever tensors they belong to, so that the kernel can do it.
 */
#include "format/format.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/outfile.h"

enum {
    N_CHUNK = 1 << 20,  /* bytes made at once where they cannot be copied */
    N_RANGE = 64 << 20, /* bytes copied at once, between two calls of progress */
};

struct save {
    const struct wfs_layout *layout;
    const struct wfs_save_options *options;
    struct outfile *outfile;
    struct wfs_error *err;
    char *chunk; /* malloc'ed, N_CHUNK bytes */
};

static int report_progress(const struct save *save)
{
    if (save->options->progress == NULL)
        return 0;
    const int code = save->options->progress(save->options->ctx, outfile_offset(save->outfile),
                                             save->layout->n_bytes);
    return code == 0 ? 0
                     : wfs_fail(save->err, -code, "given up at byte %" PRIu64 " of %" PRIu64,
                                outfile_offset(save->outfile), save->layout->n_bytes);
}

static int fail_write(const struct save *save, int code)
{
    if (code == -ENOMEM)
        return wfs_fail_memory(save->err);
    return wfs_fail(save->err, -code, "cannot write the output at byte %" PRIu64 ": %s",
                    outfile_offset(save->outfile), strerror(-code));
}

static int fail_read(const struct save *save, const struct wfs_tensor *tensor)
{
    const bool has_changed = wfs_tensor_check_source(tensor) < 0;
    const struct source *source = tensor->stored.source;
    return wfs_fail(save->err, EIO, "tensor '%s' cannot be read: %s %s",
                    wfs_quote(tensor->key).text,
                    source != NULL ? wfs_quote(source->path).text : "its file",
                    has_changed ? "was changed by another program" : "is short or failing");
}

/* Of the segment, from its start; the outfile is there. */
static int emit_tensor(const struct save *save, const struct layout_segment *segment)
{
    for (uint64_t n_done = 0; n_done < segment->n_bytes;) {
        const ssize_t n = wfs_tensor_read(segment->tensor, n_done, save->chunk, N_CHUNK);
        if (n <= 0)
            return n == -ENOMEM ? wfs_fail_memory(save->err) : fail_read(save, segment->tensor);
        int code = outfile_write(save->outfile, save->chunk, (size_t)n);
        if (code < 0)
            return fail_write(save, code);
        n_done += (uint64_t)n;
        code = report_progress(save);
        if (code < 0)
            return code;
    }
    return 0;
}

static bool is_range(const struct layout_segment *segment)
{
    return segment->tensor != NULL && segment->tensor->stored.source != NULL &&
           wfs_tensor_is_plain(segment->tensor);
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

static int emit_range(const struct save *save, const struct layout_segment *first,
                      size_t n_segments)
{
    const struct layout_segment *last = &first[n_segments - 1];
    const struct wfs_stored *stored = &first->tensor->stored;
    const uint64_t n_all = last->offset + last->n_bytes - first->offset;
    const struct layout_segment *at = first; /* where the copy stands, for messages */
    for (uint64_t n_done = 0; n_done < n_all;) {
        const uint64_t n_left = n_all - n_done;
        uint64_t n = 0;
        int code = outfile_copy(save->outfile, stored->source, stored->offset + n_done,
                                n_left < N_RANGE ? n_left : N_RANGE, &n);
        if (code == -EIO)
            return fail_read(save, at->tensor);
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

/* Headers with a CRC in them, for which the tensor is read now. */
static int emit_bytes(const struct save *save, const struct layout_segment *segment)
{
    const void *bytes = segment->bytes;
    autofree char *made = NULL;
    if (segment->crc != NULL) {
        made = malloc((size_t)segment->n_bytes);
        const ssize_t n = made == NULL ? -ENOMEM
                                       : wfs_layout_read(save->layout, segment->offset, made,
                                                         (size_t)segment->n_bytes);
        if (n < 0)
            return n == -ENOMEM ? wfs_fail_memory(save->err)
                                : fail_read(save, segment->crc->tensor);
        bytes = made;
    }
    const int code = outfile_write(save->outfile, bytes, (size_t)segment->n_bytes);
    return code < 0 ? fail_write(save, code) : 0;
}

static int emit(const struct save *save)
{
    const struct wfs_layout *layout = save->layout;
    const struct layout_segment *end = layout->segments + layout->n_segments;
    for (const struct layout_segment *at = layout->segments; at < end;) {
        size_t n_segments = 1;
        int code = outfile_pad(save->outfile, at->offset);
        if (code < 0)
            return fail_write(save, code);
        if (is_range(at)) {
            n_segments = count_adjacent(at, end);
            code = emit_range(save, at, n_segments);
        } else if (at->tensor != NULL) {
            code = emit_tensor(save, at);
        } else {
            code = emit_bytes(save, at);
        }
        if (code < 0)
            return code;
        at += n_segments;
    }
    return 0;
}

static bool is_same_shape(const struct wfs_shape *a, const struct wfs_shape *b)
{
    return a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dims, b->dims, a->rank * sizeof(*a->dims)) == 0);
}

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

/* A format may add texts of its own, but every wanted one must have come through. */
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

static int compare(const struct wfs_layout *layout, const struct wfs_catalog *found,
                   struct wfs_error *err)
{
    const struct wfs_catalog *wanted = layout->catalog;
    if (found->n_tensors != wanted->n_tensors)
        return wfs_fail(err, EIO, "internal error: the output has %zu tensors, expected %zu",
                        found->n_tensors, wanted->n_tensors);
    for (size_t i = 0; i < wanted->n_tensors; i++) {
        const struct wfs_tensor *a = layout->order != NULL ? layout->order[i] : &wanted->tensors[i];
        const struct wfs_tensor *b = &found->tensors[i];
        if (strcmp(a->key, b->key) != 0 || a->dtype != b->dtype || a->n_bytes != b->n_bytes ||
            !is_same_shape(&a->shape, &b->shape))
            return wfs_fail(err, EIO, "internal error: the output has lost the tensor '%s'",
                            wfs_quote(a->key).text);
    }
    if (layout->drops_meta)
        return 0;
    return compare_meta(layout->meta != NULL ? layout->meta : wanted->meta, found->meta, err);
}

static int verify(const struct save *save, uint64_t *ret_digest)
{
    auto_catalog struct wfs_catalog *found = NULL;
    struct load_context context = {0};
    limits_max(&context.limits);
    struct source *source;
    int code = source_open(outfile_path(save->outfile), &source, save->err);
    if (code == 0)
        code = load_source(source, &context, &found, save->err);
    if (code == 0)
        code = compare(save->layout, found, save->err);
    if (code == 0 && (code = wfs_catalog_digest(found, ret_digest)) < 0)
        return wfs_fail_memory(save->err);
    return code;
}

/* Once more before anybody sees the output: no source may have changed under the copy. */
static int check_sources(const struct save *save)
{
    const struct wfs_layout *layout = save->layout;
    const struct source *checked = NULL;
    for (size_t i = 0; i < layout->n_segments; i++) {
        const struct wfs_tensor *tensor = layout->segments[i].tensor;
        if (tensor == NULL || tensor->stored.source == checked)
            continue;
        if (wfs_tensor_check_source(tensor) < 0)
            return fail_read(save, tensor);
        checked = tensor->stored.source;
    }
    return 0;
}

/* The last that happens before the output is there. */
static int tell_complete(const struct save *save, uint64_t digest)
{
    struct wfs_identity identity;
    if (save->options->complete == NULL)
        return 0;
    const int code = outfile_identity(save->outfile, &identity);
    return code < 0 ? fail_write(save, code)
                    : save->options->complete(save->options->ctx, &identity, digest, save->err);
}

static int run(struct save *save, struct wfs_save_report *report)
{
    report->step = "write";
    save->chunk = malloc(N_CHUNK);
    if (save->chunk == NULL)
        return wfs_fail_memory(save->err);
    int code = emit(save);
    if (code < 0)
        return code;
    report->step = "sync";
    code = outfile_sync(save->outfile, save->err);
    if (code < 0)
        return code;
    report->step = "verify";
    uint64_t digest = 0;
    code = verify(save, &digest);
    if (code == 0)
        code = check_sources(save);
    if (code == 0)
        code = tell_complete(save, digest);
    return code < 0 ? code : outfile_publish(save->outfile, report, save->err);
}

int wfs_save(const struct wfs_layout *layout, const char *path,
             const struct wfs_save_options *options, struct wfs_save_report *report,
             struct wfs_error *err)
{
    struct wfs_save_report unwanted;
    report = report != NULL ? report : &unwanted;
    *report = (struct wfs_save_report){.step = "create"};
    struct save save = {.layout = layout, .options = options, .err = err};
    int code = outfile_new(path, layout->n_bytes, options, &save.outfile, err);
    if (code == 0)
        code = run(&save, report);
    outfile_free(save.outfile);
    free(save.chunk);
    return code;
}
