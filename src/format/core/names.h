/* SPDX-License-Identifier: MIT */
/*
 * Names that must differ: a second one that is spelled like another gets ~2 behind it, a third ~3.
 */
#ifndef WFS_NAMES_H
#define WFS_NAMES_H

#include "base/arena.h"
#include "base/text_index.h"

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

#endif
