/* SPDX-License-Identifier: MIT */
/*
 * Opcodes of the pickle reader that push numbers.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "pickle/pickle_vm.h"

uint32_t value_of_twos(struct graph *graph, const uint8_t *bytes, size_t n)
{
    /* The shortest form, so that equal integers are equal bytes. */
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

/* limbs * 10^n_digits + the digits, which fit one step. */
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

static uint32_t value_of_digits(struct graph *graph, bool is_negative, const char *digits, size_t n)
{
    /* 9 digits are less than 30 bits. */
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
    return value_of_twos(graph, (const uint8_t *)limbs, (n_limbs + 1) * sizeof(*limbs));
}

int parse_integer(struct graph *graph, const struct limits *limits, const char *text, size_t n,
                  uint32_t *ret)
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
    *ret = value_of_digits(graph, is_negative, digits, n);
    return *ret == 0 ? -ENOMEM : 0;
}

static int push_integer_text(struct pickle *p, const char *text, size_t n)
{
    uint32_t id;
    switch (parse_integer(p->graph, p->job->limits, text, n, &id)) {
    case 0:
        return vm_push(p, id);
    case -EINVAL:
        return vm_fail(p, "%s is not an integer", wfs_quote_n(text, n).text);
    case -E2BIG:
        return wfs_fail(p->err, E2BIG,
                        "pickle, byte %llu: an integer of %zu digits is above the limit (integer)",
                        (unsigned long long)p->opcode_offset, n);
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
    if (*known == 0)
        *known = value_new_integer(p->graph, integer);
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
    return vm_push(p, value_of_twos(p->graph, bytes, (size_t)n));
}
