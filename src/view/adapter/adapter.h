/* SPDX-License-Identifier: MIT */
/*
 * Adapters: what the files of peft, diffusers, kohya, LyCORIS and MLX add to a checkpoint, as
 * computations. The names, shapes, scales and formulas are those of these libraries;
 * docs/arithmetic.md has each of them. Whatever of a file would not be used is an error that names
 * it.
 */
#ifndef WFS_ADAPTER_H
#define WFS_ADAPTER_H

#include "view/adapter/adapter_base.h"

/*
 * Adds the adapter in `file`, whose tensors must live as long as the catalog of the base. config is
 * the text of its adapter_config.json, NULL: it has none. -EINVAL for what does not fit,
 * -EOPNOTSUPP for a method that cannot be merged, -EBADMSG for a configuration that cannot be read,
 * -E2BIG, -ENOMEM, -EIO.
 */
int adapter_add(struct adapter_base *base, const struct adapter_request *request,
                const struct wfs_catalog *file, const char *config, struct wfs_error *err);

#endif
