/* SPDX-License-Identifier: MIT */
/*
 * Every allocation of a load, a plan and a save fails once. Each time the operation says -ENOMEM,
 * leaves nothing behind (a sanitizer counts), and an output that was there stays.
 */
#include "check.h"
#include "failing_each.h"

#include <errno.h>
#include <unistd.h>

#include "base/bytes.h"
#include "format/registry.h"

/* Everything that makes the loader remember something. */
static const char header[] =
    " {\"__metadata__\":{\"a\":\"1\",\"b\":\"2\",\"a\":\"3\"},"
    "\"x/y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":[]},"
    "\"../z\":{\"dtype\":{\"F32\":null},\"shape\":[1,1],\"data_offsets\":[1,5]},"
    "\"c\":[\"F64\",[1],[5,13]],"
    "\"c\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[5,13]},"
    "\"e\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[13,13]}}\t";

/* And what it remembers of damage, with force. */
static const char damaged[] = "{\"a\":{\"dtype\":\"Q7\",\"shape\":[1],\"data_offsets\":[1,2]},"
                              "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,5]},"
                              "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[40,44]}}";

static int load(const char *text, bool force, struct wfs_catalog **out, struct wfs_error *err)
{
    static char bytes[1024];
    const size_t n_text = strlen(text);
    struct load_context context = {.force = force};
    struct source *source;
    limits_init(&context.limits);
    store_le64(bytes, n_text);
    memcpy(bytes + 8, text, n_text);
    memset(bytes + 8 + n_text, 1, 13);
    if (source_new_memory("x.pth", bytes, 8 + n_text + 13, &source) < 0)
        return wfs_fail_memory(err);
    return load_source(source, &context, out, err);
}

static int load_oddities(struct wfs_error *err)
{
    struct wfs_catalog *catalog = NULL;
    const int code = load(header, false, &catalog, err);
    wfs_catalog_free(catalog);
    return code;
}

static int load_damage(struct wfs_error *err)
{
    struct wfs_catalog *catalog = NULL;
    const int code = load(damaged, true, &catalog, err);
    wfs_catalog_free(catalog);
    return code;
}

static char path[] = "/tmp/weightfs-unit-XXXXXX";

static int plan_and_save(struct wfs_error *err)
{
    static const struct wfs_save_options options = {.replace = WFS_REPLACE_ANY, .mode = 0600};
    struct wfs_catalog *catalog = NULL;
    struct wfs_layout *layout = NULL;
    int code = load(header, false, &catalog, err);
    if (code == 0)
        code = wfs_layout_new(&format_safetensors, catalog, &layout, err);
    if (code == 0)
        code = wfs_save(layout, path, &options, NULL, err);
    wfs_layout_free(layout);
    wfs_catalog_free(catalog);
    return code;
}

static void a_load_without_memory_fails_cleanly(void)
{
    check_each_allocation(load_oddities);
    check_each_allocation(load_damage);
}

static void a_save_without_memory_fails_cleanly(void)
{
    check_each_allocation(plan_and_save);
}

int main(void)
{
    const int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    check_run(a_load_without_memory_fails_cleanly);
    check_run(a_save_without_memory_fails_cleanly);
    unlink(path);
    return check_done();
}
