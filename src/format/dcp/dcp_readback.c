/* SPDX-License-Identifier: MIT */
/*
 * A tensor of one part is compared where it lies in its file, so that bytes which are known to have
 * come there from the layout are not read again.
 */
#include "format/dcp/dcp_readback.h"

#include <weightfs/cleanup.h>
#include <weightfs/value.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/search.h"
#include "base/text_index.h"
#include "format/core/format.h"
#include "format/core/save.h"
#include "format/dcp/dcp_assembly.h"
#include "format/dcp/writer/dcp_plan.h"
#include "catalog/catalog.h"

struct comparing {
    const struct directory *directory;
    const struct directory_files *files;
    const struct wfs_save_options *options;
    const struct wfs_catalog *found;
    struct text_index keys; /* of the tensors that were found */
    struct wfs_error *err;
};

static void comparing_done(struct comparing *c)
{
    text_index_done(&c->keys);
}

static int fail_lost(const struct comparing *c, const char *what, const char *key)
{
    return wfs_fail(c->err, EIO, "internal error: the output has lost the %s '%s'", what,
                    wfs_quote(key).text);
}

static const struct wfs_layout *layout_of(const struct comparing *c, const char *name)
{
    for (size_t i = 0; i < c->directory->n_layouts; i++) {
        if (strcmp(c->files->names[i], name) == 0)
            return c->directory->layouts[i];
    }
    return NULL;
}

/* Finds where the elements of a tensor of one part lie, if they are dense. */
static const struct wfs_layout *find_place(const struct comparing *c,
                                           const struct wfs_tensor *tensor, struct wfs_tensor *ret)
{
    const struct source *assembly = c->found->assembled;
    int code;
    *ret = *tensor;
    if (tensor->stored.source != assembly)
        return NULL;
    const struct dcp_tables *tables = dcp_assembly_tables(assembly);
    const uint32_t n =
        (uint32_t)search_starts(tables->tensors, tables->n_tensors, sizeof(*tables->tensors),
                                offsetof(struct dcp_tensor, start), tensor->stored.offset);
    if (n == 0 || tables->tensors[n - 1].start != tensor->stored.offset ||
        tables->tensors[n - 1].n_parts != 1 || dcp_assembly_open(assembly, n - 1, &code) != NULL)
        return NULL;
    const struct dcp_part *part = &tables->tensors[n - 1].parts[0];
    const struct dcp_file *file = &tables->files[tables->items[part->item].file];
    if (part->data == 0 || part->is_odd)
        return NULL;
    ret->stored.source = file->source;
    ret->stored.offset = part->data - 1;
    return layout_of(c, file->name);
}

static int compare_tensor(struct comparing *c, const char *key, size_t n_key,
                          const struct wfs_tensor *wanted)
{
    struct wfs_tensor placed;
    const uint32_t i = text_index_find(&c->keys, key, n_key);
    const struct wfs_tensor *found = i == TEXT_INDEX_NONE ? NULL : &c->found->tensors[i];
    if (found == NULL || found->trouble != NULL || found->dtype != wanted->dtype ||
        found->n_bytes != wanted->n_bytes || !wfs_shape_is_equal(&found->shape, &wanted->shape))
        return fail_lost(c, "tensor", key);
    const struct wfs_layout *layout = find_place(c, found, &placed);
    return readback_compare_bytes(layout, c->options, wanted, &placed, c->err);
}

/* Those that are items, then those in values. */
static int compare_tensors(struct comparing *c)
{
    const struct dcp_leaves *leaves = dcp_plan_leaves(c->directory);
    const struct wfs_catalog *wanted = c->directory->catalog;
    size_t n = 0;
    int code = 0;
    for (size_t i = 0; i < leaves->n && code == 0; i++) {
        const struct dcp_leaf *leaf = &leaves->leaves[i];
        if (leaf->tensor != NULL) {
            code = compare_tensor(c, leaf->key, leaf->n_key, leaf->tensor);
            n++;
        }
    }
    for (size_t i = 0; i < wanted->n_tensors && code == 0; i++) {
        const char *key = wanted->tensors[i].key;
        const uint32_t leaf = text_index_find(&leaves->names, key, strlen(key));
        if (leaf != TEXT_INDEX_NONE && leaves->leaves[leaf].tensor != NULL)
            continue;
        code = compare_tensor(c, key, strlen(key), &wanted->tensors[i]);
        n++;
    }
    if (code == 0 && n != c->found->n_tensors)
        return wfs_fail(c->err, EIO, "internal error: the output has %s, expected %zu",
                        wfs_count(c->found->n_tensors, "tensor").text, n);
    return code;
}

/* Compares those that were edited, which are in the graph of the catalog; all others are the loaded
 * objects themselves. */
static int compare_values(const struct comparing *c)
{
    const struct dcp_leaves *leaves = dcp_plan_leaves(c->directory);
    for (size_t i = 0; i < leaves->n; i++) {
        const struct dcp_leaf *leaf = &leaves->leaves[i];
        autofree char *a = NULL, *b = NULL;
        size_t n_a = 0, n_b = 0;
        struct wfs_error unwanted = {0};
        if (!leaf->is_edited || leaf->tensor != NULL)
            continue;
        int code = catalog_value_text(c->directory->catalog, leaf->id, &a, &n_a);
        if (code == 0)
            code = wfs_catalog_config(c->found, leaf->key, &b, &n_b, &unwanted);
        if (code == -ENOMEM)
            return wfs_fail_memory(c->err);
        if (code < 0 || n_a != n_b || memcmp(a, b, n_a) != 0)
            return fail_lost(c, "value", leaf->key);
    }
    return 0;
}

/* Loading leaves out a value that cannot be read, and puts keys to the top whose path it cannot
 * follow. */
static int check_findings(const struct comparing *c)
{
    for (size_t i = 0; i < c->found->n_findings; i++) {
        const struct wfs_finding *finding = &c->found->findings[i];
        if ((finding->flags & WFS_FINDING_LOSS) != 0)
            return wfs_fail(c->err, EIO, "internal error: the output is damaged: %s",
                            finding->text);
    }
    return 0;
}

int dcp_readback_compare(const struct directory *directory, const struct directory_files *files,
                         const struct wfs_save_options *options, const struct wfs_catalog *found,
                         struct wfs_error *err)
{
    cleanup(comparing_done) struct comparing c = {
        .directory = directory, .files = files, .options = options, .found = found, .err = err};
    uint32_t number;
    int code = text_index_reserve(&c.keys, found->n_tensors);
    for (size_t i = 0; i < found->n_tensors && code == 0; i++)
        code =
            text_index_add(&c.keys, found->tensors[i].key, strlen(found->tensors[i].key), &number);
    if (code < 0)
        return wfs_fail_memory(err);
    code = check_findings(&c);
    if (code == 0)
        code = compare_tensors(&c);
    return code < 0 ? code : compare_values(&c);
}
