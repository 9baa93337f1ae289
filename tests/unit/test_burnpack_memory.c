/* SPDX-License-Identifier: MIT */
/*
 * Every allocation of loading and planning a Burnpack fails once. Each time the operation says
 * -ENOMEM and leaves nothing behind (a sanitizer counts).
 */
#include "check.h"
#include "failing_each.h"

#include <errno.h>

#include "base/bytes.h"
#include "format/burnpack/burnpack.h"
#include "format/registry.h"

/* Twins of all kinds, a scheme, texts in pieces, deep nesting: all that makes the loader remember
 * something. */
static const char cbor[] =
    "\xa4\x67tensors\xa4"
    "\x61z\xa4\x65"
    "dtype\xa1\x66QFloat\xa1\x65level\xf6\x65shape\x81\x04\x6c"
    "data_offsets\x82\x00\x04\x68param_id\x01"
    "\x61y\xa3\x65"
    "dtype\xa1\x64"
    "Bool\x62U8\x65shape\x80\x6c"
    "data_offsets\x82\x04\x05"
    "\x61y\xa3\x65"
    "dtype\x64"
    "Bool\x65shape\x80\x6c"
    "data_offsets\x82\x04\x05"
    "\x61x\xa3\x65"
    "dtype\x63"
    "F64\x65shape\x81\x00\x6c"
    "data_offsets\x82\x18\x64\x18\x64"
    "\x68metadata\xa3\x61m\x7f\x61n\x61o\xff\x61m\x61n\x61l\x60"
    "\x67scalars\xa3\x61s\xa1\x63Int\x01\x61s\xa1\x64UInt\x1b\xff\xff\xff\xff\xff\xff\xff\xff"
    "\x61r\xa1\x65"
    "Float\xf9\x3c\x00"
    "\x64more\x81\x81\x81\x80\x00";

static int load(bool force, struct wfs_catalog **out, struct wfs_error *err)
{
    static uint8_t bytes[1024];
    const size_t n_cbor = sizeof(cbor) - 1;
    struct load_context context = {.force = force};
    struct source *source;
    limits_init(&context.limits);
    memcpy(bytes, "NRUB\x01", 6);
    store_le32(bytes + 6, (uint32_t)n_cbor);
    memcpy(bytes + 10, cbor, n_cbor);
    if (source_new_memory("x.pth", bytes, 10 + n_cbor + (force ? 2 : 100), &source) < 0)
        return wfs_fail_memory(err);
    return load_source(source, &context, out, err);
}

static int load_oddities(struct wfs_error *err)
{
    struct wfs_catalog *catalog = NULL;
    const int code = load(false, &catalog, err);
    wfs_catalog_free(catalog);
    return code;
}

static int load_damage(struct wfs_error *err)
{
    struct wfs_catalog *catalog = NULL;
    const int code = load(true, &catalog, err);
    wfs_catalog_free(catalog);
    return code;
}

static int load_and_plan(struct wfs_error *err)
{
    struct wfs_catalog *catalog = NULL;
    struct wfs_layout *layout = NULL;
    int code = load(false, &catalog, err);
    if (code == 0)
        code = wfs_layout_new(&format_burnpack, catalog, &layout, err);
    wfs_layout_free(layout);
    wfs_catalog_free(catalog);
    return code;
}

static void a_load_without_memory_fails_cleanly(void)
{
    check_each_allocation(load_oddities);
    check_each_allocation(load_damage);
}

static void a_plan_without_memory_fails_cleanly(void)
{
    check_each_allocation(load_and_plan);
}

int main(void)
{
    check_run(a_load_without_memory_fails_cleanly);
    check_run(a_plan_without_memory_fails_cleanly);
    return check_done();
}
