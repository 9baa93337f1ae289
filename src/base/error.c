/* SPDX-License-Identifier: MIT */
/*
 * The error record and names made fit for messages.
 */
#include <weightfs/error.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

int wfs_fail(struct wfs_error *err, int code, const char *format, ...)
{
    if (err != NULL && err->code == 0) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof(err->text), format, args);
        va_end(args);
        err->code = code;
    }
    return -code;
}

int wfs_fail_memory(struct wfs_error *err)
{
    return wfs_fail(err, ENOMEM, "out of memory");
}

/* Bytes of the UTF-8 character at the front that may be shown as it is; 0: it must be escaped. */
static size_t printable(const char *bytes, size_t n_bytes)
{
    const unsigned char c = (unsigned char)bytes[0];
    if (c < 0x80)
        return c >= 0x20 && c != 0x7f && c != '\'' && c != '\\';
    const size_t n_char = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    if (n_char > n_bytes || utf8_valid(bytes, n_char) != n_char)
        return 0;
    /* C1 controls, line and paragraph separators, bidirectional controls and the BOM. */
    const unsigned char d = (unsigned char)bytes[1];
    const unsigned char e = n_char > 2 ? (unsigned char)bytes[2] : 0;
    if (c == 0xc2 && d < 0xa0)
        return 0;
    if (c == 0xe2 && d == 0x80 && (e == 0x8e || e == 0x8f || (e >= 0xa8 && e <= 0xae)))
        return 0;
    if ((c == 0xe2 && d == 0x81 && e >= 0xa6 && e <= 0xa9) || (c == 0xef && d == 0xbb && e == 0xbf))
        return 0;
    return n_char;
}

struct wfs_quoted wfs_quote_n(const char *bytes, size_t n_bytes)
{
    enum { N_TAIL = 40 }; /* room for the note about a cut */
    struct wfs_quoted quoted;
    size_t n_out = 0;
    size_t i = 0;
    while (i < n_bytes) {
        const size_t n_char = printable(bytes + i, n_bytes - i);
        const size_t n_need = n_char > 0 ? n_char : 4;
        if (n_out + n_need > sizeof(quoted.text) - N_TAIL) {
            snprintf(quoted.text + n_out, sizeof(quoted.text) - n_out, "... (%zu bytes)", n_bytes);
            return quoted;
        }
        if (n_char > 0)
            memcpy(quoted.text + n_out, bytes + i, n_char);
        else
            snprintf(quoted.text + n_out, 5, "\\x%02x", (unsigned char)bytes[i]);
        n_out += n_need;
        i += n_char > 0 ? n_char : 1;
    }
    quoted.text[n_out] = '\0';
    return quoted;
}

struct wfs_quoted wfs_quote(const char *name)
{
    return wfs_quote_n(name, strlen(name));
}
