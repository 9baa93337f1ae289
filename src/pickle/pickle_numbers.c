/* SPDX-License-Identifier: MIT */
/*
 * Numbers of a fixed width, and numbers as text.
 */
#include "pickle/pickle_numbers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "pickle/pickle_integer.h"

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
                        "pickle, byte %llu: an integer of %s is above the limit (integer)",
                        (unsigned long long)p->opcode_offset, wfs_count(n, "digit").text);
    default:
        return wfs_fail_memory(p->err);
    }
}

int op_int_line(struct pickle *p)
{
    const char *line;
    size_t n;
    const int code = vm_line(p, &line, &n);
    if (code < 0)
        return code;
    if (n == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
        return vm_push(p, p->truth[line[1] - '0']);
    return push_integer_text(p, line, n);
}

int op_long_line(struct pickle *p)
{
    const char *line;
    size_t n;
    const int code = vm_line(p, &line, &n);
    if (code < 0)
        return code;
    return push_integer_text(p, line, n > 0 && line[n - 1] == 'L' ? n - 1 : n);
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
    const char *line;
    size_t n;
    char text[512], *end;
    const int code = vm_line(p, &line, &n);
    if (code < 0)
        return code;
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
    const uint8_t *bytes;
    const int code = vm_take(p, 8, &bytes);
    if (code < 0)
        return code;
    const uint64_t bits = __builtin_bswap64(load_le64(bytes));
    double real;
    memcpy(&real, &bits, sizeof(real));
    return push_float(p, real);
}

/* BININT, BININT1, BININT2. */
int op_fixed_int(struct pickle *p)
{
    const uint8_t *bytes;
    const int code = vm_take(p, p->opcode == 'J' ? 4 : p->opcode == 'M' ? 2 : 1, &bytes);
    if (code < 0)
        return code;
    const int64_t integer = p->opcode == 'J'   ? (int32_t)load_le32(bytes)
                            : p->opcode == 'M' ? load_le16(bytes)
                                               : *bytes;
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
    int code = vm_take(p, p->opcode == 0x8a ? 1 : 4, &bytes);
    if (code < 0)
        return code;
    const int32_t n = p->opcode == 0x8a ? *bytes : (int32_t)load_le32(bytes);
    if (n < 0)
        return vm_fail(p, "an integer of negative length");
    if ((uint64_t)n > stream_left(&p->input))
        return vm_fail_short(p, "an integer", (uint64_t)n);
    if ((uint64_t)n > p->job->limits->integer || n > STREAM_WINDOW)
        return wfs_fail(p->err, E2BIG,
                        "pickle, byte %llu: an integer of %d bytes is above the limit (integer)",
                        (unsigned long long)p->opcode_offset, n);
    if ((code = vm_take(p, (size_t)n, &bytes)) < 0)
        return code;
    return vm_push(p, integer_of_twos(p->graph, bytes, (size_t)n));
}
