/* SPDX-License-Identifier: MIT */
/*
 * The steps between the tree and a file, which a commit and the files that are made while they are
 * read have in common.
 */
#include "fuse/planned.h"

#include <errno.h>

static int make_catalog(const struct driver *driver, const struct wfs_format *format, bool is_set,
                        struct planned *ret, struct wfs_error *err)
{
    const struct wfs_fit_options options = {.drops_ties = driver->options->drops_ties != 0,
                                            .values_in_metadata =
                                                driver->options->values_in_metadata != 0,
                                            .is_set = is_set};
    const int code = wfs_tree_snapshot(driver->tree, &ret->catalog, err);
    return code < 0 ? code : wfs_catalog_fit(ret->catalog, format, &options, &ret->fit, err);
}

static int check_size(const struct driver *driver, bool is_large, struct wfs_error *err)
{
    return driver->options->allows_large || !is_large
               ? 0
               : wfs_fail(err, EFBIG,
                          "the output would be more than 16 times larger than all it is made of; "
                          "-o large allows it");
}

int planned_make(const struct driver *driver, const struct wfs_format *format, struct planned *ret,
                 struct wfs_error *err)
{
    int code = make_catalog(driver, format, false, ret, err);
    if (code == 0)
        code = wfs_layout_new(format, ret->catalog, &ret->layout, err);
    return code < 0 ? code : check_size(driver, wfs_layout_is_large(ret->layout), err);
}

int planned_make_set(const struct driver *driver, struct planned *ret, struct wfs_error *err)
{
    const struct target *target = driver->target;
    int code = make_catalog(driver, target->format, true, ret, err);
    if (code == 0)
        code = wfs_shards_new(target->format, ret->catalog, target->max_shard, &ret->shards, err);
    if (code == 0)
        code = wfs_shards_fit(ret->shards, ret->catalog, &ret->fit, err);
    return code < 0 ? code : check_size(driver, wfs_shards_is_large(ret->shards), err);
}

void planned_done(struct planned *planned)
{
    wfs_layout_free(planned->layout);
    wfs_shards_free(planned->shards);
    wfs_fit_done(&planned->fit);
    wfs_catalog_free(planned->catalog);
    *planned = (struct planned){0};
}
