/* SPDX-License-Identifier: MIT */
/*
 * Commas, brackets and line breaks of streamed JSON. How a string is escaped is left to jansson.
 */
#include "cli/jsonout.h"

#include "cli/auto.h"
#include "cli/print.h"

#include <jansson.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static void put_utf8(FILE *file, const char *text, size_t n_bytes)
{
    json_t *string = json_stringn(text, n_bytes);
    if (string == NULL || json_dumpf(string, file, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) != 0)
        fputs("null", file); /* out of memory; a failed write shows in ferror too */
    json_decref(string);
}

static bool is_utf8(const char *bytes, size_t n_bytes)
{
    json_t *string = json_stringn(bytes, n_bytes);
    json_decref(string);
    return string != NULL;
}

/* Bytes of the UTF-8 character at the front, 0 when it is none. */
static size_t character_at(const char *bytes, size_t n_bytes)
{
    for (size_t n = 1; n <= n_bytes && n <= 4; n++) {
        if (is_utf8(bytes, n))
            return n;
    }
    return 0;
}

static void put_damaged(FILE *file, const char *bytes, size_t n_bytes)
{
    static const char replacement[] = "\xef\xbf\xbd";
    autofree char *mended = malloc(3 * n_bytes + 1);
    char *end = mended;
    for (size_t i = 0; mended != NULL && i < n_bytes;) {
        const size_t n = character_at(bytes + i, n_bytes - i);
        end = mempcpy(end, n > 0 ? bytes + i : replacement, n > 0 ? n : 3);
        i += n > 0 ? n : 1;
    }
    put_utf8(file, mended, (size_t)(end - mended));
}

static void put_text(FILE *file, const char *bytes, size_t n_bytes)
{
    if (is_utf8(bytes, n_bytes))
        put_utf8(file, bytes, n_bytes);
    else
        put_damaged(file, bytes, n_bytes);
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
