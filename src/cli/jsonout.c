/* SPDX-License-Identifier: MIT */
/*
 * Commas, brackets, line breaks and escapes of streamed JSON. Allocates nothing.
 */
#include "cli/jsonout.h"

#include "program/print.h"

#include <weightfs/json_out.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void put_text(FILE *file, const char *text, size_t n_bytes)
{
    putc('"', file);
    for (size_t i = 0; i < n_bytes;) {
        char spelling[JSON_SPELL_MAX];
        i += json_spell(text + i, n_bytes - i, JSON_ASCII, spelling);
        fputs(spelling, file);
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

void jsonout_finding(struct jsonout *out, const struct wfs_finding *finding)
{
    jsonout_open_object(out, NULL);
    jsonout_text(out, "severity", print_severity(finding->severity));
    jsonout_text(out, "text", finding->text);
    jsonout_close_object(out);
}
