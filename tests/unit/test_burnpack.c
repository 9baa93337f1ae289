/* SPDX-License-Identifier: MIT */
/*
 * src/format/burnpack: the worked examples of the format byte for byte, spellings of CBOR, what the
 * writer takes and refuses, and memory that runs out.
 */
#include "check.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "format/burnpack/burnpack.h"
#include "format/burnpack/burnpack_load.h"
#include "format/burnpack/cbor.h"
#include "format/registry.h"

struct blob {
    uint8_t bytes[4096];
    size_t n_bytes;
};

static const uint8_t example_weight[] = {
    0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0x40, 0x00, 0x00, 0x40, 0x40,
    0x00, 0x00, 0x80, 0x40, 0x00, 0x00, 0xa0, 0x40, 0x00, 0x00, 0xc0, 0x40,
};

static const uint8_t example_bias[] = {
    0x00, 0x00, 0x00, 0x3f, 0x00, 0x00, 0x80, 0xbf, 0x00, 0x00, 0x00, 0x40,
};

static unsigned nibble(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
}

/* Appends hexadecimal digits; spaces are for the eye. */
static void put_hex(struct blob *blob, const char *hex)
{
    for (; *hex != '\0'; hex++) {
        if (*hex == ' ')
            continue;
        blob->bytes[blob->n_bytes++] = (uint8_t)(nibble(hex[0]) << 4 | nibble(hex[1]));
        hex++;
    }
}

static void put(struct blob *blob, const void *bytes, size_t n_bytes)
{
    memcpy(blob->bytes + blob->n_bytes, bytes, n_bytes);
    blob->n_bytes += n_bytes;
}

static void pad(struct blob *blob, size_t n_bytes)
{
    memset(blob->bytes + blob->n_bytes, 0, n_bytes - blob->n_bytes);
    blob->n_bytes = n_bytes;
}

static struct blob aligned_example(void)
{
    struct blob blob = {.n_bytes = 0};
    put_hex(&blob,
            "4E525542 0100 94000000 A2 67 74656E736F7273 A2 67 66632E62696173 A3 65 6474797065"
            "63 463332 65 7368617065 8103 6C 646174615F6F666673657473 82 190100 19010C"
            "69 66632E776569676874 A4 65 6474797065 63 463332 65 7368617065 820203"
            "6C 646174615F6F666673657473 82 00 1818 68 706172616D5F6964 1B0123456789ABCDEF"
            "68 6D65746164617461 A1 66 666F726D6174 68 6275726E7061636B");
    pad(&blob, 256);
    put(&blob, example_weight, sizeof(example_weight));
    pad(&blob, 512);
    put(&blob, example_bias, sizeof(example_bias));
    return blob;
}

static struct blob packed_example(void)
{
    struct blob blob = {.n_bytes = 0};
    put_hex(&blob,
            "4E525542 0100 92000000 A2 67 74656E736F7273 A2 67 66632E62696173 A3 65 6474797065"
            "63 463332 65 7368617065 8103 6C 646174615F6F666673657473 82 1818 1824"
            "69 66632E776569676874 A4 65 6474797065 63 463332 65 7368617065 820203"
            "6C 646174615F6F666673657473 82 00 1818 68 706172616D5F6964 1B0123456789ABCDEF"
            "68 6D65746164617461 A1 66 666F726D6174 68 6275726E7061636B");
    put(&blob, example_weight, sizeof(example_weight));
    put(&blob, example_bias, sizeof(example_bias));
    return blob;
}

static int load_with(const void *bytes, size_t n_bytes, const struct load_context *context,
                     struct wfs_catalog **out, struct wfs_error *err)
{
    struct source *source;
    *err = (struct wfs_error){0};
    if (source_new_memory("test.bpk", bytes, n_bytes, &source) < 0)
        abort();
    return load_source(source, context, out, err);
}

static int load(const struct blob *blob, struct wfs_catalog **out, struct wfs_error *err)
{
    struct load_context context = {0};
    limits_init(&context.limits);
    return load_with(blob->bytes, blob->n_bytes, &context, out, err);
}

/* The file that a catalog makes. */
static int save(const struct wfs_catalog *catalog, struct blob *ret, struct wfs_error *err)
{
    struct wfs_layout *layout;
    *err = (struct wfs_error){0};
    const int code = wfs_layout_new(&format_burnpack, catalog, &layout, err);
    if (code < 0)
        return code;
    ret->n_bytes = (size_t)wfs_layout_n_bytes(layout);
    if (check(ret->n_bytes <= sizeof(ret->bytes)))
        check_int(wfs_layout_read(NULL, layout, 0, ret->bytes, ret->n_bytes),
                  (int64_t)ret->n_bytes);
    wfs_layout_free(layout);
    return 0;
}

static void check_blob(const struct blob *got, const struct blob *want)
{
    if (check_uint(got->n_bytes, want->n_bytes))
        check_bytes(got->bytes, want->bytes, want->n_bytes);
}

static void check_example(const struct blob *blob, const char *container, uint64_t weight,
                          uint64_t bias)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    struct wfs_error err;
    if (!check_int(load(blob, &catalog, &err), 0))
        return;
    check_str(wfs_catalog_container(catalog)->name, container);
    check_str(wfs_catalog_meta(catalog)->value, "burnpack");
    if (!check_uint(wfs_catalog_n_tensors(catalog), 2))
        return;
    const struct wfs_tensor *first = wfs_catalog_tensor(catalog, 0);
    const struct wfs_tensor *second = wfs_catalog_tensor(catalog, 1);
    uint8_t bytes[24];
    check_str(first->key, "fc.weight");
    check_str(second->key, "fc.bias");
    check_str(wfs_tensor_attr(first, "param_id"), "81985529216486895");
    check(wfs_tensor_attr(second, "param_id") == NULL);
    check_uint(first->stored.offset, weight);
    check_uint(second->stored.offset, bias);
    check_uint(first->shape.rank, 2);
    check_int(wfs_tensor_read(first, 0, bytes, sizeof(bytes)), 24);
    check_bytes(bytes, example_weight, sizeof(example_weight));
    check_int(wfs_tensor_read(second, 0, bytes, sizeof(bytes)), 12);
    check_bytes(bytes, example_bias, sizeof(example_bias));
}

static void test_worked_examples_are_read(void)
{
    const struct blob aligned = aligned_example(), packed = packed_example();
    check_uint(aligned.n_bytes, 524);
    check_uint(packed.n_bytes, 192);
    check_example(&aligned, "burnpack", 256, 512);
    check_example(&packed, "burnpack in the packed layout", 156, 180);
}

static void test_worked_example_is_written(void)
{
    const struct blob aligned = aligned_example(), packed = packed_example();
    struct wfs_error err;
    for (unsigned i = 0; i < 2; i++) {
        auto_catalog struct wfs_catalog *catalog = NULL;
        struct blob got;
        check_int(load(i == 0 ? &aligned : &packed, &catalog, &err), 0);
        check_int(save(catalog, &got, &err), 0);
        check_blob(&got, &aligned);
    }
}

static void test_empty_pack(void)
{
    struct blob want = {.n_bytes = 0}, got;
    auto_catalog struct wfs_catalog *catalog = NULL;
    struct wfs_error err;
    put_hex(&want, "4E525542 0100 0A000000 A1 67 74656E736F7273 A0");
    const struct blob packed = want;
    pad(&want, 256);
    check_int(load(&packed, &catalog, &err), 0);
    check_uint(wfs_catalog_n_tensors(catalog), 0);
    check_int(save(catalog, &got, &err), 0);
    check_blob(&got, &want);
}

static struct wfs_catalog *new_catalog(const char *format, struct source *source)
{
    struct wfs_catalog *catalog;
    if (catalog_new(&catalog) < 0 || catalog_adopt_source(catalog, source) < 0)
        abort();
    catalog->format = wfs_format_by_name(format);
    catalog->values.graph.arena = &catalog->arena;
    return catalog;
}

static struct source *zeros(void)
{
    static const uint8_t bytes[4096];
    struct source *source;
    if (source_new_memory("zeros", bytes, sizeof(bytes), &source) < 0)
        abort();
    return source;
}

static struct wfs_tensor *add(struct wfs_catalog *catalog, const char *key, enum wfs_dtype dtype,
                              const uint64_t *dims, uint32_t rank)
{
    struct wfs_tensor *tensor = catalog_add(catalog);
    if (tensor == NULL)
        abort();
    tensor->key = key;
    tensor->dtype = tensor->stored.dtype = (uint8_t)dtype;
    tensor->shape = (struct wfs_shape){rank, dims};
    tensor->stored.source = catalog->sources.list[0];
    if (wfs_shape_bytes(&tensor->shape, dtype, &tensor->n_bytes) < 0)
        abort();
    return tensor;
}

static void test_only_what_has_room_is_written(void)
{
    static const uint8_t has_room[] = {WFS_BOOL, WFS_U8,   WFS_I8,  WFS_I16,    WFS_U16,
                                       WFS_F16,  WFS_BF16, WFS_I32, WFS_U32,    WFS_F32,
                                       WFS_F64,  WFS_I64,  WFS_U64, WFS_FLEX32, WFS_BOOL32};
    static const uint64_t dims[] = {256}; /* whole blocks of every dtype */
    for (unsigned dtype = 0; dtype < WFS_N_DTYPES; dtype++) {
        auto_catalog struct wfs_catalog *catalog = new_catalog("burnpack", zeros());
        struct blob got;
        struct wfs_error err;
        add(catalog, "layer.w", (enum wfs_dtype)dtype, dims, 1);
        const int code = save(catalog, &got, &err);
        if (memchr(has_room, (int)dtype, sizeof(has_room)) != NULL) {
            check_int(code, 0);
            continue;
        }
        check_int(code, -EOPNOTSUPP);
        check(strstr(err.text, "'layer.w'") != NULL);
        check(dtype == WFS_OPAQUE ||
              strstr(err.text, wfs_dtype_name((enum wfs_dtype)dtype)) != NULL);
    }
}

static void test_place_of_tensors(void)
{
    static const uint64_t one[] = {1}, none[] = {0}, many[] = {257};
    auto_catalog struct wfs_catalog *catalog = new_catalog("burnpack", zeros());
    auto_catalog struct wfs_catalog *again = NULL;
    struct blob got;
    struct wfs_error err;
    add(catalog, "z", WFS_U8, one, 1);
    add(catalog, "b", WFS_U8, many, 1);
    add(catalog, "y", WFS_F32, none, 1);
    add(catalog, "c", WFS_F64, NULL, 0);
    add(catalog, "x", WFS_F32, none, 1);
    add(catalog, "a", WFS_F32, none, 1);
    check_int(save(catalog, &got, &err), 0);
    check_int(load(&got, &again, &err), 0);
    static const struct {
        const char *key;
        uint64_t offset;
    } want[] = {{"z", 0}, {"b", 256}, {"y", 768}, {"c", 768}, {"a", 1024}, {"x", 1024}};
    const uint64_t start = again->tensors[0].stored.offset;
    check_uint(start % 256, 0);
    for (size_t i = 0; i < 6; i++) {
        check_str(again->tensors[i].key, want[i].key);
        check_uint(again->tensors[i].stored.offset - start, want[i].offset);
    }
    /* What has no bytes comes last and still is a place in the file. */
    check_uint(got.n_bytes, start + 1024);
}

static void test_metadata_of_new_files(void)
{
    auto_catalog struct wfs_catalog *catalog = new_catalog("safetensors", zeros());
    auto_catalog struct wfs_catalog *again = NULL;
    static const char *const want[] = {"format",   "burnpack", "note",    "kept",
                                       "producer", "burn",     "version", "0.22.1"};
    struct blob got;
    struct wfs_error err;
    catalog_add_meta(catalog, "note", "kept");
    catalog_add_meta(catalog, "format", "pt");
    check_int(save(catalog, &got, &err), 0);
    check_int(load(&got, &again, &err), 0);
    size_t i = 0;
    for (const struct wfs_text *text = again->meta.first; text != NULL && i < 8;
         text = text->next) {
        check_str(text->name, want[i++]);
        check_str(text->value, want[i++]);
    }
    check_uint(i, 8);
}

/* A version that told the layout must not survive it. */
static void test_version_of_the_packed_layout_is_replaced(void)
{
    static const char *const cases[][3] = {
        {"burn", "0.19.1", "0.22.1"},
        {"burn", "0.20.0-pre.4", "0.22.1"},
        {"burn", "0.20.0-pre.5", "0.20.0-pre.5"},
        {"burn", "0.21.0", "0.21.0"},
        {"me", "0.19.1", "0.19.1"},
    };
    for (size_t i = 0; i < 5; i++) {
        auto_catalog struct wfs_catalog *catalog = new_catalog("burnpack", zeros());
        auto_catalog struct wfs_catalog *again = NULL;
        struct blob got;
        struct wfs_error err;
        catalog_add_meta(catalog, "producer", cases[i][0]);
        catalog_add_meta(catalog, "version", cases[i][1]);
        check_int(save(catalog, &got, &err), 0);
        check_int(load(&got, &again, &err), 0);
        check_str(again->meta.first->next->value, cases[i][2]);
        check(again->meta.first->next->next == NULL);
    }
}

static void test_param_ids(void)
{
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        {"0", 0},
        {"18446744073709551615", 0},
        {"18446744073709551616", -EINVAL},
        {"", -EINVAL},
        {"-1", -EINVAL},
        {"12a", -EINVAL},
        {" 1", -EINVAL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        auto_catalog struct wfs_catalog *catalog = new_catalog("burnpack", zeros());
        auto_catalog struct wfs_catalog *again = NULL;
        struct blob got;
        struct wfs_error err;
        catalog_add_attr(catalog, add(catalog, "w", WFS_F32, NULL, 0), "param_id", cases[i].text);
        check_int(save(catalog, &got, &err), cases[i].code);
        if (cases[i].code < 0)
            continue;
        check_int(load(&got, &again, &err), 0);
        check_str(wfs_tensor_attr(&again->tensors[0], "param_id"), cases[i].text);
    }
}

static void check_emitted(struct strbuf *out, const char *hex)
{
    struct blob want = {.n_bytes = 0};
    put_hex(&want, hex);
    if (check(!out->has_failed) && check_uint(out->n_bytes, want.n_bytes))
        check_bytes(out->bytes, want.bytes, want.n_bytes);
    strbuf_done(out);
}

static void test_spelling_of_numbers(void)
{
    static const struct {
        double real;
        const char *hex;
    } reals[] = {
        {0.001, "FB3F50624DD2F1A9FC"},
        {0.5, "F93800"},
        {0.0, "F90000"},
        {-0.0, "F98000"},
        {65504, "F97BFF"},
        {65505, "FA477FE100"},
        {5.960464477539063e-8, "F90001"},
        {6.103515625e-5, "F90400"},
        {8.940696716308594e-8, "FA33C00000"},
        {(double)0.1F, "FA3DCCCCCD"},
        {INFINITY, "F97C00"},
        {-INFINITY, "F9FC00"},
        {(double)NAN, "F97E00"},
        {1e300, "FB7E37E43C8800759C"},
    };
    struct strbuf out = {0};
    for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++) {
        cborout_real(&out, reals[i].real);
        check_emitted(&out, reals[i].hex);
    }
    cborout_int(&out, -3);
    cborout_uint(&out, 42);
    cborout_uint(&out, 23);
    cborout_uint(&out, 256);
    cborout_uint(&out, 65536);
    cborout_uint(&out, 4294967296);
    cborout_int(&out, INT64_MIN);
    cborout_bool(&out, true);
    cborout_array(&out, 0);
    check_emitted(&out, "22 182A 17 190100 1A00010000 1B0000000100000000 3B7FFFFFFFFFFFFFFF F5 80");
}

static bool skips(const char *hex, uint64_t depth_max, struct cbor_in *in)
{
    struct blob blob = {.n_bytes = 0};
    put_hex(&blob, hex);
    /* In memory of just its size, so that a sanitizer sees a look beyond its end. */
    uint8_t *copy = malloc(blob.n_bytes > 0 ? blob.n_bytes : 1);
    if (copy == NULL)
        abort();
    memcpy(copy, blob.bytes, blob.n_bytes);
    cborin_init(in, copy, blob.n_bytes, depth_max);
    const bool is_ok = cborin_skip(in) && cborin_offset(in) == blob.n_bytes;
    check(in->error != NULL || memcmp(copy, blob.bytes, blob.n_bytes) == 0);
    cborin_done(in);
    free(copy);
    return is_ok;
}

static void test_whole_values(void)
{
    static const char *const good[] = {
        "00",
        "1BFFFFFFFFFFFFFFFF",
        "3BFFFFFFFFFFFFFFFF",
        "60",
        "63616263",
        "7F6161FF",
        "5F4101FF",
        "80",
        "9FFF",
        "BFFF",
        "A10102",
        "BF0102FF",
        "C101",
        "D9D9F701",
        "F4",
        "F6",
        "F7",
        "F93C00",
        "FA3F800000",
        "FB3FF0000000000000",
        "9F9F9FFFFFFF",
        "BF61617F6162FFFF",
    };
    static const char *const bad[] = {
        "",
        "18",
        "1C",
        "62C328",
        "6261",
        "FF",
        "9F",
        "81",
        "A1",
        "A101",
        "BF01FF",
        "7F4161FF",
        "7F7F6161FFFF",
        "5F6161FF",
        "9BFFFFFFFFFFFFFFFF",
        "BBFFFFFFFFFFFFFFFF",
        "BB8000000000000000",
        "7BFFFFFFFFFFFFFFFF",
        "C1",
        "F8FF",
        "FC",
        "81FF",
    };
    struct cbor_in in;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        if (!check(skips(good[i], 128, &in)))
            printf("# %s: %s\n", good[i], in.error);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (!check(!skips(bad[i], 128, &in)))
            printf("# %s\n", bad[i]);
    }
}

static void test_nesting_has_a_bound(void)
{
    struct cbor_in in;
    check(skips("818180", 3, &in));
    check(!in.is_too_deep);
    check(!skips("81818180", 3, &in));
    check(in.is_too_deep);
    check(skips("9F9F9FFFFFFF", 3, &in));
    check(!skips("9F9F9F9FFFFFFFFF", 3, &in));
    check(!skips("80", 0, &in));
}

static void test_texts_in_pieces_are_joined(void)
{
    struct blob blob = {.n_bytes = 0};
    struct cbor_in in;
    struct cbor_span text;
    put_hex(&blob, "7F 6161 60 626263 6164 FF 6165");
    cborin_init(&in, blob.bytes, blob.n_bytes, 128);
    check(cborin_text(&in, &text));
    check(cbor_span_is(&text, "abcd"));
    check(cborin_text(&in, &text));
    check(cbor_span_is(&text, "e"));
    cborin_done(&in);
}

/* All kinds of numbers as scalars, twice the range of texts as metadata, and a quantized tensor. */
static struct blob rich_example(void)
{
    struct blob blob = {.n_bytes = 0};
    put_hex(&blob,
            "4E525542 0100 00000000 A3 67 74656E736F7273 A1 61 71 A3 65 6474797065"
            "A1 66 51466C6F6174 A2 65 76616C7565 63 513853 65 626C6F636B F6"
            "65 7368617065 8104 6C 646174615F6F666673657473 8200 08"
            "68 6D65746164617461 A1 61 6D 63 610062"
            "67 7363616C617273 A5 61 61 A1 63 496E74 22 61 62 A1 64 55496E74 1BFFFFFFFFFFFFFFFF"
            "61 63 A1 65 466C6F6174 F93800 61 64 A1 64 426F6F6C F5 61 65 A1 64 55496E74 05");
    store_le32(blob.bytes + 6, (uint32_t)blob.n_bytes - 10);
    pad(&blob, 256);
    put(&blob, "12345678", 8);
    return blob;
}

static void test_everything_comes_back(void)
{
    const struct blob blob = rich_example();
    auto_catalog struct wfs_catalog *catalog = NULL;
    struct blob got;
    struct wfs_error err;
    if (!check_int(load(&blob, &catalog, &err), 0))
        return;
    check_uint(catalog->tensors[0].dtype, WFS_OPAQUE);
    check_str(wfs_tensor_attr(&catalog->tensors[0], "quantization"),
              "{\"value\":\"Q8S\",\"block\":null}");
    check_uint(catalog->meta.first->n_bytes, 3);
    check_uint(catalog->values.n, 5);
    check_int(save(catalog, &got, &err), 0);
    check_blob(&got, &blob);
}

/* With every amount of memory: a sentence, and nothing left behind. */
static void test_index_memory_runs_out(void)
{
    const struct blob blob = rich_example();
    struct load_context context = {0};
    limits_init(&context.limits);
    int code = -1;
    for (uint64_t limit = 1; code < 0 && limit < 1 << 20; limit += 61) {
        struct wfs_catalog *catalog = NULL;
        struct wfs_error err;
        context.limits.index_memory = limit;
        code = load_with(blob.bytes, blob.n_bytes, &context, &catalog, &err);
        if (code < 0 &&
            (!check_int(code, -E2BIG) || !check(strstr(err.text, "limit index_memory"))))
            break;
        wfs_catalog_free(catalog);
    }
    check_int(code, 0);
}

static void test_every_cut_is_told(void)
{
    const struct blob blob = aligned_example();
    struct load_context context = {0};
    limits_init(&context.limits);
    for (size_t n = 4; n < blob.n_bytes; n++) {
        struct wfs_catalog *catalog = NULL;
        struct wfs_error err;
        uint8_t *copy = malloc(n);
        if (copy == NULL)
            abort();
        memcpy(copy, blob.bytes, n);
        check_int(load_with(copy, n, &context, &catalog, &err), -EBADMSG);
        check(strstr(err.text, "truncated") != NULL);
        free(copy);
    }
}

int main(void)
{
    check_run(test_worked_examples_are_read);
    check_run(test_worked_example_is_written);
    check_run(test_empty_pack);
    check_run(test_only_what_has_room_is_written);
    check_run(test_place_of_tensors);
    check_run(test_metadata_of_new_files);
    check_run(test_version_of_the_packed_layout_is_replaced);
    check_run(test_param_ids);
    check_run(test_spelling_of_numbers);
    check_run(test_whole_values);
    check_run(test_nesting_has_a_bound);
    check_run(test_texts_in_pieces_are_joined);
    check_run(test_everything_comes_back);
    check_run(test_index_memory_runs_out);
    check_run(test_every_cut_is_told);
    return check_done();
}
