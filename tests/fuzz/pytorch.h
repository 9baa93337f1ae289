/* SPDX-License-Identifier: MIT */
/*
 * What the targets of the PyTorch reader share: loading bytes, and looking at all that comes out of
 * them. Limits are low, so that inputs which are only large are over soon.
 */
#ifndef WFS_FUZZ_PYTORCH_H
#define WFS_FUZZ_PYTORCH_H

#include <stdlib.h>
#include <string.h>

#include <weightfs/value.h>

#include "format/registry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static inline void look_at_tensors(const struct wfs_catalog *catalog)
{
    char buf[256];
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog) && i < 64; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        const uint64_t n = tensor->n_bytes;
        const ssize_t got = wfs_tensor_read(tensor, 0, buf, sizeof(buf));
        /* What is inside of a file in memory can be read, unless it is said that it cannot. */
        if (tensor->trouble == NULL && tensor->stored.source != NULL &&
            tensor->stored.source->origin == NULL &&
            got != (ssize_t)(n < sizeof(buf) ? n : sizeof(buf)))
            abort();
        (void)!wfs_tensor_read(tensor, n / 2, buf, sizeof(buf));
        (void)!wfs_tensor_read(tensor, n > 7 ? n - 7 : 0, buf, sizeof(buf));
        if (strlen(tensor->key) > n + 4096 && tensor->shape.rank > 16384)
            abort();
    }
}

static inline void look_at_values(const struct wfs_catalog *catalog)
{
    struct wfs_error err = {0};
    char *text;
    size_t n;
    for (size_t i = 0; i < wfs_catalog_n_values(catalog) && i < 2; i++) {
        if (wfs_catalog_value_text(catalog, i, &text, &n) == 0) {
            if (strlen(text) != n)
                abort();
            free(text);
        }
    }
    if (wfs_catalog_config(catalog, NULL, &text, &n, &err) == 0)
        free(text);
    if (wfs_catalog_config(catalog, "a.b.0", &text, &n, &err) == 0)
        free(text);
}

/* Loads a file of PyTorch and looks at everything in it. */
static inline void load_and_look(const uint8_t *data, size_t n_bytes)
{
    struct wfs_error err = {0};
    struct load_context context = {.force = n_bytes > 0 && data[n_bytes - 1] % 2 != 0};
    struct source *source;
    struct wfs_catalog *catalog;
    limits_init(&context.limits);
    context.limits.opcodes = 2000;
    context.limits.values = 2000;
    context.limits.text = 65536;
    context.limits.repeats = 64;
    context.limits.names = 1 << 20;
    context.limits.index_memory = 64 << 20;
    if (source_new_memory("fuzz.pth", data, n_bytes, &source) < 0)
        return;
    if (load_source(source, &context, &catalog, &err) < 0) {
        if (err.code == 0 || err.text[0] == '\0')
            abort();
        return;
    }
    look_at_tensors(catalog);
    look_at_values(catalog);
    (void)!wfs_verify(catalog, &err);
    wfs_catalog_free(catalog);
}

#endif
