/* SPDX-License-Identifier: MIT */
/*
 * The evidence: infers the class of the module of each tensor from names, shapes and dtypes of the
 * whole checkpoint, which stores no types. This room decides what an adapter has to do and how
 * certain that is; it knows nothing of rules and changes no tensor.
 */
#ifndef WFS_EVIDENCE_H
#define WFS_EVIDENCE_H

#include <weightfs/tensor.h>
#include <weightfs/traits.h>

#include "view/evidence/verdict.h"

/*
 * Writes a verdict for each tensor to ret, and the layout that the file has or is assumed to have.
 * convention is that of the format, to the layout to adapt to. -ENOMEM.
 */
int evidence_decide(const struct wfs_tensor *tensors, size_t n_tensors,
                    enum wfs_convention convention, enum layout to, struct verdict *ret,
                    enum layout *ret_layout, struct wfs_error *err);

#endif
