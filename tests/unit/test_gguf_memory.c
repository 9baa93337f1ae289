/* SPDX-License-Identifier: MIT */
/*
 * Every allocation of loading, settling and planning a GGUF fails once. Each time the operation
 * says -ENOMEM and leaves nothing behind (a sanitizer counts).
 */
#include "check.h"
#include "failing_each.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "format/core/layout.h"
#include "format/gguf/gguf.h"
#include "format/registry.h"

/* A file that grows. */
struct draft {
    uint8_t bytes[1024];
    size_t n;
};

static void put(struct draft *draft, uint64_t number, size_t n_bytes)
{
    uint8_t bytes[8];
    store_le64(bytes, number);
    memcpy(draft->bytes + draft->n, bytes, n_bytes);
    draft->n += n_bytes;
}

static void put_text(struct draft *draft, const char *text)
{
    put(draft, strlen(text), 8);
    memcpy(draft->bytes + draft->n, text, strlen(text));
    draft->n += strlen(text);
}

static void put_info(struct draft *draft, const char *name, uint32_t type, uint64_t offset)
{
    put_text(draft, name);
    put(draft, 1, 4);
    put(draft, 32, 8);
    put(draft, type, 4);
    put(draft, offset, 8);
}

/* A text, an array of arrays, a block, a type that is not known, and bytes behind the end. */
static int load(struct wfs_catalog **out, struct wfs_error *err)
{
    static struct draft draft;
    struct load_context context = {0};
    struct source *source;
    limits_init(&context.limits);
    memset(&draft, 0, sizeof(draft));
    memcpy(draft.bytes, "GGUF", 4);
    draft.n = 4;
    put(&draft, 3, 4);
    put(&draft, 2, 8);
    put(&draft, 2, 8);
    put_text(&draft, "general.name");
    put(&draft, 8, 4);
    put_text(&draft, "x");
    put_text(&draft, "nested");
    put(&draft, 9, 4);
    put(&draft, 9, 4);
    put(&draft, 1, 8);
    put(&draft, 0, 4);
    put(&draft, 3, 8);
    put(&draft, 0x030201, 3);
    put_info(&draft, "q", 8, 0);
    put_info(&draft, "fork", 99, 64);
    if (source_new_memory("x.gguf", draft.bytes, (draft.n + 31) / 32 * 32 + 128, &source) < 0)
        return wfs_fail_memory(err);
    return format_load(&format_gguf, source, &context, out, err);
}

static int load_only(struct wfs_error *err)
{
    struct wfs_catalog *catalog = NULL;
    const int code = load(&catalog, err);
    wfs_catalog_free(catalog);
    return code;
}

static int load_and_plan(struct wfs_error *err)
{
    static const struct wfs_fit_options options = {0};
    struct wfs_catalog *catalog = NULL;
    struct wfs_layout *layout = NULL;
    struct wfs_fit fit = {0};
    int code = load(&catalog, err);
    if (code == 0 && catalog_add_meta(catalog, "general.name", "y") < 0)
        code = wfs_fail_memory(err);
    if (code == 0)
        code = wfs_catalog_fit(catalog, &format_gguf, &options, &fit, err);
    if (code == 0)
        code = wfs_layout_new(&format_gguf, catalog, &layout, err);
    wfs_fit_done(&fit);
    wfs_layout_free(layout);
    wfs_catalog_free(catalog);
    return code;
}

/* Blocks as numbers. */
static int load_and_decode(struct wfs_error *err)
{
    struct wfs_catalog *catalog = NULL;
    struct wfs_numbers numbers = {0};
    char numbers_read[128];
    int code = load(&catalog, err);
    if (code == 0 && (wfs_numbers_init(&numbers, wfs_catalog_tensor(catalog, 0)) < 0 ||
                      wfs_tensor_read(numbers.tensor, 0, numbers_read, 128) != 128))
        code = wfs_fail_memory(err);
    wfs_numbers_done(&numbers);
    wfs_catalog_free(catalog);
    return code;
}

static void loading_when_memory_runs_out(void)
{
    check_each_allocation(load_only);
}

static void writing_when_memory_runs_out(void)
{
    check_each_allocation(load_and_plan);
}

static void decoding_when_memory_runs_out(void)
{
    check_each_allocation(load_and_decode);
}

int main(void)
{
    check_run(loading_when_memory_runs_out);
    check_run(writing_when_memory_runs_out);
    check_run(decoding_when_memory_runs_out);
    return check_done();
}
