/* SPDX-License-Identifier: MIT */
/*
 * Every allocation of loading and planning a record fails once. Each time the operation says
 * -ENOMEM and leaves nothing behind (a sanitizer counts).
 */
#include "check.h"
#include "failing_each.h"

#include <errno.h>
#include <stdio.h>

#include "format/registry.h"

/* Quantized and opaque tensors, lists of numbers, bytes as a list, values; gzip, JSON, and a file
 * that is cut. */
static const char *file;
static size_t n_cut; /* bytes to leave out at the end */

static int load(struct wfs_catalog **out, struct wfs_error *err)
{
    static uint8_t bytes[8192];
    struct load_context context = {.force = n_cut > 0};
    struct source *source;
    char path[128];
    snprintf(path, sizeof(path), "tests/data/reject/records/%s.mpk", file);
    limits_init(&context.limits);
    static const char *read;
    static size_t n_bytes;
    if (read != file) { /* once: stdio allocates */
        FILE *in = fopen(path, "rb");
        check(in != NULL);
        n_bytes = in == NULL ? 0 : fread(bytes, 1, sizeof(bytes), in);
        if (in != NULL)
            fclose(in);
        read = file;
    }
    if (source_new_memory("x.mpk", bytes, n_bytes - n_cut, &source) < 0)
        return wfs_fail_memory(err);
    return format_load(&format_records, source, &context, out, err);
}

static int load_and_plan(struct wfs_error *err)
{
    struct wfs_catalog *catalog = NULL;
    struct wfs_layout *layout = NULL;
    int code = load(&catalog, err);
    if (code == 0 && n_cut == 0)
        code = wfs_layout_new(&format_records, catalog, &layout, err);
    wfs_layout_free(layout);
    wfs_catalog_free(catalog);
    return code;
}

/* The first run, without failures, is what reads the file. */
static void check_file(const char *name, size_t n_missing)
{
    struct wfs_error err = {0};
    file = name;
    n_cut = n_missing;
    check_int(load_and_plan(&err), 0);
    check_each_allocation(load_and_plan);
}

static void a_record_without_memory_fails_cleanly(void)
{
    check_file("good", 0);
    check_file("good-many", 0);
}

static void a_cut_record_without_memory_fails_cleanly(void)
{
    check_file("good-many", 20);
}

static void other_containers_without_memory_fail_cleanly(void)
{
    check_file("good-gzip", 0);
    check_file("good-json", 0);
}

int main(void)
{
    check_run(a_record_without_memory_fails_cleanly);
    check_run(a_cut_record_without_memory_fails_cleanly);
    check_run(other_containers_without_memory_fail_cleanly);
    return check_done();
}
