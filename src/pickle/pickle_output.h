/* SPDX-License-Identifier: MIT */
/*
 * The bytes of a pickle that is being written, in pieces: bytes of an arena, and ranges of sources
 * that are copied later. The first failure is remembered until the end; values without others in
 * them are put as opcodes that Python's pickler chooses.
 */
#ifndef WFS_PICKLE_OUTPUT_H
#define WFS_PICKLE_OUTPUT_H

#include "value/value.h"

struct pickle_piece {
    const uint8_t *bytes; /* NULL: a range */
    const struct source *source;
    uint64_t offset, n_bytes;
};

struct pickle_output {
    struct arena *arena;
    struct wfs_error *err;
    struct pickle_piece *pieces; /* malloc'ed */
    size_t n_pieces, n_piece_room;
    uint64_t n_bytes; /* without ranges */
    uint8_t *block;
    size_t n_left; /* in the block */
    bool is_late;  /* an opcode of a protocol after 2 was needed */
    int code;      /* of the first failure, which was reported: -ENOMEM, -EIO, -E2BIG */
};

void pickle_output_done(struct pickle_output *output);
void pickle_fail_memory(struct pickle_output *output);

void pickle_put(struct pickle_output *output, const void *bytes, size_t n_bytes);
void pickle_put_code(struct pickle_output *output, uint8_t opcode);

/* Puts an opcode and the n_length bytes (1, 4 or 8) of a number after it. */
void pickle_put_length(struct pickle_output *output, uint8_t opcode, uint64_t n, size_t n_length);

void pickle_put_text(struct pickle_output *output, const char *text, size_t n_bytes);
void pickle_put_integer(struct pickle_output *output, int64_t integer);

/* Writes the value and returns true; false when other values are in it. */
bool pickle_put_leaf(struct pickle_output *output, const struct graph *graph,
                     const struct value *value);

/*
 * Writing a graph of values as a pickle of protocol 2, with opcodes of later protocols only for
 * values that have no other spelling. A value that is used twice is written once and fetched again,
 * so that it is one object for whoever loads it.
 */

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
