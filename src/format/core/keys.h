/* SPDX-License-Identifier: MIT */
/*
 * Keys as loaders make them. Names that must differ: a second one that is spelled like another gets
 * ~2 behind it, a third ~3. Keys with a NUL, which no file name and no text of C can have: such a
 * file is refused, unless the user asks for the other tensors (force) or the tensors under escaped
 * keys (escape_nul).
 */
#ifndef WFS_KEYS_H
#define WFS_KEYS_H

#include "base/arena.h"
#include "base/text_index.h"
#include "catalog/catalog.h"

struct names {
    struct text_index index;
    uint32_t *n_same; /* by number: how often it was asked for; malloc'ed */
    size_t n_room;
    uint64_t n_clashes;
};

/* Room for n in all. -ENOMEM. */
int names_reserve(struct names *names, uint32_t n);

/*
 * The name with what makes it differ, in the arena and ended by NUL. lasting: the same name ended
 * by NUL, which lives as long as the arena and saves a copy; NULL: there is none. -ENOMEM.
 */
int names_make(struct names *names, struct arena *arena, const char *name, size_t n_bytes,
               const char *lasting, const char **ret);

/* The count of clashes stays. */
void names_done(struct names *names);

/* What a message adds that refuses a key. */
#define NUL_KEY_HINT "; force leaves it out, escape_nul shows the NUL as %%00"

/*
 * Replaces a text that contains NULs by a copy in the arena with "%00" for each, which ends with a
 * NUL. Returns 1 then, 0 if there are none; -EOPNOTSUPP unless that is allowed, by either option;
 * -ENOMEM.
 */
int nul_key_escape(bool is_allowed, struct arena *arena, const char **bytes, size_t *n_bytes);

/* The changes of a tensor whose key was escaped, until it is settled. */
extern const char nul_key_mark[];

/* Removes the tensors with an escaped key unless they are shown, and adds a finding about them.
 * -ENOMEM. */
int nul_key_settle(bool is_shown, struct wfs_catalog *catalog);

#endif
