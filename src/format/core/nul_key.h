/* SPDX-License-Identifier: MIT */
/*
 * Keys with a NUL, which no file name and no text of C can have. Such a file is refused, unless the
 * user asks for the other tensors (force) or the tensors under escaped keys (escape_nul).
 */
#ifndef WFS_NUL_KEY_H
#define WFS_NUL_KEY_H

#include "tensor/catalog.h"

/* What a message adds that refuses a key. */
#define NUL_KEY_HINT "; force leaves it out, escape_nul shows the NUL as %%00"

/*
 * Replaces a text that contains NULs by a copy in the arena with "%00" for each, which ends with a
 * NUL. Returns 1 then, 0 if there are none; -EOPNOTSUPP unless that is allowed, by either option;
 * -ENOMEM.
 */
int nul_key_escape(bool is_allowed, struct arena *arena, const char **bytes, size_t *n_bytes);

/* Removes the tensors with an escaped key (has_nul) unless they are shown, and adds a finding
 * about them. -ENOMEM. */
int nul_key_settle(bool is_shown, struct wfs_catalog *catalog);

#endif
