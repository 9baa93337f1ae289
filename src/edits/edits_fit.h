/* SPDX-License-Identifier: MIT */
/*
 * Which edits of a patch fit a checkpoint.
 */
#ifndef WFS_EDITS_FIT_H
#define WFS_EDITS_FIT_H

#include "edits/edits.h"

/* Of tensors or of values. */
struct patch_fit {
    struct patch_keys keys; /* of the checkpoint */
    const struct patch_edits *edits;
    size_t *bases;      /* of each edit: what it is made of; SIZE_MAX: nothing */
    bool *is_refused;   /* of each edit */
    uint32_t *taken_by; /* of each loaded one: 1 + the edit that renames, changes or removes it; 0:
                           none does */
};

struct patch_refusals {
    void (*refuse)(void *ctx, const char *line); /* NULL: none */
    void *ctx;
    uint64_t n;
};

/*
 * Looks at each edit, and at the keys that would result: no two may be equal. Without refusals,
 * nothing is compared. -EIO of content that has to be compared; -ENOMEM. patch_fit_done is due in
 * any case.
 */
int patch_fit_init(struct patch_fit fits[PATCH_N_KINDS], const struct wfs_patch *patch,
                   const struct wfs_catalog *to, struct patch_refusals *refusals,
                   struct wfs_error *err);
void patch_fit_done(struct patch_fit *fit);

#endif
