/* SPDX-License-Identifier: MIT */
/*
 * The rules that all formats share; what only one of them demands is in its `check`.
 */
#include "format/core/storable.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"
#include "format/core/format.h"

static int check_key(const struct wfs_format *format, const struct wfs_tensor *tensor,
                     struct wfs_error *err)
{
    const size_t n_key = strlen(tensor->key);
    if (format->reserved_key != NULL && strcmp(tensor->key, format->reserved_key) == 0)
        return wfs_fail(err, EINVAL, "a tensor cannot have the key '%s', which %s reserves",
                        wfs_quote(tensor->key).text, format->title);
    if (format->needs_utf8 && utf8_valid(tensor->key, n_key) != n_key)
        return wfs_fail(err, EINVAL, "the key '%s' is not valid UTF-8, which %s requires",
                        wfs_quote(tensor->key).text, format->title);
    return 0;
}

static int fail_dtype(const struct wfs_format *format, const struct wfs_tensor *tensor,
                      struct wfs_error *err)
{
    const char *stored = wfs_tensor_attr(tensor, "dtype");
    if (tensor->dtype != WFS_OPAQUE)
        return wfs_fail(err, EOPNOTSUPP, "tensor '%s': %s has no dtype %s",
                        wfs_quote(tensor->key).text, format->title,
                        wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    return wfs_fail(err, EOPNOTSUPP, "tensor '%s': %s cannot store its unknown dtype%s%s%s",
                    wfs_quote(tensor->key).text, format->title, stored != NULL ? " '" : "",
                    stored != NULL ? wfs_quote(stored).text : "", stored != NULL ? "'" : "");
}

static int check_size(const struct wfs_tensor *tensor, struct wfs_error *err)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    uint64_t n_bytes;
    if (wfs_shape_bytes(&tensor->shape, dtype, &n_bytes) < 0 || n_bytes > INT64_MAX)
        return wfs_fail(err, EINVAL,
                        "tensor '%s': its shape does not fill whole bytes of %s below 2^63",
                        wfs_quote(tensor->key).text, wfs_dtype_name(dtype));
    if (n_bytes != tensor->n_bytes)
        return wfs_fail(err, EINVAL, "tensor '%s': dtype and shape take %s, it has %" PRIu64,
                        wfs_quote(tensor->key).text, wfs_count(n_bytes, "byte").text,
                        tensor->n_bytes);
    return 0;
}

int storable_check_tensor(const struct wfs_format *format, const struct wfs_tensor *tensor,
                          struct wfs_error *err)
{
    const struct format_functions *functions = format->functions;
    int code = check_key(format, tensor, err);
    if (code == 0 && !functions->stores(tensor))
        code = fail_dtype(format, tensor, err);
    if (code == 0 && tensor->dtype != WFS_OPAQUE)
        code = check_size(tensor, err);
    if (code == 0 && functions->check != NULL)
        code = functions->check(tensor, err);
    return code;
}

int storable_check_metadata(const struct wfs_catalog *catalog, struct wfs_error *err)
{
    for (const struct wfs_text *text = catalog->meta; text != NULL; text = text->next) {
        const size_t n_name = strlen(text->name);
        if (utf8_valid(text->name, n_name) != n_name ||
            utf8_valid(text->value, text->n_bytes) != text->n_bytes)
            return wfs_fail(err, EINVAL, "the metadata '%s' is not valid UTF-8",
                            wfs_quote(text->name).text);
    }
    return 0;
}
