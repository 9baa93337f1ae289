/* SPDX-License-Identifier: MIT */
/*
 * The error record and names made fit for messages.
 */
#include <weightfs/error.h>

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

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

/* C1 controls, line and paragraph separators, marks and controls of direction, and the BOM. */
static bool is_control(uint32_t c)
{
    return (c >= 0x80 && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

static bool is_fit(enum wfs_escape how, uint32_t c)
{
    if (c >= 0x80)
        return !is_control(c);
    if (how == WFS_ESCAPE_JSON && (c == '\n' || c == '\t'))
        return true;
    if (how == WFS_ESCAPE_NAME && (c == '\'' || c == '\\'))
        return false;
    return c >= 0x20 && c != 0x7f;
}

size_t wfs_escape(enum wfs_escape how, const char *bytes, size_t n_bytes, char ret[WFS_ESCAPE_MAX])
{
    uint32_t c = 0xfffd;
    const size_t n = utf8_decode(bytes, n_bytes, &c);
    if (n > 0 && is_fit(how, c)) {
        memcpy(ret, bytes, n);
        ret[n] = '\0';
        return n;
    }
    if (how == WFS_ESCAPE_JSON) {
        snprintf(ret, WFS_ESCAPE_MAX, "\\u%04x", (unsigned)(c & 0xffff));
        return n > 0 ? n : 1;
    }
    snprintf(ret, WFS_ESCAPE_MAX, "\\x%02x", (unsigned char)bytes[0]);
    return 1;
}

struct wfs_quoted wfs_quote_n(const char *bytes, size_t n_bytes)
{
    enum { N_TAIL = 40 }; /* room for the note about a cut */
    struct wfs_quoted quoted;
    size_t n_out = 0;
    for (size_t i = 0; i < n_bytes;) {
        char escaped[WFS_ESCAPE_MAX];
        i += wfs_escape(WFS_ESCAPE_NAME, bytes + i, n_bytes - i, escaped);
        const size_t n = strlen(escaped);
        if (n_out + n > sizeof(quoted.text) - N_TAIL) {
            snprintf(quoted.text + n_out, sizeof(quoted.text) - n_out, "... (%zu bytes)", n_bytes);
            return quoted;
        }
        memcpy(quoted.text + n_out, escaped, n);
        n_out += n;
    }
    quoted.text[n_out] = '\0';
    return quoted;
}

struct wfs_quoted wfs_quote(const char *name)
{
    return wfs_quote_n(name, strlen(name));
}

struct wfs_prose wfs_prose(const char *message)
{
    struct wfs_prose prose = {""};
    const size_t n_bytes = strlen(message);
    size_t n_out = 0;
    for (size_t i = 0; i < n_bytes && n_out + WFS_ESCAPE_MAX <= sizeof(prose.text);) {
        i += wfs_escape(WFS_ESCAPE_TEXT, message + i, n_bytes - i, prose.text + n_out);
        n_out += strlen(prose.text + n_out);
    }
    return prose;
}
