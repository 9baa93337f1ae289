/* SPDX-License-Identifier: MIT */
/*
 * Blocks that double in size up to 1 MiB; what is larger gets a block of its own behind the current
 * one.
 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

struct arena_block {
    struct arena_block *next;
    size_t n_bytes, n_used; /* of data */
    _Alignas(max_align_t) char data[];
};

enum { FIRST_BLOCK = 4096, LARGEST_BLOCK = 1 << 20 };

static struct arena_block *block_new(struct arena *arena, size_t n_bytes)
{
    size_t n_all;
    uint64_t n_total;
    if (!checked_add(n_bytes, sizeof(struct arena_block), &n_all) ||
        !checked_add(arena->n_bytes, n_all, &n_total))
        return NULL;
    if (arena->limit != 0 && n_total > arena->limit) {
        arena->is_full = true;
        return NULL;
    }
    struct arena_block *block = malloc(n_all);
    if (block == NULL)
        return NULL;
    *block = (struct arena_block){.n_bytes = n_bytes};
    arena->n_bytes = n_total;
    return block;
}

static void *take(struct arena *arena, size_t n_bytes, size_t align)
{
    struct arena_block *block = arena->block;
    if (block != NULL) {
        const size_t start = (block->n_used + align - 1) / align * align;
        if (start <= block->n_bytes && n_bytes <= block->n_bytes - start) {
            block->n_used = start + n_bytes;
            return block->data + start;
        }
    }
    size_t n_next = block == NULL ? FIRST_BLOCK : block->n_bytes * 2;
    n_next = n_next > LARGEST_BLOCK ? LARGEST_BLOCK : n_next;
    const bool is_own = n_bytes > n_next / 4;
    struct arena_block *fresh = block_new(arena, is_own ? n_bytes : n_next);
    if (fresh == NULL)
        return NULL;
    fresh->n_used = n_bytes;
    if (is_own && block != NULL) {
        fresh->next = block->next;
        block->next = fresh;
    } else {
        fresh->next = block;
        arena->block = fresh;
    }
    return fresh->data;
}

void *arena_alloc(struct arena *arena, size_t n_bytes)
{
    return take(arena, n_bytes, _Alignof(max_align_t));
}

void *arena_calloc(struct arena *arena, size_t n_items, size_t item_bytes)
{
    size_t n_bytes;
    if (!checked_mul(n_items, item_bytes, &n_bytes))
        return NULL;
    /* Arrays of 8-byte numbers are the common case: do not spend 16 on aligning them. */
    void *items = take(arena, n_bytes, item_bytes == 8 ? 8 : _Alignof(max_align_t));
    return items == NULL ? NULL : memset(items, 0, n_bytes);
}

char *arena_chars(struct arena *arena, size_t n_bytes)
{
    return take(arena, n_bytes, 1);
}

char *arena_copy(struct arena *arena, const char *bytes, size_t n_bytes)
{
    char *copy = n_bytes == SIZE_MAX ? NULL : take(arena, n_bytes + 1, 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, bytes, n_bytes);
    copy[n_bytes] = '\0';
    return copy;
}

char *arena_print(struct arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : arena_chars(arena, (size_t)n + 1);
    if (text != NULL)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

void arena_done(struct arena *arena)
{
    struct arena_block *block = arena->block;
    while (block != NULL) {
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
    *arena = (struct arena){.limit = arena->limit};
}
