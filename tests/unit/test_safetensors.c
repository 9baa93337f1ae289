/* SPDX-License-Identifier: MIT */
/*
 * Loading safetensors from memory: verdicts, order, findings, limits, and what force makes of
 * damage. The malformed files of tests/data/reject must each end with their exit code and message.
 */
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "format/format.h"

struct file {
    char *bytes;
    size_t n_bytes;
};

struct loaded {
    struct wfs_catalog *catalog;
    struct wfs_error err;
    int code;
};

static struct file file_of(const char *header, size_t n_data)
{
    const size_t n_header = strlen(header);
    struct file file = {calloc(1, 8 + n_header + n_data), 8 + n_header + n_data};
    if (file.bytes == NULL)
        abort();
    store_le64(file.bytes, n_header);
    memcpy(file.bytes + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++)
        file.bytes[8 + n_header + i] = (char)(i + 1);
    return file;
}

static struct load_context default_context(void)
{
    struct load_context context = {0};
    limits_init(&context.limits);
    return context;
}

static struct loaded load_named(const char *name, const char *bytes, size_t n_bytes,
                                const struct load_context *context)
{
    struct loaded loaded = {0};
    struct source *source;
    if (source_new_memory(name, bytes, n_bytes, &source) < 0)
        abort();
    loaded.code = load_source(source, context, &loaded.catalog, &loaded.err);
    check(loaded.code == -loaded.err.code);
    check((loaded.code == 0) == (loaded.catalog != NULL));
    return loaded;
}

static struct loaded load(struct file file, const struct load_context *context)
{
    return load_named("x.safetensors", file.bytes, file.n_bytes, context);
}

static void done(struct file *file, struct loaded *loaded)
{
    wfs_catalog_free(loaded->catalog);
    free(file->bytes);
}

#define A_TO_4 "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"
#define FROM_4 "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}"
#define EMPTY(at) "{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[" #at "," #at "]}"

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
    check_str(wfs_catalog_format(loaded.catalog), "safetensors");
    check_str(wfs_catalog_container(loaded.catalog), "safetensors");
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

/* The finding that begins with the text, or NULL. */
static const struct wfs_finding *find(const struct wfs_catalog *catalog, const char *text)
{
    for (size_t i = 0; i < wfs_catalog_n_findings(catalog); i++) {
        const struct wfs_finding *finding = wfs_catalog_finding(catalog, i);
        if (strncmp(finding->text, text, strlen(text)) == 0)
            return finding;
    }
    return NULL;
}

static void check_finding(const struct loaded *loaded, enum wfs_severity severity, const char *text)
{
    const struct wfs_finding *finding =
        loaded->catalog != NULL ? find(loaded->catalog, text) : NULL;
    if (!check(finding != NULL))
        printf("# no finding \"%s\"\n", text);
    else
        check_int(finding->severity, severity);
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
        {"{\"x/../y\":" A_TO_4 "}", 4, WFS_HIGH, "the key 'x/../y' would lead elsewhere"},
        {"{\"/x\":" A_TO_4 "}", 4, WFS_HIGH, "the key '/x' would lead elsewhere"},
        {"{\"..\":" A_TO_4 "}", 4, WFS_HIGH, "the key '..' would lead elsewhere"},
        {"{\"x/y\":" A_TO_4 "}", 4, WFS_INFO, "the key 'x/y' has a slash"},
        {"{\"a\":[\"F32\",[1],[0,4]]}", 4, WFS_MEDIUM, "tensor 'a' is described by an array"},
        {"{\"a\":{\"dtype\":{\"F32\":null},\"shape\":[1],\"data_offsets\":[0,4]}}", 4, WFS_MEDIUM,
         "the dtype of tensor 'a' is an object"},
        {" {}", 0, WFS_MEDIUM, "the header begins with white space"},
        {"{} \t", 0, WFS_MEDIUM, "the header is padded with white space other than spaces"},
        {"{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0, WFS_MEDIUM,
         "metadata key 'k' stands twice, at byte 33 again"},
        {"{\"__metadata__\":null}", 0, WFS_LOW, "the metadata is null"},
        {"{\"__metadata__\":{}}", 0, WFS_LOW, "the metadata is there but empty"},
        {"{\"__metadata__\":{\"k\":\"v\"}}", 0, WFS_LOW, "the metadata has no 'format'"},
        {"{} ", 0, WFS_LOW, "the data begins at byte 11, which is no multiple of 8"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"F32\","
         "\"shape\":[1],\"data_offsets\":[1,5]}}",
         5, WFS_LOW, "tensor 'b' begins at byte 115 of the file, which is no multiple of its"},
        {"{\"b\":" A_TO_4 ",\"a\":" FROM_4 "}", 8, WFS_INFO, "tensor 'b' stands before 'a'"},
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
    check_finding(&loaded, WFS_INFO, "the name is that of a pytorch file, the content safetensors");
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
         "it has more than 1 tensors (limit tensors)", 8, 2},
        {"rank", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1],\"data_offsets\":[0,4]}}",
         "tensor 'a' has more than 2 dimensions (limit rank)", 4, 3},
        {"key", "{\"abcd\":" A_TO_4 "}",
         "the key 'abcd' at byte 9 is longer than 3 bytes (limit key)", 4, 4},
        {"header", "{\"a\":" A_TO_4 "}",
         "HeaderTooLarge: header too large: it has 54 bytes, the limit is 53 (limit header)", 64,
         54},
        {"index_memory", "{}", NULL, 0, UINT64_MAX},
        {"index_memory", "{\"a\":" A_TO_4 "}",
         "its index takes more than 4000 bytes of memory (limit index_memory)", 4, 5000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct file file = file_of(cases[i].header, cases[i].n_data);
        struct load_context context = default_context();
        char text[64];
        snprintf(text, sizeof(text), "%s=%" PRIu64, cases[i].limit, cases[i].fits);
        check_int(limits_set(&context.limits, text, NULL), 0);
        struct loaded loaded = load(file, &context);
        check(loaded.code == 0 || strncmp(loaded.err.text, "MetadataIncomplete", 18) == 0);
        wfs_catalog_free(loaded.catalog);
        loaded = (struct loaded){0};
        if (cases[i].error != NULL) {
            const uint64_t less = cases[i].fits == 5000 ? 4000 : cases[i].fits - 1;
            snprintf(text, sizeof(text), "%s=%" PRIu64, cases[i].limit, less);
            check_int(limits_set(&context.limits, text, NULL), 0);
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
    check_int(limits_set(&limits, "header=18446744073709551615", &err), 0);
    check_uint(limits.header, UINT64_MAX);
    static const char *const bad[] = {"header",    "header=",   "header=-1",
                                      "header=1x", "=1",        "",
                                      "heade=1",   "headers=1", "header=18446744073709551616"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        err = (struct wfs_error){0};
        check_int(limits_set(&limits, bad[i], &err), -EINVAL);
        check(strstr(err.text, "header") != NULL);
    }
    check_uint(limits.header, UINT64_MAX);
}

static struct loaded load_by_force(struct file file)
{
    struct load_context context = default_context();
    context.force = true;
    return load(file, &context);
}

static void force_reads_what_is_left_of_a_cut_file(void)
{
    struct file file = file_of("{\"a\":" A_TO_4 ",\"b\":" FROM_4
                               ",\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}} ",
                               6);
    struct loaded loaded = load_by_force(file);
    char buf[4];
    if (check_int(loaded.code, 0) && check_uint(loaded.catalog->n_tensors, 3)) {
        const struct wfs_tensor *tensors = loaded.catalog->tensors;
        check_int(wfs_tensor_read(&tensors[0], 0, buf, 4), 4);
        check_int(wfs_tensor_read(&tensors[1], 0, buf, 2), 2);
        check_bytes(buf, "\5\6", 2);
        check_int(wfs_tensor_read(&tensors[1], 0, buf, 4), -EIO);
        check_int(wfs_tensor_read(&tensors[1], 2, buf, 1), -EIO);
        check(tensors[1].trouble == NULL && tensors[2].trouble != NULL);
        check_int(wfs_tensor_read(&tensors[2], 0, buf, 1), -EIO);
        check_uint(tensors[2].n_bytes, 4);
    }
    check_finding(
        &loaded, WFS_HIGH,
        "tensor 'b' ends at byte 8 of the data, the file has 6 of it (and 1 more like it)");
    done(&file, &loaded);
}

static void force_reads_around_damage(void)
{
    static const struct {
        const char *header, *finding;
        size_t n_data;
    } cases[] = {
        {"{\"a\":" A_TO_4 "}", "2 bytes are behind the last tensor", 6},
        {"{\"a\":" FROM_4 "}", "InvalidOffset: tensor 'a': data begins at 4, expected 0 (a gap", 8},
        {"{\"a\":" A_TO_4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
         "InvalidOffset: tensor 'b': data begins at 2, expected 4 (an overlap", 6},
        {"{\"a\":{\"dtype\":\"Q7\",\"shape\":[9],\"data_offsets\":[0,4]}}",
         "tensor 'a' has the unknown dtype 'Q7'", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
         "TensorInvalidInfo: tensor 'a': shape [2] of F32 takes 8 bytes, data_offsets give 4", 4},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}",
         "MisalignedSlice: tensor 'a'", 2},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551615],\"data_offsets\":[0,4]}}",
         "ValidationOverflow: tensor 'a'", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
         "InvalidOffset: tensor 'a': data begins at 4, expected 0", 4},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[18446744073709551615,"
         "18446744073709551615]}}",
         "InvalidOffset: tensor 'a': data begins at 18446744073709551615, expected 0", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct file file = file_of(cases[i].header, cases[i].n_data);
        struct loaded loaded = load_by_force(file);
        check_int(loaded.code, 0);
        check_finding(&loaded, WFS_HIGH, cases[i].finding);
        done(&file, &loaded);
    }
}

static void force_shows_bytes_that_no_dtype_explains(void)
{
    struct file file =
        file_of("{\"a\":{\"dtype\":\"Q7\",\"shape\":[9],\"data_offsets\":[0,4]},\"b\":"
                "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,8]},\"c\":"
                "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9,8]}}",
                8);
    struct loaded loaded = load_by_force(file);
    char buf[8];
    if (check_int(loaded.code, 0) && check_uint(loaded.catalog->n_tensors, 3)) {
        const struct wfs_tensor *tensors = loaded.catalog->tensors;
        for (size_t i = 0; i < 3; i++)
            check_int(tensors[i].dtype, WFS_OPAQUE);
        check_str(wfs_tensor_attr(&tensors[0], "dtype"), "Q7");
        check_str(wfs_tensor_attr(&tensors[1], "dtype"), "F32");
        check_int(wfs_tensor_read(&tensors[1], 0, buf, 8), 4);
        check_bytes(buf, "\5\6\7\10", 4);
        check_int(wfs_tensor_read(&tensors[2], 0, buf, 8), -EIO);
        struct wfs_layout *layout;
        struct wfs_error err = {0};
        check_int(wfs_layout_new(&format_safetensors, loaded.catalog, &layout, &err), -EIO);
        check(strstr(err.text, "tensor 'c' cannot be read") != NULL);
    }
    done(&file, &loaded);
}

static int exit_code_of(int code)
{
    static const int table[][2] = {{EMEDIUMTYPE, 4}, {EBADMSG, 5}, {EIO, 5},
                                   {EOPNOTSUPP, 6},  {E2BIG, 6},   {ENOMEM, 6}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i][0] == code)
            return table[i][1];
    }
    return 3;
}

static void read_all(const char *path, struct file *file)
{
    FILE *stream = fopen(path, "rb");
    *file = (struct file){malloc(1 << 16), 0};
    if (stream == NULL || file->bytes == NULL)
        abort();
    file->n_bytes = fread(file->bytes, 1, (1 << 16) - 1, stream);
    file->bytes[file->n_bytes] = '\0';
    fclose(stream);
}

static void check_rejected(const char *folder, const char *name)
{
    char path[512];
    struct file file, want;
    struct wfs_error err = {0};
    struct wfs_catalog *catalog = NULL;
    snprintf(path, sizeof(path), "%s/%.*s.expect", folder, (int)strlen(name) - 12, name);
    read_all(path, &want);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    const int code = wfs_load(path, NULL, &catalog, &err);
    char got[WFS_ERROR_TEXT_MAX + 16];
    snprintf(got, sizeof(got), "%d\n%s\n", exit_code_of(-code), err.text);
    if (!check(code < 0 && strcmp(got, want.bytes) == 0))
        printf("# %s: %d %s\n", name, code, err.text);
    /* By force too nothing may happen but a message or a catalog. */
    const struct load_context context = {.limits = default_context().limits, .force = true};
    read_all(path, &file);
    struct loaded loaded = load_named(name, file.bytes, file.n_bytes, &context);
    wfs_catalog_free(catalog);
    free(want.bytes);
    done(&file, &loaded);
}

static void every_malformed_file_has_its_message(void)
{
    static const char folder[] = "tests/data/reject/safetensors";
    DIR *dir = opendir(folder);
    unsigned n = 0;
    if (!check(dir != NULL))
        return;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const size_t n_name = strlen(entry->d_name);
        if (n_name > 12 && strcmp(entry->d_name + n_name - 12, ".safetensors") == 0) {
            check_rejected(folder, entry->d_name);
            n++;
        }
    }
    closedir(dir);
    check(n > 200);
}

static void the_largest_header_is_read_and_no_larger_one(void)
{
    const size_t n_header = 100000000;
    struct file file = {calloc(1, 8 + n_header + 1 + 4), 8 + n_header + 4};
    const struct load_context context = default_context();
    if (file.bytes == NULL)
        abort();
    memset(file.bytes + 8, ' ', n_header + 1);
    memcpy(file.bytes + 8, "{\"a\":" A_TO_4 "}", strlen("{\"a\":" A_TO_4 "}"));
    store_le64(file.bytes, n_header);
    struct loaded loaded = load(file, &context);
    check_int(loaded.code, 0);
    check_finding(&loaded, WFS_LOW,
                  "the header has 100000000 bytes, model hubs show files of up to");
    wfs_catalog_free(loaded.catalog);
    store_le64(file.bytes, n_header + 1);
    file.n_bytes++;
    loaded = load(file, &context);
    check_str(loaded.err.text,
              "HeaderTooLarge: header too large: it has 100000001 bytes, the limit is "
              "100000000 (limit header)");
    done(&file, &loaded);
}

static void long_keys_are_refused_by_a_short_message(void)
{
    const size_t n_key = 99000000;
    static const char before[] = "{\"", after[] = "\":" A_TO_4 "}";
    const size_t n_header = sizeof(before) - 1 + n_key + sizeof(after) - 1;
    struct file file = {malloc(8 + n_header + 4), 8 + n_header + 4};
    const struct load_context context = default_context();
    if (file.bytes == NULL)
        abort();
    store_le64(file.bytes, n_header);
    memcpy(file.bytes + 8, before, sizeof(before) - 1);
    memset(file.bytes + 8 + sizeof(before) - 1, 'k', n_key);
    memcpy(file.bytes + file.n_bytes - 4 - (sizeof(after) - 1), after, sizeof(after) - 1);
    memset(file.bytes + file.n_bytes - 4, 0, 4);
    struct loaded loaded = load(file, &context);
    check_int(loaded.code, -E2BIG);
    check(strstr(loaded.err.text, "(99000000 bytes)") != NULL);
    done(&file, &loaded);
}

/* As many as the limit, and one more; each costs a bounded piece of memory. */
static void a_million_tensors_are_read_and_no_more(void)
{
    enum { N = 1000001, N_ENTRY = 32 };
    struct file file = {malloc(8 + (size_t)N * N_ENTRY + 2), 0};
    if (file.bytes == NULL)
        abort();
    for (unsigned n = N - 1; n <= N; n++) {
        size_t at = 8;
        for (unsigned i = 0; i < n; i++)
            at +=
                (size_t)sprintf(file.bytes + at, "%c\"%06x\":[\"U8\",[0],[0,0]]", i ? ',' : '{', i);
        at += (size_t)sprintf(file.bytes + at, "}");
        store_le64(file.bytes, at - 8);
        file.n_bytes = at;
        const struct load_context context = default_context();
        struct loaded loaded = load(file, &context);
        if (n == N)
            check_str(loaded.err.text, "it has more than 1000000 tensors (limit tensors)");
        else if (check_int(loaded.code, 0))
            check(loaded.catalog->arena.n_bytes < (uint64_t)n * 40);
        wfs_catalog_free(loaded.catalog);
    }
    free(file.bytes);
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
    check_run(force_reads_what_is_left_of_a_cut_file);
    check_run(force_reads_around_damage);
    check_run(force_shows_bytes_that_no_dtype_explains);
    check_run(every_malformed_file_has_its_message);
    check_run(the_largest_header_is_read_and_no_larger_one);
    check_run(long_keys_are_refused_by_a_short_message);
    check_run(a_million_tensors_are_read_and_no_more);
    return check_done();
}
