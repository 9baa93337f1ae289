/* SPDX-License-Identifier: MIT */
/*
 * Loading safetensors from memory: verdicts, order, metadata, findings, limits.
 */
#include "loaded.h"

#include <errno.h>

#include <weightfs/strbuf.h>

static void odd_but_valid_files_are_read(void)
{
    static const struct {
        const char *header;
        size_t n_data, n_tensors;
    } cases[] = {
        {"{}", 0, 0},
        {" \t\r\n{} \t\r\n", 0, 0},
        {"{\"__metadata__\":null}", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{\"__metad\\u0061ta__\":{\"k\":\"v\"},\"a\":" A_TO_4 "}", 4, 1},
        {"{\"a\":[\"F32\",[1],[0,4]]}", 4, 1},
        {"{\"a\":{\"dtype\":{\"F32\":null},\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 1},
        {"{\"a\":{\"dtype\":\"F\\u00332\",\"shap\\u0065\":[ 1 ],\"data_offsets\":[0, 4]}}", 4, 1},
        {"{\"a\":{\"data_offsets\":[0,4],\"x\":[{\"dtype\":1e-999}],\"x\":2,\"shape\":[1],"
         "\"dtype\":"
         "\"F32\"}}",
         4, 1},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,18446744073709551615,18446744073709551615],"
         "\"data_offsets\":[0,0]}}",
         0, 1},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[0,3]}}", 3, 1},
        {"{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, 1},
        {"{\"b\":" FROM_4 ",\"a\":" A_TO_4 "}", 8, 2},
        {"{\"c\":" EMPTY(0) ",\"b\":" EMPTY(0) ",\"a\":" EMPTY(0) "}", 0, 3},
        {"{\"a\":" A_TO_4 ",\"z\":" EMPTY(4) ",\"b\":" FROM_4 "}", 8, 3},
        {"{\"a\":" FROM_4 ",\"a\":" A_TO_4 "}", 4, 1},
        {"{\"\":" A_TO_4 "}", 4, 1},
        {"{\"../../etc/passwd\":" A_TO_4 "}", 4, 1},
    };
    const struct load_context context = default_context();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct file file = file_of(cases[i].header, cases[i].n_data);
        struct loaded loaded = load_named("x", file.bytes, file.n_bytes, &context);
        if (!check_int(loaded.code, 0))
            printf("# %s: %s\n", cases[i].header, loaded.err.text);
        else
            check_uint(wfs_catalog_n_tensors(loaded.catalog), cases[i].n_tensors);
        done(&file, &loaded);
    }
}

static void tensors_come_in_the_order_of_their_data(void)
{
    struct file file =
        file_of("{\"c\":" FROM_4 ",\"z\":" EMPTY(4) ",\"y\":" EMPTY(4) ",\"b\":" A_TO_4 "}  ", 8);
    const struct load_context context = default_context();
    struct loaded loaded = load(file, &context);
    static const char *const keys[] = {"b", "z", "y", "c"};
    static const uint64_t offsets[] = {0, 4, 4, 4};
    if (check_int(loaded.code, 0) && check_uint(loaded.catalog->n_tensors, 4)) {
        for (size_t i = 0; i < 4; i++) {
            const struct wfs_tensor *tensor = wfs_catalog_tensor(loaded.catalog, i);
            check_str(tensor->key, keys[i]);
            check_uint(tensor->stored.offset, file.n_bytes - 8 + offsets[i]);
        }
        char buf[5] = "";
        check_int(wfs_tensor_read(wfs_catalog_tensor(loaded.catalog, 3), 0, buf, 5), 4);
        check_bytes(buf, "\5\6\7\10", 4);
    }
    check(wfs_catalog_format(loaded.catalog) == &format_safetensors);
    check_str(wfs_catalog_container(loaded.catalog)->name, "safetensors");
    done(&file, &loaded);
}

static void metadata_keeps_every_byte(void)
{
    struct file file =
        file_of("{\"__metadata__\":{\"b\":\"1\",\"a\":\"x\\u0000y\",\"b\":\"2\",\"\":\"\"}}", 0);
    const struct load_context context = default_context();
    struct loaded loaded = load(file, &context);
    const struct wfs_text *text =
        check_int(loaded.code, 0) ? wfs_catalog_meta(loaded.catalog) : NULL;
    static const struct {
        const char *name, *value;
        size_t n_bytes;
    } want[] = {{"b", "2", 1}, {"a", "x\0y", 3}, {"", "", 0}};
    for (size_t i = 0; i < 3 && check(text != NULL); i++, text = text->next) {
        check_str(text->name, want[i].name);
        check_uint(text->n_bytes, want[i].n_bytes);
        check_bytes(text->value, want[i].value, want[i].n_bytes + 1);
    }
    check(text == NULL);
    done(&file, &loaded);
}

static void what_is_odd_is_told(void)
{
    static const struct {
        const char *header;
        size_t n_data;
        enum wfs_severity severity;
        const char *finding;
    } cases[] = {
        {"{\"a\":" FROM_4 ",\"a\":" A_TO_4 "}", 4, WFS_HIGH,
         "duplicate key 'a' at byte 62, first at byte 9: the last one counts"},
        {"{\"a\":" A_TO_4 ",\"\\u0061\":" A_TO_4 ",\"a\":" A_TO_4 "}", 4, WFS_HIGH,
         "duplicate key 'a' at byte 62, first at byte 9: the last one counts (and 1 more like it)"},
        {"{\"x/../y\":" A_TO_4 "}", 4, WFS_HIGH, "the key 'x/../y' would lead out of"},
        {"{\"/x\":" A_TO_4 "}", 4, WFS_HIGH, "the key '/x' would lead out of"},
        {"{\"..\":" A_TO_4 "}", 4, WFS_HIGH, "the key '..' would lead out of"},
        {"{\"x/y\":" A_TO_4 "}", 4, WFS_INFO, "the key 'x/y' contains a slash"},
        {"{\"a\":[\"F32\",[1],[0,4]]}", 4, WFS_MEDIUM, "tensor 'a' is described by an array"},
        {"{\"a\":{\"dtype\":{\"F32\":null},\"shape\":[1],\"data_offsets\":[0,4]}}", 4, WFS_MEDIUM,
         "the dtype of tensor 'a' is an object"},
        {" {}", 0, WFS_MEDIUM, "the header begins with white space"},
        {"{} \t", 0, WFS_MEDIUM, "the header is padded with white space that is not spaces"},
        {"{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0, WFS_MEDIUM,
         "metadata key 'k' is a duplicate, at byte 33"},
        {"{\"__metadata__\":null}", 0, WFS_LOW, "the metadata is null"},
        {"{\"__metadata__\":{}}", 0, WFS_LOW, "the metadata is empty"},
        {"{\"__metadata__\":{\"k\":\"v\"}}", 0, WFS_LOW, "the metadata has no 'format'"},
        {"{} ", 0, WFS_LOW, "the data begins at byte 11, which is not a multiple of 8"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"F32\","
         "\"shape\":[1],\"data_offsets\":[1,5]}}",
         5, WFS_LOW, "tensor 'b' begins at byte 115 of the file, which is not a multiple of its"},
        {"{\"b\":" A_TO_4 ",\"a\":" FROM_4 "}", 8, WFS_INFO, "tensor 'b' comes before 'a'"},
        {"{\"a.b\":" A_TO_4 ",\"a\":" FROM_4 "}", 8, WFS_INFO, "tensor 'a.b' comes before 'a'"},
        {"{\"a\":{\"x\\n\":1,\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, WFS_INFO,
         "tensor 'a' has the unknown field 'x\\x0a'"},
        {"{\"a\":" EMPTY(0) "}", 0, WFS_INFO, "tensor 'a' has no elements"},
    };
    const struct load_context context = default_context();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct file file = file_of(cases[i].header, cases[i].n_data);
        struct loaded loaded = load(file, &context);
        check_finding(&loaded, cases[i].severity, cases[i].finding);
        done(&file, &loaded);
    }
}

static void a_canonical_file_has_no_findings(void)
{
    struct file file =
        file_of("{\"__metadata__\":{\"format\":\"pt\"},\"a\":" A_TO_4 ",\"b\":" FROM_4 "}"
                "      ",
                8);
    const struct load_context context = default_context();
    struct loaded loaded = load(file, &context);
    check_int(loaded.code, 0);
    check_uint(wfs_catalog_n_findings(loaded.catalog), 0);
    wfs_catalog_free(loaded.catalog);
    loaded = load_named("x.pth", file.bytes, file.n_bytes, &context);
    check_finding(&loaded, WFS_INFO,
                  "the name ends like that of a pytorch file, the content safetensors");
    done(&file, &loaded);
}

static void limits_hold_at_n_and_not_at_n_plus_1(void)
{
    static const struct {
        const char *limit, *header, *error;
        size_t n_data;
        uint64_t fits;
    } cases[] = {
        {"tensors", "{\"a\":" A_TO_4 ",\"b\":" FROM_4 ",\"b\":" FROM_4 "}",
         "it has more than 1 tensor (limit tensors)", 8, 2},
        {"rank", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1],\"data_offsets\":[0,4]}}",
         "tensor 'a' has more than 2 dimensions (limit rank)", 4, 3},
        {"key", "{\"abcd\":" A_TO_4 "}",
         "the key 'abcd' at byte 9 is longer than 3 bytes (limit key)", 4, 4},
        {"header", "{\"a\":" A_TO_4 "}", "the header has 54 bytes, the limit is 53 (limit header)",
         64, 54},
        {"index_memory", "{}", NULL, 0, UINT64_MAX},
        {"index_memory", "{\"a\":" A_TO_4 "}",
         "its index takes more than 4000 bytes of memory (limit index_memory)", 4, 5000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct file file = file_of(cases[i].header, cases[i].n_data);
        struct load_context context = default_context();
        char text[64];
        snprintf(text, sizeof(text), "%s=%" PRIu64, cases[i].limit, cases[i].fits);
        check_int(limits_set(&context.limits, text, registry_limit, NULL), 0);
        struct loaded loaded = load(file, &context);
        check(loaded.code == 0 || strstr(loaded.err.text, "its header describes") != NULL);
        wfs_catalog_free(loaded.catalog);
        loaded = (struct loaded){0};
        if (cases[i].error != NULL) {
            const uint64_t less = cases[i].fits == 5000 ? 4000 : cases[i].fits - 1;
            snprintf(text, sizeof(text), "%s=%" PRIu64, cases[i].limit, less);
            check_int(limits_set(&context.limits, text, registry_limit, NULL), 0);
            loaded = load(file, &context);
            check_int(loaded.code, -E2BIG);
            check_str(loaded.err.text, cases[i].error);
        }
        done(&file, &loaded);
    }
}

static void limits_are_set_by_name(void)
{
    struct limits limits;
    struct wfs_error err = {0};
    limits_init(&limits);
    check_uint(limits.header, 100000000);
    check_int(limits_set(&limits, "header=18446744073709551615", registry_limit, &err), 0);
    check_uint(limits.header, UINT64_MAX);
    static const char *const bad[] = {"header",    "header=",   "header=-1",
                                      "header=1x", "=1",        "",
                                      "heade=1",   "headers=1", "header=18446744073709551616"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        err = (struct wfs_error){0};
        check_int(limits_set(&limits, bad[i], registry_limit, &err), -EINVAL);
        check(strstr(err.text, "header") != NULL);
    }
    check_uint(limits.header, UINT64_MAX);
}

static void what_nobody_knows_is_told_by_its_first_bytes(void)
{
    static const char bytes[] = "\xff\xfe\1\2\3\4\5\6\7\x90\x91\x92\x93\x94\x95\x96\x97\x98";
    const struct load_context context = default_context();
    struct loaded loaded = load_named("nameless", bytes, sizeof(bytes) - 1, &context);
    check_int(loaded.code, -EMEDIUMTYPE);
    check_str(loaded.err.text,
              "is not a checkpoint in a known format; it begins with ff fe 01 02 03 04 "
              "05 06 07 90 91 92 93 94 95 96");
    loaded = load_named("x.SafeTensors", bytes, sizeof(bytes) - 1, &context);
    check_int(loaded.code, -EBADMSG);
    check(strstr(loaded.err.text, "the header should have") != NULL);
}

static int fail_to_read(const struct source *source, const struct wfs_io *io, uint64_t offset,
                        void *buf, size_t n_bytes)
{
    const uint64_t *fails_at = source->ctx;
    memset(buf, 0, n_bytes);
    if (offset == 0 && n_bytes >= 8)
        memcpy(buf, "\4\0\0\0\0\0\0\0{}  ", n_bytes < 12 ? n_bytes : 12);
    return offset + n_bytes >= *fails_at ? -EIO : 0;
}

static void a_failing_disk_is_no_damaged_file(void)
{
    static const struct source_kind kind = {.read = fail_to_read};
    static const uint64_t fails_at[] = {12, 8, 0};
    const struct load_context context = default_context();
    for (size_t i = 0; i < 3; i++) {
        struct loaded loaded = {0};
        struct source *source;
        if (source_new(&kind, "x.safetensors", (void *)(uintptr_t)&fails_at[i], 12, &source) < 0 ||
            catalog_new(&loaded.catalog) < 0 || catalog_adopt_source(loaded.catalog, source) < 0)
            abort();
        check_int(format_safetensors.functions->load(source, &context, loaded.catalog, &loaded.err),
                  -EIO);
        check(strncmp(loaded.err.text, "cannot read ", 12) == 0);
        wfs_catalog_free(loaded.catalog);
    }
}

static void a_path_is_loaded_with_its_options(void)
{
    static const char path[] = "tests/data/sample/encoder.safetensors";
    static const char *const limits[] = {"rank=5", "tensors=1"}, *const unknown[] = {"size=1"};
    struct wfs_catalog *catalog = NULL;
    struct wfs_error err = {0};
    struct wfs_load_options options = {.limits = limits, .n_limits = 2};
    check_int(wfs_load(path, &options, &catalog, &err), -E2BIG);
    err = (struct wfs_error){0};
    options = (struct wfs_load_options){.limits = unknown, .n_limits = 1};
    check_int(wfs_load(path, &options, &catalog, &err), -EINVAL);
    check(strncmp(err.text, "unknown limit 'size'", 20) == 0);
    err = (struct wfs_error){0};
    check_int(wfs_load("tests/data", NULL, &catalog, &err), -EISDIR);
    err = (struct wfs_error){0};
    check_int(wfs_load("tests/data/nothing", NULL, &catalog, &err), -ENOENT);
    check(wfs_format_by_name("safetensors") == &format_safetensors);
    check(wfs_format_by_name("safetensor") == NULL && wfs_format_by_path("safetensors") == NULL);
    check_str(wfs_format_by_path("a/b.safetensors")->name, "safetensors");
}

/* A header of several parts: metadata and a key that are longer than a part, and characters of
 * several bytes, quotes and escapes wherever a part may end. */
static struct file large_file(size_t n_shift, size_t n_tensors)
{
    static const char letters[] = "\xd0\xba\xe2\x82\xac\xf0\x9f\x98\x80\\\"\\u0041}{,";
    autostrbuf struct strbuf header = {0};
    strbuf_puts(&header, "{\"__metadata__\":{\"long\":\"");
    for (size_t i = 0; i < 150000; i++)
        strbuf_puts(&header, i < n_shift ? "x" : letters);
    strbuf_puts(&header, "\"}");
    for (size_t i = 0; i < n_tensors; i++) {
        strbuf_printf(&header, ",\"%s", letters);
        for (size_t k = 0; k < (i == 7000 ? 100000u : 0u); k++)
            strbuf_puts(&header, letters);
        strbuf_printf(&header,
                      "%zu\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}", i,
                      i % 2, i / 2, (i + 1) / 2);
    }
    strbuf_puts(&header, "}   ");
    return file_of(header.bytes, n_tensors / 2);
}

struct taken {
    const struct wfs_catalog *wanted;
    size_t n, n_most;
};

static int take(void *ctx, const struct wfs_tensor *tensor)
{
    struct taken *taken = ctx;
    const struct wfs_tensor *wanted = wfs_catalog_tensor(taken->wanted, taken->n);
    if (taken->n == taken->n_most)
        return -EINTR;
    if (taken->n++ < wfs_catalog_n_tensors(taken->wanted) &&
        (strcmp(tensor->key, wanted->key) != 0 || tensor->n_bytes != wanted->n_bytes ||
         tensor->stored.offset != wanted->stored.offset ||
         !wfs_shape_is_equal(&tensor->shape, &wanted->shape)))
        check_str(tensor->key, "another");
    return 0;
}

static void tensors_are_given_away_by_parts(void)
{
    struct load_context context = default_context();
    context.limits.key = UINT32_MAX;
    for (size_t n_shift = 0; n_shift < 24; n_shift++) {
        struct file file = large_file(n_shift, 20000);
        struct loaded whole = load(file, &context);
        if (!check_int(whole.code, 0)) {
            printf("# %s\n", whole.err.text);
            abort();
        }
        struct taken taken = {whole.catalog, 0, SIZE_MAX};
        const struct load_taker taker = {take, &taken};
        struct load_context giving = context;
        giving.taker = &taker;
        struct loaded rest = load(file, &giving);
        if (check_int(rest.code, 0)) {
            check_uint(taken.n, 20000);
            check_uint(wfs_catalog_n_tensors(rest.catalog), 0);
            check_str(wfs_catalog_meta(rest.catalog)->value,
                      wfs_catalog_meta(whole.catalog)->value);
        }
        wfs_catalog_free(rest.catalog);
        done(&file, &whole);
    }
}

static void a_taker_ends_the_loading_and_damage_is_found(void)
{
    struct load_context context = default_context();
    context.limits.key = UINT32_MAX;
    struct file file = large_file(0, 20000);
    struct loaded whole = load(file, &context);
    struct taken taken = {whole.catalog, 0, 12345};
    const struct load_taker taker = {take, &taken};
    struct load_context giving = context;
    giving.taker = &taker;
    struct source *source;
    struct wfs_catalog *rest;
    check_int(source_new_memory("x", file.bytes, file.n_bytes, &source), 0);
    check_int(load_source(source, &giving, &rest, NULL), -EINTR);
    check_uint(taken.n, 12345);
    taken.n_most = SIZE_MAX;
    const struct {
        size_t before_data; /* bytes from the end of the header */
        char byte;
        const char *error;
    } damages[] = {{2, '}', "invalid JSON in header: "},
                   {1000, '\xff', "invalid UTF-8 in header at byte "},
                   {12, '9', "invalid JSON in header: tensor '"},
                   {16, '8', "tensor '"}};
    char *end = file.bytes + file.n_bytes - 10000;
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        char *at = end - damages[i].before_data;
        const char was = *at;
        *at = damages[i].byte;
        taken.n = 0;
        struct loaded damaged = load(file, &giving);
        check(damaged.code == -EBADMSG);
        if (!check(strncmp(damaged.err.text, damages[i].error, strlen(damages[i].error)) == 0))
            printf("# %s\n", damaged.err.text);
        *at = was;
    }
    taken.n = 0;
    file.n_bytes--;
    struct loaded cut = load(file, &giving);
    check(cut.code == -EBADMSG && strstr(cut.err.text, "truncated") != NULL);
    done(&file, &whole);
}

int main(void)
{
    check_run(odd_but_valid_files_are_read);
    check_run(tensors_come_in_the_order_of_their_data);
    check_run(metadata_keeps_every_byte);
    check_run(what_is_odd_is_told);
    check_run(a_canonical_file_has_no_findings);
    check_run(limits_hold_at_n_and_not_at_n_plus_1);
    check_run(limits_are_set_by_name);
    check_run(what_nobody_knows_is_told_by_its_first_bytes);
    check_run(a_failing_disk_is_no_damaged_file);
    check_run(a_path_is_loaded_with_its_options);
    check_run(tensors_are_given_away_by_parts);
    check_run(a_taker_ends_the_loading_and_damage_is_found);
    return check_done();
}
