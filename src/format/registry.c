/* SPDX-License-Identifier: MIT */
/*
 * The table of formats, and look-ups in it.
 */
#include "format/core/format.h"

#include <string.h>

static const struct wfs_format *const formats[WFS_N_FORMATS] = {
    [WFS_FORMAT_BURNPACK - 1] = &format_burnpack,
    [WFS_FORMAT_SAFETENSORS - 1] = &format_safetensors,
    [WFS_FORMAT_PYTORCH - 1] = &format_pytorch,
};

const struct wfs_format *format_by_content(const uint8_t *head, size_t n_head, uint64_t n_bytes)
{
    for (size_t i = 0; i < WFS_N_FORMATS; i++) {
        if (formats[i]->functions->probe(head, n_head, n_bytes))
            return formats[i];
    }
    return NULL;
}

const struct wfs_format *wfs_format_by_id(enum wfs_format_id id)
{
    return formats[id - 1];
}

const struct wfs_format *wfs_format_by_name(const char *name)
{
    for (size_t i = 0; i < WFS_N_FORMATS; i++) {
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
    }
    return NULL;
}

static bool has_extension(const char *path, const char *extension)
{
    const size_t n_path = strlen(path), n_extension = strlen(extension);
    return n_path > n_extension && strcasecmp(path + n_path - n_extension, extension) == 0;
}

const struct wfs_format *wfs_format_by_path(const char *path)
{
    for (size_t i = 0; i < WFS_N_FORMATS; i++) {
        for (const char *const *extension = formats[i]->extensions; *extension; extension++) {
            if (has_extension(path, *extension))
                return formats[i];
        }
    }
    return NULL;
}

bool wfs_format_can_write(const struct wfs_format *format)
{
    return format->functions->plan != NULL;
}
