/* SPDX-License-Identifier: MIT */
/*
 * Every allocation of loading, showing values, verifying, reading and laying out fails once, for
 * each kind of container. Each time the operation returns -ENOMEM and leaks nothing (a sanitizer
 * counts).
 */
#include "check.h"
#include "failing.h"

#include <errno.h>

#include <weightfs/value.h>

#include "format/registry.h"

static const char *path;

/* Shows a few bytes of every tensor that can be read. */
static int read_all(const struct wfs_catalog *catalog)
{
    char buf[3];
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        const ssize_t n =
            tensor->trouble != NULL ? 0 : wfs_tensor_read(tensor, 1, buf, sizeof(buf));
        if (n < 0)
            return (int)n;
    }
    return 0;
}

static struct source *zeros; /* content of edited tensors; NULL: none is edited */

static bool is_safe; /* outputs have no names that may run code */

/* Lays the checkpoint out again, where that can be done. */
static int plan_all(struct wfs_catalog *catalog, struct wfs_error *err)
{
    const struct wfs_fit_options options = {.is_safe = true};
    struct wfs_layout *layout = NULL;
    struct wfs_fit fit = {0};
    for (size_t i = 0; zeros != NULL && i < catalog->n_tensors; i++)
        catalog->tensors[i].stored = (struct wfs_stored){
            .source = zeros, .offset = 8 * i, .dtype = catalog->tensors[i].stored.dtype};
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++)
        if (wfs_catalog_tensor(catalog, i)->trouble != NULL)
            return 0;
    int code =
        is_safe ? wfs_catalog_fit(catalog, wfs_catalog_format(catalog), &options, &fit, err) : 0;
    if (code == 0)
        code = wfs_layout_new(wfs_catalog_format(catalog), catalog, &layout, err);
    wfs_layout_free(layout);
    wfs_fit_done(&fit);
    return code;
}

/* From a copy in memory, so that only our own allocations are counted. */
static int load_and_show(struct wfs_error *err)
{
    struct wfs_catalog *catalog = NULL;
    char *text = NULL;
    size_t n;
    int code = wfs_load(path, NULL, &catalog, err);
    if (code == 0)
        code = wfs_catalog_config(catalog, NULL, &text, &n, err);
    if (code == 0)
        code = wfs_verify(catalog, err);
    if (code == 0)
        code = read_all(catalog);
    if (code == 0)
        code = plan_all(catalog, err);
    free(text);
    wfs_catalog_free(catalog);
    return code;
}

static void check_each_allocation(const char *name)
{
    char full[256];
    struct wfs_error err = {0};
    snprintf(full, sizeof(full), "tests/data/reject/pytorch/%s", name);
    path = full;
    failing_countdown = failing_n_calls = 0;
    if (!check_int(load_and_show(&err), 0))
        printf("# %s: %s\n", name, err.text);
    const unsigned long n_calls = failing_n_calls;
    for (unsigned long i = 1; i <= n_calls; i++) {
        err = (struct wfs_error){0};
        failing_countdown = i;
        const int code = load_and_show(&err);
        failing_countdown = 0;
        if (!check_int(code, -ENOMEM))
            printf("# %s, allocation %lu of %lu: %s\n", name, i, n_calls, err.text);
    }
}

static void zips(void)
{
    check_each_allocation("zip/50-zip64.pth");
    check_each_allocation("zip/deflated.pth");
    check_each_allocation("zip/52-stray-0.pth");
    check_each_allocation("tensor/22-os-system-as-key.pth");
    check_each_allocation("tensor/34-beyond-storage.pth");
}

static void streams(void)
{
    check_each_allocation("legacy/good.pth");
    check_each_allocation("legacy/62-tensor-beyond-view.pth");
}

static void archives(void)
{
    check_each_allocation("tar/good.pth");
    check_each_allocation("tar/views.pth");
}

/* Every tensor gets other bytes, so that records and calls are made for it. */
static void edits(void)
{
    static const uint8_t bytes[256];
    check_int(source_new_memory("zeros", bytes, sizeof(bytes), &zeros), 0);
    check_each_allocation("good/quantized.pth");
    check_each_allocation("good/tied.pth");
    check_each_allocation("good/module.pth");
    check_each_allocation("legacy/good.pth");
    check_each_allocation("tar/good.pth");
    source_free(zeros);
    zeros = NULL;
}

static void outputs_without_names(void)
{
    is_safe = true;
    check_each_allocation("good/module.pth");
    check_each_allocation("good/shared-module.pth");
    check_each_allocation("good/called-object.pth");
    check_each_allocation("tensor/22-os-system-as-key.pth");
    is_safe = false;
}

static void composites(void)
{
    check_each_allocation("good/quantized.pth");
    check_each_allocation("good/sparse.pth");
    check_each_allocation("good/module.pth");
}

static void programs(void)
{
    check_each_allocation("good/program.pt2");
}

static void pickles(void)
{
    check_each_allocation("good/dates.pkl");
    check_each_allocation("pickle/40-stream-cut.pkl");
    check_each_allocation("pickle/42-numpy-length.pkl");
    check_each_allocation("pickle/43-twin-keys.pkl");
    check_each_allocation("pickle/09-far-memo.pkl");
}

int main(void)
{
    check_run(zips);
    check_run(streams);
    check_run(archives);
    check_run(edits);
    check_run(outputs_without_names);
    check_run(composites);
    check_run(programs);
    check_run(pickles);
    return check_done();
}
