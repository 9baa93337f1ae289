/* SPDX-License-Identifier: MIT */
/*
 * GGUF: whatever bytes are loaded, all tensors are read, and all values are written as JSON.
 */
#include "format.h"

#include <weightfs/value.h>

static void read_tensors(const struct wfs_catalog *catalog)
{
    char buf[4096];
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        const size_t n = tensor->n_bytes < sizeof(buf) ? (size_t)tensor->n_bytes : sizeof(buf);
        const ssize_t n_read = wfs_tensor_read(tensor, 0, buf, sizeof(buf));
        demand(n_read == (ssize_t)n || (tensor->trouble != NULL && n_read == -EIO));
        check_text(tensor->key[0] == '\0' ? "-" : wfs_quote(tensor->key).text);
        wfs_npy_header(tensor, buf, sizeof(buf));
    }
}

static void read_values(const struct wfs_catalog *catalog)
{
    for (size_t i = 0; i < wfs_catalog_n_values(catalog); i++) {
        char *text = NULL;
        size_t n_bytes;
        demand(wfs_catalog_value_text(catalog, i, &text, &n_bytes) == 0);
        demand(utf8_valid(text, n_bytes) == n_bytes);
        free(text);
    }
}

static void run(const uint8_t *data, size_t n_bytes, bool force)
{
    struct wfs_catalog *catalog = load_as(&format_gguf, data, n_bytes, force);
    if (catalog == NULL)
        return;
    check_findings(catalog);
    read_tensors(catalog);
    read_values(catalog);
    wfs_catalog_free(catalog);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    run(data, n_bytes, false);
    run(data, n_bytes, true);
    return 0;
}
