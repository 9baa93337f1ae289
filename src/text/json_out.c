/* SPDX-License-Identifier: MIT */
/*
 * The writer of JSON: spelling and layout.
 */
#include <weightfs/json_out.h>

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/utf8.h"

static void put(const struct json_out *out, const char *bytes, size_t n_bytes)
{
    if (out->file != NULL)
        fwrite(bytes, 1, n_bytes, out->file);
    else
        strbuf_add(out->text, bytes, n_bytes);
}

static void puts_to(const struct json_out *out, const char *text)
{
    put(out, text, strlen(text));
}

/* ---- strings ---- */

enum { N_SPELLING = 16 };

/* Spells the character at the front, followed by a NUL. Returns how many bytes were taken. n_bytes
 * is not 0. */
static size_t spell(const char *bytes, size_t n_bytes, enum json_spelling spelling,
                    char ret[N_SPELLING])
{
    static const char letters[] = "\"\\\b\f\n\r\t", escapes[] = "\"\\bfnrt";
    const bool is_ascii = spelling == JSON_ASCII, shows_bytes = spelling == JSON_BYTES;
    uint32_t c = 0xfffd;
    const size_t n = utf8_decode_surrogate(bytes, n_bytes, &c);
    const bool is_half = c >= 0xd800 && c < 0xe000;
    const char *letter = c < 0x80 ? memchr(letters, (int)c, shows_bytes ? 2 : 7) : NULL;
    if (shows_bytes && (n == 0 || is_half)) {
        snprintf(ret, N_SPELLING, "\\\\x%02X", (uint8_t)*bytes);
        return 1;
    }
    if (letter != NULL)
        snprintf(ret, N_SPELLING, "\\%c", escapes[letter - letters]);
    else if (c >= 0x10000 && is_ascii)
        snprintf(ret, N_SPELLING, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
    else if (c < 0x20 || is_half || (c >= 0x7f && is_ascii) || (c == 0x7f && shows_bytes))
        snprintf(ret, N_SPELLING, "\\u%04x", c);
    else
        ret[utf8_put(c, ret)] = '\0';
    return n > 0 ? n : 1;
}

/* Returns the number of leading bytes that are ASCII and need no escape. */
static size_t plain(const char *bytes, size_t n_bytes)
{
    size_t n = 0;
    while (n < n_bytes && bytes[n] >= 0x20 && bytes[n] <= 0x7e && bytes[n] != '"' &&
           bytes[n] != '\\')
        n++;
    return n;
}

static void put_string(const struct json_out *out, const char *bytes, size_t n_bytes)
{
    put(out, "\"", 1);
    for (size_t i = 0; i < n_bytes;) {
        const size_t n = plain(bytes + i, n_bytes - i);
        char spelling[N_SPELLING];
        put(out, bytes + i, n);
        i += n;
        if (i == n_bytes)
            break;
        i += spell(bytes + i, n_bytes - i, out->spelling, spelling);
        puts_to(out, spelling);
    }
    put(out, "\"", 1);
}

/* ---- layout ---- */

enum { IS_OBJECT = 1 << 7 };

static enum json_layout layout_of(const struct json_out *out)
{
    return out->depth == 0 ? JSON_ROW
                           : (enum json_layout)(out->levels[out->depth - 1] & ~IS_OBJECT);
}

static bool has_lines(enum json_layout layout)
{
    return layout == JSON_LINES || layout == JSON_HANGING;
}

static void break_line(const struct json_out *out)
{
    const unsigned n = 2 * out->n_lines, n_max = out->n_indent_max;
    put(out, "\n", 1);
    for (unsigned i = 0; i < n && (n_max == 0 || i < n_max); i += 2)
        put(out, "  ", 2);
}

/* What stands between the item before and this one. */
static void begin(struct json_out *out)
{
    const enum json_layout layout = layout_of(out);
    const bool has_items = out->has_items;
    out->has_items = true;
    if (out->has_name) {
        out->has_name = false;
        return;
    }
    if (has_items)
        puts_to(out, layout == JSON_ROW ? ", " : ",");
    if (has_lines(layout))
        break_line(out);
}

void json_out_name(struct json_out *out, const char *bytes, size_t n_bytes)
{
    begin(out);
    put_string(out, bytes, n_bytes);
    puts_to(out, layout_of(out) == JSON_TIGHT ? ":" : ": ");
    out->has_name = true;
}

static void begin_value(struct json_out *out, const char *name)
{
    if (name != NULL)
        json_out_name(out, name, strlen(name));
    begin(out);
}

void json_out_open(struct json_out *out, const char *name, char bracket, enum json_layout layout)
{
    begin_value(out, name);
    put(out, &bracket, 1);
    assert(out->depth < JSON_OUT_DEPTH_MAX);
    if (out->is_tight)
        layout = JSON_TIGHT;
    else if (layout == JSON_AUTO)
        layout = out->depth < 2 ? JSON_LINES : JSON_ROW;
    out->levels[out->depth++] = (uint8_t)(layout | (bracket == '{' ? IS_OBJECT : 0));
    out->n_lines += has_lines(layout);
    out->has_items = false;
}

void json_out_open_object(struct json_out *out, const char *name)
{
    json_out_open(out, name, '{', JSON_AUTO);
}

void json_out_open_array(struct json_out *out, const char *name)
{
    json_out_open(out, name, '[', JSON_AUTO);
}

void json_out_close(struct json_out *out)
{
    const enum json_layout layout = layout_of(out);
    const bool is_object = (out->levels[--out->depth] & IS_OBJECT) != 0;
    out->n_lines -= has_lines(layout);
    if (out->has_items && layout == JSON_LINES)
        break_line(out);
    put(out, is_object ? "}" : "]", 1);
    if (out->depth == 0 && !out->is_part)
        put(out, "\n", 1);
    out->has_items = true;
}

/* ---- values ---- */

void json_out_raw(struct json_out *out, const char *name, const char *json)
{
    begin_value(out, name);
    puts_to(out, json);
}

void json_out_text_n(struct json_out *out, const char *name, const char *bytes, size_t n_bytes)
{
    begin_value(out, name);
    put_string(out, bytes, n_bytes);
}

void json_out_text(struct json_out *out, const char *name, const char *text)
{
    if (text == NULL)
        json_out_raw(out, name, "null");
    else
        json_out_text_n(out, name, text, strlen(text));
}

void json_out_u64(struct json_out *out, const char *name, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, number);
    json_out_raw(out, name, text);
}

void json_out_i64(struct json_out *out, const char *name, int64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, number);
    json_out_raw(out, name, text);
}

void json_out_u64s(struct json_out *out, const char *name, const uint64_t *numbers, size_t n)
{
    json_out_open(out, name, '[', JSON_ROW);
    for (size_t i = 0; i < n; i++)
        json_out_u64(out, NULL, numbers[i]);
    json_out_close(out);
}

void json_out_double(struct json_out *out, const char *name, double number)
{
    char text[40] = "null";
    if (isfinite(number))
        snprintf(text, sizeof(text), "%.17g", number);
    char *comma = strchr(text, ','); /* a locale's */
    if (comma != NULL)
        *comma = '.';
    json_out_raw(out, name, text);
}

void json_out_bool(struct json_out *out, const char *name, bool is_true)
{
    json_out_raw(out, name, is_true ? "true" : "false");
}
