/* SPDX-License-Identifier: MIT */
/*
 * A graph of values as a pickle of protocol 2, with opcodes of later protocols only for values that
 * nothing else can spell. What is used twice is written once and fetched again, so that it is one
 * object for whoever loads it.
 */
#ifndef WFS_PICKLE_WRITER_H
#define WFS_PICKLE_WRITER_H

#include "value/value.h"
#include <weightfs/cleanup.h>
#include <weightfs/error.h>

/* Of the pickle: bytes of the arena, or a range of a source. */
struct pickle_piece {
    const uint8_t *bytes; /* NULL: a range */
    const struct source *source;
    uint64_t offset, n_bytes;
};

struct pickle_frame {
    uint32_t id, next;
};

struct pickle_writer {
    const struct graph *graph;
    struct arena *arena;
    struct wfs_error *err;
    /* Values that the caller writes itself, by the functions below; NULL: there are none. */
    bool (*is_special)(const void *ctx, uint32_t id);
    int (*put_special)(struct pickle_writer *writer, uint32_t id);
    void *ctx;

    struct pickle_piece *pieces; /* malloc'ed, the result */
    size_t n_pieces, n_piece_room;
    uint64_t n_bytes; /* that are no range */
    uint32_t *memo;   /* by value: 1 + its number in the memo, and whether it is there yet */
    uint8_t *n_uses;  /* by value, at most 2 */
    uint32_t n_memo;
    bool is_late;     /* something of a later protocol was needed */
    uint8_t *version; /* the byte that says the protocol */
    uint8_t *block;
    size_t n_left; /* in the block */
    struct pickle_frame *frames;
    uint32_t n_frames, n_frame_room;
    bool has_failed; /* out of memory */
};

/*
 * Writes the value. Those of `first` (n_first) get the first numbers of the memo, in that order,
 * however often they are used. -ENOMEM, -EIO, -E2BIG.
 */
int pickle_write(struct pickle_writer *writer, uint32_t root, const uint32_t *first,
                 uint32_t n_first);
void pickle_writer_done(struct pickle_writer *writer);

/* For put_special. Failures are kept until the end. */
void pickle_put(struct pickle_writer *writer, const void *bytes, size_t n_bytes);
void pickle_put_text(struct pickle_writer *writer, const char *text, size_t n_bytes);
void pickle_put_integer(struct pickle_writer *writer, int64_t integer);

/* A value without others in it, which is put into the memo whether it is used again or not. */
int pickle_put_shared(struct pickle_writer *writer, uint32_t id);

/* ---- pickle_leaf.c: opcodes for values without others in them ---- */

/* True when the value has none in it, and was written. */
bool pickle_put_leaf(struct pickle_writer *writer, const struct value *value, int *ret_code);
int pickle_put_range(struct pickle_writer *writer, const struct value_bytes *bytes);

#endif
