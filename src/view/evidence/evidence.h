/* SPDX-License-Identifier: MIT */
/*
 * What the module of each tensor is, decided from names, shapes and dtypes of the whole catalog: a
 * checkpoint holds no types. Says what an adapter should do and how sure that is, and does nothing
 * itself.
 */
#ifndef WFS_EVIDENCE_H
#define WFS_EVIDENCE_H

#include <weightfs/tensor.h>

#include "view/evidence/verdict.h"

/* Fills ret, one for each tensor, and says what layout the file is in, or is taken to be in.
 * -ENOMEM.
 */
int evidence_decide(const struct wfs_tensor *tensors, size_t n_tensors, enum container container,
                    enum layout to, struct verdict *ret, enum layout *ret_layout,
                    struct wfs_error *err);

#endif
