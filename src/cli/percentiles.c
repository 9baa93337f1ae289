/* SPDX-License-Identifier: MIT */
/*
 * A number as an integer in the same order is cut into digits of 16 bits. Each pass counts one
 * digit of the numbers that begin as a percentile does, which gives the next digit of it.
 */
#include "cli/percentiles.h"

#include "cli/values.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_DIGIT = 16, N_COUNTS = 1 << N_DIGIT };

const unsigned percentiles_ranks[PERCENTILES_N] = {1, 5, 25, 50, 75, 95, 99};

/* One of the percentiles, as far as it is known. */
struct search {
    uint64_t front;    /* its first digits */
    uint64_t n_before; /* elements with these digits that come before it */
    size_t table;      /* of the counts of the next digit */
};

struct percentiles {
    struct search searches[PERCENTILES_N]; /* in order */
    uint64_t fronts[PERCENTILES_N];        /* of the tables, in order */
    size_t n_tables;
    uint64_t (*tables)[N_COUNTS];
    unsigned n_passes, n_known; /* digits */
    bool is_single;             /* the elements are exact in single precision */
};

/* Single precision and less has two digits. */
static bool is_single(const struct wfs_tensor *tensor)
{
    return wfs_dtype_kind((enum wfs_dtype)tensor->dtype) == WFS_KIND_FLOAT &&
           wfs_dtype_bits((enum wfs_dtype)tensor->dtype) <= 32;
}

unsigned percentiles_n_passes(const struct wfs_tensor *tensor)
{
    return is_single(tensor) ? 2 : 4;
}

/* ---- numbers as integers in the same order ---- */

static uint64_t encode(double number, bool single)
{
    uint64_t bits = 0;
    number += 0.0; /* minus zero is zero */
    if (single) {
        const float narrow = (float)number;
        uint32_t half;
        memcpy(&half, &narrow, sizeof(half));
        bits = (uint64_t)half << 32;
    } else {
        memcpy(&bits, &number, sizeof(bits));
    }
    return bits >> 63 != 0 ? ~bits : bits | 1ull << 63;
}

static double decode(uint64_t bits, bool single)
{
    double number;
    float narrow;
    bits = bits >> 63 != 0 ? bits & ~(1ull << 63) : ~bits;
    memcpy(&number, &bits, sizeof(number));
    const uint32_t half = (uint32_t)(bits >> 32);
    memcpy(&narrow, &half, sizeof(narrow));
    return single ? (double)narrow : number;
}

/* ---- passes ---- */

static void count(void *ctx, const double *numbers, size_t n, const struct wfs_distinct *distinct,
                  uint64_t index)
{
    struct percentiles *percentiles = ctx;
    const unsigned n_front = percentiles->n_known * N_DIGIT;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(numbers[i]))
            continue;
        const uint64_t key = encode(numbers[i], percentiles->is_single);
        const uint64_t front = n_front == 0 ? 0 : key >> (64 - n_front);
        for (size_t t = 0; t < percentiles->n_tables; t++) {
            if (percentiles->fronts[t] == front)
                percentiles->tables[t][key << n_front >> (64 - N_DIGIT)] +=
                    wfs_distinct_times(distinct, index + i);
        }
    }
}

/* Gives each search a table, the same to those that are equal so far. */
static void assign_tables(struct percentiles *percentiles)
{
    percentiles->n_tables = 0;
    for (size_t i = 0; i < PERCENTILES_N; i++) {
        struct search *search = &percentiles->searches[i];
        const size_t n = percentiles->n_tables;
        if (n == 0 || percentiles->fronts[n - 1] != search->front)
            percentiles->fronts[percentiles->n_tables++] = search->front;
        search->table = percentiles->n_tables - 1;
    }
    memset(percentiles->tables, 0, percentiles->n_tables * sizeof(*percentiles->tables));
}

static void take_digit(const struct percentiles *percentiles, struct search *search)
{
    const uint64_t *counts = percentiles->tables[search->table];
    size_t digit = 0;
    while (digit + 1 < N_COUNTS && search->n_before >= counts[digit])
        search->n_before -= counts[digit++];
    search->front = search->front << N_DIGIT | digit;
}

int percentiles_find(const struct wfs_tensor *tensor, uint64_t n_finite, double ret[PERCENTILES_N])
{
    struct percentiles percentiles = {.n_passes = percentiles_n_passes(tensor),
                                      .is_single = is_single(tensor)};
    autofree void *tables = malloc(PERCENTILES_N * sizeof(*percentiles.tables));
    percentiles.tables = tables;
    if (tables == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < PERCENTILES_N; i++) {
        const uint64_t rank = percentiles_ranks[i];
        const uint64_t n_until = n_finite / 100 * rank + (n_finite % 100 * rank + 99) / 100;
        percentiles.searches[i].n_before = n_until - 1;
    }
    for (; percentiles.n_known < percentiles.n_passes; percentiles.n_known++) {
        assign_tables(&percentiles);
        const int code = values_scan(tensor, count, &percentiles);
        if (code < 0)
            return code;
        for (size_t i = 0; i < PERCENTILES_N; i++)
            take_digit(&percentiles, &percentiles.searches[i]);
    }
    for (size_t i = 0; i < PERCENTILES_N; i++)
        ret[i] = decode(percentiles.searches[i].front << (64 - percentiles.n_known * N_DIGIT),
                        percentiles.is_single);
    return 0;
}
