/* SPDX-License-Identifier: MIT */
/*
 * An arena: memory that is handed out piece by piece and freed in one go. Not thread-safe.
 */
#ifndef WFS_ARENA_H
#define WFS_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena_block;

/* A zeroed struct is an empty arena. */
struct arena {
    struct arena_block *block;
    uint64_t n_bytes; /* asked from the system so far */
    uint64_t limit;   /* arena_alloc returns NULL past it; 0: none */
    bool is_full;     /* the limit has refused something */
};

/* Returns memory aligned for any type; NULL when memory or the limit is exhausted. */
void *arena_alloc(struct arena *arena, size_t n_bytes);

/* Returns n_items * item_bytes zeroed bytes; NULL also when the product overflows. */
void *arena_calloc(struct arena *arena, size_t n_items, size_t item_bytes);

/* Returns n_bytes of unaligned memory, for strings. */
char *arena_chars(struct arena *arena, size_t n_bytes);

/* Copies bytes and adds a NUL. */
char *arena_copy(struct arena *arena, const char *bytes, size_t n_bytes);
char *arena_print(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void arena_done(struct arena *arena);

#endif
