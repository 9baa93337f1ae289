/* SPDX-License-Identifier: MIT */
/*
 * Text of a known length: made twice, the first time only counted.
 */
#include "text/textout.h"

#include <stdio.h>
#include <string.h>

void textout_put(struct textout *text, const char *bytes, size_t n_bytes)
{
    if (text->buf != NULL)
        memcpy(text->buf + text->n_bytes, bytes, n_bytes);
    text->n_bytes += n_bytes;
}

void textout_word(struct textout *text, const char *word)
{
    textout_put(text, word, strlen(word));
}

void textout_number(struct textout *text, uint64_t number)
{
    char digits[20];
    size_t i = sizeof(digits);
    do {
        digits[--i] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    textout_put(text, digits + i, sizeof(digits) - i);
}

void textout_json(struct textout *text, const char *bytes, size_t n_bytes)
{
    static const char names[] = "\"\\bfnrt", meanings[] = "\"\\\b\f\n\r\t";
    size_t start = 0;
    textout_word(text, "\"");
    for (size_t i = 0; i < n_bytes; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        textout_put(text, bytes + start, i - start);
        start = i + 1;
        const char *meaning = memchr(meanings, c, sizeof(meanings) - 1);
        char escape[8];
        if (meaning != NULL)
            snprintf(escape, sizeof(escape), "\\%c", names[meaning - meanings]);
        else
            snprintf(escape, sizeof(escape), "\\u%04x", c);
        textout_word(text, escape);
    }
    textout_put(text, bytes + start, n_bytes - start);
    textout_word(text, "\"");
}
