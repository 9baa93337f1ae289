/* SPDX-License-Identifier: MIT */
/*
 * Writing a graph of values as a pickle of protocol 2, with opcodes of later protocols only for
 * values that have no other spelling. A value that is used twice is written once and fetched again,
 * so that it is one object for whoever loads it.
 */
#ifndef WFS_PICKLE_WRITER_H
#define WFS_PICKLE_WRITER_H

#include "pickle/pickle_output.h"

struct pickle_frame {
    uint32_t id, next;
};

struct pickle_writer {
    struct pickle_output out; /* the result; arena and err are set by the caller */
    const struct graph *graph;
    /* Values that the caller writes itself, with the functions of pickle_output; NULL: none. */
    bool (*is_special)(const void *ctx, uint32_t id);
    int (*put_special)(struct pickle_writer *writer, uint32_t id);
    void *ctx;

    uint32_t *memo;  /* by value: 1 + its number in the memo, and a flag once it has been written */
    uint8_t *n_uses; /* by value, at most 2 */
    uint32_t n_memo;
    uint8_t *version;              /* the byte that holds the protocol */
    uint32_t n_marks, n_marks_max; /* open in the pickle: now, and at most so far */
    struct pickle_frame *frames;
    uint32_t n_frames;
    size_t n_frame_room;
    uint32_t *touched; /* values with an entry in the tables above */
    size_t n_touched, n_touched_room;
};

/*
 * Writes the value. Those of `first` (n_first) get the first numbers of the memo, in that order,
 * however often they are used. -ENOMEM, -EIO, -E2BIG.
 */
int pickle_write(struct pickle_writer *writer, uint32_t root, const uint32_t *first,
                 uint32_t n_first);

void pickle_writer_done(struct pickle_writer *writer);

/* Forgets what was written, at the cost of that, so that another value of the same graph can be
 * written. Frees the list of pieces. */
void pickle_writer_clear(struct pickle_writer *writer);

/* For put_special: writes a value without others in it, and puts it into the memo whether it is
 * used again or not. */
void pickle_put_shared(struct pickle_writer *writer, uint32_t id);

#endif
