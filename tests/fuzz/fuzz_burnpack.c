/* SPDX-License-Identifier: MIT */
/*
 * Burnpack: whatever bytes are loaded, all tensors are read, and what can be written is written and
 * read again, after which it must stay as it is.
 */
#include "format.h"

enum { N_OUT = 1 << 20 };

/* What is read is what the file has, and without force all of it. */
static void read_tensors(const struct wfs_catalog *catalog, const uint8_t *file, bool force)
{
    char buf[4096];
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        const size_t n = tensor->n_bytes < sizeof(buf) ? (size_t)tensor->n_bytes : sizeof(buf);
        const ssize_t n_read = wfs_tensor_read(tensor, 0, buf, sizeof(buf));
        demand(n_read == (ssize_t)n || (force && n_read == -EIO));
        demand(n_read <= 0 || memcmp(buf, file + tensor->stored.offset, n) == 0);
    }
}

static void run(const uint8_t *data, size_t n_bytes, bool force)
{
    struct wfs_catalog *catalog = load_as(&format_burnpack, data, n_bytes, force);
    if (catalog == NULL)
        return;
    check_findings(catalog);
    read_tensors(catalog, data, force);
    write_again(&format_burnpack, catalog, N_OUT, force);
    wfs_catalog_free(catalog);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    run(data, n_bytes, false);
    run(data, n_bytes, true);
    return 0;
}
