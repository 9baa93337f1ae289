/* SPDX-License-Identifier: MIT */
/*
 * Numbers for texts: every text that differs from those before gets the next number, counted from
 * 0. Texts are compared; their hashes are keyed, so that nobody can prepare texts that collide.
 */
#ifndef WFS_TEXT_INDEX_H
#define WFS_TEXT_INDEX_H

#include "base/hash.h"

#define TEXT_INDEX_NONE UINT32_MAX

struct text_slice {
    const char *bytes; /* borrowed; may hold any byte */
    size_t n_bytes;
};

/* A zeroed struct is empty. */
struct text_index {
    struct map map;
    struct text_slice *texts; /* by number, malloc'ed */
    size_t n_texts, n_room;
};

/* Returns the number of the text, or TEXT_INDEX_NONE. */
uint32_t text_index_find(const struct text_index *index, const char *bytes, size_t n_bytes);

/*
 * Finds the text, or adds it: then its number is what n_texts was. The bytes are borrowed for the
 * life of the index. -ENOMEM.
 */
int text_index_add(struct text_index *index, const char *bytes, size_t n_bytes, uint32_t *ret);

/* Makes room for n texts in all. -ENOMEM. */
int text_index_reserve(struct text_index *index, size_t n);

void text_index_done(struct text_index *index);

#endif
