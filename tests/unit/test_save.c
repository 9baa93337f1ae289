/* SPDX-License-Identifier: MIT */
/*
 * Writing safetensors: the canonical form byte by byte, what cannot be written, any range of a
 * layout, and files that are saved whole or not at all.
 */
#include "check.h"
#include "made.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <weightfs/cleanup.h>

#include "base/bytes.h"
#include "format/registry.h"
#include "format/core/layout.h"

static char folder[] = "/tmp/weightfs-unit-XXXXXX";
static char kept[64]; /* path of an output that is there already */

static const char *in_folder(const char *name)
{
    static char paths[4][256];
    static unsigned i;
    char *path = paths[i++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static const uint64_t one[] = {1}, two[] = {2}, none[] = {0}, huge[] = {UINT64_C(1) << 60},
                      four[] = {4}, cube[] = {1, 2, 3};

/* What the layout has to be: the length of the header, its text, the data. */
static void check_layout(struct wfs_catalog *catalog, uint64_t n_header, const char *text,
                         const void *data, size_t n_data)
{
    struct wfs_layout *layout = NULL;
    struct wfs_error err = {0};
    char got[1024];
    if (!check_int(wfs_layout_new(&format_safetensors, catalog, &layout, &err), 0)) {
        printf("# %s\n", err.text);
    } else if (check_uint(wfs_layout_n_bytes(layout), 8 + n_header + n_data)) {
        check_int(wfs_layout_read(NULL, layout, 0, got, sizeof(got)),
                  (int64_t)(8 + n_header + n_data));
        check_uint(load_le64(got), n_header);
        check_bytes(got + 8, text, strlen(text));
        for (size_t i = strlen(text); i < n_header; i++)
            check(got[8 + i] == ' ');
        check_bytes(got + 8 + n_header, data, n_data);
    }
    wfs_layout_free(layout);
    wfs_catalog_free(catalog);
}

/* Written by the reference from the same tensors. */
static void canonical_form_is_that_of_the_reference(void)
{
    static const char numbers[] =
        "\0\0\0\0\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40";
    check_layout(made_catalog("", 0), 8, "{}", "", 0);

    struct wfs_catalog *catalog = made_catalog("", 0);
    check_int(catalog_add_meta(catalog, "framework", "pt"), 0);
    check_layout(catalog, 40, "{\"__metadata__\":{\"framework\":\"pt\"}}", "", 0);

    catalog = made_catalog(numbers, 24);
    made_tensor(catalog, "attn.0", WFS_F32, 3, cube, 0);
    check_layout(catalog, 64,
                 "{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}",
                 numbers, 24);

    catalog = made_catalog(numbers + 4, 4);
    made_tensor(catalog, "s", WFS_F32, 0, NULL, 0);
    check_layout(catalog, 56, "{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
                 numbers + 4, 4);

    catalog = made_catalog("*", 1);
    made_tensor(catalog, "a\"\\\n\1\xc3\xa9", WFS_U8, 1, one, 0);
    check_layout(
        catalog, 72,
        "{\"a\\\"\\\\\\n\\u0001\xc3\xa9\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
        "*", 1);

    catalog = made_catalog("\x21\x43", 2);
    made_tensor(catalog, "q", WFS_F4, 1, four, 0);
    check_layout(catalog, 56, "{\"q\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}",
                 "\x21\x43", 2);
}

static void tensors_are_ordered_by_dtype_then_key(void)
{
    static const char bytes[] = "\1\x80\x3f\0\x40\0\0\xc0\x3f\7\0\0\0\0\0\0";
    struct wfs_catalog *catalog = made_catalog(bytes, 17);
    made_tensor(catalog, "m", WFS_BOOL, 1, one, 0);
    made_tensor(catalog, "c", WFS_U8, 1, none, 0);
    made_tensor(catalog, "a", WFS_BF16, 1, two, 1);
    made_tensor(catalog, "b", WFS_F32, 1, one, 5);
    made_tensor(catalog, "z", WFS_I64, 1, one, 9);
    check_layout(catalog, 280,
                 "{\"z\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                 "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
                 "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[12,16]},"
                 "\"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[16,16]},"
                 "\"m\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[16,17]}}",
                 "\7\0\0\0\0\0\0\0\0\0\xc0\x3f\x80\x3f\0\x40\1", 17);

    /* Keys by their bytes, shorter first; U+FFFF before U+10000. */
    static const char *const keys[] = {"",
                                       "\1",
                                       "\"",
                                       "</x>",
                                       "A",
                                       "a",
                                       "a.10",
                                       "a.2",
                                       "\xc3\xa9",
                                       "\xef\xbf\xbf",
                                       "\xf0\x90\x80\x80"};
    enum { N_KEYS = sizeof(keys) / sizeof(keys[0]) };
    catalog = made_catalog("", 0);
    for (size_t i = 0; i < N_KEYS; i++)
        made_tensor(catalog, keys[(i * 7 + 3) % N_KEYS], WFS_U8, 1, none, 0);
    struct wfs_layout *layout = NULL;
    check_int(wfs_layout_new(&format_safetensors, catalog, &layout, NULL), 0);
    for (size_t i = 0; layout != NULL && i < N_KEYS; i++)
        check_str(layout->order[i]->key, keys[i]);
    wfs_layout_free(layout);
    wfs_catalog_free(catalog);
}

static void metadata_is_sorted_escaped_and_never_empty(void)
{
    struct wfs_catalog *catalog = made_catalog("", 0);
    check_int(catalog_add_meta(catalog, "format", "pt"), 0);
    check_int(catalog_add_meta_bytes(catalog, "\xc3\xa9\"\\\n", "\0\x7f\xe2\x80\xa8", 5), 0);
    check_int(catalog_add_meta(catalog, "", "\b\f\r\t/"), 0);
    check_layout(catalog, 72,
                 "{\"__metadata__\":{\"\":\"\\b\\f\\r\\t/\",\"format\":\"pt\","
                 "\"\xc3\xa9\\\"\\\\\\n\":\"\\u0000\x7f\xe2\x80\xa8\"}}",
                 "", 0);
    catalog = made_catalog("", 0);
    catalog->meta.exists = true;
    check_layout(catalog, 8, "{}", "", 0);
}

static void check_refused(struct wfs_catalog *catalog, int code, const char *text)
{
    struct wfs_layout *layout = NULL;
    struct wfs_error err = {0};
    check_int(wfs_layout_new(&format_safetensors, catalog, &layout, &err), -code);
    check_str(err.text, text);
    wfs_layout_free(layout);
    wfs_catalog_free(catalog);
}

static void dtypes_that_the_format_lacks_are_refused(void)
{
    static const struct {
        enum wfs_dtype dtype;
        const char *text;
    } cases[] = {
        {WFS_C128, "C128: "},
        {WFS_C32, "C32: "},
        {WFS_BITS8, "BITS8: "},
        {WFS_QI8, "QI8: "},
        {WFS_QI32, "QI32: "},
        {WFS_FLEX32, "FLEX32: cast=REGEX:DTYPE converts it, "},
        {WFS_BOOL32, "BOOL32: cast=REGEX:DTYPE converts it, "},
    };
    static const char bytes[16];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[128];
        struct wfs_catalog *catalog = made_catalog(bytes, sizeof(bytes));
        made_tensor(catalog, "ok", WFS_F32, 1, one, 0);
        made_tensor(catalog, "z", cases[i].dtype, 1, one, 0);
        snprintf(text, sizeof(text),
                 "tensor 'z': safetensors has no dtype %sexclude=REGEX leaves it out",
                 cases[i].text);
        check_refused(catalog, EOPNOTSUPP, text);
    }
}

static void what_nobody_could_read_back_is_refused(void)
{
    static const struct {
        const char *key, *text;
    } cases[] = {
        {"__metadata__", "a tensor cannot have the key '__metadata__', which safetensors reserves"},
        {"a\xed\xa0\x80",
         "the key 'a\\xed\\xa0\\x80' is not valid UTF-8, which safetensors requires"},
    };
    static const char bytes[16];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct wfs_catalog *catalog = made_catalog(bytes, sizeof(bytes));
        made_tensor(catalog, "ok", WFS_F32, 1, one, 0);
        made_tensor(catalog, cases[i].key, WFS_F32, 1, one, 0);
        check_refused(catalog, EINVAL, cases[i].text);
    }
    struct wfs_catalog *catalog = made_catalog(bytes, sizeof(bytes));
    struct wfs_tensor *tensor = made_tensor(catalog, "z", WFS_OPAQUE, 1, four, 0);
    check_int(catalog_add_attr(catalog, tensor, "dtype", "Q7"), 0);
    check_refused(catalog, EOPNOTSUPP,
                  "tensor 'z': safetensors cannot store its unknown dtype 'Q7'");
    catalog = made_catalog(bytes, sizeof(bytes));
    made_tensor(catalog, "z", WFS_F32, 1, one, 0)->n_bytes = 3;
    check_refused(catalog, EINVAL, "tensor 'z': dtype and shape take 4 bytes, it has 3");
    catalog = made_catalog(bytes, sizeof(bytes));
    made_tensor(catalog, "z", WFS_F32, 1, one, 0);
    made_tensor(catalog, "z", WFS_U8, 1, one, 0);
    check_refused(catalog, EINVAL, "two tensors have the key 'z'");
    catalog = made_catalog(bytes, sizeof(bytes));
    check_int(catalog_add_meta(catalog, "k", "\xff"), 0);
    check_refused(catalog, EINVAL, "the metadata 'k' is not valid UTF-8");
    catalog = made_catalog(bytes, sizeof(bytes));
    made_tensor(catalog, "z", WFS_F4, 1, one, 0);
    check_refused(catalog, EINVAL,
                  "tensor 'z': its shape does not fill whole bytes of F4 below 2^63");
    catalog = made_catalog(bytes, sizeof(bytes));
    static const char *const keys[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    for (size_t i = 0; i < 8; i++)
        made_tensor(catalog, keys[i], WFS_U8, 1, huge, 0);
    catalog->sources.list[0]->n_bytes = huge[0]; /* nothing is read */
    check_refused(catalog, EFBIG, "tensor 'h' would end past byte 2^63 of the file");
    catalog = made_catalog(bytes, sizeof(bytes));
    made_tensor(catalog, "z", WFS_F32, 1, one, 0)->trouble = "its data is lost";
    check_refused(catalog, EIO, "tensor 'z': its data is lost");
}

/* A limit of one format with the name of another one could not be set. */
static void limits_of_formats_are_found_by_their_names(void)
{
    const struct wfs_limit *limit;
    struct limits limits;
    char text[64];
    limits_init(&limits);
    for (size_t i = 0; (limit = registry_limit(i)) != NULL; i++) {
        check_uint(limits_own(&limits, limit), limit->value);
        snprintf(text, sizeof(text), "%s=%zu", limit->name, 1 + i);
        check_int(limits_set(&limits, text, registry_limit, NULL), 0);
        check(limit->reason[0] != '\0');
    }
    check(limits.n_own <= LIMITS_OWN_MAX);
    for (size_t i = 0; (limit = registry_limit(i)) != NULL; i++)
        check_uint(limits_own(&limits, limit), 1 + i);
    const struct listing_limits listing = {0};
    limits_max(&limits, &listing);
    for (size_t i = 0; (limit = registry_limit(i)) != NULL; i++)
        check_uint(limits_own(&limits, limit), UINT64_MAX);
}

static void no_more_options_than_there_is_room_for(void)
{
    const struct wfs_format *format;
    size_t n = 0;
    for (size_t i = 0; (format = wfs_format_at(i)) != NULL; i++) {
        for (const struct wfs_option *o = format->options; o != NULL && o->name != NULL; o++)
            n++;
    }
    check(n > 0 && n <= WFS_OPTIONS_MAX);
}

static void every_format_checks_the_size_of_a_tensor(void)
{
    static const uint64_t odd[] = {3};
    static const char bytes[16];
    const struct wfs_format *format;
    for (size_t number = 0; (format = wfs_format_at(number)) != NULL; number++) {
        if (!wfs_format_can_write(format))
            continue;
        static const struct {
            enum wfs_dtype dtype;
            uint64_t n_bytes;
            const char *text;
        } cases[] = {{WFS_F32, 11, "tensor 'z': dtype and shape take 12 bytes, it has 11"},
                     {WFS_OPAQUE, 3, "cannot store its unknown dtype"},
                     {WFS_QI8, 3, "has no dtype QI8"}};
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            struct wfs_catalog *catalog = made_catalog(bytes, sizeof(bytes));
            struct wfs_layout *layout = NULL;
            struct wfs_error err = {0};
            made_tensor(catalog, "z", cases[i].dtype, 1, odd, 0)->n_bytes = cases[i].n_bytes;
            struct wfs_shards *shards = NULL;
            check((format->is_directory ? wfs_shards_new(format, catalog, 0, &shards, &err)
                                        : wfs_layout_new(format, catalog, &layout, &err)) < 0);
            if (!check(strstr(err.text, cases[i].text) != NULL))
                printf("# %s: %s\n", format->name, err.text);
            wfs_layout_free(layout);
            wfs_catalog_free(catalog);
        }
    }
}

static void headers_end_at_100_million_bytes(void)
{
    enum { N = 99999944 }; /* with the rest of the header just at the cap */
    autofree char *key = malloc(N + 9);
    if (key == NULL)
        abort();
    for (unsigned more = 0; more <= 8; more += 8) {
        memset(key, 'k', N + more);
        key[N + more] = '\0';
        struct wfs_catalog *catalog = made_catalog("\1\2\3\4", 4);
        struct wfs_layout *layout = NULL;
        struct wfs_error err = {0};
        made_tensor(catalog, key, WFS_F32, 1, one, 0);
        const int code = wfs_layout_new(&format_safetensors, catalog, &layout, &err);
        check_int(code, more == 0 ? 0 : -E2BIG);
        if (layout != NULL)
            check_uint(wfs_layout_n_bytes(layout), 100000000 + 12);
        else
            check(strncmp(err.text, "the header would have 100000008 bytes", 37) == 0);
        wfs_layout_free(layout);
        wfs_catalog_free(catalog);
    }
}

/* Tensors that lie apart, together, transposed, and one without elements. */
static struct wfs_catalog *mixed_catalog(const uint8_t *bytes, size_t n_bytes)
{
    static const uint64_t strides[] = {1, 2}, square[] = {3, 2};
    struct wfs_catalog *catalog = made_catalog(bytes, n_bytes);
    made_tensor(catalog, "far", WFS_F32, 1, two, 40);
    made_tensor(catalog, "a", WFS_F32, 1, one, 0);
    made_tensor(catalog, "b", WFS_F32, 1, one, 4);
    made_tensor(catalog, "turned", WFS_U16, 2, square, 8)->stored.strides = strides;
    made_tensor(catalog, "none", WFS_U8, 1, none, 0);
    made_tensor(catalog, "c", WFS_F32, 1, two, 8);
    check_int(catalog_add_meta(catalog, "format", "pt"), 0);
    return catalog;
}

static void any_range_of_a_layout_is_a_slice_of_the_whole(void)
{
    uint8_t bytes[64];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7 + 1);
    struct wfs_catalog *catalog = mixed_catalog(bytes, sizeof(bytes));
    struct wfs_layout *layout = NULL;
    char whole[1024], part[1024];
    check_int(wfs_layout_new(&format_safetensors, catalog, &layout, NULL), 0);
    const ssize_t n_all = wfs_layout_read(NULL, layout, 0, whole, sizeof(whole));
    check_int(n_all, (int64_t)wfs_layout_n_bytes(layout));
    for (ssize_t from = 0; from <= n_all + 1; from++) {
        for (ssize_t n = 0; n <= n_all + 1 - from; n += 1 + n / 8) {
            const ssize_t want = from > n_all ? 0 : n < n_all - from ? n : n_all - from;
            if (!check_int(wfs_layout_read(NULL, layout, (uint64_t)from, part, (size_t)n), want) ||
                !check_bytes(part, whole + from, (size_t)want))
                return;
        }
    }
    wfs_layout_free(layout);
    wfs_catalog_free(catalog);
}

static int plan_with_gaps(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                          struct wfs_error *err)
{
    return layout_add_bytes(layout, 3, "abc", 3) < 0 ||
                   layout_add_tensor(layout, 10, &catalog->tensors[0]) < 0 ||
                   layout_add_bytes(layout, 14, "de", 2) < 0 ||
                   layout_add_bytes(layout, 14, "", 0) < 0
               ? wfs_fail_memory(err)
               : 0;
}

static const char *const no_extensions[] = {NULL};

static void gaps_of_a_layout_are_zero(void)
{
    static const struct format_functions functions = {.plan = plan_with_gaps};
    static const struct wfs_format format = {.name = "gaps",
                                             .extensions = no_extensions,
                                             .keeps_metadata = true,
                                             .functions = &functions};
    static const char want[] = "\0\0\0abc\0\0\0\0\1\2\3\4de";
    struct wfs_catalog *catalog = made_catalog("\1\2\3\4", 4);
    struct wfs_layout *layout = NULL;
    made_tensor(catalog, "a", WFS_F32, 1, one, 0);
    check_int(wfs_layout_new(&format, catalog, &layout, NULL), 0);
    check_uint(wfs_layout_n_bytes(layout), 16);
    for (unsigned from = 0; from < 16; from++) {
        char part[16];
        memset(part, 'x', sizeof(part));
        check_int(wfs_layout_read(NULL, layout, from, part, 16 - from), 16 - (int)from);
        check_bytes(part, want + from, 16 - from);
    }
    check_int(layout_add_bytes(layout, UINT64_MAX, "x", 1), -EFBIG);
    check_int(layout_add_bytes(layout, INT64_MAX, "x", 1), -EFBIG);
    wfs_layout_free(layout);
    wfs_catalog_free(catalog);
}

static void a_format_without_a_plan_is_only_read(void)
{
    static const struct format_functions functions = {0};
    static const struct wfs_format format = {
        .name = "old", .extensions = no_extensions, .functions = &functions};
    struct wfs_catalog *catalog = made_catalog("", 0);
    struct wfs_layout *layout = NULL;
    struct wfs_error err = {0};
    check_int(wfs_layout_new(&format, catalog, &layout, &err), -EOPNOTSUPP);
    check_str(err.text, "old files can be read, but not written");
    wfs_catalog_free(catalog);
}

static size_t read_file(const char *path, char *buf, size_t n_bytes)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, buf, n_bytes);
    return n < 0 ? SIZE_MAX : (size_t)n;
}

static void write_file(const char *path, const void *bytes, size_t n_bytes)
{
    autoclose int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    check(fd >= 0 && write(fd, bytes, n_bytes) == (ssize_t)n_bytes);
}

static int save(struct wfs_layout *layout, const char *path, struct wfs_save_report *report,
                struct wfs_error *err)
{
    const struct wfs_save_options options = {.replace = WFS_REPLACE_ANY, .mode = 0640};
    return wfs_save(layout, path, &options, report, err);
}

static void a_saved_file_is_its_layout_and_loads_again(void)
{
    uint8_t bytes[64];
    char want[1024], got[1024];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7 + 1);
    struct wfs_catalog *catalog = mixed_catalog(bytes, sizeof(bytes)), *again = NULL;
    struct wfs_layout *layout = NULL;
    struct wfs_save_report report = {0};
    struct wfs_error err = {0};
    const char *path = in_folder("out.safetensors");
    check_int(wfs_layout_new(&format_safetensors, catalog, &layout, NULL), 0);
    const ssize_t n = wfs_layout_read(NULL, layout, 0, want, sizeof(want));
    check_int(save(layout, path, &report, &err), 0);
    check_str(report.step, "done");
    check(report.is_durable && report.published.n_bytes == wfs_layout_n_bytes(layout));
    check_uint(read_file(path, got, sizeof(got)), (uint64_t)n);
    check_bytes(got, want, (size_t)n);
    wfs_layout_free(layout);

    /* Over itself, from its own ranges: the kernel copies, and nothing changes. */
    check_int(wfs_load(path, NULL, &again, &err), 0);
    check_int(wfs_layout_new(&format_safetensors, again, &layout, NULL), 0);
    check_int(save(layout, path, &report, &err), 0);
    check_uint(read_file(path, got, sizeof(got)), (uint64_t)n);
    check_bytes(got, want, (size_t)n);
    wfs_layout_free(layout);
    wfs_catalog_free(again);
    wfs_catalog_free(catalog);
}

/* Larger than any piece that is written at once. */
static void large_tensors_are_copied_and_made_in_pieces(void)
{
    enum { SIDE = 1100, N_BYTES = SIDE * SIDE * 2 };
    static const uint64_t dims[] = {SIDE, SIDE}, strides[] = {1, SIDE};
    autofree uint8_t *bytes = malloc(N_BYTES);
    autofree char *want = malloc(3 * N_BYTES), *got = malloc(3 * N_BYTES);
    if (bytes == NULL || want == NULL || got == NULL)
        abort();
    for (size_t i = 0; i < N_BYTES; i++)
        bytes[i] = (uint8_t)(i ^ i >> 8 ^ i >> 16);
    struct wfs_catalog *catalog = made_catalog(bytes, N_BYTES);
    struct wfs_layout *layout = NULL;
    struct wfs_error err = {0};
    made_tensor(catalog, "plain", WFS_I16, 2, dims, 0);
    made_tensor(catalog, "turned", WFS_U16, 2, dims, 0)->stored.strides = strides;
    check_int(wfs_layout_new(&format_safetensors, catalog, &layout, NULL), 0);
    const ssize_t n = wfs_layout_read(NULL, layout, 0, want, 3 * N_BYTES);
    check_int(save(layout, in_folder("large.safetensors"), NULL, &err), 0);
    check_uint(read_file(in_folder("large.safetensors"), got, 3 * N_BYTES), (uint64_t)n);
    check(n > 2 * N_BYTES && memcmp(got, want, (size_t)n) == 0);
    wfs_layout_free(layout);
    wfs_catalog_free(catalog);
}

struct counted {
    unsigned n_calls, give_up_at;
    uint64_t n_done, n_total;
};

static int count(void *ctx, uint64_t n_done, uint64_t n_total)
{
    struct counted *counted = ctx;
    check(n_done >= counted->n_done && n_done <= n_total);
    counted->n_done = n_done;
    counted->n_total = n_total;
    return ++counted->n_calls == counted->give_up_at ? -ECANCELED : 0;
}

static void only_an_old_output_is_left(void)
{
    char got[16];
    check_uint(read_file(kept, got, sizeof(got)), 3);
    check_bytes(got, "old", 3);
    check(access(in_folder(".kept.weightfs.tmp"), F_OK) < 0 && errno == ENOENT);
}

static void progress_is_told_and_can_give_up(void)
{
    struct wfs_catalog *catalog = made_catalog("\1\2\3\4\5\6\7\10", 8);
    struct wfs_layout *layout = NULL;
    struct wfs_save_report report;
    struct wfs_error err = {0};
    struct counted counted = {0};
    struct wfs_save_options options = {
        .replace = WFS_REPLACE_ANY, .mode = 0600, .progress = count, .ctx = &counted};
    made_tensor(catalog, "a", WFS_F32, 1, one, 4);
    made_tensor(catalog, "b", WFS_F32, 1, one, 0);
    check_int(wfs_layout_new(&format_safetensors, catalog, &layout, NULL), 0);
    check_int(wfs_save(layout, in_folder("fine"), &options, &report, &err), 0);
    check_uint(counted.n_calls, 4);
    check(counted.n_done == counted.n_total && counted.n_total == wfs_layout_n_bytes(layout));
    wfs_layout_free(layout);
    check_int(wfs_layout_new(&format_safetensors, catalog, &layout, NULL), 0);
    write_file(kept, "old", 3);
    counted = (struct counted){.give_up_at = 2};
    check_int(wfs_save(layout, kept, &options, &report, &err), -ECANCELED);
    check_str(report.step, "write");
    check_uint(report.published.n_bytes, 0);
    only_an_old_output_is_left();
    wfs_layout_free(layout);
    wfs_catalog_free(catalog);
}

static void a_source_that_shrinks_fails_by_the_name_of_the_tensor(void)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[4096],\"data_offsets\":[0,4096]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[4096,4104]}} ";
    char bytes[8 + sizeof(header) - 1 + 4104] = "";
    const char *source = in_folder("source.safetensors");
    struct wfs_catalog *catalog = NULL;
    struct wfs_layout *layout = NULL;
    struct wfs_save_report report;
    struct wfs_error err = {0};
    store_le64(bytes, sizeof(header) - 1);
    memcpy(bytes + 8, header, sizeof(header) - 1);
    write_file(source, bytes, sizeof(bytes));
    write_file(kept, "old", 3);
    check_int(wfs_load(source, NULL, &catalog, &err), 0);
    check_int(wfs_layout_new(&format_safetensors, catalog, &layout, &err), 0);
    check_int(truncate(source, (off_t)sizeof(bytes) - 4), 0);
    check_int(save(layout, kept, &report, &err), -EIO);
    check(strstr(err.text, "tensor 'a': ") != NULL);
    check(strstr(err.text, "source.safetensors was changed by another program") != NULL);
    only_an_old_output_is_left();
    wfs_layout_free(layout);
    wfs_catalog_free(catalog);
}

static const char *lie; /* the header of a file that is not what the catalog holds */

static int plan_a_lie(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                      struct wfs_error *err)
{
    const size_t n = strlen(lie);
    char *bytes = arena_chars(&layout->arena, 8 + n);
    store_le64(bytes, n);
    memcpy(bytes + 8, lie, n);
    return layout_add_bytes(layout, 0, bytes, 8 + n) < 0 ||
                   (lie[n - 1] == ' ' ? layout_add_bytes(layout, 8 + n, "\1\2\3\5", 4)
                                      : layout_add_tensor(layout, 8 + n, &catalog->tensors[0])) < 0
               ? wfs_fail_memory(err)
               : 0;
}

static void an_output_that_is_not_what_was_wanted_is_not_published(void)
{
    const struct format_functions *real = format_safetensors.functions;
    const struct format_functions functions = {
        .probe = real->probe, .load = real->load, .plan = plan_a_lie};
    const struct wfs_format format = {.name = "lie",
                                      .extensions = no_extensions,
                                      .keeps_metadata = true,
                                      .functions = &functions};
    static const struct {
        const char *header, *error;
    } cases[] = {
        {"{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "internal error: the output has lost the tensor 'a'"},
        {"{\"a\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "internal error: the output has lost the tensor 'a'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
         "internal error: the output has lost the tensor 'a'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}}",
         "internal error: the output has 2 tensors, expected 1"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} ",
         "internal error: the output has other bytes of the tensor 'a'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "internal error: the output has lost the metadata 'k'"},
        {"{\"__metadata__\":{\"j\":\"v\",\"k\":\"w\"},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "internal error: the output has lost the metadata 'k'"},
        {"{\"a\":[", "invalid JSON in header: tensor 'a': the text ends "
                     "too early at byte 14"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct wfs_catalog *catalog = made_catalog("\1\2\3\4", 4);
        struct wfs_layout *layout = NULL;
        struct wfs_save_report report;
        struct wfs_error err = {0};
        write_file(kept, "old", 3);
        lie = cases[i].header;
        made_tensor(catalog, "a", WFS_F32, 1, one, 0);
        check_int(catalog_add_meta(catalog, "k", "v"), 0);
        check_int(wfs_layout_new(&format, catalog, &layout, NULL), 0);
        check(save(layout, kept, &report, &err) < 0);
        check_str(err.text, cases[i].error);
        check_str(report.step, "verify");
        only_an_old_output_is_left();
        wfs_layout_free(layout);
        wfs_catalog_free(catalog);
    }
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        abort();
    snprintf(kept, sizeof(kept), "%s/kept", folder);
    check_run(canonical_form_is_that_of_the_reference);
    check_run(tensors_are_ordered_by_dtype_then_key);
    check_run(metadata_is_sorted_escaped_and_never_empty);
    check_run(dtypes_that_the_format_lacks_are_refused);
    check_run(what_nobody_could_read_back_is_refused);
    check_run(limits_of_formats_are_found_by_their_names);
    check_run(no_more_options_than_there_is_room_for);
    check_run(every_format_checks_the_size_of_a_tensor);
    check_run(headers_end_at_100_million_bytes);
    check_run(any_range_of_a_layout_is_a_slice_of_the_whole);
    check_run(gaps_of_a_layout_are_zero);
    check_run(a_format_without_a_plan_is_only_read);
    check_run(a_saved_file_is_its_layout_and_loads_again);
    check_run(large_tensors_are_copied_and_made_in_pieces);
    check_run(progress_is_told_and_can_give_up);
    check_run(a_source_that_shrinks_fails_by_the_name_of_the_tensor);
    check_run(an_output_that_is_not_what_was_wanted_is_not_published);
    const char *const names[] = {"out.safetensors", "large.safetensors", "fine", "kept",
                                 "source.safetensors"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unlink(in_folder(names[i]));
    if (rmdir(folder) < 0)
        abort();
    return check_done();
}
