/* SPDX-License-Identifier: MIT */
/*
 * Bytes as text: hexadecimal digits, and "%XX" for a byte that a name or a line cannot hold. Shared
 * by library and programs, not installed.
 */
#ifndef WFS_PERCENT_H
#define WFS_PERCENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PERCENT_N = 3 }; /* characters of "%XX" */

/* Returns the value of a hexadecimal digit, or -1. */
static inline int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Reads n (at most 8) hexadecimal digits. Returns false if one of them is not a digit. */
static inline bool hex_decode(const char *text, size_t n, uint32_t *ret)
{
    *ret = 0;
    for (size_t i = 0; i < n; i++) {
        const int digit = hex_digit(text[i]);
        if (digit < 0)
            return false;
        *ret = *ret << 4 | (uint32_t)digit;
    }
    return true;
}

/* Writes "%XX" and a NUL. */
static inline void percent_encode(unsigned char byte, char code[PERCENT_N + 1])
{
    static const char digits[] = "0123456789ABCDEF";
    code[0] = '%';
    code[1] = digits[byte >> 4];
    code[2] = digits[byte & 15];
    code[3] = '\0';
}

/*
 * Reads "%XX", of which n bytes of text are left. Returns false if it is something else: a digit
 * that percent_encode does not write, or the code of a NUL.
 */
static inline bool percent_decode(const char *text, size_t n, char *ret)
{
    uint32_t byte;
    if (n < PERCENT_N || text[0] != '%' || !hex_decode(text + 1, 2, &byte) || byte == 0 ||
        text[1] >= 'a' || text[2] >= 'a')
        return false;
    *ret = (char)byte;
    return true;
}

#endif
