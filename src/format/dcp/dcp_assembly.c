/* SPDX-License-Identifier: MIT */
/*
 * A range of a tensor is cut into boxes that are contiguous in it: one index of the outer
 * dimensions, a range of one, all of the inner ones. What a part has of such a box is contiguous in
 * the part too, so that it is one read, from which rows go to their places.
 */
#include "format/dcp/dcp_assembly.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/search.h"
#include "format/dcp/dcp_item.h"
#include "remote/remote_source.h"
#include "tensor/gather.h"

enum {
    TILE = 1 << 16, /* bytes read at once where rows are moved */
};

struct assembly {
    struct dcp_tables tables;
    pthread_mutex_t lock; /* of the rest, of the arena of the tables, and of opening items */
    struct dcp_windows windows;
};

void dcp_tables_done(struct dcp_tables *tables)
{
    const int saved = errno;
    for (uint32_t i = 0; tables->parts != NULL && i < tables->n_parts; i++) {
        const struct dcp_part *part = &tables->parts[i];
        if (part->is_odd && part->data != 0)
            wfs_catalog_free((struct wfs_catalog *)(uintptr_t)part->data);
    }
    free(tables->numbers);
    free(tables->files);
    free(tables->items);
    free(tables->tensors);
    free(tables->parts);
    arena_done(&tables->arena);
    *tables = (struct dcp_tables){0};
    errno = saved;
}

void dcp_tables_divide(struct dcp_tables *tables)
{
    struct dcp_part *parts = tables->parts;
    for (uint32_t i = 0; i < tables->n_tensors; i++) {
        tables->tensors[i].parts = parts;
        parts += tables->tensors[i].n_parts;
        tables->tensors[i].n_parts = 0;
    }
}

int dcp_tables_check(struct dcp_tables *tables)
{
    int code = 0;
    for (uint32_t i = 0; i < tables->n_tensors && code == 0; i++)
        if (tables->tensors[i].trouble == NULL)
            tables->tensors[i].trouble =
                dcp_boxes_check(&tables->tensors[i], &tables->arena, &code);
    return code;
}

/* Returns the last tensor that begins at or before the offset. */
static struct dcp_tensor *tensor_at(const struct source *source, uint64_t offset)
{
    const struct assembly *assembly = source->ctx;
    struct dcp_tensor *tensors = assembly->tables.tensors;
    const size_t n = search_starts(tensors, assembly->tables.n_tensors, sizeof(*tensors),
                                   offsetof(struct dcp_tensor, start), offset);
    return n == 0 ? NULL : &tensors[n - 1];
}

/* ---- opening parts ---- */

/* Under the lock. */
static int open_part(struct assembly *assembly, struct dcp_tensor *tensor, struct dcp_part *part)
{
    const struct dcp_item *item = &assembly->tables.items[part->item];
    struct dcp_file *file = &assembly->tables.files[item->file];
    const struct dcp_opening opening = {.tensor = tensor,
                                        .box = part->box,
                                        .item = item,
                                        .file = file->source,
                                        .file_name = file->name,
                                        .limits = &assembly->tables.limits,
                                        .windows = &assembly->windows,
                                        .n_header_bytes = &file->n_header_bytes};
    struct wfs_catalog *odd = NULL;
    struct wfs_error err = {0};
    uint64_t data = 0;
    if (tensor->late_trouble != NULL)
        return -EIO;
    const int code = dcp_item_open(&opening, &data, &odd, &err);
    if (code == 0) {
        part->is_odd = odd != NULL;
        atomic_store_explicit(&part->data, odd != NULL ? (uint64_t)(uintptr_t)odd : data + 1,
                              memory_order_release);
        return 0;
    }
    if (code < 0 && err.code == EIO && file->source->is_remote) { /* it may come later */
        const int pass = remote_source_pass(file->source);
        return pass < 0 ? pass : -EIO;
    }
    tensor->is_object = code == 1;
    if (tensor->is_object)
        (void)wfs_fail(&err, EIO, "it is quantized, or of a class of its own");
    const char *text =
        code == -ENOMEM ? NULL : arena_copy(&assembly->tables.arena, err.text, strlen(err.text));
    if (text == NULL)
        return -ENOMEM;
    atomic_store(&tensor->late_trouble, text);
    return -EIO;
}

static int open_once(struct assembly *assembly, struct dcp_tensor *tensor, struct dcp_part *part)
{
    int code = 0;
    if (atomic_load_explicit(&part->data, memory_order_acquire) != 0)
        return 0;
    pthread_mutex_lock(&assembly->lock);
    if (part->data == 0)
        code = open_part(assembly, tensor, part);
    pthread_mutex_unlock(&assembly->lock);
    return code;
}

const char *dcp_assembly_open(const struct source *source, uint32_t i, int *ret_code)
{
    struct assembly *assembly = source->ctx;
    struct dcp_tensor *tensor = &assembly->tables.tensors[i];
    *ret_code = 0;
    for (uint32_t k = 0; k < tensor->n_parts && tensor->trouble == NULL; k++) {
        const int code = open_once(assembly, tensor, &tensor->parts[k]);
        if (code == -ENOMEM)
            *ret_code = code;
        if (code < 0)
            break;
    }
    return tensor->trouble != NULL ? tensor->trouble : tensor->late_trouble;
}

/* ---- reading ---- */

/* A read of a range of one tensor. */
struct reading {
    const struct wfs_io *io;
    struct assembly *assembly;
    struct dcp_tensor *tensor;
    uint64_t *first; /* malloc'ed: index of the run's first element in each dimension */
    char *tile;      /* malloc'ed when it is needed: TILE bytes */
};

/* Reads bytes of a part, counted from its first element. */
static int read_part(const struct reading *r, struct dcp_part *part, uint64_t offset, char *buf,
                     size_t n_bytes)
{
    struct assembly *assembly = r->assembly;
    const int code = open_once(assembly, r->tensor, part);
    if (code < 0)
        return code;
    if (part->is_odd) {
        const struct wfs_catalog *catalog = (const struct wfs_catalog *)(uintptr_t)part->data;
        const ssize_t n = wfs_tensor_read_for(r->io, &catalog->tensors[0], offset, buf, n_bytes);
        return n < 0 ? (int)n : (size_t)n < n_bytes ? -EIO : 0;
    }
    const struct dcp_item *item = &assembly->tables.items[part->item];
    return source_read_for(r->io, assembly->tables.files[item->file].source,
                           part->data - 1 + offset, buf, n_bytes);
}

/* A run of elements that is contiguous in the tensor: n indexes of one dimension, the first one of
 * those outside of it, all of those inside of it. */
struct run {
    uint32_t axis;
    uint64_t n;
    uint64_t n_step; /* elements of one index of the axis */
    char *out;       /* where the first element goes */
};

/* What a part has of a run, as rows that are contiguous in both. */
struct rows {
    uint64_t offset;  /* of the first one in the part, bytes */
    uint64_t n_bytes; /* of a row */
    uint64_t n_rows;
    uint32_t end;  /* indexes of the dimensions axis to end - 1 make one row after the other */
    uint64_t skip; /* indexes of the axis in the run before those of the part */
};

/* Returns where a row goes, in bytes from the start of the run. */
static uint64_t place_row(const struct reading *r, const struct run *run,
                          const struct dcp_part *part, const struct rows *rows, uint64_t row)
{
    const struct dcp_tensor *tensor = r->tensor;
    uint64_t at = 0, step = tensor->n_elem;
    for (uint32_t i = tensor->rank; i-- > run->axis;) {
        if (i > run->axis)
            at += (uint64_t)part->box[i] * step;
        else
            at += rows->skip * step;
        if (i < rows->end) {
            const uint64_t n = i > run->axis ? (uint64_t)part->box[tensor->rank + i] : UINT64_MAX;
            at += row % n * step;
            row /= n;
        }
        step *= tensor->dims[i];
    }
    return at;
}

static int read_rows(struct reading *r, const struct run *run, struct dcp_part *part,
                     const struct rows *rows)
{
    const bool is_direct = rows->n_rows == 1 || rows->n_bytes > TILE / 4;
    const uint64_t n_fit = is_direct ? 1 : TILE / rows->n_bytes;
    if (!is_direct && r->tile == NULL && (r->tile = malloc(TILE)) == NULL)
        return -ENOMEM;
    for (uint64_t row = 0; row < rows->n_rows;) {
        const uint64_t n_left = rows->n_rows - row, n = n_left < n_fit ? n_left : n_fit;
        char *to = is_direct ? run->out + place_row(r, run, part, rows, row) : r->tile;
        const int code =
            read_part(r, part, rows->offset + row * rows->n_bytes, to, (size_t)(n * rows->n_bytes));
        if (code < 0)
            return code;
        for (uint64_t i = 0; i < n && !is_direct; i++)
            memcpy(run->out + place_row(r, run, part, rows, row + i), r->tile + i * rows->n_bytes,
                   (size_t)rows->n_bytes);
        row += n;
    }
    return 0;
}

/* Reads what the part has of the run, if anything. */
static int read_run_part(struct reading *r, const struct run *run, struct dcp_part *part)
{
    const uint32_t rank = r->tensor->rank, axis = run->axis;
    const int64_t *at = part->box, *sizes = part->box + rank;
    struct rows rows = {.end = rank, .n_bytes = r->tensor->n_elem, .n_rows = 1};
    for (uint32_t i = 0; i < axis; i++)
        if (r->first[i] < (uint64_t)at[i] || r->first[i] >= (uint64_t)(at[i] + sizes[i]))
            return 0;
    const uint64_t end = run->n + r->first[axis], part_end = (uint64_t)(at[axis] + sizes[axis]);
    const uint64_t first =
        r->first[axis] > (uint64_t)at[axis] ? r->first[axis] : (uint64_t)at[axis];
    const uint64_t last = end < part_end ? end : part_end;
    if (first >= last)
        return 0;
    rows.skip = first - r->first[axis];
    /* A row has all inner dimensions that the part has whole, and what it has of the next one. */
    bool is_whole = true;
    for (uint32_t i = rank; i-- > axis;) {
        const uint64_t n = i > axis ? (uint64_t)sizes[i] : last - first;
        if (is_whole) {
            rows.n_bytes *= n;
            rows.end = i;
        } else {
            rows.n_rows *= n;
        }
        is_whole = is_whole && n == r->tensor->dims[i];
    }
    for (uint32_t i = 0; i < rank; i++) {
        const uint64_t index = i < axis    ? r->first[i] - (uint64_t)at[i]
                               : i == axis ? first - (uint64_t)at[i]
                                           : 0;
        rows.offset = rows.offset * (uint64_t)sizes[i] + index;
    }
    rows.offset *= r->tensor->n_elem;
    return read_rows(r, run, part, &rows);
}

static int read_run(struct reading *r, const struct run *run)
{
    const struct dcp_tensor *tensor = r->tensor;
    const uint64_t end = r->first[0] + (run->axis == 0 ? run->n : 1);
    int code = 0;
    for (uint32_t i = dcp_boxes_first(tensor, r->first[0]);
         i < tensor->n_parts && (uint64_t)tensor->parts[i].box[0] < end && code == 0; i++)
        code = read_run_part(r, run, &tensor->parts[i]);
    return code;
}

/* The longest run that begins at an element and has at most n_elems. */
static struct run cut_run(struct reading *r, uint64_t elem, uint64_t n_elems, char *out)
{
    const struct dcp_tensor *tensor = r->tensor;
    struct run run = {.axis = tensor->rank - 1, .n_step = 1, .out = out};
    uint64_t rest = elem, step = 1;
    for (uint32_t i = tensor->rank; i-- > 0;) {
        if (elem % step == 0 && step <= n_elems) {
            run.axis = i;
            run.n_step = step;
        }
        r->first[i] = rest % tensor->dims[i];
        rest /= tensor->dims[i];
        step *= tensor->dims[i];
    }
    const uint64_t n_left = tensor->dims[run.axis] - r->first[run.axis];
    run.n = n_elems / run.n_step < n_left ? n_elems / run.n_step : n_left;
    return run;
}

static int read_elems(void *ctx, uint64_t elem, uint64_t n_elems, char *out)
{
    struct reading *r = ctx;
    if (r->tensor->rank == 0)
        return read_part(r, &r->tensor->parts[0], 0, out, r->tensor->n_elem);
    while (n_elems > 0) {
        const struct run run = cut_run(r, elem, n_elems, out);
        const uint64_t n = run.n * run.n_step;
        const int code = read_run(r, &run);
        if (code < 0)
            return code;
        elem += n;
        n_elems -= n;
        out += n * r->tensor->n_elem;
    }
    return 0;
}

static int read_assembly(const struct source *source, const struct wfs_io *io, uint64_t offset,
                         void *buf, size_t n_bytes)
{
    struct dcp_tensor *tensor = tensor_at(source, offset);
    if (n_bytes == 0)
        return 0;
    if (tensor == NULL || tensor->trouble != NULL || offset - tensor->start > tensor->n_bytes ||
        n_bytes > tensor->n_bytes - (offset - tensor->start))
        return -EIO;
    struct reading reading = {.io = io, .assembly = source->ctx, .tensor = tensor};
    reading.first = malloc(((size_t)tensor->rank + 1) * sizeof(*reading.first));
    const int code = reading.first == NULL ? -ENOMEM
                                           : gather_range(read_elems, &reading, tensor->n_elem,
                                                          offset - tensor->start, buf, n_bytes);
    free(reading.first);
    free(reading.tile);
    return code;
}

/* Returns whether a part is a range of the tensor: it has all of the inner dimensions. */
static bool is_range(const struct dcp_tensor *tensor, const struct dcp_part *part)
{
    for (uint32_t i = 1; i < tensor->rank; i++)
        if ((uint64_t)part->box[tensor->rank + i] != tensor->dims[i])
            return false;
    return true;
}

/* A part that is a range, and stored as it is, is found in its file. */
static const struct source *find_piece(const struct source *source, uint64_t *offset,
                                       uint64_t *n_bytes)
{
    struct assembly *assembly = source->ctx;
    struct dcp_tensor *tensor = tensor_at(source, *offset);
    if (tensor == NULL || tensor->trouble != NULL || *offset - tensor->start >= tensor->n_bytes)
        return NULL;
    const uint64_t at = *offset - tensor->start;
    const uint64_t n_row = tensor->rank == 0 ? tensor->n_bytes : tensor->n_bytes / tensor->dims[0];
    struct dcp_part *part = &tensor->parts[dcp_boxes_first(tensor, at / n_row)];
    if (!is_range(tensor, part) || open_once(assembly, tensor, part) < 0 || part->is_odd)
        return NULL;
    const uint64_t first = tensor->rank == 0 ? 0 : (uint64_t)part->box[0] * n_row;
    const uint64_t n = tensor->rank == 0 ? n_row : (uint64_t)part->box[tensor->rank] * n_row;
    const struct dcp_item *item = &assembly->tables.items[part->item];
    *offset = part->data - 1 + (at - first);
    *n_bytes = *n_bytes < n - (at - first) ? *n_bytes : n - (at - first);
    return assembly->tables.files[item->file].source;
}

/* ---- the source ---- */

static int check_files(const struct source *source, uint64_t offset)
{
    const struct assembly *assembly = source->ctx;
    const struct dcp_tensor *tensor = tensor_at(source, offset);
    const struct source *checked = NULL;
    for (uint32_t i = 0; tensor != NULL && i < tensor->n_parts; i++) {
        const struct dcp_item *item = &assembly->tables.items[tensor->parts[i].item];
        const struct source *file = assembly->tables.files[item->file].source;
        if (file == NULL || file == checked)
            continue;
        if (source_check(file) < 0)
            return -EIO;
        checked = file;
    }
    return 0;
}

static const char *trouble_at(const struct source *source, uint64_t offset)
{
    const struct dcp_tensor *tensor = tensor_at(source, offset);
    return tensor == NULL ? NULL : tensor->late_trouble;
}

static void free_assembly(void *ctx)
{
    struct assembly *assembly = ctx;
    dcp_windows_done(&assembly->windows);
    dcp_tables_done(&assembly->tables);
    pthread_mutex_destroy(&assembly->lock);
    free(assembly);
}

/* Ranges begin at multiples of 64 and never touch, so that a read cannot continue into the next
 * one. False: there is no room below 2^63. */
static bool set_starts(struct dcp_tables *tables, uint64_t *ret_n_bytes)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < tables->n_tensors; i++) {
        struct dcp_tensor *tensor = &tables->tensors[i];
        if (!checked_add(end, (uint64_t)1, &tensor->start) ||
            !checked_round_up(tensor->start, 64, &tensor->start) ||
            !checked_add(tensor->start, tensor->trouble == NULL ? tensor->n_bytes : 0, &end) ||
            end > INT64_MAX)
            return false;
    }
    *ret_n_bytes = end;
    return true;
}

int dcp_assembly_new(const char *path, struct dcp_tables *tables, struct source **out)
{
    static const struct source_kind kind = {.read = read_assembly,
                                            .done = free_assembly,
                                            .check = check_files,
                                            .find = find_piece,
                                            .trouble = trouble_at};
    uint64_t n_bytes;
    if (!set_starts(tables, &n_bytes))
        return -EOVERFLOW;
    struct assembly *assembly = calloc(1, sizeof(*assembly));
    if (assembly == NULL)
        return -ENOMEM;
    assembly->tables = *tables;
    *tables = (struct dcp_tables){0};
    pthread_mutex_init(&assembly->lock, NULL);
    return source_new(&kind, path, assembly, n_bytes, out);
}

const struct dcp_tables *dcp_assembly_tables(const struct source *source)
{
    const struct assembly *assembly = source->ctx;
    return &assembly->tables;
}
