/* SPDX-License-Identifier: MIT */
/*
 * Views: each pass over a catalog, what is refused, the reports.
 */
#include "viewkit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <jansson.h>

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/view.h>

#include "catalog/catalog.h"
#include "view/pass.h"

static void check_keys(const char *format, const char *before, const char *const *options,
                       const char *after)
{
    struct wfs_catalog *catalog = catalog_of(format, before);
    struct wfs_report *report = NULL;
    struct wfs_error err = {0};
    if (!check_int(apply(catalog, NULL, options, &report, &err), 0))
        printf("# %s\n", err.text);
    autofree char *keys = keys_of(catalog);
    check_str(keys, after);
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

static void check_refused(const char *before, const char *const *options, const char *text)
{
    struct wfs_catalog *catalog = catalog_of("safetensors", before);
    struct wfs_report *report = NULL;
    struct wfs_error err = {0};
    check_int(apply(catalog, NULL, options, &report, &err), -EINVAL);
    check_str(err.text, text);
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

/* ---- passes on keys ---- */

static void test_remaps_follow_each_other(void)
{
    check_keys("safetensors", "model.a.w model.b.w", OPTIONS("remap=^model\\.=>", "remap=a=>b2"),
               "b2.w b.w");
    check_keys("safetensors", "norm1.w", OPTIONS("remap=norm(\\d)=>n\\1x"), "n1x.w");
}

static void test_top_level_key(void)
{
    check_keys("pytorch", "state.a.w state.b epoch", OPTIONS("top_level_key=state"), "a.w b");
    check_keys("pytorch", "x.y.a x.z", OPTIONS("top_level_key=x.y"), "a");
    check_refused("a.w b.w b.c", OPTIONS("top_level_key=model"),
                  "top_level_key: no tensor is below 'model'; top-level keys are a, b");
}

static void test_contiguous_rows(void)
{
    check_keys("safetensors", "fc.0.weight fc.2.weight fc.4.weight", OPTIONS("contiguous=on"),
               "fc.0.weight fc.1.weight fc.2.weight");
    check_keys("safetensors", "a.0.b.0.c.0.w a.0.b.0.c.2.w a.0.b.2.c.0.w a.2.b.0.c.0.w",
               OPTIONS("contiguous=on"), "a.0.b.0.c.0.w a.0.b.0.c.1.w a.0.b.1.c.0.w a.1.b.0.c.0.w");
    check_keys("safetensors", "encoder.0.weight encoder.2.weight decoder.1.weight decoder.5.weight",
               OPTIONS("contiguous=on"),
               "encoder.0.weight encoder.1.weight decoder.0.weight decoder.1.weight");
    check_keys("safetensors", "out.weight 18446744073709551616.a 18446744073709551615.b",
               OPTIONS("contiguous=on"), "out.weight 18446744073709551616.a 0.b");
    check_keys("safetensors", "a.007.w a.+9.w a.-1.w", OPTIONS("contiguous=on"),
               "a.0.w a.1.w a.-1.w");
    check_keys("safetensors", "a.1.w b.1.w", OPTIONS("contiguous=on", "contiguous_except=^a$"),
               "a.1.w b.0.w");
    check_keys("pytorch", "a.1.w", OPTIONS("to=burn"), "a.0.w");
    check_keys("safetensors", "a.1.w", OPTIONS("to=burn"), "a.1.w");
    check_keys("pytorch", "a.1.w", OPTIONS("to=burn", "contiguous=off"), "a.1.w");
}

static void test_filters(void)
{
    const char *keys = "enc.w enc.b dec.w";
    check_keys("safetensors", keys, OPTIONS("include=^enc"), "enc.w enc.b");
    check_keys("safetensors", keys, OPTIONS("include=^enc", "key=dec.w"), keys);
    check_keys("safetensors", keys, OPTIONS("exclude=b$"), "enc.w dec.w");
    check_keys("safetensors", keys, OPTIONS("where=leaf==w && !(key=~'^dec')"), "enc.w");
    check_keys("safetensors", keys, OPTIONS("where=rank>=1 && bytes==24 && shape==[*]"), keys);
    check_keys("safetensors", keys, OPTIONS("where=dtype!=F32 || leaf == 'b'"), "enc.b");
    check_refused(keys, OPTIONS("include=nothing"), "include='nothing' matches none of 3 tensors");
    check_refused(
        keys, OPTIONS("where=rank"),
        "where: bad condition 'rank': expected ==, !=, <, <=, > or >= after 'rank', found the end");
    check_refused(keys, OPTIONS("include=^x", "exclude=y"), "the filters exclude all of 3 tensors");
    check_refused(keys, OPTIONS("exclude=[ed]"), "exclude='[ed]' excludes all of 3 tensors");
}

/* Each is wrong at one place, and the message says what belongs there. */
static void test_conditions_that_are_wrong(void)
{
    static const char *const rows[][2] = {
        {"rank=2", "expected ==, !=, <, <=, > or >= after 'rank', found '=2'"},
        {"key<2", "expected ==, !=, =~ or !~ after 'key', found '<2'"},
        {"rank =~ 2", "expected ==, !=, <, <=, > or >= after 'rank', found '=~'"},
        {"rank==2 &&", "expected key, leaf, rank, dtype, bytes, shape or class after '&&', found "
                       "the end"},
        {"ranc==2", "expected key, leaf, rank, dtype, bytes, shape or class, found 'ranc==2'"},
        {"rank==2 dtype==F32", "expected && or || after '2', found 'dtype==F32'"},
        {"(rank==2", "expected ')', && or || after '2', found the end"},
        {"rank==2)", "expected && or || after '2', found ')'"},
        {"leaf == ", "expected a value after '==', found the end"},
        {"leaf=='a", "unterminated quote"},
        {"rank==two", "'two' is not a number"},
        {"dtype==F17", "unknown dtype 'F17' (write it as 'ls' does: F32)"},
        {"class==lin", "unknown class 'lin' (write it as 'plan' does: linear)"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char option[64], want[WFS_ERROR_TEXT_MAX];
        snprintf(option, sizeof(option), "where=%s", rows[i][0]);
        snprintf(want, sizeof(want), "where: bad condition '%s': %s", wfs_quote(rows[i][0]).text,
                 rows[i][1]);
        check_refused("a", OPTIONS(option), want);
    }
}

static void test_enum_variants(void)
{
    const char *keys = "feature.BaseConv.conv.w stages.0.Proj.w A.BaseConv";
    check_keys("safetensors", keys, OPTIONS("drop_variants=auto"),
               "feature.conv.w stages.0.w A.BaseConv");
    check_keys("safetensors", keys, OPTIONS("drop_variants=feature.BaseConv"),
               "feature.conv.w stages.0.Proj.w A.BaseConv");
    check_keys("safetensors", keys, OPTIONS("drop_variants=Proj"),
               "feature.BaseConv.conv.w stages.0.w A.BaseConv");
}

static void test_collisions(void)
{
    check_refused("a.w b.w", OPTIONS("remap=^b=>a"),
                  "'a.w' and 'b.w' would both be called 'a.w'; on_collision=suffix numbers them");
    check_keys("safetensors", "a.w b.w", OPTIONS("remap=^b=>a", "on_collision=suffix"),
               "a.w a.w_2");
    check_keys("safetensors", "a a", OPTIONS("include=a"), "a a");
}

static void test_numbers_avoid_all_final_keys(void)
{
    check_keys("safetensors", "alpha x.1 y.1 w_2",
               OPTIONS("remap=^[xy]\\.1$=>w", "on_collision=suffix"), "alpha w w_3 w_2");
    check_keys("safetensors", "x.1 y.1 w_3 z.1 w_2_2",
               OPTIONS("remap=^[xyz]\\.1$=>w", "on_collision=suffix"), "w w_2 w_3 w_4 w_2_2");
    check_keys("safetensors", "x.1 x.2 y.1 y.2", OPTIONS("remap=^.\\.=>w_", "on_collision=suffix"),
               "w_1 w_2 w_1_2 w_2_2");
    check_keys("safetensors", "x.1 x.2 w w.2",
               OPTIONS("remap=^x\\.1$=>w", "remap=^(x|w)\\.2$=>w_2", "on_collision=suffix"),
               "w w_2 w_3 w_2_2");
    check_keys("safetensors", "a.w b.w c.w_2",
               OPTIONS("split=^a\\.w$=>x,x", "remap=^[bc]\\.=>x", "on_collision=suffix"),
               "x x_2 xw xw_2");
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Keys over few letters and numbers, of which many become one, and some look like numbered ones. */
static void test_keys_are_unique_after_numbering(void)
{
    unsigned seed = 1;
    for (unsigned round = 0; round < 200; round++) {
        struct wfs_catalog *catalog = catalog_of("safetensors", "first");
        for (unsigned i = 0; i < 30; i++) {
            char key[32];
            seed = seed * 1103515245 + 12345;
            snprintf(key, sizeof(key), seed >> 16 & 1 ? "%c.w_%u" : "%c.w",
                     'a' + (int)(seed >> 20 & 3), 2 + (seed >> 24 & 3));
            if (wfs_catalog_find(catalog, key) == NULL)
                add_tensor(catalog, key, WFS_F32, 0, NULL);
        }
        struct wfs_report *report = NULL;
        check_int(apply(catalog, NULL, OPTIONS("remap=^[a-c]\\.=>", "on_collision=suffix"), &report,
                        NULL),
                  0);
        const char *keys[32];
        for (size_t i = 0; i < catalog->n_tensors; i++)
            keys[i] = catalog->tensors[i].key;
        qsort(keys, catalog->n_tensors, sizeof(*keys), compare_texts);
        for (size_t i = 1; i < catalog->n_tensors; i++)
            check(strcmp(keys[i - 1], keys[i]) != 0);
        wfs_report_free(report);
        wfs_catalog_free(catalog);
    }
}

/* When each number was looked for from 2 on, this took an hour. */
static void test_many_keys_are_numbered_in_linear_time(void)
{
    enum { N = 100000 };
    struct wfs_catalog *catalog = catalog_of("safetensors", "first");
    for (unsigned i = 0; i < N; i++) {
        char key[32];
        snprintf(key, sizeof(key), "x.%u", i);
        add_tensor(catalog, key, WFS_F32, 0, NULL);
    }
    struct wfs_report *report = NULL;
    check_int(
        apply(catalog, NULL, OPTIONS("remap=^x\\..*=>w", "on_collision=suffix"), &report, NULL), 0);
    check_str(catalog->tensors[1].key, "w");
    check_str(catalog->tensors[N].key, "w_100000");
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

static void test_options_that_are_wrong(void)
{
    static const char *const rows[][2] = {
        {"remap=abc", "remap: 'abc' is not of the form s/REGEX/TEXT/"},
        {"remap=a=",
         "remap: 'a=' is not of the form s/REGEX/TEXT/ (the shell has taken an unquoted > "
         "away)"},
        {"contiguous=maybe", "contiguous: must be auto, on or off, not 'maybe'"},
        {"to=keras", "to: must be burn, torch or none, not 'keras'"},
        {"cast=F17",
         "cast: unknown dtype 'F17'; known are F64, F32, F16, BF16, F8_E4M3, F8_E5M2, "
         "F8_E4M3FNUZ, F8_E5M2FNUZ, F8_E8M0, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, "
         "Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1"},
        {"permute=a=>0,0",
         "permute: '0,0' is not a permutation: each number from 0 to 1 must occur once"},
        {"partial=1", "partial: takes no value"},
        {"include", "include: needs a value: include=REGEX"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct wfs_view *view = NULL;
        struct wfs_error err = {0};
        check_int(wfs_view_new(&view), 0);
        check_int(wfs_view_add(view, rows[i][0], &err), -EINVAL);
        check_str(err.text, rows[i][1]);
        check_int(wfs_view_add(view, "allow_other", NULL), 0);
        wfs_view_free(view);
    }
}

/* Reads come in pieces of five bytes and are interrupted in between, as on a network filesystem. */
static bool has_short_reads;

ssize_t pread(int fd, void *bytes, size_t n_bytes, off_t offset)
{
    static unsigned n_calls;
    if (has_short_reads && n_calls++ % 2 == 0) {
        errno = EINTR;
        return -1;
    }
    return syscall(SYS_pread64, fd, bytes, has_short_reads && n_bytes > 5 ? 5 : n_bytes, offset);
}

static void test_a_rules_file_is_read_in_pieces(void)
{
    static const char rules[] = "[{\"remap\": \"^a=>b\"}, {\"exclude\": \"c$\"}]";
    char path[] = "/tmp/test_view.XXXXXX", option[64];
    const int fd = mkstemp(path);
    check(fd >= 0 && write(fd, rules, sizeof(rules) - 1) == (ssize_t)sizeof(rules) - 1);
    close(fd);
    snprintf(option, sizeof(option), "rules=%s", path);
    has_short_reads = true;
    check_keys("safetensors", "a.w a.c", OPTIONS(option), "b.w");
    has_short_reads = false;
    unlink(path);
}

/* ---- adapters and surgery ---- */

static struct wfs_catalog *small_model(const char *format)
{
    struct wfs_catalog *catalog = NULL;
    check_int(catalog_new(&catalog), 0);
    catalog->format = wfs_format_by_name(format);
    add_tensor(catalog, "fc.weight", WFS_F32, 2, (const uint64_t[]){30, 20});
    add_tensor(catalog, "fc.bias", WFS_F32, 1, (const uint64_t[]){30});
    add_tensor(catalog, "norm.weight", WFS_F32, 1, (const uint64_t[]){30});
    add_tensor(catalog, "norm.bias", WFS_F32, 1, (const uint64_t[]){30});
    add_tensor(catalog, "odd.weight", WFS_F16, 2, (const uint64_t[]){6, 4});
    add_tensor(catalog, "n", WFS_I64, 0, NULL);
    return catalog;
}

static void check_shape(const struct wfs_catalog *catalog, const char *key, const char *want)
{
    const struct wfs_tensor *tensor = wfs_catalog_find(catalog, key);
    char shape[64] = "no such tensor";
    if (tensor != NULL)
        wfs_shape_format(&tensor->shape, shape, sizeof(shape));
    check_str(shape, want);
}

static void test_to_burn(void)
{
    struct wfs_catalog *catalog = small_model("pytorch");
    struct wfs_report *report = NULL;
    check_int(apply(catalog, NULL, OPTIONS("to=burn"), &report, NULL), 0);
    autofree char *keys = keys_of(catalog);
    check_str(keys, "fc.weight fc.bias norm.gamma norm.beta odd.weight n");
    check_shape(catalog, "fc.weight", "[20, 30]");
    check_shape(catalog, "odd.weight", "[6, 4]");
    check_uint(catalog->tensors[0].stored.strides[0], 1);
    check_uint(catalog->tensors[0].stored.strides[1], 20);
    check_str(catalog->tensors[0].changes,
              "transposed for burn (linear, certain: 5 matrix and bias)");
    check_str(wfs_tensor_origin(&catalog->tensors[2]), "norm.weight");
    check_str(wfs_report_notice(report), "0 tensors adapted by guess, 1 left undecided");
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

static void test_class_and_keep_decide(void)
{
    struct wfs_catalog *catalog = small_model("pytorch");
    struct wfs_report *report = NULL;
    check_int(apply(catalog, NULL,
                    OPTIONS("to=burn", "strict", "class=^odd$=>Struct:Linear", "keep=^norm"),
                    &report, NULL),
              0);
    autofree char *keys = keys_of(catalog);
    check_str(keys, "fc.weight fc.bias norm.weight norm.bias odd.weight n");
    check_shape(catalog, "odd.weight", "[4, 6]");
    check(wfs_report_notice(report) == NULL);
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

static void test_strict_refuses_guesses(void)
{
    struct wfs_catalog *catalog = small_model("pytorch");
    struct wfs_report *report = NULL;
    struct wfs_error err = {0};
    check_int(apply(catalog, NULL, OPTIONS("to=burn", "strict"), &report, &err), -EINVAL);
    check_str(err.text,
              "strict: the module type of 'odd.weight' is unknown (19 nothing); set it with "
              "class='^odd.:TYPE'; tensors without a certain type: 1");
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

static void test_surgery(void)
{
    struct wfs_catalog *catalog = small_model("safetensors");
    struct wfs_report *report = NULL;
    check_int(apply(catalog, NULL,
                    OPTIONS("transpose=^odd", "split=^fc\\.(\\w+)=>q.$1,k.$1,v.$1", "cast=BF16",
                            "permute=^q\\.weight=>1,0", "cast=^n$=>I32", "keep=^norm"),
                    &report, NULL),
              0);
    autofree char *keys = keys_of(catalog);
    check_str(keys, "q.weight k.weight v.weight q.bias k.bias v.bias norm.weight norm.bias "
                    "odd.weight n");
    check_shape(catalog, "odd.weight", "[4, 6]");
    check_shape(catalog, "q.weight", "[20, 10]");
    check_shape(catalog, "k.weight", "[10, 20]");
    const struct wfs_tensor *k = wfs_catalog_find(catalog, "k.weight");
    check_uint(k->stored.offset, 1000 + 10 * 20 * 4);
    check_int(k->dtype, WFS_BF16);
    check_uint(k->n_bytes, 400);
    check_int(wfs_catalog_find(catalog, "norm.weight")->dtype, WFS_F32);
    check_int(wfs_catalog_find(catalog, "n")->dtype, WFS_I32);
    check_str(wfs_catalog_find(catalog, "odd.weight")->changes, "transpose ^odd; cast F16 to BF16");
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

static void test_surgery_that_cannot_be(void)
{
    check_refused("a", OPTIONS("transpose=a"),
                  "cannot transpose 'a' (F32 [6]): it has only one dimension");
    check_refused("a", OPTIONS("split=a=>x,y,z,u"),
                  "cannot split 'a' (F32 [6]): 6 is not divisible into 4 equal parts");
    check_refused(
        "a", OPTIONS("permute=a=>1,0"),
        "cannot permute 'a' (F32 [6]): '1,0' is for tensors of rank 2, this one has rank 1");
    check_refused("a", OPTIONS("cast=a=>C64"),
                  "cannot cast 'a' (F32 [6]) to C64: casts are from BOOL, integers and floats "
                  "to those of 8 bits or more");
}

/* ---- like ---- */

static struct wfs_catalog *model_of_burn(void)
{
    struct wfs_catalog *catalog = NULL;
    check_int(catalog_new(&catalog), 0);
    catalog->format = wfs_format_by_name("burnpack");
    add_tensor(catalog, "norm.beta", WFS_F32, 1, (const uint64_t[]){30});
    add_tensor(catalog, "norm.gamma", WFS_F32, 1, (const uint64_t[]){30});
    add_tensor(catalog, "fc.weight", WFS_F32, 2, (const uint64_t[]){20, 30});
    add_tensor(catalog, "fc.bias", WFS_F32, 1, (const uint64_t[]){30});
    check_int(catalog_add_attr(catalog, &catalog->tensors[2], "param_id", "77"), 0);
    return catalog;
}

static void test_like_another_file(void)
{
    struct wfs_catalog *catalog = small_model("pytorch"), *like = model_of_burn();
    struct wfs_report *report = NULL;
    check_int(apply(catalog, like, OPTIONS("partial"), &report, NULL), 0);
    autofree char *keys = keys_of(catalog);
    check_str(keys, "norm.beta norm.gamma fc.weight fc.bias");
    check_shape(catalog, "fc.weight", "[20, 30]");
    check_str(wfs_tensor_attr(&catalog->tensors[2], "param_id"), "77");
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

static void check_like_refused(const char *key, enum wfs_dtype dtype, uint32_t rank,
                               const uint64_t *dims, const char *text)
{
    struct wfs_catalog *catalog = small_model("pytorch"), *like = model_of_burn();
    struct wfs_report *report = NULL;
    struct wfs_error err = {0};
    add_tensor(like, key, dtype, rank, dims);
    check_int(apply(catalog, like, OPTIONS("contiguous=off"), &report, &err), -EINVAL);
    check_str(err.text, text);
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

static void test_like_refuses(void)
{
    check_like_refused(
        "odd.weigth", WFS_F32, 2, (const uint64_t[]){6, 4},
        "like: 1 tensor is missing, first 'odd.weigth' (did you mean 'odd.weight'?); use "
        "the option 'partial' to accept that");
    check_like_refused("odd.weight", WFS_F32, 2, (const uint64_t[]){6, 5},
                       "like: 'odd.weight': shape mismatch: expected [6, 5], found [6, 4]; 1 "
                       "tensor does not fit");
    check_like_refused("n", WFS_F32, 0, NULL,
                       "like: 'n': dtype mismatch: expected F32, found I64; 1 tensor does not fit");
}

static void test_jaro(void)
{
    check(similarity_jaro("a", "a") == 1);
    check(similarity_jaro("abc", "xyz") == 0);
    const double value = similarity_jaro("martha", "marhta");
    check(value > 0.944 && value < 0.945);
    struct report_line lines[] = {{{"encoder.weight"}}, {{"feature.conv.w"}}};
    const struct report_lines unused = {lines, 2, 2};
    check_str(similarity_suggest("feature.BaseConv.conv.w", &unused), "feature.conv.w");
    check_str(similarity_suggest("encoder.weigth", &unused), "encoder.weight");
    check(similarity_suggest("zzz", &unused) == NULL);
}

static void test_reports_have_three_forms(void)
{
    struct wfs_catalog *catalog = small_model("pytorch");
    struct wfs_report *report = NULL;
    check_int(
        apply(catalog, NULL, OPTIONS("to=burn", "exclude=^n$", "remap=fc=>f\"c"), &report, NULL),
        0);
    char *text = NULL;
    size_t n = 0;
    check_int(wfs_report_write(report, WFS_REPORT_JSON, &text, &n), 0);
    json_t *json = json_loadb(text, n, 0, NULL);
    if (check(json != NULL)) {
        check_uint(json_array_size(json_object_get(json, "applied")), 5);
        check_str(json_string_value(json_array_get(json_object_get(json, "skipped"), 0)), "n");
        const json_t *undecided = json_object_get(json_object_get(json, "adapted"), "undecided");
        check_str(json_string_value(json_object_get(json_array_get(undecided, 0), "key")),
                  "odd.weight");
    }
    json_decref(json);
    free(text);
    check_int(wfs_report_write(report, WFS_REPORT_PLAN, &text, &n), 0);
    check(strstr(text, "\nn\t-\tI64\t[]\tother\tcertain\t25 no weight\tdropped: filter\n") != NULL);
    check(strstr(text, "\nnorm.weight\tnorm.gamma\tF32\t[30]\tnorm\tcertain\t21 norm name\t") !=
          NULL);
    free(text);
    check_int(wfs_report_write(report, WFS_REPORT_TEXT, &text, &n), 0);
    check(strncmp(text, "applied: 5\nskipped by filter: 1\n", 32) == 0);
    free(text);
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

/* ---- names as Burn made them ---- */

int main(void)
{
    check_run(test_remaps_follow_each_other);
    check_run(test_top_level_key);
    check_run(test_contiguous_rows);
    check_run(test_filters);
    check_run(test_conditions_that_are_wrong);
    check_run(test_enum_variants);
    check_run(test_collisions);
    check_run(test_numbers_avoid_all_final_keys);
    check_run(test_keys_are_unique_after_numbering);
    check_run(test_many_keys_are_numbered_in_linear_time);
    check_run(test_options_that_are_wrong);
    check_run(test_a_rules_file_is_read_in_pieces);
    check_run(test_to_burn);
    check_run(test_class_and_keep_decide);
    check_run(test_strict_refuses_guesses);
    check_run(test_surgery);
    check_run(test_surgery_that_cannot_be);
    check_run(test_like_another_file);
    check_run(test_like_refuses);
    check_run(test_jaro);
    check_run(test_reports_have_three_forms);
    return check_done();
}
