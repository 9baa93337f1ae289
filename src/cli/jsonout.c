/* SPDX-License-Identifier: MIT */
/*
 * Commas, brackets, line breaks and escapes of streamed JSON. Nothing here takes memory.
 */
#include "cli/jsonout.h"

#include "program/print.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/*
 * Bytes of the UTF-8 character at the front, 0 when it is none. Half of a surrogate pair counts as
 * one: strings of Python may have it, and "\\ud800" gives it back there.
 */
static size_t decode(const uint8_t *bytes, size_t n_bytes, uint32_t *ret)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t c = bytes[0];
    const size_t n = c < 0x80 ? 1 : c < 0xc0 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf8 ? 4 : 0;
    if (n == 0 || n > n_bytes)
        return 0;
    *ret = n == 1 ? c : c & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        *ret = *ret << 6 | (bytes[i] & 0x3f);
    }
    return *ret >= least[n] && *ret <= 0x10ffff ? n : 0;
}

static void put_character(FILE *file, uint32_t c)
{
    if (c == '"' || c == '\\')
        fprintf(file, "\\%c", (int)c);
    else if (c >= 0x20 && c < 0x7f)
        putc((int)c, file);
    else if (c < 0x10000)
        fprintf(file, "\\u%04x", c);
    else
        fprintf(file, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
}

static void put_text(FILE *file, const char *text, size_t n_bytes)
{
    const uint32_t replacement = 0xfffd;
    const uint8_t *bytes = (const uint8_t *)text;
    putc('"', file);
    for (size_t i = 0; i < n_bytes;) {
        uint32_t c;
        const size_t n = decode(bytes + i, n_bytes - i, &c);
        put_character(file, n > 0 ? c : replacement);
        i += n > 0 ? n : 1;
    }
    putc('"', file);
}

static void break_line(const struct jsonout *out)
{
    if (out->depth <= 2)
        fprintf(out->file, "\n%*s", (int)(2 * out->depth), "");
}

static void begin_item(struct jsonout *out, const char *name)
{
    if (out->has_items)
        fputs(out->depth <= 2 ? "," : ", ", out->file);
    if (out->depth > 0)
        break_line(out);
    out->has_items = true;
    if (name == NULL)
        return;
    put_text(out->file, name, strlen(name));
    fputs(": ", out->file);
}

static void open_bracket(struct jsonout *out, const char *name, char bracket)
{
    begin_item(out, name);
    putc(bracket, out->file);
    out->depth++;
    out->has_items = false;
}

static void close_bracket(struct jsonout *out, char bracket)
{
    const bool has_items = out->has_items;
    const bool had_lines = out->depth <= 2;
    out->depth--;
    out->has_items = true;
    if (has_items && had_lines)
        break_line(out);
    putc(bracket, out->file);
    if (out->depth == 0)
        putc('\n', out->file);
}

void jsonout_open_object(struct jsonout *out, const char *name)
{
    open_bracket(out, name, '{');
}

void jsonout_close_object(struct jsonout *out)
{
    close_bracket(out, '}');
}

void jsonout_open_array(struct jsonout *out, const char *name)
{
    open_bracket(out, name, '[');
}

void jsonout_close_array(struct jsonout *out)
{
    close_bracket(out, ']');
}

void jsonout_raw(struct jsonout *out, const char *name, const char *json)
{
    begin_item(out, name);
    fputs(json, out->file);
}

void jsonout_text(struct jsonout *out, const char *name, const char *text)
{
    if (text == NULL) {
        jsonout_raw(out, name, "null");
        return;
    }
    jsonout_text_n(out, name, text, strlen(text));
}

void jsonout_text_n(struct jsonout *out, const char *name, const char *bytes, size_t n_bytes)
{
    begin_item(out, name);
    put_text(out->file, bytes, n_bytes);
}

void jsonout_u64(struct jsonout *out, const char *name, uint64_t number)
{
    begin_item(out, name);
    fprintf(out->file, "%" PRIu64, number);
}

void jsonout_shape(struct jsonout *out, const char *name, const struct wfs_shape *shape)
{
    begin_item(out, name);
    print_shape(out->file, shape);
}

void jsonout_double(struct jsonout *out, const char *name, double number)
{
    char text[32] = "null";
    if (isfinite(number))
        snprintf(text, sizeof(text), "%.17g", number);
    jsonout_raw(out, name, text);
}
