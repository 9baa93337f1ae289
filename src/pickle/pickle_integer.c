/* SPDX-License-Identifier: MIT */
/*
 * Integers from decimal digits and from two's complement.
 */
#include "pickle/pickle_integer.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

uint32_t integer_of_twos(struct graph *graph, const uint8_t *bytes, size_t n)
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

int integer_parse(struct graph *graph, const struct limits *limits, const char *text, size_t n,
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
    *ret = integer_of_digits(graph, is_negative, digits, n);
    return *ret == 0 ? -ENOMEM : 0;
}
