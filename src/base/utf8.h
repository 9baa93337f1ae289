/* SPDX-License-Identifier: MIT */
/*
 * UTF-8: strict, except that half of a surrogate pair, which strings of Python may have, can be
 * asked for.
 */
#ifndef WFS_UTF8_H
#define WFS_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Returns the number of leading bytes that are strict UTF-8 (no overlong forms, no surrogates):
 * n_bytes when all are. */
size_t utf8_valid(const void *bytes, size_t n_bytes);

/* Decodes the character at the front. Returns how many bytes it has, 0 when it is not strict UTF-8.
 * n_bytes is not 0. */
size_t utf8_decode(const void *bytes, size_t n_bytes, uint32_t *ret);

/* As utf8_decode, but takes half of a surrogate pair as a character of three bytes too. */
size_t utf8_decode_surrogate(const void *bytes, size_t n_bytes, uint32_t *ret);

/* Encodes a number below 0x110000, a surrogate like any other. Returns how many bytes it has. */
size_t utf8_put(uint32_t c, char ret[4]);

#endif
