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

#endif
