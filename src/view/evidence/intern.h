/* SPDX-License-Identifier: MIT */
/*
 * Numbers for texts: the same text has the same number, counted from 0 in order of appearance.
 */
#ifndef WFS_INTERN_H
#define WFS_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

struct intern_text {
    const char *bytes;
    size_t n_bytes;
};

/* A zeroed struct is empty. */
struct intern {
    struct map map;
    struct intern_text *texts;
    uint32_t n_texts;
    size_t n_room;
};

/* The bytes are borrowed for the life of the table. -ENOMEM. */
int intern_add(struct intern *intern, const char *bytes, size_t n_bytes, uint32_t *ret);

/* UINT32_MAX when it is not there. */
uint32_t intern_find(const struct intern *intern, const char *bytes, size_t n_bytes);
void intern_done(struct intern *intern);

#endif
