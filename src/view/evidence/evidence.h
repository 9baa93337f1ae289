/* SPDX-License-Identifier: MIT */
/*
 * What the module of each tensor is, decided from names, shapes and dtypes of the whole catalog: a
 * checkpoint holds no types. Says what an adapter should do and how sure that is, and does nothing
 * itself.
 */
#ifndef WFS_EVIDENCE_H
#define WFS_EVIDENCE_H

#include <weightfs/tensor.h>

/* Whose conventions: of a Linear's weight [out, in] or [in, out], of a norm's weight or gamma. */
enum layout { LAYOUT_TORCH, LAYOUT_BURN };

enum container { CONTAINER_PTH, CONTAINER_SAFETENSORS, CONTAINER_BPK };

enum action { ACTION_NONE, ACTION_TRANSPOSE, ACTION_RENAME };

enum certainty { TOLD, CERTAIN, LIKELY, UNDECIDED };

struct verdict {
    uint8_t action, certainty;
    const char *class_name; /* static text: linear, norm, embedding, ... */
    const char *row;        /* static text: which row of the table decided */
};

/* Fills ret, one for each tensor, and says what layout the file is in, or is taken to be in.
 * -ENOMEM.
 */
int evidence_decide(const struct wfs_tensor *tensors, size_t n_tensors, enum container container,
                    enum layout to, struct verdict *ret, enum layout *ret_layout,
                    struct wfs_error *err);

#endif
