/* SPDX-License-Identifier: MIT */
/*
 * Requests of one reader may arrive a little out of order, because the kernel reads ahead with
 * several threads.
 */
#include "remote/forward.h"

#include <stddef.h>

enum {
    FIRST_WINDOW = 1 << 20,
    LARGEST_WINDOW = 64 << 20,
    FIRST_GUESS = 64 << 10,
    LARGEST_GUESS = 4 << 20,
    NEAR = 4 << 20, /* bytes by which a read may be before or behind where its reader was */
};

static struct forward_reader *find(struct forward *forward, uint64_t offset)
{
    struct forward_reader *oldest = &forward->readers[0];
    for (size_t i = 0; i < FORWARD_READERS; i++) {
        struct forward_reader *reader = &forward->readers[i];
        const uint64_t reach = reader->next > reader->asked ? reader->next : reader->asked;
        if (reader->next > 0 && offset + NEAR >= reader->next && offset <= reach)
            return reader;
        oldest = reader->used < oldest->used ? reader : oldest;
    }
    *oldest = (struct forward_reader){0};
    return oldest;
}

static uint64_t next_window(const struct forward_reader *reader, bool is_known)
{
    const uint64_t first = is_known ? FIRST_WINDOW : FIRST_GUESS;
    const uint64_t largest = is_known ? LARGEST_WINDOW : LARGEST_GUESS;
    const uint64_t next = reader->window * 2;
    return next < first ? first : next > largest ? largest : next;
}

bool forward_note(struct forward *forward, uint64_t offset, uint64_t n_bytes, uint64_t end,
                  uint64_t *ret_from, uint64_t *ret_end)
{
    struct forward_reader *reader = find(forward, offset);
    const uint64_t next = offset + n_bytes;
    const bool is_first = reader->next == 0;
    reader->used = ++forward->n_uses;
    if (next > reader->next)
        reader->next = next;
    if (next > reader->asked)
        reader->asked = next;
    if (end == 0 && is_first)
        return false;
    if ((end != 0 && reader->asked >= end) || reader->next + reader->window / 2 < reader->asked)
        return false;
    reader->window = next_window(reader, end != 0);
    const uint64_t aim = reader->next + reader->window;
    if (reader->asked >= aim)
        return false;
    *ret_from = reader->asked;
    *ret_end = reader->asked = end != 0 && end < aim ? end : aim;
    return true;
}
