/* SPDX-License-Identifier: MIT */
/*
 * The steps between the tree and a file, which a commit and the files that are made while they are
 * read have in common.
 */
#include "fuse/planned.h"

#include <errno.h>

int planned_make(const struct driver *driver, const struct wfs_format *format, struct planned *ret,
                 struct wfs_error *err)
{
    int code = wfs_tree_snapshot(driver->tree, &ret->catalog, err);
    const struct wfs_fit_options options = {.drops_ties = driver->options->drops_ties != 0,
                                            .values_in_metadata =
                                                driver->options->values_in_metadata != 0};
    if (code == 0 && wfs_catalog_fit(ret->catalog, format, &options, &ret->fit) < 0)
        code = wfs_fail_memory(err);
    if (code == 0)
        code = wfs_layout_new(format, ret->catalog, &ret->layout, err);
    if (code == 0 && !driver->options->allows_large && wfs_layout_is_large(ret->layout))
        code = wfs_fail(err, EFBIG,
                        "the output would be more than 16 times larger than all it is made of; -o "
                        "large allows it");
    return code;
}

void planned_done(struct planned *planned)
{
    wfs_layout_free(planned->layout);
    wfs_fit_done(&planned->fit);
    wfs_catalog_free(planned->catalog);
    *planned = (struct planned){0};
}
