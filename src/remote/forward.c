/* SPDX-License-Identifier: MIT */
/*
 * Requests of one reader may arrive a little out of order, because the kernel reads ahead with
 * several threads.
 */
#include "remote/remote_call.h"

#include <stddef.h>

enum {
    FIRST_WINDOW = 1 << 20,
    LARGEST_WINDOW = 64 << 20,
    FIRST_GUESS = 64 << 10,
    LARGEST_GUESS = 4 << 20,
    LARGEST_HABIT = 16 << 20,
    STEP = 4 << 20, /* of a large window, as the reader goes on */
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

static void note(struct forward_reader *reader, uint64_t offset, uint64_t n_bytes, uint64_t end)
{
    const uint64_t next = offset + n_bytes;
    reader->next = next > reader->next ? next : reader->next;
    reader->asked = next > reader->asked ? next : reader->asked;
    reader->n_read += n_bytes;
    reader->has_passed = reader->has_passed || (reader->end != 0 && offset >= reader->end);
    reader->end = end > reader->end ? end : reader->end;
}

/* Returns up to where it may be asked. A reader that goes from one tensor to the next is likely to
 * go on so, and gets as much of what follows as an eighth of what it has read. */
static uint64_t reach_of(const struct forward_reader *reader, uint64_t end)
{
    const uint64_t n_habit = reader->has_passed ? reader->n_read / 8 : 0;
    const uint64_t n_more = n_habit < LARGEST_HABIT ? n_habit : LARGEST_HABIT;
    return end == 0 || n_more > UINT64_MAX - end ? UINT64_MAX : end + n_more;
}

bool forward_note(struct forward *forward, uint64_t offset, uint64_t n_bytes, uint64_t end,
                  uint64_t *ret_from, uint64_t *ret_end)
{
    struct forward_reader *reader = find(forward, offset);
    const bool is_first = reader->next == 0;
    reader->used = ++forward->n_uses;
    note(reader, offset, n_bytes, end);
    if (end == 0 && is_first)
        return false;
    const uint64_t reach = reach_of(reader, end), n_ahead = reader->asked - reader->next;
    if (n_ahead <= reader->window / 2)
        reader->window = next_window(reader, end != 0);
    else if (reader->window < LARGEST_WINDOW || n_ahead + STEP > reader->window)
        return false;
    const uint64_t aim = reader->next + reader->window;
    if (reader->asked >= aim || reader->asked >= reach)
        return false;
    *ret_from = reader->asked;
    *ret_end = reader->asked = reach < aim ? reach : aim;
    return true;
}
