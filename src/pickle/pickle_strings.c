/* SPDX-License-Identifier: MIT */
/*
 * Texts are copied; bytes stay in the file.
 */
#include "pickle/pickle_strings.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "pickle/pickle_escape.h"
#include "pickle/pickle_persid.h"

/* Returns whether this is UTF-8. Lone surrogates are allowed, as Python writes them. */
static bool is_python_utf8(const uint8_t *bytes, size_t n)
{
    for (;;) {
        const size_t n_good = utf8_valid(bytes, n);
        if (n_good == n)
            return true;
        bytes += n_good;
        n -= n_good;
        if (n < 3 || bytes[0] != 0xed || bytes[1] < 0xa0 || bytes[1] > 0xbf || bytes[2] < 0x80 ||
            bytes[2] > 0xbf)
            return false;
        bytes += 3;
        n -= 3;
    }
}

static int check_text(struct pickle *p, uint64_t n)
{
    if (n > stream_left(&p->input))
        return vm_fail_short(p, "a string", n);
    if (n > p->job->limits->text || n >= UINT32_MAX)
        return wfs_fail(p->err, E2BIG,
                        "pickle, byte %llu: a string of %s is above the limit (text)",
                        (unsigned long long)p->opcode_offset, wfs_count(n, "byte").text);
    return 0;
}

static int push_text(struct pickle *p, char *text, size_t n, enum value_form form)
{
    const uint32_t id = text == NULL ? 0 : value_new(p->graph, VALUE_TEXT);
    if (id == 0)
        return wfs_fail_memory(p->err);
    text[n] = '\0';
    struct value *value = graph_at(p->graph, id);
    value->text = text;
    value->n = (uint32_t)n;
    value->form = (uint8_t)form;
    if (form == FORM_PLAIN && !is_python_utf8((const uint8_t *)text, n))
        p->job->notes |= PICKLE_BAD_TEXT;
    if (form == FORM_BYTE_TEXT && utf8_valid(text, n) != n)
        p->job->notes |= PICKLE_LATIN1;
    return vm_push(p, id);
}

/* Reads a text of n bytes from the input. */
static int read_text(struct pickle *p, uint64_t n, enum value_form form)
{
    int code = check_text(p, n);
    if (code < 0)
        return code;
    char *text = arena_chars(p->graph->arena, (size_t)n + 1);
    if (text == NULL)
        return wfs_fail_memory(p->err);
    if ((code = stream_read(&p->input, text, (size_t)n)) < 0)
        return vm_fail_input(p, code);
    return push_text(p, text, (size_t)n, form);
}

/* BINSTRING and SHORT_BINSTRING of Python 2. */
int op_string(struct pickle *p)
{
    const uint8_t *bytes;
    const int code = vm_take(p, p->opcode == 'U' ? 1 : 4, &bytes);
    if (code < 0)
        return code;
    const int32_t n = p->opcode == 'U' ? *bytes : (int32_t)load_le32(bytes);
    if (n < 0)
        return vm_fail(p, "a string of negative length");
    return read_text(p, (uint64_t)n, FORM_BYTE_TEXT);
}

static int take_length(struct pickle *p, size_t n_width, uint64_t *ret)
{
    const uint8_t *bytes;
    const int code = vm_take(p, n_width, &bytes);
    if (code == 0)
        *ret = n_width == 1 ? *bytes : n_width == 4 ? load_le32(bytes) : load_le64(bytes);
    return code;
}

/* BINUNICODE, SHORT_BINUNICODE, BINUNICODE8. */
int op_text(struct pickle *p)
{
    uint64_t n;
    const int code = take_length(p, p->opcode == 'X' ? 4 : p->opcode == 0x8c ? 1 : 8, &n);
    return code < 0 ? code : read_text(p, n, FORM_PLAIN);
}

/* BINBYTES, SHORT_BINBYTES, BINBYTES8, BYTEARRAY8. */
int op_bytes(struct pickle *p)
{
    uint64_t n;
    int code = take_length(p, p->opcode == 'B' ? 4 : p->opcode == 'C' ? 1 : 8, &n);
    if (code < 0)
        return code;
    const uint64_t offset = stream_offset(&p->input);
    if (stream_skip(&p->input, n) < 0)
        return vm_fail_short(p, "an object", n);
    const uint32_t id = value_new_bytes(p->graph, p->job->source, offset, n);
    if (id != 0 && p->opcode == 0x96)
        graph_at(p->graph, id)->form = FORM_BYTEARRAY;
    return vm_push(p, id);
}

int op_unicode_line(struct pickle *p)
{
    const char *line;
    size_t n;
    const int code = vm_line(p, &line, &n);
    if (code < 0)
        return code;
    char *text = arena_chars(p->graph->arena, 2 * n + 1);
    if (text == NULL)
        return wfs_fail_memory(p->err);
    const ssize_t n_text = escape_undo_unicode(line, n, text);
    return n_text < 0 ? vm_fail(p, "a malformed \\u escape")
                      : push_text(p, text, (size_t)n_text, FORM_PLAIN);
}

int op_string_line(struct pickle *p)
{
    const char *line;
    size_t n;
    const int code = vm_line(p, &line, &n);
    if (code < 0)
        return code;
    while (n > 0 && (line[n - 1] == ' ' || line[n - 1] == '\r'))
        n--;
    if (n < 2 || (line[0] != '\'' && line[0] != '"') || line[n - 1] != line[0])
        return vm_fail(p, "a string without quotes");
    char *text = arena_chars(p->graph->arena, n);
    if (text == NULL)
        return wfs_fail_memory(p->err);
    const ssize_t n_text = escape_undo(line + 1, n - 2, text);
    return n_text < 0 ? vm_fail(p, "a malformed escape in a string")
                      : push_text(p, text, (size_t)n_text, FORM_BYTE_TEXT);
}

int op_persid(struct pickle *p)
{
    const char *line;
    size_t n;
    uint32_t inner;
    const int code = vm_line(p, &line, &n);
    if (code < 0)
        return code;
    p->job->notes |= PICKLE_TEXT_ID;
    if (persid_parse(p->graph, p->job->limits, line, n, &inner) < 0 ||
        (inner == 0 && (inner = value_new_text(p->graph, line, n)) == 0))
        return wfs_fail_memory(p->err);
    const uint32_t id = value_new(p->graph, VALUE_PERSISTENT);
    if (id != 0) {
        graph_at(p->graph, id)->form = FORM_PERSISTENT_TEXT;
        graph_at(p->graph, id)->id = inner;
    }
    return vm_push(p, id);
}
