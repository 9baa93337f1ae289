/* SPDX-License-Identifier: MIT */
/*
 * A range is read run by run. Where it has whole runs, those of a part lie one after the other in
 * it: they are read together, and go to their places.
 */
#include "compute/compute.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/gather.h"
#include "tensor/tensor.h"

enum { TILE = 1 << 18 }; /* bytes that are read at once where runs are moved */

struct join {
    uint64_t n_run; /* elements of a run of the whole */
    size_t n_elem;  /* bytes */
    size_t n_parts;
    struct part {
        struct wfs_tensor tensor;
        uint64_t first, n_run; /* elements: before it in a run of the whole, of its own */
    } parts[];
};

struct reading {
    const struct wfs_io *io;
    const struct join *join;
    char *tile; /* malloc'ed when it is needed */
};

/* Reads elements of a part. */
static int read_elems(const struct reading *r, const struct part *part, uint64_t first, uint64_t n,
                      char *out)
{
    const size_t n_elem = r->join->n_elem, n_bytes = (size_t)n * n_elem;
    const ssize_t n_read = wfs_tensor_read_for(r->io, &part->tensor, first * n_elem, out, n_bytes);
    return n_read < 0 ? (int)n_read : (size_t)n_read < n_bytes ? -EIO : 0;
}

/* Reads what a part has of whole runs of the whole. */
static int read_runs(struct reading *r, const struct part *part, uint64_t run, uint64_t n_runs,
                     char *out)
{
    const size_t n_from = (size_t)part->n_run * r->join->n_elem;
    const size_t n_to = (size_t)r->join->n_run * r->join->n_elem;
    const bool is_direct = n_from > TILE / 4 || part->n_run == r->join->n_run;
    const uint64_t n_fit = is_direct || n_from == 0 ? 1 : TILE / n_from;
    int code = 0;
    if (!is_direct && r->tile == NULL && (r->tile = malloc(TILE)) == NULL)
        return -ENOMEM;
    out += (size_t)part->first * r->join->n_elem;
    for (uint64_t i = 0; i < n_runs && n_from > 0 && code == 0;) {
        const uint64_t n = n_runs - i < n_fit ? n_runs - i : n_fit;
        code = read_elems(r, part, (run + i) * part->n_run, n * part->n_run,
                          is_direct ? out + i * n_to : r->tile);
        for (uint64_t k = 0; k < n && !is_direct && code == 0; k++)
            memcpy(out + (i + k) * n_to, r->tile + k * n_from, n_from);
        i += n;
    }
    return code;
}

/* Returns the part that has an element of a run. */
static const struct part *part_at(const struct join *join, uint64_t at)
{
    size_t i = 0;
    while (at >= join->parts[i].first + join->parts[i].n_run)
        i++;
    return &join->parts[i];
}

static int read_range(void *ctx, uint64_t elem, uint64_t n, char *out)
{
    struct reading *r = ctx;
    const struct join *join = r->join;
    int code = 0;
    while (n > 0 && code == 0) {
        const uint64_t run = elem / join->n_run, at = elem % join->n_run;
        uint64_t n_now = n / join->n_run * join->n_run;
        if (at == 0 && n_now > 0) {
            for (size_t i = 0; i < join->n_parts && code == 0; i++)
                code = read_runs(r, &join->parts[i], run, n_now / join->n_run, out);
        } else {
            const struct part *part = part_at(join, at);
            const uint64_t skip = at - part->first, n_left = part->n_run - skip;
            n_now = n < n_left ? n : n_left;
            code = read_elems(r, part, run * part->n_run + skip, n_now, out);
        }
        elem += n_now;
        n -= n_now;
        out += n_now * join->n_elem;
    }
    return code;
}

static int read_join(const struct source *source, const struct wfs_io *io, uint64_t offset,
                     void *buf, size_t n_bytes)
{
    struct reading reading = {.io = io, .join = source->ctx};
    const int code = gather_range(read_range, &reading, reading.join->n_elem, offset, buf, n_bytes);
    free(reading.tile);
    return code;
}

/* A part that is stored as it is shown is found in its file. */
static const struct source *find_piece(const struct source *source, uint64_t *offset,
                                       uint64_t *n_bytes)
{
    const struct join *join = source->ctx;
    const uint64_t elem = *offset / join->n_elem, run = elem / join->n_run;
    const struct part *part = part_at(join, elem % join->n_run);
    const uint64_t skip = elem % join->n_run - part->first, odd = *offset % join->n_elem;
    const uint64_t n_left = (part->n_run - skip) * join->n_elem - odd;
    if (!wfs_tensor_is_plain(&part->tensor))
        return NULL;
    *offset = part->tensor.stored.offset + (run * part->n_run + skip) * join->n_elem + odd;
    *n_bytes = *n_bytes < n_left ? *n_bytes : n_left;
    return part->tensor.stored.source;
}

static int check_parts(const struct source *source, uint64_t offset)
{
    const struct join *join = source->ctx;
    (void)offset;
    for (size_t i = 0; i < join->n_parts; i++)
        if (wfs_tensor_check_source(&join->parts[i].tensor) < 0)
            return -EIO;
    return 0;
}

static const char *trouble_of_parts(const struct source *source, uint64_t offset)
{
    const struct join *join = source->ctx;
    const char *trouble = NULL;
    (void)offset;
    for (size_t i = 0; i < join->n_parts && trouble == NULL; i++)
        trouble = wfs_tensor_trouble(&join->parts[i].tensor);
    return trouble;
}

/* The formula of the first part that is computed. */
static const char *describe_parts(const struct source *source)
{
    const struct join *join = source->ctx;
    const char *text = NULL;
    for (size_t i = 0; i < join->n_parts && text == NULL; i++)
        text = wfs_tensor_computed(&join->parts[i].tensor);
    return text;
}

static const struct source_kind join_kind = {.read = read_join,
                                             .done = free,
                                             .check = check_parts,
                                             .find = find_piece,
                                             .trouble = trouble_of_parts,
                                             .describe = describe_parts};

const struct wfs_tensor *join_first(const struct source *source)
{
    return source != NULL && source->kind == &join_kind
               ? &((const struct join *)source->ctx)->parts[0].tensor
               : NULL;
}

bool join_is_same(const struct source *one, const struct source *two)
{
    const struct join *a = one->ctx, *b = two->ctx;
    bool is_same = one->kind == &join_kind && two->kind == &join_kind && a->n_parts == b->n_parts &&
                   a->n_run == b->n_run;
    for (size_t i = 0; is_same && i < a->n_parts; i++)
        is_same = tied_are_same(&a->parts[i].tensor, &b->parts[i].tensor);
    return is_same;
}

int join_new(const struct wfs_tensor *parts, size_t n_parts, uint64_t n_outer, struct source **out)
{
    struct join *join = calloc(1, sizeof(*join) + n_parts * sizeof(*join->parts));
    if (join == NULL)
        return -ENOMEM;
    join->n_parts = n_parts;
    join->n_elem = wfs_dtype_bits((enum wfs_dtype)parts[0].dtype) / 8;
    for (size_t i = 0; i < n_parts; i++) {
        join->parts[i] = (struct part){parts[i], join->n_run,
                                       n_outer == 0 ? 0 : tensor_elems(&parts[i]) / n_outer};
        join->n_run += join->parts[i].n_run;
    }
    const struct source *first = parts[0].stored.source;
    if (source_new(&join_kind, first == NULL ? "" : first->path, join,
                   n_outer * join->n_run * join->n_elem, out) < 0)
        return -ENOMEM;
    if (first != NULL)
        (*out)->origin = source_file(first);
    return 0;
}
