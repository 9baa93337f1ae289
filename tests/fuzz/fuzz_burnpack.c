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

/* The file that the catalog makes, malloc'ed; NULL when it makes none, or a large one. */
static char *write_file(const struct wfs_catalog *catalog, bool force, size_t *ret_n)
{
    struct wfs_error err = {0};
    struct wfs_layout *layout;
    if (wfs_layout_new(&format_burnpack, catalog, &layout, &err) < 0) {
        check_text(err.text);
        return NULL;
    }
    const size_t n_bytes = (size_t)wfs_layout_n_bytes(layout);
    char *bytes = n_bytes > N_OUT ? NULL : malloc(n_bytes);
    const ssize_t n = bytes == NULL ? 0 : wfs_layout_read(layout, 0, bytes, n_bytes);
    wfs_layout_free(layout);
    if (bytes == NULL || n == (ssize_t)n_bytes) {
        *ret_n = n_bytes;
        return bytes;
    }
    demand(force);
    free(bytes);
    return NULL;
}

static void check_again(const char *bytes, size_t n_bytes, size_t n_tensors)
{
    size_t n_again = 0;
    struct wfs_catalog *catalog = load_as(&format_burnpack, bytes, n_bytes, false);
    demand(catalog != NULL && wfs_catalog_n_tensors(catalog) == n_tensors);
    char *again = write_file(catalog, false, &n_again);
    demand(again != NULL && n_again == n_bytes && memcmp(again, bytes, n_bytes) == 0);
    free(again);
    wfs_catalog_free(catalog);
}

static void run(const uint8_t *data, size_t n_bytes, bool force)
{
    size_t n_out = 0;
    struct wfs_catalog *catalog = load_as(&format_burnpack, data, n_bytes, force);
    if (catalog == NULL)
        return;
    check_findings(catalog);
    read_tensors(catalog, data, force);
    char *bytes = write_file(catalog, force, &n_out);
    if (bytes != NULL)
        check_again(bytes, n_out, wfs_catalog_n_tensors(catalog));
    free(bytes);
    wfs_catalog_free(catalog);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    run(data, n_bytes, false);
    run(data, n_bytes, true);
    return 0;
}
