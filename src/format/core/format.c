/* SPDX-License-Identifier: MIT */
/*
 * What all formats have in common when one of their files is named or loaded.
 */
#include "format/core/format.h"

#include "format/core/keys.h"

#include <string.h>
#include <strings.h>
#include <weightfs/cleanup.h>
#include <weightfs/url.h>

#include "remote/remote_source.h"
#include "catalog/catalog_values.h"

int format_open(const struct load_context *context, const char *path, struct source **out,
                struct wfs_error *err)
{
    return url_is(path) ? remote_source_open(context->remote, path, out, err)
                        : source_open(path, out, err);
}

static bool has_extension(const char *path, const char *extension)
{
    const size_t n_path = strlen(path), n_extension = strlen(extension);
    return n_path > n_extension && strcasecmp(path + n_path - n_extension, extension) == 0;
}

bool format_has_name(const struct wfs_format *format, const char *path)
{
    const char *const *extension = format->extensions;
    while (*extension != NULL && !has_extension(path, *extension))
        extension++;
    return *extension != NULL;
}

int format_load(const struct wfs_format *format, struct source *source,
                const struct load_context *context, struct wfs_catalog **out, struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (catalog_new(&catalog) < 0) {
        source_free(source);
        return wfs_fail_memory(err);
    }
    catalog->arena.limit = context->limits.index_memory;
    catalog->format = format;
    limits_listing(&context->limits, &catalog->values.listing);
    if (catalog_adopt_source(catalog, source) < 0)
        return wfs_fail_memory(err);
    const int code = format->functions->load(source, context, catalog, err);
    if (code < 0)
        return code;
    if (catalog_bound_values(catalog) < 0)
        return wfs_fail_memory(err);
    if (nul_key_settle(context->escapes_nul, catalog) < 0)
        return catalog_fail_memory(catalog, err);
    *out = steal(&catalog);
    return 0;
}
