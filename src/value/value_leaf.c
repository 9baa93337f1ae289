/* SPDX-License-Identifier: MIT */
/*
 * Python's spellings of numbers, and of keys.
 */
#include "value/value_leaf.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

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

int value_copy_range(const struct value_bytes *bytes, uint8_t **ret, size_t *ret_n)
{
    if (bytes->n_bytes > VALUE_COPIED_MAX)
        return 0;
    const size_t n = (size_t)bytes->n_bytes;
    autofree uint8_t *copy = malloc(n + 1);
    if (copy == NULL)
        return -ENOMEM;
    const int code = source_read(bytes->source, bytes->offset, copy, n);
    if (code < 0)
        return code;
    *ret = steal(&copy);
    *ret_n = n;
    return 1;
}

static bool is_filler(const struct graph *graph, uint32_t id, unsigned depth)
{
    enum { N_DEPTH_MAX = 64 };
    const struct value *value = graph_at(graph, id);
    const bool is_map = value->kind == VALUE_DICT;
    bool is_empty = is_map || value->kind == VALUE_NONE || value->kind == VALUE_LIST;
    for (uint32_t i = 0; value_has_items(value) && i < value->n && is_empty; i++) {
        const uint32_t item = value_items(value)[i];
        is_empty = is_map && i % 2 == 0 ? graph_at(graph, item)->kind == VALUE_TEXT
                                        : depth < N_DEPTH_MAX && is_filler(graph, item, depth + 1);
    }
    return is_empty;
}

bool value_is_filler(const struct graph *graph, uint32_t id)
{
    return is_filler(graph, id, 0);
}

bool value_is_unicode(const struct value *text)
{
    uint32_t c;
    for (size_t i = 0; i < text->n;) {
        i += utf8_valid(text->text + i, text->n - i);
        if (i == text->n)
            break;
        if (utf8_decode_surrogate(text->text + i, text->n - i, &c) == 0)
            return false;
        i += 3;
    }
    return true;
}

bool value_is_latin1(const struct value *text)
{
    return text->form == FORM_BYTE_DATA ||
           (text->form == FORM_BYTE_TEXT && utf8_valid(text->text, text->n) != text->n);
}

void value_add_latin1(struct strbuf *text, const struct value *value)
{
    for (uint32_t i = 0; i < value->n && !text->is_cut; i++) {
        char utf8[4];
        strbuf_add(text, utf8, utf8_put((uint8_t)value->text[i], utf8));
    }
}

int64_t value_latin1_bytes(const struct value *text, uint8_t *buf)
{
    if (text->form == FORM_BYTE_TEXT || text->form == FORM_BYTE_DATA) {
        memcpy(buf, text->text, text->n);
        return text->n;
    }
    int64_t n = 0;
    for (uint32_t i = 0; i < text->n; n++) {
        uint32_t c = (uint8_t)text->text[i];
        const size_t n_bytes = c < 0x80 ? 1 : utf8_decode(text->text + i, text->n - i, &c);
        if (n_bytes == 0 || c > 0xff)
            return -1;
        buf[n] = (uint8_t)c;
        i += (uint32_t)n_bytes;
    }
    return n;
}

/* Adds a text key. Bytes that are not UTF-8 become characters of Latin-1; surrogates may stand
 * alone. */
static void add_text_key(struct strbuf *text, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n;) {
        const size_t n_good = utf8_valid(bytes + i, n - i);
        strbuf_add(text, bytes + i, n_good);
        i += n_good;
        if (i == n)
            return;
        uint32_t c;
        size_t n_bytes = utf8_decode_surrogate(bytes + i, n - i, &c);
        if (n_bytes == 0) {
            char latin[4];
            strbuf_add(text, latin, utf8_put((uint8_t)bytes[i], latin));
            n_bytes = 1;
        } else {
            strbuf_add(text, bytes + i, n_bytes);
        }
        i += n_bytes;
    }
}

bool value_add_key(struct strbuf *text, const struct graph *graph, uint32_t id)
{
    const struct value *value = graph_at(graph, id);
    const struct strbuf before = *text;
    if (value->kind == VALUE_TEXT && value_is_latin1(value)) {
        value_add_latin1(text, value);
        return true;
    }
    if (value->kind == VALUE_TEXT) {
        add_text_key(text, value->text, value->n);
        return true;
    }
    if (graph->notation != NULL && graph->notation->add_key(text, graph, id))
        return true;
    text->n_bytes = before.n_bytes;
    return false;
}
