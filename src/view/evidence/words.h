/* SPDX-License-Identifier: MIT */
/*
 * The words of a segment of a key. It is cut at everything that is not a letter, and at capitals
 * (`LayerNorm` is layer norm, `RMSNorm` is rms norm, `fc1` is fc).
 */
#ifndef WFS_WORDS_H
#define WFS_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the words in the last segment of the path of a module indicate about its type. */
enum word_kind {
    WORD_NORM = 1 << 0,
    WORD_SCALE = 1 << 1,
    WORD_ACT = 1 << 2,
    WORD_TABLE = 1 << 3,
    WORD_OF = 1 << 4, /* what tables hold */
    WORD_LINEAR = 1 << 5,
    WORD_TIME = 1 << 6,
    WORD_HEAD = 1 << 7,
    WORD_PERHAPS_HEAD = 1 << 8,
    WORD_GENERIC = 1 << 9, /* indicates nothing */
    WORD_PATCH = 1 << 10,
    WORD_TO = 1 << 11,
    WORD_GATE = 1 << 12,
    WORD_BIAS = 1 << 13,
    WORD_ACT_ITSELF = 1 << 14,
    WORD_VECTOR = 1 << 15,
};

struct words {
    uint32_t kinds;      /* of all words together */
    uint32_t last_kinds; /* of the last word */
    size_t n_words;
    bool all_generic;
};

/* Reads the words of a segment and puts them before those read so far. A zeroed struct with
 * all_generic set has none. */
void words_prepend(struct words *words, const char *segment, size_t n_bytes);

#endif
