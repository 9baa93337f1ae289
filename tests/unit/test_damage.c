/* SPDX-License-Identifier: MIT */
/*
 * Damaged safetensors files: each of tests/data/reject must end with its exit code and message, and
 * force must read what is left. Those that are too large to keep are made here.
 */
#include "loaded.h"

#include <dirent.h>
#include <errno.h>

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
        check(wfs_tensor_trouble(&tensors[0]) == NULL && wfs_tensor_trouble(&tensors[1]) != NULL);
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
        {"{\"a\":" A_TO_4 "}", "2 bytes follow the last tensor", 6},
        {"{\"a\":" FROM_4 "}", "tensor 'a': data begins at 4, expected 0 (a gap", 8},
        {"{\"a\":" A_TO_4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
         "tensor 'b': data begins at 2, expected 4 (an overlap", 6},
        {"{\"a\":{\"dtype\":\"Q7\",\"shape\":[9],\"data_offsets\":[0,4]}}",
         "tensor 'a' has the unknown dtype 'Q7'", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
         "tensor 'a': shape [2] of F32 takes 8 bytes, data_offsets give 4", 4},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", "tensor 'a'", 2},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551615],\"data_offsets\":[0,4]}}",
         "tensor 'a'", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
         "tensor 'a': data begins at 4, expected 0", 4},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[18446744073709551615,"
         "18446744073709551615]}}",
         "tensor 'a': data begins at 18446744073709551615, expected 0", 0},
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
        check(strstr(err.text, "tensor 'c': its data_offsets") != NULL);
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
    check_str(loaded.err.text, "the header has 100000001 bytes, the limit is "
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
    check_run(force_reads_what_is_left_of_a_cut_file);
    check_run(force_reads_around_damage);
    check_run(force_shows_bytes_that_no_dtype_explains);
    check_run(every_malformed_file_has_its_message);
    check_run(the_largest_header_is_read_and_no_larger_one);
    check_run(long_keys_are_refused_by_a_short_message);
    check_run(a_million_tensors_are_read_and_no_more);
    return check_done();
}
