/* SPDX-License-Identifier: MIT */
/*
 * A source that is the end of another one is given to the reader of safetensors files.
 */
#include "format/dcp/dcp_window.h"

#include <errno.h>
#include <string.h>

#include "format/safetensors/safetensors.h"

static int read_shifted(const struct source *source, uint64_t offset, void *buf, size_t n_bytes)
{
    const struct dcp_window *window = source->ctx;
    return source_read(window->file, window->offset + offset, buf, n_bytes);
}

void dcp_window_done(struct dcp_window *window)
{
    wfs_catalog_free(window->catalog);
    dcp_sharding_done(&window->sharding);
    *window = (struct dcp_window){0};
}

int dcp_window_probe(const struct source *file, uint64_t offset)
{
    uint8_t head[9];
    if (file->n_bytes < sizeof(head) || offset > file->n_bytes - sizeof(head))
        return 0;
    if (source_read(file, offset, head, sizeof(head)) < 0)
        return -EIO;
    return memcmp(head, "PK", 2) != 0 && head[8] == '{';
}

static int load(struct dcp_window *window, const struct dcp_opening *o, struct wfs_error *err)
{
    const struct load_context context = {.limits = *o->limits};
    struct source *source;
    if (source_new_memory(o->file->path, NULL, 0, &source) < 0)
        return wfs_fail_memory(err);
    window->file = o->file;
    window->offset = o->item->offset;
    source->n_bytes = o->file->n_bytes - o->item->offset;
    source->read = read_shifted;
    source->ctx = window;
    const int code = format_load(&format_safetensors, source, &context, &window->catalog, err);
    return code < 0 ? code : dcp_sharding_read(&window->sharding, window->catalog, err);
}

static int check_offsets(const struct dcp_window *window, const struct dcp_opening *o,
                         struct wfs_error *err)
{
    const struct dcp_sharding_offsets *offsets =
        dcp_sharding_find(&window->sharding, o->tensor->key);
    if (offsets == NULL || offsets->is_bad || offsets->rank != o->tensor->rank ||
        (offsets->rank > 0 && memcmp(&window->sharding.numbers[offsets->first], o->box,
                                     offsets->rank * sizeof(*o->box)) != 0))
        return dcp_opening_fail(o, -EBADMSG, "DCP_SHARDING_INFO does not place it there", err);
    return 0;
}

int dcp_window_find(const struct dcp_opening *o, uint64_t *ret_data, struct wfs_error *err)
{
    struct dcp_window *window = o->window;
    if (window->file != o->file || window->offset != o->item->offset) {
        struct wfs_error inner = {0};
        dcp_window_done(window);
        const int code = load(window, o, &inner);
        if (code < 0) {
            dcp_window_done(window);
            return dcp_opening_fail(o, code, inner.text, err);
        }
    }
    const struct wfs_tensor *tensor = wfs_catalog_find(window->catalog, o->tensor->key);
    if (tensor == NULL)
        return dcp_opening_fail(o, -EBADMSG, "the safetensors part does not have the key", err);
    int code = check_offsets(window, o, err);
    if (code == 0)
        code = dcp_opening_compare(o, (enum wfs_dtype)tensor->dtype, tensor->shape.dims,
                                   tensor->shape.rank, err);
    if (code < 0)
        return code;
    if (tensor->trouble != NULL || tensor->n_bytes != o->item->n_bytes)
        return dcp_opening_fail(o, -EBADMSG,
                                tensor->trouble != NULL ? tensor->trouble
                                                        : "its length is not that of its elements",
                                err);
    *ret_data = o->item->offset + tensor->stored.offset;
    return 0;
}
