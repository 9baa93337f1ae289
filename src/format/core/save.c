/* SPDX-License-Identifier: MIT */
/*
 * From a layout to a published file: emit, sync, read back, rename. Untouched bytes of a source are
 * copied as ranges, whatever tensors they belong to, so that the kernel can do it.
 */
#include "format/core/save.h"

#include <weightfs/cleanup.h>
#include <weightfs/interruption.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <weightfs/cleanup.h>

#include "base/bytes.h"
#include "format/core/readback.h"

enum { N_CHUNK = 1 << 20 }; /* bytes made at once where they cannot be copied */

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

static int fail_write(const struct save *save, int code)
{
    return save_fail_write(save->outfile, code, save->err);
}

/* code: what the system returned, -EIO or -EBADMSG for content that is not there, 0 for its end. */
static int fail_read(const struct wfs_tensor *tensor, int code, struct wfs_error *err)
{
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    if (code == -EINTR)
        return wfs_fail(err, EINTR, "interrupted while tensor '%s' was read",
                        wfs_quote(tensor->key).text);
    const bool has_changed = wfs_tensor_check_source(tensor) < 0;
    const bool is_told = code < 0 && code != -EIO && code != -EBADMSG && !has_changed;
    const char *trouble = has_changed ? NULL : wfs_tensor_trouble(tensor);
    if (trouble != NULL)
        return wfs_fail(err, EIO, "tensor '%s' cannot be read: %s", wfs_quote(tensor->key).text,
                        trouble);
    const struct source *source = tensor->stored.source;
    return wfs_fail(err, is_told ? -code : EIO, "tensor '%s' cannot be read: %s%s %s",
                    wfs_quote(tensor->key).text,
                    source != NULL ? wfs_quote(source->path).text : "its file", is_told ? ":" : "",
                    has_changed ? "was changed by another program"
                    : is_told   ? strerror(-code)
                                : "is short or failing");
}

/* Writes the content of a segment; the outfile is at its start. */
static int emit_tensor(const struct save *save, const struct layout_segment *segment)
{
    for (uint64_t n_done = 0; n_done < segment->n_bytes;) {
        const ssize_t n = wfs_tensor_read(segment->tensor, n_done, save->chunk, N_CHUNK);
        if (n <= 0)
            return fail_read(segment->tensor, (int)n, save->err);
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
        uint64_t n = 0;
        int code = outfile_copy(save->outfile, stored->source, stored->offset + n_done,
                                n_all - n_done, &n);
        if (code < 0 && outfile_cannot_read(save->outfile))
            return fail_read(at->tensor, code, save->err);
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
            return fail_read(segment->crc->tensor, (int)n, save->err);
        bytes = made;
    }
    const int code = outfile_write(save->outfile, bytes, (size_t)segment->n_bytes);
    return code < 0 ? fail_write(save, code) : 0;
}

/*
 * Tells a source on the network how far it will be read on from the segment: over all segments that
 * follow in its file, and the short gaps between them. Returns the first that does not.
 */
static const struct layout_segment *expect_run(const struct layout_segment *first,
                                               const struct layout_segment *end)
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
    source_expect(source, first->tensor->stored.offset, behind - first->tensor->stored.offset);
    return at;
}

static int emit(const struct save *save)
{
    const struct wfs_layout *layout = save->layout;
    const struct layout_segment *end = layout->segments + layout->n_segments, *run = NULL;
    for (const struct layout_segment *at = layout->segments; at < end;) {
        size_t n_segments = 1;
        if (is_range(at) && at->tensor->stored.source->is_remote && (run == NULL || at >= run))
            run = expect_run(at, end);
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

/* Once more before anybody sees the output: no source may have changed under the copy. */
int save_check_sources(const struct wfs_layout *layout, struct wfs_error *err)
{
    const struct source *checked = NULL;
    for (size_t i = 0; i < layout->n_segments; i++) {
        const struct wfs_tensor *tensor = layout->segments[i].tensor;
        if (tensor == NULL || tensor->stored.source == checked)
            continue;
        if (wfs_tensor_check_source(tensor) < 0)
            return fail_read(tensor, -EIO, err);
        checked = tensor->stored.source;
    }
    return 0;
}

int save_tell_complete(const struct wfs_save_options *options, const struct outfile *outfile,
                       const struct wfs_catalog *found, struct wfs_error *err)
{
    struct wfs_identity identity;
    uint64_t digest;
    if (options->complete == NULL)
        return 0;
    if (wfs_catalog_digest(found, &digest) < 0)
        return wfs_fail_memory(err);
    const int code = outfile_identity(outfile, &identity);
    return code < 0 ? save_fail_write(outfile, code, err)
                    : options->complete(options->ctx, &identity, digest, err);
}

static bool is_danger(const struct wfs_finding *finding)
{
    return finding->kind == WFS_FINDING_PT_DANGER || finding->kind == WFS_FINDING_PT_UNKNOWN;
}

bool save_has_dangers(const struct wfs_catalog *found)
{
    for (size_t i = 0; i < found->n_findings; i++)
        if (is_danger(&found->findings[i]))
            return true;
    return false;
}

int save_tell_dangers(const struct wfs_save_options *options, const struct wfs_catalog *planned,
                      const struct wfs_catalog *found, struct wfs_error *err)
{
    if (planned->is_safe && save_has_dangers(found))
        return wfs_fail(err, EIO, "internal error: the output still has names that may run code");
    for (size_t i = 0; options->danger != NULL && i < found->n_findings; i++) {
        if (is_danger(&found->findings[i]))
            options->danger(options->ctx, found->findings[i].text);
    }
    return 0;
}

static bool is_stopped(void *ctx)
{
    return report_progress(ctx) < 0;
}

/* A checksum needs all of a tensor between two writes: reads ask about progress, too. */
int save_emit(const struct wfs_layout *layout, const struct wfs_save_options *options,
              struct outfile *outfile, struct wfs_error *err)
{
    struct save save = {.layout = layout, .options = options, .outfile = outfile, .err = err};
    save.chunk = malloc(N_CHUNK);
    if (save.chunk == NULL)
        return wfs_fail_memory(err);
    const struct wfs_interruption interruption = {is_stopped, &save};
    wfs_interruption_set(&interruption);
    const int code = emit(&save);
    source_expect(NULL, 0, 0);
    wfs_interruption_set(NULL);
    free(save.chunk);
    return code;
}

static int run(const struct wfs_layout *layout, const struct wfs_save_options *options,
               struct outfile *outfile, struct wfs_save_report *report, struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *found = NULL;
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
        code = readback_load_same(layout, options, outfile, &found, err);
    if (code == 0)
        code = save_check_sources(layout, err);
    if (code == 0)
        code = save_tell_dangers(options, layout->catalog, found, err);
    if (code == 0)
        code = save_tell_complete(options, outfile, found, err);
    return code < 0 ? code : outfile_publish(outfile, report, err);
}

int wfs_save(const struct wfs_layout *layout, const char *path,
             const struct wfs_save_options *options, struct wfs_save_report *report,
             struct wfs_error *err)
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
