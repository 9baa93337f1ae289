/* SPDX-License-Identifier: MIT */
/*
 * The directory of a training run of Burn: for each epoch a file of the model, one of its optimizer
 * and one of its learning rate scheduler.
 */
#ifndef WFS_RUN_SOURCE_H
#define WFS_RUN_SOURCE_H

#include "format/core/format.h"

/*
 * Loads the three files of one epoch as one catalog, under the names model, optim and scheduler.
 * Returns 1; 0 when the folder, which ends with a slash, is not one of a run. -ENOENT when it has
 * no such epoch, otherwise errors as the loader has them.
 */
int run_source_load(const char *folder, const struct load_context *context,
                    struct wfs_catalog **out, struct wfs_error *err);

#endif
