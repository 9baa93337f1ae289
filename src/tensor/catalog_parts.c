/* SPDX-License-Identifier: MIT */
/*
 * Parts are kept whole, without their sources.
 */
#include "tensor/catalog_parts.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int move_sources(struct wfs_catalog *catalog, struct wfs_catalog *part)
{
    if (array_reserve(&catalog->sources, sizeof(*catalog->sources), catalog->n_sources,
                      part->n_sources, &catalog->n_source_room) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < part->n_sources; i++)
        catalog->sources[catalog->n_sources++] = part->sources[i];
    part->n_sources = 0;
    wfs_access_merge(&catalog->access, &part->access);
    return 0;
}

int catalog_adopt_part(struct wfs_catalog *catalog, struct wfs_catalog *part)
{
    if (array_reserve(&catalog->parts, sizeof(*catalog->parts), catalog->n_parts, 1,
                      &catalog->n_part_room) < 0 ||
        move_sources(catalog, part) < 0) {
        wfs_catalog_free(part);
        return -ENOMEM;
    }
    catalog->parts[catalog->n_parts++] = part;
    return 0;
}

static bool has_meta(const struct wfs_catalog *catalog, const char *name)
{
    for (const struct wfs_text *text = catalog->meta; text != NULL; text = text->next) {
        if (strcmp(text->name, name) == 0)
            return true;
    }
    return false;
}

int catalog_merge_texts(struct wfs_catalog *catalog, const struct wfs_catalog *part)
{
    for (const struct wfs_text *text = part->meta; text != NULL; text = text->next) {
        if (!has_meta(catalog, text->name) &&
            catalog_add_meta_bytes(catalog, text->name, text->value, text->n_bytes) < 0)
            return -ENOMEM;
    }
    for (size_t i = 0; i < part->n_findings; i++) {
        if (catalog_add_finding(catalog, part->findings[i].kind, "%s", part->findings[i].text) < 0)
            return -ENOMEM;
    }
    return 0;
}
