/* SPDX-License-Identifier: MIT */
/*
 * Python's spellings of numbers, and of keys.
 */
#include "value/value_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

/* A tuple can be in a tuple many times over. */
enum { MAX_KEY_DEPTH = 2, MAX_KEY_ITEMS = 16, MAX_KEY_BYTES = 4096 };

/* Digits without trailing zeros, and the power of ten of the first: 1.5e-08 is "15" and -8. */
static size_t shortest_digits(double real, char digits[24], int *ret_exponent)
{
    char text[40];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof(text), "%.*e", precision, real);
        if (precision == 16 || strtod(text, NULL) == real)
            break;
    }
    size_t n = 0;
    const char *at = text;
    for (; *at != 'e'; at++)
        if (*at >= '0' && *at <= '9')
            digits[n++] = *at;
    *ret_exponent = (int)strtol(at + 1, NULL, 10);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    return n;
}

size_t value_print_float(double real, char *buf)
{
    char digits[24];
    int exponent;
    if (isnan(real) || isinf(real))
        return (size_t)sprintf(buf, "%s", isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
    const size_t n = shortest_digits(fabs(real), digits, &exponent);
    char *at = buf;
    if (signbit(real))
        *at++ = '-';
    if (exponent < -4 || exponent >= 16) {
        *at++ = digits[0];
        if (n > 1)
            at += sprintf(at, ".%.*s", (int)n - 1, digits + 1);
        at += sprintf(at, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        at += sprintf(at, "0.%.*s%.*s", -exponent - 1, "000", (int)n, digits);
    } else {
        for (int i = 0; i <= exponent; i++)
            *at++ = i < (int)n ? digits[i] : '0';
        *at++ = '.';
        if ((int)n > exponent + 1)
            at += sprintf(at, "%.*s", (int)n - exponent - 1, digits + exponent + 1);
        else
            *at++ = '0';
        *at = '\0';
    }
    return (size_t)(at - buf);
}

/* Divides by 10^9 and returns the rest. */
static uint32_t divide(uint32_t *limbs, size_t *n_limbs)
{
    uint64_t rest = 0;
    for (size_t i = *n_limbs; i-- > 0;) {
        rest = rest << 32 | limbs[i];
        limbs[i] = (uint32_t)(rest / 1000000000);
        rest %= 1000000000;
    }
    while (*n_limbs > 0 && limbs[*n_limbs - 1] == 0)
        (*n_limbs)--;
    return (uint32_t)rest;
}

/* The magnitude of a two's complement number, in limbs that are zero at first. */
static void load_magnitude(const struct value *value, bool is_negative, uint32_t *limbs,
                           size_t n_limbs)
{
    const uint8_t *bytes = (const uint8_t *)value->text;
    for (size_t i = 0; i < 4 * n_limbs; i++) {
        const uint8_t byte = i < value->n ? bytes[i] : is_negative ? 0xff : 0;
        limbs[i / 4] |= (uint32_t)byte << (i % 4 * 8);
    }
    uint64_t carry = 1;
    for (size_t i = 0; i < n_limbs && is_negative; i++) {
        carry += (uint32_t)~limbs[i];
        limbs[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

char *value_print_integer(const struct value *value)
{
    if (value->kind != VALUE_BIG) {
        char *text = malloc(24);
        if (text != NULL)
            snprintf(text, 24, "%lld", (long long)value->integer);
        return text;
    }
    const bool is_negative = value->n > 0 && (value->text[value->n - 1] & 0x80) != 0;
    size_t n_limbs = value->n / 4 + 2;
    const size_t n_room = n_limbs * 10 + 16;
    uint32_t *limbs = calloc(n_limbs, sizeof(*limbs));
    char *text = malloc(n_room);
    if (limbs == NULL || text == NULL) {
        free(limbs);
        free(text);
        return NULL;
    }
    load_magnitude(value, is_negative, limbs, n_limbs);
    char *at = text + n_room - 1;
    *at = '\0';
    do {
        uint32_t rest = divide(limbs, &n_limbs);
        for (int i = 0; i < 9 && (rest != 0 || n_limbs > 0 || i == 0); i++) {
            *--at = (char)('0' + rest % 10);
            rest /= 10;
        }
    } while (n_limbs > 0);
    if (is_negative)
        *--at = '-';
    memmove(text, at, (size_t)(text + n_room - at));
    free(limbs);
    return text;
}

void text_add(struct text *text, const char *bytes, size_t n)
{
    if (text->is_cut || (text->n_max != 0 && n > text->n_max - text->n)) {
        text->is_cut = true;
        return;
    }
    if (n > text->n_room - text->n) {
        const size_t n_room = (text->n + n) * 2 + 64;
        char *grown = realloc(text->bytes, n_room);
        if (grown == NULL) {
            text->is_cut = text->has_failed = true;
            return;
        }
        text->bytes = grown;
        text->n_room = n_room;
    }
    if (n > 0)
        memcpy(text->bytes + text->n, bytes, n);
    text->n += n;
}

void text_print(struct text *text, const char *format, ...)
{
    char buf[512];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(buf, sizeof(buf), format, args);
    va_end(args);
    text_add(text, buf, n < 0 ? 0 : (size_t)n < sizeof(buf) ? (size_t)n : sizeof(buf) - 1);
}

void text_done(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}

/* Bytes that are no UTF-8 become characters of Latin-1; surrogates may stand alone. */
static void add_utf8(struct text *text, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n;) {
        const size_t n_good = utf8_valid(bytes + i, n - i);
        text_add(text, bytes + i, n_good);
        i += n_good;
        if (i == n)
            return;
        const uint8_t *at = (const uint8_t *)bytes + i;
        if (n - i >= 3 && at[0] == 0xed && at[1] >= 0xa0 && at[1] <= 0xbf &&
            (at[2] & 0xc0) == 0x80) {
            text_add(text, bytes + i, 3);
            i += 3;
            continue;
        }
        const char latin[2] = {(char)(0xc0 | *at >> 6), (char)(0x80 | (*at & 0x3f))};
        text_add(text, latin, 2);
        i++;
    }
}

/* 'text' or b'bytes' as Python shows it, near enough to be told apart. */
static void add_quoted(struct text *text, const char *bytes, size_t n, bool is_bytes)
{
    const char quote = memchr(bytes, '\'', n) != NULL && memchr(bytes, '"', n) == NULL ? '"' : '\'';
    text_add(text, &quote, 1);
    for (size_t i = 0; i < n; i++) {
        const uint8_t c = (uint8_t)bytes[i];
        if (c == (uint8_t)quote || c == '\\')
            text_print(text, "\\%c", c);
        else if (c == '\n' || c == '\r' || c == '\t')
            text_print(text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (c < 0x20 || c == 0x7f || (c >= 0x80 && is_bytes))
            text_print(text, "\\x%02x", c);
        else
            text_add(text, bytes + i, 1);
    }
    text_add(text, &quote, 1);
}

static bool add_bytes(struct text *text, const struct graph *graph, uint32_t id)
{
    uint8_t *bytes;
    size_t n;
    if (graph_at(graph, id)->form == FORM_BYTEARRAY || !value_copy_bytes(graph, id, &bytes, &n))
        return false;
    const bool is_short = n <= MAX_KEY_BYTES;
    text_add(text, "b", is_short ? 1 : 0);
    if (is_short)
        add_quoted(text, (const char *)bytes, n, true);
    free(bytes);
    return is_short;
}

static bool add_repr(struct text *text, const struct graph *graph, uint32_t id, unsigned depth);

static bool add_tuple(struct text *text, const struct graph *graph, const struct value *value,
                      unsigned depth)
{
    if (depth >= MAX_KEY_DEPTH || value->n > MAX_KEY_ITEMS)
        return false;
    text_add(text, "(", 1);
    for (uint32_t i = 0; i < value->n; i++) {
        text_add(text, ", ", i == 0 ? 0 : 2);
        if (!add_repr(text, graph, value_items(value)[i], depth + 1))
            return false;
    }
    text_add(text, ",)", value->n == 1 ? 2 : 0);
    text_add(text, ")", value->n == 1 ? 0 : 1);
    return true;
}

static bool add_repr(struct text *text, const struct graph *graph, uint32_t id, unsigned depth)
{
    const struct value *value = graph_at(graph, id);
    char number[VALUE_FLOAT_MAX];
    char *digits;
    switch (value->kind) {
    case VALUE_NONE:
        text_add(text, "None", 4);
        return true;
    case VALUE_BOOL:
        text_print(text, "%s", value->integer != 0 ? "True" : "False");
        return true;
    case VALUE_INT:
    case VALUE_BIG:
        digits = value_print_integer(value);
        if (digits == NULL)
            text->is_cut = text->has_failed = true;
        else
            text_add(text, digits, strlen(digits));
        free(digits);
        return true;
    case VALUE_FLOAT:
        text_add(text, number, value_print_float(value->real, number));
        return true;
    case VALUE_TEXT:
        if (value->n > MAX_KEY_BYTES)
            return false;
        add_quoted(text, value->text, value->n, false);
        return true;
    case VALUE_BYTES:
    case VALUE_CALL:
        return add_bytes(text, graph, id);
    case VALUE_TUPLE:
        return add_tuple(text, graph, value, depth);
    default:
        return false;
    }
}

bool text_add_key(struct text *text, const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    const size_t n = text->n;
    if (value->kind == VALUE_TEXT) {
        add_utf8(text, value->text, value->n);
        return true;
    }
    if (add_repr(text, graph, id, 0))
        return true;
    text->n = n;
    return false;
}
