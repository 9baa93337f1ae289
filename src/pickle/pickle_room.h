/* SPDX-License-Identifier: MIT */
/*
 * Taking back the values of objects that were folded. What is certain is taken back: an object was
 * folded, nothing made since it was begun has a number in the memo that is used later, and nothing
 * older was changed since.
 */
#ifndef WFS_PICKLE_ROOM_H
#define WFS_PICKLE_ROOM_H

#include "pickle/pickle.h"

enum argument_kind {
    ARGUMENT_NUMBER, /* of n_bytes, at most 8; none if that is 0 */
    ARGUMENT_LENGTH, /* a number, and then as many bytes */
    ARGUMENT_LINE,
    ARGUMENT_LINES,   /* two of them */
    ARGUMENT_GET,     /* the number of an entry of the memo */
    ARGUMENT_BY_HAND, /* the same where the pickle numbers the entries: in a line if n_bytes is 0 */
    ARGUMENT_MEMO,    /* none; an entry of the memo gets the next number */
    ARGUMENT_STOP,    /* none; the pickle ends */
};

struct pickle;

struct pickle_opcode {
    int (*apply)(struct pickle *p); /* after the number or the line was read; NULL: no opcode */
    uint8_t kind, n_bytes;
};

/* Returns the number in at most 8 bytes. */
static inline uint64_t pickle_number(const uint8_t *bytes, size_t n_bytes)
{
    uint64_t number = 0;
    for (size_t i = n_bytes; i-- > 0;)
        number = number << 8 | bytes[i];
    return number;
}

enum { ROOM_OPEN_MAX = 32 };

/* An object that was begun and has no state yet. */
struct room_mark {
    uint32_t id;
    bool is_spoiled; /* something older was changed since */
    uint32_t *cells; /* of the graph, when it was begun */
    uint32_t n_cells;
};

/* A zeroed struct takes nothing back. */
struct pickle_room {
    uint8_t *used;   /* malloc'ed: a bit for each number of the memo, set if it is fetched; NULL:
                        not known */
    uint32_t n_used; /* bits */
    uint32_t n_memo; /* numbers that were given so far */
    uint32_t held;   /* values up to this one may be used later */
    struct room_mark open[ROOM_OPEN_MAX];
    size_t n_open;
};

/*
 * Reads the opcodes of a pickle for the numbers of the memo that it fetches. A pickle that numbers
 * its memo by hand, or is damaged, leaves the struct zeroed. -ENOMEM.
 */
int room_scan(struct pickle_room *room, const struct pickle_job *job,
              const struct pickle_opcode *opcodes);
void room_done(struct pickle_room *room);

/* An object was begun. */
void room_begin(struct pickle_room *room, const struct graph *graph, uint32_t id);

/* A value was changed. */
static inline void room_change(struct pickle_room *room, uint32_t id)
{
    for (size_t i = room->n_open; i-- > 0 && room->open[i].id > id;)
        room->open[i].is_spoiled = true;
}

/* A value may be used again, whatever becomes of what it was made for. */
static inline void room_hold(struct pickle_room *room, uint32_t id)
{
    room->held = room->held < id ? id : room->held;
}

/* Returns whether a number of the memo is fetched later; true where that is not known. */
static inline bool room_is_fetched(const struct pickle_room *room, uint32_t i)
{
    return room->used == NULL || (i < room->n_used && (room->used[i / 8] >> i % 8 & 1) != 0);
}

/* An object was folded: takes back what was made since it was begun, if it can. */
void room_end(struct pickle_room *room, struct graph *graph, uint32_t id, bool is_folded);

#endif
