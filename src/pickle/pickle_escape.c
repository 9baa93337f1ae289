/* SPDX-License-Identifier: MIT */
/*
 * Hexadecimal, octal and letter escapes.
 */
#include "pickle/pickle_escape.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <weightfs/percent.h>

/* Decodes one escape after its backslash. Returns how many characters it has; 0 when it is
 * malformed. */
static size_t unescape_one(const char *text, size_t n, char *to, size_t *n_to)
{
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    uint32_t c;
    const char *letter = n == 0 || *text == '\0' ? NULL : strchr(letters, *text);
    if (n == 0)
        return 0;
    if (*text == '\n')
        return 1;
    if (*text == 'x') {
        if (n < 3 || !hex_decode(text + 1, 2, &c))
            return 0;
        to[(*n_to)++] = (char)c;
        return 3;
    }
    if (letter != NULL) {
        to[(*n_to)++] = values[letter - letters];
        return 1;
    }
    size_t n_octal = 0;
    for (c = 0; n_octal < 3 && n_octal < n && text[n_octal] >= '0' && text[n_octal] <= '7';)
        c = c * 8 + (uint32_t)(text[n_octal++] - '0');
    if (n_octal > 0) {
        to[(*n_to)++] = (char)c;
        return n_octal;
    }
    to[(*n_to)++] = '\\'; /* as Python does with an unknown escape */
    to[(*n_to)++] = *text;
    return 1;
}

ssize_t escape_undo(const char *text, size_t n, char *buf)
{
    size_t n_buf = 0;
    for (size_t i = 0; i < n;) {
        if (text[i] != '\\') {
            buf[n_buf++] = text[i++];
            continue;
        }
        const size_t n_escape = unescape_one(text + i + 1, n - i - 1, buf, &n_buf);
        if (n_escape == 0)
            return -1;
        i += 1 + n_escape;
    }
    return (ssize_t)n_buf;
}

ssize_t escape_undo_unicode(const char *text, size_t n, char *buf)
{
    size_t n_buf = 0;
    for (size_t i = 0; i < n;) {
        const bool is_escape = text[i] == '\\' && i + 1 < n;
        if (is_escape && (text[i + 1] == 'u' || text[i + 1] == 'U')) {
            const size_t n_digits = text[i + 1] == 'u' ? 4 : 8;
            uint32_t c;
            if (n - i - 2 < n_digits || !hex_decode(text + i + 2, n_digits, &c) || c > 0x10ffff)
                return -1;
            n_buf += utf8_encode(c, buf + n_buf);
            i += 2 + n_digits;
            continue;
        }
        n_buf += utf8_encode((uint8_t)text[i++], buf + n_buf);
        if (is_escape)
            n_buf += utf8_encode((uint8_t)text[i++], buf + n_buf);
    }
    return (ssize_t)n_buf;
}
