/* SPDX-License-Identifier: MIT */
/*
 * Casts against tables made by torch (an optional folder of test data), against a few rows that are
 * known by heart, and in place: a cast tensor read at any offset equals the whole cast at once.
 */
#include "check.h"

#include <math.h>
#include <stdlib.h>

#include <jansson.h>

#include <weightfs/cleanup.h>
#include <weightfs/tensor.h>

#include "base/source.h"
#include "tensor/cast.h"

struct row {
    enum wfs_dtype from;
    uint64_t in;
    enum wfs_dtype to;
    uint64_t out;
};

/* Little-endian codes. */
static const struct row rows[] = {
    {WFS_F32, 0x3f800000, WFS_BF16, 0x3f80},
    {WFS_F32, 0x3f808000, WFS_BF16, 0x3f80}, /* a tie: to even, down */
    {WFS_F32, 0x3f818000, WFS_BF16, 0x3f82}, /* and up */
    {WFS_F32, 0x7f7fffff, WFS_BF16, 0x7f80},
    {WFS_F32, 0x477fefff, WFS_F16, 0x7bff},
    {WFS_F32, 0x477ff000, WFS_F16, 0x7c00},
    {WFS_F32, 0x33000000, WFS_F16, 0x0000}, /* half of the smallest: to even */
    {WFS_F32, 0x33000001, WFS_F16, 0x0001},
    {WFS_F32, 0x80000000, WFS_F16, 0x8000},
    {WFS_F16, 0x0001, WFS_F32, 0x33800000},
    {WFS_F16, 0xfc00, WFS_BF16, 0xff80},
    {WFS_F32, 0x43e00000, WFS_F8_E4M3, 0x7e}, /* 448 */
    {WFS_F32, 0x7f800000, WFS_F8_E4M3, 0x7e}, /* saturates */
    {WFS_F32, 0x47700000, WFS_F8_E5M2, 0x7c}, /* 61440 */
    {WFS_F32, 0x80000000, WFS_F8_E4M3FNUZ, 0x00},
    {WFS_F32, 0x7f800000, WFS_F8_E5M2FNUZ, 0x80},
    {WFS_F32, 0x3fc00000, WFS_F8_E8M0, 0x80}, /* 1.5 is 2 */
    {WFS_F64, 0x3ff0000010000001, WFS_F32, 0x3f800001},
    {WFS_I32, 0x01000001, WFS_F32, 0x4b800000}, /* 2^24 + 1 */
    {WFS_U64, 0xffffffffffffffff, WFS_F32, 0x5f800000},
    {WFS_I64, 0x0000000100000002, WFS_I8, 0x02},
    {WFS_F32, 0xbfc00000, WFS_I8, 0xff},
    {WFS_F32, 0x43800000, WFS_U8, 0xff}, /* 256 */
    {WFS_F32, 0x7fc00000, WFS_I32, 0},
    {WFS_F32, 0x7fc00000, WFS_BOOL, 1},
    {WFS_I16, 0x0100, WFS_BOOL, 1},
};

static void test_rows_known_by_heart(void)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        uint64_t out = 0;
        cast_elems(rows[i].from, &rows[i].in, rows[i].to, &out, 1);
        if (!check_uint(out, rows[i].out))
            printf("# row %zu\n", i);
    }
}

static void test_nan_stays_nan(void)
{
    static const enum wfs_dtype floats[] = {WFS_F64,     WFS_F32,         WFS_F16,
                                            WFS_BF16,    WFS_F8_E5M2,     WFS_F8_E4M3,
                                            WFS_F8_E8M0, WFS_F8_E5M2FNUZ, WFS_F8_E4M3FNUZ};
    static const uint64_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0x7fffffff};
    for (size_t i = 0; i < sizeof(floats) / sizeof(*floats); i++) {
        for (size_t j = 0; j < sizeof(nans) / sizeof(*nans); j++) {
            uint64_t out = 0;
            double value = 0;
            cast_elems(WFS_F32, &nans[j], floats[i], &out, 1);
            check_int(wfs_dtype_decode(floats[i], &out, 1, &value), 0);
            check(isnan(value));
        }
    }
}

static void test_losses_are_counted(void)
{
    const float values[] = {1, 70000, -70000, NAN, INFINITY, 65519, 65520};
    uint64_t n_overflow = 0, n_nan = 0;
    cast_count(WFS_F32, values, WFS_F16, 7, &n_overflow, &n_nan);
    check_uint(n_overflow, 3);
    check_uint(n_nan, 1);
    n_overflow = n_nan = 0;
    cast_count(WFS_F32, values, WFS_F8_E4M3, 7, &n_overflow, &n_nan);
    check_uint(n_overflow, 4);
}

static void test_what_cannot_be_cast(void)
{
    check(cast_is_possible(WFS_F32, WFS_BF16));
    check(cast_is_possible(WFS_BOOL, WFS_F8_E4M3));
    check(!cast_is_possible(WFS_F4, WFS_F32));
    check(!cast_is_possible(WFS_F32, WFS_C64));
    check(!cast_is_possible(WFS_QI8, WFS_F32));
    check(!cast_is_possible(WFS_OPAQUE, WFS_U8));
}

/* Rows whose result torch leaves to the processor. */
static bool is_undefined(enum wfs_dtype to, double in)
{
    const unsigned n_bits = wfs_dtype_bits(to);
    const bool has_sign = wfs_dtype_kind(to) == WFS_KIND_SIGNED;
    if (wfs_dtype_kind(to) == WFS_KIND_BOOL)
        return false;
    const double least = has_sign ? -ldexp(1, (int)n_bits - 1) : 0;
    return !(trunc(in) >= least && trunc(in) < ldexp(1, (int)n_bits - has_sign));
}

static enum wfs_dtype dtype_of(json_t *column)
{
    enum wfs_dtype dtype = WFS_OPAQUE;
    const char *name = json_string_value(json_object_get(column, "dtype"));
    check(wfs_dtype_parse(name, strlen(name), &dtype));
    return dtype;
}

static void check_column(enum wfs_dtype from, const char *in, enum wfs_dtype to, const char *want,
                         size_t n)
{
    const size_t n_out = wfs_dtype_bits(to) / 8;
    const bool is_float = wfs_dtype_kind(to) == WFS_KIND_FLOAT;
    autofree char *got = malloc(n * n_out);
    autofree double *values = malloc(3 * n * sizeof(double));
    cast_elems(from, in, to, got, n);
    check_int(wfs_dtype_decode(from, in, n, values), 0);
    check_int(wfs_dtype_decode(to, got, n, values + n), 0);
    check_int(wfs_dtype_decode(to, want, n, values + 2 * n), 0);
    size_t n_wrong = 0;
    for (size_t i = 0; i < n; i++) {
        if (memcmp(got + i * n_out, want + i * n_out, n_out) == 0)
            continue;
        if (is_float ? isnan(values[n + i]) && isnan(values[2 * n + i])
                     : wfs_dtype_kind(from) == WFS_KIND_FLOAT && is_undefined(to, values[i]))
            continue;
        n_wrong++;
    }
    if (!check_uint(n_wrong, 0))
        printf("# %s to %s\n", wfs_dtype_name(from), wfs_dtype_name(to));
}

static size_t check_set(const char *folder, const char *name, json_t *set)
{
    char command[1024];
    json_t *columns = json_object_get(set, "columns"), *column;
    const size_t n = (size_t)json_integer_value(json_object_get(set, "count"));
    const json_t *last = json_array_get(columns, json_array_size(columns) - 1);
    const size_t n_bytes = (size_t)(json_integer_value(json_object_get(last, "offset")) +
                                    json_integer_value(json_object_get(last, "bytes")));
    autofree char *bytes = malloc(n_bytes);
    snprintf(command, sizeof(command), "xz -dc '%s/%s.bin.xz'", folder, name);
    FILE *pipe = popen(command, "r");
    if (!check(pipe != NULL))
        return 0;
    check_uint(fread(bytes, 1, n_bytes, pipe), n_bytes);
    check_int(pclose(pipe), 0);
    const enum wfs_dtype from = dtype_of(json_array_get(columns, 0));
    size_t i;
    json_array_foreach(columns, i, column)
    {
        const size_t offset = (size_t)json_integer_value(json_object_get(column, "offset"));
        check_column(from, bytes, dtype_of(column), bytes + offset, n);
    }
    return json_array_size(columns) - 1;
}

static void test_tables_of_torch(void)
{
    const char *shared = getenv("WFS_SHARED");
    char folder[512], path[600];
    snprintf(folder, sizeof(folder), "%s/golden/torch/casts", shared ? shared : "../shared");
    snprintf(path, sizeof(path), "%s/index.json", folder);
    json_t *index = json_load_file(path, 0, NULL);
    if (index == NULL) {
        printf("# skipped: no %s\n", path);
        return;
    }
    const char *name;
    json_t *set;
    size_t n_columns = 0;
    json_object_foreach(json_object_get(index, "sets"), name, set)
    {
        n_columns += check_set(folder, name, set);
    }
    json_decref(index);
    check_uint(n_columns, 306);
}

enum { N_ELEMS = 200000 };

static void test_any_range_of_a_cast_tensor(void)
{
    autofree float *file = malloc(N_ELEMS * sizeof(float));
    autofree uint16_t *want = malloc(N_ELEMS * 2);
    autofree char *got = malloc(N_ELEMS * 2);
    for (size_t i = 0; i < N_ELEMS; i++)
        file[i] = (float)i * 0.37f - 1000;
    cast_elems(WFS_F32, file, WFS_F16, want, N_ELEMS);
    struct source *source = NULL;
    check_int(source_new_memory("m", file, N_ELEMS * sizeof(float), &source), 0);
    const uint64_t dims[] = {N_ELEMS};
    const struct wfs_tensor tensor = {.key = "k",
                                      .shape = {1, dims},
                                      .n_bytes = N_ELEMS * 2,
                                      .dtype = WFS_F16,
                                      .stored = {.source = source, .dtype = WFS_F32}};
    static const size_t sizes[] = {1, 3, 4096, 131072, 300001, N_ELEMS * 2};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        const size_t offset = i * 7919;
        const ssize_t n = wfs_tensor_read(&tensor, offset, got, sizes[i]);
        const size_t n_left = N_ELEMS * 2 - offset;
        if (check_int(n, (ssize_t)(sizes[i] < n_left ? sizes[i] : n_left)))
            check_bytes(got, (char *)want + offset, (size_t)n);
    }
    source_free(source);
}

int main(void)
{
    check_run(test_rows_known_by_heart);
    check_run(test_nan_stays_nan);
    check_run(test_losses_are_counted);
    check_run(test_what_cannot_be_cast);
    check_run(test_tables_of_torch);
    check_run(test_any_range_of_a_cast_tensor);
    return check_done();
}
