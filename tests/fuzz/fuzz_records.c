/* SPDX-License-Identifier: MIT */
/*
 * Records of Burn: whatever bytes are loaded, all tensors are read twice, in other pieces, and all
 * values are written as JSON. What can be written is written and read again, after which it must
 * stay as it is.
 */
#include "format.h"

#include <weightfs/value.h>

enum { N_READ = 4096, N_OUT = 1 << 20 };

/* What is read is the same in pieces of any size. */
static void read_tensors(const struct wfs_catalog *catalog)
{
    char buf[N_READ], again[N_READ];
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        const size_t n = tensor->n_bytes < N_READ ? (size_t)tensor->n_bytes : N_READ;
        const ssize_t n_read = wfs_tensor_read(tensor, 0, buf, N_READ);
        demand(n_read == (ssize_t)n || (tensor->trouble != NULL && n_read == -EIO));
        check_text(tensor->key[0] == '\0' ? "-" : wfs_quote(tensor->key).text);
        for (size_t at = 0; n_read > 0 && at < n; at += n / 7 + 1) {
            const size_t n_piece = n - at < n / 7 + 1 ? n - at : n / 7 + 1;
            demand(wfs_tensor_read(tensor, at, again + at, n_piece) == (ssize_t)n_piece);
        }
        demand(n_read <= 0 || memcmp(buf, again, n) == 0);
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

/* The file that the catalog makes, malloc'ed; NULL when it makes none, or a large one. */
static char *write_file(const struct wfs_catalog *catalog, size_t *ret_n)
{
    struct wfs_error err = {0};
    struct wfs_layout *layout;
    if (wfs_layout_new(&format_records, catalog, &layout, &err) < 0) {
        check_text(err.text);
        return NULL;
    }
    const size_t n_bytes = (size_t)wfs_layout_n_bytes(layout);
    char *bytes = n_bytes > N_OUT ? NULL : malloc(n_bytes);
    const ssize_t n = bytes == NULL ? 0 : wfs_layout_read(layout, 0, bytes, n_bytes);
    wfs_layout_free(layout);
    demand(bytes == NULL || n == (ssize_t)n_bytes || n == -EIO);
    *ret_n = n_bytes;
    if (bytes != NULL && n == (ssize_t)n_bytes)
        return bytes;
    free(bytes);
    return NULL;
}

static void write_again(const struct wfs_catalog *catalog)
{
    size_t n_bytes = 0, n_again = 0;
    char *bytes = write_file(catalog, &n_bytes);
    if (bytes == NULL)
        return;
    struct wfs_catalog *found = load_as(&format_records, bytes, n_bytes, false);
    demand(found != NULL && wfs_catalog_n_tensors(found) == wfs_catalog_n_tensors(catalog));
    char *again = write_file(found, &n_again);
    demand(again != NULL && n_again == n_bytes && memcmp(again, bytes, n_bytes) == 0);
    free(again);
    free(bytes);
    wfs_catalog_free(found);
}

static void run(const uint8_t *data, size_t n_bytes, bool force)
{
    struct wfs_catalog *catalog = load_as(&format_records, data, n_bytes, force);
    if (catalog == NULL)
        return;
    check_findings(catalog);
    read_tensors(catalog);
    read_values(catalog);
    write_again(catalog);
    wfs_catalog_free(catalog);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    run(data, n_bytes, false);
    run(data, n_bytes, true);
    return 0;
}
