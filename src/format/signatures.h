/* SPDX-License-Identifier: MIT */
/*
 * Files that are not checkpoints, by their first bytes: both functions fail with what the file
 * really is, -EMEDIUMTYPE, and return 0 when they recognise nothing.
 */
#ifndef WFS_SIGNATURES_H
#define WFS_SIGNATURES_H

#include "base/source.h"

/* Compares the signatures that no checkpoint begins with, to be asked before the formats. */
int signatures_compare(const uint8_t *head, size_t n_head, struct wfs_error *err);

/*
 * Recognises more, to be asked after the formats: empty, all zeros, a Git LFS pointer, an error
 * page, text, short signatures.
 */
int signatures_guess(const uint8_t *head, size_t n_head, const struct source *source,
                     struct wfs_error *err);

#endif
