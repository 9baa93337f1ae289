/* SPDX-License-Identifier: MIT */
/*
 * Opcodes that push numbers, texts and bytes, and the ids of persistent objects in protocol 0.
 * Texts are copied; bytes stay in the file.
 */
#include <weightfs/cleanup.h>
#include <weightfs/percent.h>
#include "base/bytes.h"
#include "base/utf8.h"
#include "pickle/pickle_vm.h"
#include "value/value_leaf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Fails because an argument of n bytes is longer than what is left. */
static int fail_short(struct pickle *p, const char *what, uint64_t n)
{
    p->job->notes |= PICKLE_SHORT;
    return vm_fail(p, "%s of %s, but only %llu left", what, wfs_count(n, "byte").text,
                   (unsigned long long)stream_left(&p->input));
}

/* Creates the integer with these n bytes, two's complement, little-endian. Returns 0 without
 * memory. */
static uint32_t integer_of_twos(struct graph *graph, const uint8_t *bytes, size_t n)
{
    /* Only in the shortest form have equal integers equal bytes. */
    while (n > 1 && ((bytes[n - 1] == 0 && bytes[n - 2] < 0x80) ||
                     (bytes[n - 1] == 0xff && bytes[n - 2] >= 0x80)))
        n--;
    if (n <= 8) {
        uint8_t wide[8];
        memset(wide, n > 0 && bytes[n - 1] >= 0x80 ? 0xff : 0, sizeof(wide));
        memcpy(wide, bytes, n);
        return value_new_integer(graph, (int64_t)load_le64(wide));
    }
    const char *copy = arena_copy(graph->arena, (const char *)bytes, n);
    const uint32_t id = copy == NULL ? 0 : value_new(graph, VALUE_BIG);
    if (id != 0) {
        graph_at(graph, id)->text = copy;
        graph_at(graph, id)->n = (uint32_t)n;
    }
    return id;
}

/* Computes limbs * 10^n_digits + the digits, of which there are at most nine. */
static void add_digits(uint32_t *limbs, size_t *n_limbs, const char *digits, size_t n_digits)
{
    uint64_t factor = 1, carry = 0;
    for (size_t i = 0; i < n_digits; i++) {
        factor *= 10;
        carry = carry * 10 + (uint64_t)(digits[i] - '0');
    }
    for (size_t i = 0; i < *n_limbs; i++) {
        const uint64_t product = limbs[i] * factor + carry;
        limbs[i] = (uint32_t)product;
        carry = product >> 32;
    }
    if (carry != 0)
        limbs[(*n_limbs)++] = (uint32_t)carry;
}

static uint32_t integer_of_digits(struct graph *graph, bool is_negative, const char *digits,
                                  size_t n)
{
    /* Nine digits take less than 30 bits. */
    autofree uint32_t *limbs = calloc(n / 9 + 3, sizeof(*limbs));
    if (limbs == NULL)
        return 0;
    size_t n_limbs = 0;
    for (size_t i = 0; i < n; i += 9)
        add_digits(limbs, &n_limbs, digits + i, n - i < 9 ? n - i : 9);
    uint64_t carry = is_negative;
    for (size_t i = 0; i <= n_limbs; i++) {
        if (is_negative) {
            carry += ~limbs[i];
            limbs[i] = (uint32_t)carry;
            carry >>= 32;
        }
        store_le32(&limbs[i], limbs[i]);
    }
    return integer_of_twos(graph, (const uint8_t *)limbs, (n_limbs + 1) * sizeof(*limbs));
}

/* Creates the integer that a decimal text shows, with or without a sign. -EINVAL when it shows
 * none, -E2BIG above the limit, -ENOMEM. */
static int integer_parse(struct graph *graph, const struct limits *limits, const char *text,
                         size_t n, uint32_t *ret)
{
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\r'))
        n--;
    while (n > 0 && *text == ' ') {
        text++;
        n--;
    }
    const bool is_signed = n > 0 && (*text == '-' || *text == '+');
    const bool is_negative = is_signed && *text == '-';
    const char *digits = text + is_signed;
    n -= is_signed;
    if (n == 0)
        return -EINVAL;
    for (size_t i = 0; i < n; i++)
        if (digits[i] < '0' || digits[i] > '9')
            return -EINVAL;
    if (n > 4 * limits->integer)
        return -E2BIG;
    *ret = integer_of_digits(graph, is_negative, digits, n);
    return *ret == 0 ? -ENOMEM : 0;
}

static int push_integer_text(struct pickle *p, const char *text, size_t n)
{
    uint32_t id;
    switch (integer_parse(p->graph, p->job->limits, text, n, &id)) {
    case 0:
        return vm_push(p, id);
    case -EINVAL:
        return vm_fail(p, "%s is not an integer", wfs_quote_n(text, n).text);
    case -E2BIG:
        return wfs_fail(p->err, E2BIG,
                        "pickle, byte %llu: an integer of %s is above the limit (limit integer)",
                        (unsigned long long)p->opcode_offset, wfs_count(n, "digit").text);
    default:
        return wfs_fail_memory(p->err);
    }
}

int op_int_line(struct pickle *p)
{
    const char *line = p->line;
    if (p->n_line == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
        return vm_push(p, p->truth[line[1] - '0']);
    return push_integer_text(p, line, p->n_line);
}

int op_long_line(struct pickle *p)
{
    const size_t n = p->n_line;
    return push_integer_text(p, p->line, n > 0 && p->line[n - 1] == 'L' ? n - 1 : n);
}

static int push_float(struct pickle *p, double real)
{
    const uint32_t id = value_new(p->graph, VALUE_FLOAT);
    if (id != 0)
        graph_at(p->graph, id)->real = real;
    return vm_push(p, id);
}

int op_float_line(struct pickle *p)
{
    const char *line = p->line;
    const size_t n = p->n_line;
    char text[512], *end;
    if (n == 0 || n >= sizeof(text) || memchr(line, '\0', n) != NULL || memchr(line, 'x', n) ||
        memchr(line, 'X', n) != NULL || memchr(line, '(', n) != NULL)
        return vm_fail(p, "%s is not a number", wfs_quote_n(line, n).text);
    memcpy(text, line, n);
    text[n] = '\0';
    const double real = strtod(text, &end);
    while (*end == ' ' || *end == '\r')
        end++;
    return *end != '\0' || end == text ? vm_fail(p, "%s is not a number", wfs_quote(text).text)
                                       : push_float(p, real);
}

int op_float(struct pickle *p)
{
    const uint64_t bits = __builtin_bswap64(p->number);
    double real;
    memcpy(&real, &bits, sizeof(real));
    return push_float(p, real);
}

/* BININT, BININT1, BININT2. */
int op_fixed_int(struct pickle *p)
{
    const int64_t integer = p->opcode == 'J' ? (int32_t)p->number : (int64_t)p->number;
    if (integer < 0 || integer >= N_SMALL)
        return vm_push(p, value_new_integer(p->graph, integer));
    uint32_t *known = &p->small[integer];
    if (*known == 0) {
        *known = value_new_integer(p->graph, integer);
        room_hold(&p->room, *known);
    }
    return vm_push(p, *known);
}

int op_long(struct pickle *p)
{
    const uint8_t *bytes;
    const uint64_t n = p->number;
    if (n > INT32_MAX)
        return vm_fail(p, "an integer of negative length");
    if (n > stream_left(&p->input))
        return fail_short(p, "an integer", n);
    if (n > p->job->limits->integer || n > STREAM_WINDOW)
        return wfs_fail(
            p->err, E2BIG,
            "pickle, byte %llu: an integer of %d bytes is above the limit (limit integer)",
            (unsigned long long)p->opcode_offset, (int)n);
    const int code = stream_take(&p->input, (size_t)n, &bytes);
    return code < 0 ? vm_fail_input(p, code)
                    : vm_push(p, integer_of_twos(p->graph, bytes, (size_t)n));
}

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

/* Decodes the inside of a quoted byte string into buf (n bytes of room). Returns the number of
 * bytes; -1 when an escape is malformed. */
static ssize_t escape_undo(const char *text, size_t n, char *buf)
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

/* Decodes the text of the opcode UNICODE into UTF-8 (2 n bytes of room): \uXXXX and \UXXXXXXXX
 * are characters, every other byte is a character of Latin-1. Returns as escape_undo. */
static ssize_t escape_undo_unicode(const char *text, size_t n, char *buf)
{
    size_t n_buf = 0;
    for (size_t i = 0; i < n;) {
        const bool is_escape = text[i] == '\\' && i + 1 < n;
        if (is_escape && (text[i + 1] == 'u' || text[i + 1] == 'U')) {
            const size_t n_digits = text[i + 1] == 'u' ? 4 : 8;
            uint32_t c;
            if (n - i - 2 < n_digits || !hex_decode(text + i + 2, n_digits, &c) || c > 0x10ffff)
                return -1;
            n_buf += utf8_put(c, buf + n_buf);
            i += 2 + n_digits;
            continue;
        }
        n_buf += utf8_put((uint8_t)text[i++], buf + n_buf);
        if (is_escape)
            n_buf += utf8_put((uint8_t)text[i++], buf + n_buf);
    }
    return (ssize_t)n_buf;
}

static int push_text(struct pickle *p, char *text, size_t n, enum value_form form)
{
    const uint32_t id = value_new(p->graph, VALUE_TEXT);
    if (id == 0)
        return wfs_fail_memory(p->err);
    text[n] = '\0';
    struct value *value = graph_at(p->graph, id);
    value->text = text;
    value->n = (uint32_t)n;
    value->form = (uint8_t)form;
    if (form == FORM_PLAIN && !value_is_unicode(value))
        p->job->notes |= PICKLE_BAD_TEXT;
    if (value_is_latin1(value))
        p->job->notes |= PICKLE_LATIN1;
    return vm_push(p, id);
}

/* Reads a text of n bytes from the input. */
static int read_text(struct pickle *p, uint64_t n, enum value_form form)
{
    if (n > stream_left(&p->input))
        return fail_short(p, "a string", n);
    if (n > p->job->limits->text || n >= UINT32_MAX)
        return wfs_fail(p->err, E2BIG,
                        "pickle, byte %llu: a string of %s is above the limit (limit text)",
                        (unsigned long long)p->opcode_offset, wfs_count(n, "byte").text);
    char *text = arena_chars(p->graph->arena, (size_t)n + 1);
    if (text == NULL)
        return wfs_fail_memory(p->err);
    const int code = stream_read(&p->input, text, (size_t)n);
    return code < 0 ? vm_fail_input(p, code) : push_text(p, text, (size_t)n, form);
}

/* BINSTRING and SHORT_BINSTRING of Python 2. */
int op_string(struct pickle *p)
{
    return p->number > INT32_MAX ? vm_fail(p, "a string of negative length")
                                 : read_text(p, p->number, FORM_BYTE_TEXT);
}

/* BINUNICODE, SHORT_BINUNICODE, BINUNICODE8. */
int op_text(struct pickle *p)
{
    return read_text(p, p->number, FORM_PLAIN);
}

/* BINBYTES, SHORT_BINBYTES, BINBYTES8, BYTEARRAY8. */
int op_bytes(struct pickle *p)
{
    const uint64_t offset = stream_offset(&p->input);
    if (stream_skip(&p->input, p->number) < 0)
        return fail_short(p, "an object", p->number);
    const uint32_t id = value_new_bytes(p->graph, p->job->source, offset, p->number);
    if (id != 0 && p->opcode == 0x96)
        graph_at(p->graph, id)->form = FORM_BYTEARRAY;
    return vm_push(p, id);
}

int op_unicode_line(struct pickle *p)
{
    char *text = arena_chars(p->graph->arena, 2 * p->n_line + 1);
    if (text == NULL)
        return wfs_fail_memory(p->err);
    const ssize_t n_text = escape_undo_unicode(p->line, p->n_line, text);
    return n_text < 0 ? vm_fail(p, "a malformed \\u escape")
                      : push_text(p, text, (size_t)n_text, FORM_PLAIN);
}

int op_string_line(struct pickle *p)
{
    const char *line = p->line;
    size_t n = p->n_line;
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

/* ---- persistent ids of protocol 0 ---- */

enum { MAX_DEPTH = 4, MAX_ITEMS = 16 };

struct repr {
    struct graph *graph;
    const struct limits *limits;
    const char *at, *end;
};

static bool skip_text(struct repr *r, const char *text)
{
    const size_t n = strlen(text);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* Returns the end of a quoted string that starts here, or NULL. */
static const char *end_of_string(const struct repr *r)
{
    for (const char *at = r->at + 1; at < r->end; at++) {
        if (*at == *r->at)
            return at + 1;
        at += *at == '\\';
    }
    return NULL;
}

static int parse_string(struct repr *r, uint32_t *ret)
{
    const char *end = end_of_string(r);
    if (end == NULL)
        return 0;
    const size_t n = (size_t)(end - r->at) - 2;
    autofree char *text = malloc(n + 1);
    if (text == NULL)
        return -ENOMEM;
    const ssize_t n_text = escape_undo(r->at + 1, n, text);
    if (n_text < 0)
        return 0;
    r->at = end;
    *ret = value_new_text(r->graph, text, (size_t)n_text);
    return *ret == 0 ? -ENOMEM : 0;
}

/* <class 'module.Name'> */
static int parse_class(struct repr *r, uint32_t *ret)
{
    const char *end = memchr(r->at, '\'', (size_t)(r->end - r->at));
    const char *dot = end == NULL ? NULL : memrchr(r->at, '.', (size_t)(end - r->at));
    if (end == NULL)
        return 0;
    const char *name = dot == NULL ? r->at : dot + 1;
    *ret = value_new_global(r->graph, dot == NULL ? "builtins" : r->at,
                            dot == NULL ? 8 : (size_t)(dot - r->at), name, (size_t)(end - name));
    r->at = end + 1;
    if (*ret == 0)
        return -ENOMEM;
    if (!skip_text(r, ">"))
        *ret = 0;
    return 0;
}

static int parse_number(struct repr *r, uint32_t *ret)
{
    const char *start = r->at;
    while (r->at < r->end && (*r->at == '-' || (*r->at >= '0' && *r->at <= '9')))
        r->at++;
    const int code = integer_parse(r->graph, r->limits, start, (size_t)(r->at - start), ret);
    return code == -ENOMEM ? code : 0;
}

static int parse_tuple(struct repr *r, unsigned depth, uint32_t *ret);

/* Leaves *ret at 0 when the text is not an item of a tuple. */
static int parse_item(struct repr *r, unsigned depth, uint32_t *ret)
{
    if (r->at == r->end)
        return 0;
    if (skip_text(r, "None")) {
        *ret = value_new(r->graph, VALUE_NONE);
        return *ret == 0 ? -ENOMEM : 0;
    }
    if (skip_text(r, "<class '"))
        return parse_class(r, ret);
    if (*r->at == '\'' || *r->at == '"')
        return parse_string(r, ret);
    if (*r->at == '(')
        return depth < MAX_DEPTH ? parse_tuple(r, depth + 1, ret) : 0;
    return parse_number(r, ret);
}

static int parse_tuple(struct repr *r, unsigned depth, uint32_t *ret)
{
    uint32_t items[MAX_ITEMS], n = 0;
    r->at++;
    while (!skip_text(r, ")")) {
        uint32_t item = 0;
        const int code = n < MAX_ITEMS ? parse_item(r, depth, &item) : 0;
        if (code < 0 || item == 0)
            return code;
        items[n++] = item;
        if (!skip_text(r, ", ") && !skip_text(r, ",") && (r->at == r->end || *r->at != ')'))
            return 0;
    }
    *ret = value_new_items(r->graph, VALUE_TUPLE, items, n);
    return *ret == 0 ? -ENOMEM : 0;
}

/*
 * The id is written as Python prints a tuple: ('storage', <class 'torch.FloatStorage'>, '0', 'cpu',
 * 4). PyTorch cannot read it back. Any other text stays a text.
 */
int op_persid(struct pickle *p)
{
    struct repr r = {p->graph, p->job->limits, p->line, p->line + p->n_line};
    uint32_t inner = 0;
    p->job->notes |= PICKLE_TEXT_ID;
    if (r.at < r.end && *r.at == '(' && parse_tuple(&r, 0, &inner) < 0)
        return wfs_fail_memory(p->err);
    if (inner == 0 || r.at != r.end)
        inner = value_new_text(p->graph, p->line, p->n_line);
    const uint32_t id = inner == 0 ? 0 : value_new(p->graph, VALUE_PERSISTENT);
    if (id != 0) {
        graph_at(p->graph, id)->form = FORM_PERSISTENT_TEXT;
        graph_at(p->graph, id)->id = inner;
    }
    return vm_push(p, id);
}
