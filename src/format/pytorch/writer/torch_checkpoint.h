/* SPDX-License-Identifier: MIT */
/*
 * The checkpoint that torch.save would write of a catalog.
 */
#ifndef WFS_TORCH_CHECKPOINT_H
#define WFS_TORCH_CHECKPOINT_H

#include "format/pytorch/writer/torch_plan.h"

/* For struct wfs_format. */
int torch_checkpoint_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                          struct wfs_error *err);

/* The same with another name for the folder that all records are in. */
int torch_checkpoint_plan_in(const char *folder, const struct wfs_catalog *catalog,
                             struct wfs_layout *layout, struct wfs_error *err); /* for tests */

/*
 * Makes the graph of the checkpoint alone, and notes which of its values are tensors, in a zeroed
 * plan with catalog, layout, err and folder. torch_checkpoint_done is due in any case. Errors as
 * those of a plan.
 */
int torch_checkpoint_graph(struct torch_plan *plan);
void torch_checkpoint_done(struct torch_plan *plan);

/*
 * For struct wfs_format: replaces every name in a loaded checkpoint that is not known to be
 * harmless, and what a call of one makes, by None, or by a dict of the tensors in it. As a key of a
 * dict, its text takes its place. Only where that cannot be, as the whole is made by such a call,
 * the output is made of the tensors alone.
 */
int torch_purge(struct wfs_catalog *catalog,
                int (*report)(void *ctx, const char *module, const char *name), void *ctx);

#endif
