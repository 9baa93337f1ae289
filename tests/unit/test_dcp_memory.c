/* SPDX-License-Identifier: MIT */
/*
 * Every allocation of loading a distributed checkpoint, of showing its values, verifying it,
 * reading it and laying it out as another file fails once. Each time the operation returns -ENOMEM
 * and leaks nothing (a sanitizer counts).
 */
#include "failing_each.h"

#include <stdlib.h>
#include <unistd.h>

#include <weightfs/value.h>

#include "format/registry.h"

static char folder[] = "/tmp/dcp-memory-XXXXXX";
static const char *limit;

static void copy(const char *from, const char *name)
{
    char path[128], bytes[65536];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *in = fopen(from, "rb"), *out = fopen(path, "wb");
    if (in == NULL || out == NULL)
        abort();
    const size_t n = fread(bytes, 1, sizeof(bytes), in);
    fwrite(bytes, 1, n, out);
    fclose(in);
    fclose(out);
}

static int read_all(const struct wfs_catalog *catalog)
{
    char buf[64];
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const ssize_t n = wfs_tensor_read(wfs_catalog_tensor(catalog, i), 1, buf, sizeof(buf));
        if (n < 0)
            return (int)n;
    }
    return 0;
}

static int load_and_show(struct wfs_error *err)
{
    const struct wfs_load_options options = {.limits = &limit, .n_limits = limit != NULL};
    struct wfs_catalog *catalog = NULL;
    struct wfs_layout *layout = NULL;
    char *text = NULL;
    size_t n;
    int code = wfs_load(folder, &options, &catalog, err);
    if (code == 0)
        code = wfs_catalog_config(catalog, NULL, &text, &n, err);
    if (code == 0)
        code = wfs_verify(catalog, err);
    if (code == 0 && read_all(catalog) < 0)
        code = wfs_fail_memory(err);
    if (code == 0)
        code = wfs_layout_new(&format_pytorch, catalog, &layout, err);
    wfs_layout_free(layout);
    free(text);
    wfs_catalog_free(catalog);
    return code;
}

static void items_at_once(void)
{
    check_each_allocation(load_and_show);
}

static void items_when_they_are_read(void)
{
    limit = "items=0";
    check_each_allocation(load_and_show);
}

int main(void)
{
    char path[128];
    if (mkdtemp(folder) == NULL)
        abort();
    copy("tests/data/reject/dcp/good.metadata", ".metadata");
    check_run(items_at_once);
    check_run(items_when_they_are_read);
    snprintf(path, sizeof(path), "%s/.metadata", folder);
    unlink(path);
    rmdir(folder);
    return check_done();
}
