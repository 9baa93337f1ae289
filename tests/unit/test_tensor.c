/* SPDX-License-Identifier: MIT */
/*
 * src/tensor but for casts: the dtype table, shapes, .npy headers, statistics, digests.
 */
#include "check.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include <weightfs/cleanup.h>
#include <weightfs/tensor.h>

#include "base/hash.h"
#include "base/source.h"

/* The 22 types of safetensors 0.8 in its order, typed from its documentation. */
static const struct {
    const char *name;
    unsigned bits;
} safetensors_types[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};

static void dtype_table_is_that_of_safetensors(void)
{
    const size_t n = sizeof(safetensors_types) / sizeof(safetensors_types[0]);
    for (size_t i = 0; i < n; i++) {
        const char *name = safetensors_types[i].name;
        enum wfs_dtype dtype = WFS_N_DTYPES;
        check(wfs_dtype_parse(name, strlen(name), &dtype));
        check_uint(dtype, i);
        check_str(wfs_dtype_name(dtype), name);
        check_uint(wfs_dtype_bits(dtype), safetensors_types[i].bits);
    }
}

static void dtype_names_are_exact(void)
{
    enum wfs_dtype dtype = WFS_U8;
    for (const char *const *name =
             (const char *const[]){"f32", "F32 ", "", "F", "F8", "F8_E4M3FN", "FLOAT32", NULL};
         *name != NULL; name++)
        check(!wfs_dtype_parse(*name, strlen(*name), &dtype));
    check(!wfs_dtype_parse("F32\0", 4, &dtype));
    check(wfs_dtype_parse("F32x", 3, &dtype) && dtype == WFS_F32);
}

static void every_dtype_has_a_numpy_type_of_its_size(void)
{
    for (unsigned i = 0; i < WFS_N_DTYPES; i++) {
        const char *descr = wfs_dtype_descr((enum wfs_dtype)i);
        const unsigned n_bits = wfs_dtype_bits((enum wfs_dtype)i);
        check(strchr("<|", descr[0]) != NULL && strchr("biufcV", descr[1]) != NULL);
        check_uint((uint64_t)atoi(descr + 2), n_bits < 8 ? 1 : n_bits / 8);
    }
}

static void check_bytes_of(uint32_t rank, const uint64_t *dims, enum wfs_dtype dtype, int code,
                           uint64_t n_bytes)
{
    const struct wfs_shape shape = {rank, dims};
    uint64_t got = 0;
    check_int(wfs_shape_bytes(&shape, dtype, &got), code);
    if (code == 0)
        check_uint(got, n_bytes);
}

static void sizes_of_shapes(void)
{
    const uint64_t max = UINT64_MAX;
    check_bytes_of(0, NULL, WFS_F32, 0, 4);
    check_bytes_of(0, NULL, WFS_F4, -EDOM, 0);
    check_bytes_of(2, (const uint64_t[]){2, 3}, WFS_F64, 0, 48);
    check_bytes_of(3, (const uint64_t[]){2, 0, 3}, WFS_F64, 0, 0);
    check_bytes_of(1, (const uint64_t[]){3}, WFS_F4, -EDOM, 0);
    check_bytes_of(1, (const uint64_t[]){4}, WFS_F4, 0, 2);
    check_bytes_of(2, (const uint64_t[]){2, 2}, WFS_F6_E3M2, 0, 3);
    check_bytes_of(1, (const uint64_t[]){2}, WFS_F6_E3M2, -EDOM, 0);
    check_bytes_of(1, (const uint64_t[]){0}, WFS_F6_E2M3, 0, 0);
    check_bytes_of(1, (const uint64_t[]){max}, WFS_F32, -EOVERFLOW, 0);
    check_bytes_of(2, (const uint64_t[]){UINT64_C(1) << 32, UINT64_C(1) << 32}, WFS_U8, -EOVERFLOW,
                   0);
    check_bytes_of(1, (const uint64_t[]){UINT64_C(1) << 61}, WFS_U8, -EOVERFLOW, 0);
    check_bytes_of(1, (const uint64_t[]){(UINT64_C(1) << 61) - 1}, WFS_U8, 0,
                   (UINT64_C(1) << 61) - 1);
}

static void overflow_counts_from_left_to_right(void)
{
    const uint64_t max = UINT64_MAX;
    check_bytes_of(3, (const uint64_t[]){0, max, max}, WFS_F32, 0, 0);
    check_bytes_of(3, (const uint64_t[]){max, 0, max}, WFS_F32, 0, 0);
    check_bytes_of(3, (const uint64_t[]){max, max, 0}, WFS_F32, -EOVERFLOW, 0);
}

static void shapes_as_text(void)
{
    const uint64_t dims[] = {2, 3, UINT64_MAX};
    char text[64];
    const struct wfs_shape shape = {3, dims}, scalar = {0, NULL};
    check_uint(wfs_shape_format(&shape, text, sizeof(text)),
               strlen("[2, 3, 18446744073709551615]"));
    check_str(text, "[2, 3, 18446744073709551615]");
    wfs_shape_format(&scalar, text, sizeof(text));
    check_str(text, "[]");
    check_uint(wfs_shape_format(&shape, text, 5), strlen("[2, 3, 18446744073709551615]"));
    check_str(text, "[2, ");
    check_uint(wfs_shape_format(&shape, NULL, 0), strlen("[2, 3, 18446744073709551615]"));
}

static void check_npy(enum wfs_dtype dtype, uint32_t rank, const uint64_t *dims, const char *dict)
{
    struct wfs_tensor tensor = {.key = "k", .dtype = (uint8_t)dtype, .shape = {rank, dims}};
    check_int(wfs_shape_bytes(&tensor.shape, dtype, &tensor.n_bytes), 0);
    char header[256];
    const size_t n = wfs_npy_header(&tensor, header, sizeof(header));
    check_uint(n % 64, 0);
    check_bytes(header, "\x93NUMPY\1\0", 8);
    check_uint((uint8_t)header[8] + 256u * (uint8_t)header[9], n - 10);
    check(strncmp(header + 10, dict, strlen(dict)) == 0);
    for (size_t i = 10 + strlen(dict); i + 1 < n; i++)
        check(header[i] == ' ');
    check(header[n - 1] == '\n');
}

static void npy_headers(void)
{
    check_npy(WFS_F32, 2, (const uint64_t[]){2, 3},
              "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
    check_npy(WFS_I64, 1, (const uint64_t[]){0},
              "{'descr': '<i8', 'fortran_order': False, 'shape': (0,), }");
    check_npy(WFS_BOOL, 0, NULL, "{'descr': '|b1', 'fortran_order': False, 'shape': (), }");
    check_npy(WFS_BF16, 3, (const uint64_t[]){1, 2, 3},
              "{'descr': '<V2', 'fortran_order': False, 'shape': (1, 2, 3), }");
    check_npy(WFS_F4, 2, (const uint64_t[]){3, 8},
              "{'descr': '|V1', 'fortran_order': False, 'shape': (3, 4), }");
    check_npy(WFS_F4, 2, (const uint64_t[]){2, 3},
              "{'descr': '|V1', 'fortran_order': False, 'shape': (3,), }");
}

static void npy_header_is_cut_not_overrun(void)
{
    struct wfs_tensor tensor = {.key = "k", .dtype = WFS_U8, .n_bytes = 1};
    for (size_t n = 0; n <= 128; n++) {
        char *header = malloc(n > 0 ? n : 1);
        check_uint(wfs_npy_header(&tensor, header, n), 128);
        free(header);
    }
}

static void long_npy_header_is_version_2(void)
{
    enum { RANK = 10000 };
    uint64_t *dims = calloc(RANK, sizeof(uint64_t));
    for (size_t i = 0; i < RANK; i++)
        dims[i] = 1000000007;
    dims[0] = 0;
    const struct wfs_tensor tensor = {.key = "k", .dtype = WFS_U8, .shape = {RANK, dims}};
    char header[12];
    const size_t n = wfs_npy_header(&tensor, header, sizeof(header));
    check_bytes(header, "\x93NUMPY\2\0", 8);
    check_uint((uint8_t)header[8] | (uint64_t)(uint8_t)header[9] << 8 |
                   (uint64_t)(uint8_t)header[10] << 16 | (uint64_t)(uint8_t)header[11] << 24,
               n - 12);
    check_uint(n % 64, 0);
    free(dims);
}

/* A dense tensor of these bytes. The caller frees the source. */
static struct wfs_tensor dense(enum wfs_dtype dtype, const uint64_t *n_elems, const void *bytes)
{
    struct wfs_tensor tensor = {
        .key = "k", .dtype = (uint8_t)dtype, .shape = {1, n_elems}, .stored.dtype = (uint8_t)dtype};
    check_int(wfs_shape_bytes(&tensor.shape, dtype, &tensor.n_bytes), 0);
    check_int(source_new_memory("m", bytes, (size_t)tensor.n_bytes, &tensor.stored.source), 0);
    return tensor;
}

static void statistics_leave_nan_and_infinity_out(void)
{
    const float values[] = {1, -2, 0, NAN, INFINITY, -INFINITY, -0.0f, 4};
    const uint64_t n = 8;
    struct wfs_tensor tensor = dense(WFS_F32, &n, values);
    struct wfs_stats stats;
    check_int(wfs_tensor_stats(NULL, &tensor, &stats), 0);
    check_uint(stats.n_elems, 8);
    check_uint(stats.n_finite, 5);
    check_uint(stats.n_nan, 1);
    check_uint(stats.n_positive_inf, 1);
    check_uint(stats.n_negative_inf, 1);
    check_uint(stats.n_zero, 2);
    check(stats.min == -2 && stats.max == 4);
    check(fabs(stats.mean - 0.6) < 1e-12);
    check(fabs(stats.std - sqrt((0.16 + 6.76 + 0.36 + 0.36 + 11.56) / 5)) < 1e-12);
    source_free(tensor.stored.source);
}

static void statistics_of_nothing_and_of_no_numbers(void)
{
    const uint64_t none = 0, one = 1;
    struct wfs_tensor tensor = dense(WFS_F32, &none, "");
    struct wfs_stats stats;
    check_int(wfs_tensor_stats(NULL, &tensor, &stats), 0);
    check(stats.n_elems == 0 && stats.min == 0 && stats.max == 0 && stats.mean == 0 &&
          stats.std == 0);
    source_free(tensor.stored.source);
    tensor = dense(WFS_C64, &one, "12345678");
    check_int(wfs_tensor_stats(NULL, &tensor, &stats), -EOPNOTSUPP);
    source_free(tensor.stored.source);
}

static void check_decode(enum wfs_dtype dtype, const void *bytes, size_t n, const double *want)
{
    double got[16];
    check_int(wfs_dtype_decode(dtype, bytes, n, got), 0);
    for (size_t i = 0; i < n; i++)
        check(isnan(want[i]) ? isnan(got[i]) : got[i] == want[i]);
}

static void elements_as_numbers(void)
{
    check_decode(WFS_F16, "\x00\x3c\x00\xc0\xff\x7b\x01\x00\x00\x7c\x01\x7c", 6,
                 (const double[]){1, -2, 65504, 0x1p-24, INFINITY, NAN});
    check_decode(WFS_BF16, "\x80\x3f\x40\xc0\x80\xff", 3, (const double[]){1, -3, -INFINITY});
    check_decode(WFS_F8_E4M3, "\x38\x7e\xff\x01", 4, (const double[]){1, 448, NAN, 0x1p-9});
    check_decode(WFS_F8_E5M2, "\x3c\x7b\x7c\x01", 4, (const double[]){1, 57344, INFINITY, 0x1p-16});
    check_decode(WFS_F8_E8M0, "\x7f\x80\xff\x00", 4, (const double[]){1, 2, NAN, 0x1p-127});
    check_decode(WFS_F8_E4M3FNUZ, "\x40\x7f\x80", 3, (const double[]){1, 240, NAN});
    check_decode(WFS_F8_E5M2FNUZ, "\x40\x7f\x80", 3, (const double[]){1, 57344, NAN});
    check_decode(WFS_F4, "\x21\xf7", 4, (const double[]){0.5, 1, 6, -6});
    check_decode(WFS_I8, "\xff\x80", 2, (const double[]){-1, -128});
    check_decode(WFS_U16, "\xff\xff", 1, (const double[]){65535});
    check_decode(WFS_I16, "\xff\xff", 1, (const double[]){-1});
    check_decode(WFS_I32, "\x00\x00\x00\x80", 1, (const double[]){-2147483648.0});
    check_decode(WFS_U64, "\xff\xff\xff\xff\xff\xff\xff\xff", 1, (const double[]){0x1p64});
    check_decode(WFS_BOOL, "\x02\x00", 2, (const double[]){2, 0});
}

static void six_bit_elements_cross_bytes(void)
{
    /* Codes 1, 2, 31, 63 from the low bits up: 000001 000010 011111 111111. */
    const uint32_t packed = 1 | 2 << 6 | 31 << 12 | 63u << 18;
    const uint8_t bytes[3] = {(uint8_t)packed, (uint8_t)(packed >> 8), (uint8_t)(packed >> 16)};
    check_decode(WFS_F6_E2M3, bytes, 4, (const double[]){0.125, 0.25, 7.5, -7.5});
    check_decode(WFS_F6_E3M2, bytes, 4, (const double[]){0.0625, 0.125, 28, -28});
}

static void reads_are_clipped_to_the_end(void)
{
    const uint64_t n = 6;
    struct wfs_tensor tensor = dense(WFS_U8, &n, "abcdef");
    char buf[8] = "";
    check_int(wfs_tensor_read(&tensor, 4, buf, 8), 2);
    check_str(buf, "ef");
    check_int(wfs_tensor_read(&tensor, 6, buf, 8), 0);
    check_int(wfs_tensor_read(&tensor, UINT64_MAX, buf, 8), 0);
    tensor.trouble = "its bytes are not there";
    check_int(wfs_tensor_read(&tensor, 0, buf, 1), -EIO);
    source_free(tensor.stored.source);
}

static void digest_is_that_of_the_shown_bytes(void)
{
    const uint64_t n = 3 << 20;
    autofree uint8_t *bytes = malloc(n);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(i * i >> 3);
    struct wfs_tensor tensor = dense(WFS_U8, &n, bytes);
    uint64_t digest = 0;
    check_int(wfs_tensor_digest(&tensor, &digest), 0);
    check_uint(digest, hash_bytes(bytes, n, 0));
    source_free(tensor.stored.source);
}

int main(void)
{
    check_run(dtype_table_is_that_of_safetensors);
    check_run(dtype_names_are_exact);
    check_run(every_dtype_has_a_numpy_type_of_its_size);
    check_run(sizes_of_shapes);
    check_run(overflow_counts_from_left_to_right);
    check_run(shapes_as_text);
    check_run(npy_headers);
    check_run(npy_header_is_cut_not_overrun);
    check_run(long_npy_header_is_version_2);
    check_run(statistics_leave_nan_and_infinity_out);
    check_run(statistics_of_nothing_and_of_no_numbers);
    check_run(elements_as_numbers);
    check_run(six_bit_elements_cross_bytes);
    check_run(reads_are_clipped_to_the_end);
    check_run(digest_is_that_of_the_shown_bytes);
    return check_done();
}
