/* SPDX-License-Identifier: MIT */
/*
 * Text that is made twice: once to count it, and again into a buffer of that size.
 */
#ifndef WFS_TEXTOUT_H
#define WFS_TEXTOUT_H

#include <stddef.h>
#include <stdint.h>

struct textout {
    char *buf; /* NULL: the text is only counted */
    uint64_t n_bytes;
};

void textout_put(struct textout *text, const char *bytes, size_t n_bytes);
void textout_word(struct textout *text, const char *word);
void textout_number(struct textout *text, uint64_t number);

/* A JSON string: quotes, backslashes and what is below 0x20 are escaped; all else stays as it is.
 */
void textout_json(struct textout *text, const char *bytes, size_t n_bytes);

#endif
