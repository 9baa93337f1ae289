/* SPDX-License-Identifier: MIT */
/*
 * Opening a checkpoint, and what is known of its tensors without reading them.
 */
#include "library/call.h"

#include "program/checkpoint.h"
#include "program/suggestion.h"

#include <weightfs/remote.h>
#include <weightfs/strbuf.h>
#include <weightfs/url.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *wfs_version(void)
{
    return WFS_VERSION;
}

void wfs_free(char *text)
{
    free(text);
}

/* ---- opening ---- */

/* Takes the catalog, also when this fails. */
static int make(struct wfs_catalog *catalog, const char *source, struct wfs_checkpoint **out,
                struct wfs_error *err)
{
    struct wfs_checkpoint *checkpoint = calloc(1, sizeof(*checkpoint));
    struct handle_index *index = calloc(1, sizeof(*index));
    char *shown = source == NULL ? NULL : url_is(source) ? url_shown(source) : strdup(source);
    if (checkpoint == NULL || index == NULL || (source != NULL && shown == NULL)) {
        free(checkpoint);
        free(index);
        free(shown);
        wfs_catalog_free(catalog);
        return wfs_fail_memory(err);
    }
    pthread_mutex_init(&index->lock, NULL);
    pthread_mutex_init(&index->checking, NULL);
    *checkpoint = (struct wfs_checkpoint){.catalog = catalog, .source = shown, .index = index};
    *out = checkpoint;
    return 0;
}

int wfs_new(struct wfs_checkpoint **out, struct wfs_error *err)
{
    struct wfs_catalog *catalog;
    call_clear(err);
    return catalog_new(&catalog) < 0 ? wfs_fail_memory(err) : make(catalog, NULL, out, err);
}

static void give_notices(const struct call *call, const struct wfs_report *report)
{
    const char *about, *text = wfs_report_notice(report);
    if (text != NULL)
        call_notice(call, "%s", text);
    for (size_t i = 0; (text = wfs_report_warning(report, i, &about)) != NULL; i++)
        call_notice(call, "%s: %s", wfs_quote(about).text, text);
}

int handle_open(const char *source, struct call *call, struct wfs_checkpoint **out,
                struct wfs_report **report, struct wfs_error *err)
{
    struct wfs_report *own = NULL;
    auto_catalog struct wfs_catalog *catalog = NULL;
    cleanup(hub_copies_done) struct hub_copies copies = {0};
    struct checkpoint_failure failure = {0};
    struct checkpoint_options options = {.load = call->settings.load, .copies = &copies};
    call->settings.fetcher.is_guest = true;
    const bool is_reported = report != NULL || !wfs_view_is_empty(call->view);
    enum exit_code exit_code =
        checkpoint_connect(source, &call->settings.fetcher, call->view, &options, &failure.err);
    if (options.load.remote != NULL)
        wfs_remote_bind(options.load.remote, call_io(call));
    if (exit_code == EXIT_DONE)
        exit_code = checkpoint_load(source, &options, call->view, &catalog,
                                    is_reported ? &own : NULL, &failure);
    if (options.load.remote != NULL)
        wfs_remote_bind(options.load.remote, NULL);
    checkpoint_disconnect(&options);
    if (call->is_stopped) {
        failure = (struct checkpoint_failure){0};
        wfs_fail(&failure.err, EINTR, "interrupted");
    }
    if (exit_code != EXIT_DONE || call->is_stopped) {
        const char *path = failure.path != NULL ? failure.path : source;
        autofree char *shown = url_is(path) ? url_shown(path) : strdup(path);
        wfs_report_free(steal(&own)); /* borrows from the catalog */
        return call_fail(err, shown, &failure.err);
    }
    const char *notice = checkpoint_notice(&options, source);
    if (notice != NULL)
        call_notice(call, "%s", notice);
    if (own != NULL)
        give_notices(call, own);
    if (report != NULL)
        *report = steal(&own);
    else
        wfs_report_free(steal(&own));
    return make(steal(&catalog), source, out, err);
}

int wfs_open(const char *source, const struct wfs_options *options, struct wfs_checkpoint **out,
             struct wfs_error *err)
{
    auto_call struct call call;
    const int code = call_init(&call, options, CALL_SOURCE, NULL, err);
    return code < 0 ? code : handle_open(source, &call, out, NULL, err);
}

int wfs_plan(const char *source, const struct wfs_options *options, char **out,
             struct wfs_error *err)
{
    auto_call struct call call;
    struct wfs_checkpoint *checkpoint = NULL;
    struct wfs_report *report = NULL;
    size_t n_bytes;
    int code = call_init(&call, options, CALL_SOURCE, NULL, err);
    if (code == 0)
        code = handle_open(source, &call, &checkpoint, &report, err);
    if (code == 0 && wfs_report_write(report, WFS_REPORT_JSON, out, &n_bytes) < 0)
        code = wfs_fail_memory(err);
    wfs_report_free(report); /* borrows from the checkpoint */
    wfs_close(checkpoint);
    return code;
}

void wfs_close(struct wfs_checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    catalog_keys_done(&checkpoint->index->keys);
    pthread_mutex_destroy(&checkpoint->index->lock);
    pthread_mutex_destroy(&checkpoint->index->checking);
    free(checkpoint->index->names);
    free(checkpoint->index);
    free(checkpoint->source);
    wfs_catalog_free(checkpoint->catalog);
    free(checkpoint);
}

/* ---- tensors of a checkpoint ---- */

const char *wfs_checkpoint_format(const struct wfs_checkpoint *checkpoint)
{
    const struct wfs_format *format = wfs_catalog_format(checkpoint->catalog);
    return format == NULL ? NULL : format->name;
}

size_t wfs_checkpoint_n_tensors(const struct wfs_checkpoint *checkpoint)
{
    return wfs_catalog_n_tensors(checkpoint->catalog);
}

const struct wfs_tensor *wfs_checkpoint_tensor(const struct wfs_checkpoint *checkpoint, size_t i)
{
    return i < wfs_catalog_n_tensors(checkpoint->catalog)
               ? wfs_catalog_tensor(checkpoint->catalog, i)
               : NULL;
}

const char *wfs_checkpoint_keys(const struct wfs_checkpoint *checkpoint, size_t *ret_n_bytes)
{
    struct handle_index *index = checkpoint->index;
    const struct wfs_tensor *tensor;
    pthread_mutex_lock(&index->lock);
    if (index->names == NULL) {
        struct strbuf names = {0};
        strbuf_puts(&names, "");
        for (size_t i = 0; (tensor = wfs_checkpoint_tensor(checkpoint, i)) != NULL; i++)
            strbuf_add(&names, tensor->key, strlen(tensor->key) + 1);
        if (names.has_failed)
            strbuf_done(&names);
        index->names = names.bytes;
        index->n_names = names.n_bytes;
    }
    pthread_mutex_unlock(&index->lock);
    *ret_n_bytes = index->n_names;
    return index->names;
}

/* Returns the number of the tensor, or TEXT_INDEX_NONE. */
static int find(const struct wfs_checkpoint *checkpoint, const char *key, uint32_t *ret)
{
    struct handle_index *index = checkpoint->index;
    pthread_mutex_lock(&index->lock);
    const int code = index->has_keys ? 0 : catalog_keys_add(&index->keys, checkpoint->catalog, 0);
    index->has_keys = code == 0;
    if (code < 0)
        catalog_keys_done(&index->keys);
    else
        *ret = catalog_keys_find(&index->keys, key);
    pthread_mutex_unlock(&index->lock);
    return code;
}

int wfs_checkpoint_find(const struct wfs_checkpoint *checkpoint, const char *key,
                        const struct wfs_tensor **ret, struct wfs_error *err)
{
    uint32_t i;
    struct wfs_error own = {0};
    call_clear(err);
    if (find(checkpoint, key, &i) < 0)
        return wfs_fail_memory(err);
    if (i != TEXT_INDEX_NONE) {
        *ret = wfs_catalog_tensor(checkpoint->catalog, i);
        return 0;
    }
    wfs_fail(&own, ENOKEY, "no tensor has the key '%s'%s", wfs_quote(key).text,
             suggestion_of_keys(checkpoint->catalog, key, false).text);
    return call_fail(err, checkpoint->source, &own);
}

const char *wfs_tensor_key(const struct wfs_tensor *tensor)
{
    return tensor->key;
}

const char *wfs_tensor_dtype(const struct wfs_tensor *tensor)
{
    return wfs_dtype_name((enum wfs_dtype)tensor->dtype);
}

size_t wfs_tensor_shape(const struct wfs_tensor *tensor, const uint64_t **ret_dims)
{
    *ret_dims = tensor->shape.dims;
    return tensor->shape.rank;
}

uint64_t wfs_tensor_n_bytes(const struct wfs_tensor *tensor)
{
    return tensor->n_bytes;
}

const char *wfs_tensor_changes(const struct wfs_tensor *tensor)
{
    return tensor->changes;
}

const char *wfs_tensor_file(const struct wfs_checkpoint *checkpoint,
                            const struct wfs_tensor *tensor, uint64_t *ret_offset, int *ret_fd)
{
    int fd;
    uint64_t offset;
    const int i = wfs_catalog_source_of(checkpoint->catalog, tensor);
    if (i < 0 || !wfs_tensor_extent(tensor, &fd, &offset) || fd < 0)
        return NULL;
    *ret_offset = offset;
    if (ret_fd != NULL)
        *ret_fd = fd;
    return wfs_catalog_source_path(checkpoint->catalog, (size_t)i);
}

int wfs_dtype_size(const char *dtype, unsigned *ret_n_elems, unsigned *ret_n_bytes,
                   struct wfs_error *err)
{
    enum wfs_dtype found;
    call_clear(err);
    if (!wfs_dtype_spelled(dtype, strlen(dtype), &found))
        return wfs_fail(err, EINVAL, "no dtype '%s': dtypes are F32, F16, BF16, I64 and so on",
                        wfs_quote(dtype).text);
    const struct wfs_block block = wfs_dtype_block(found);
    *ret_n_elems = block.n_elems;
    *ret_n_bytes = block.n_bytes;
    return 0;
}
