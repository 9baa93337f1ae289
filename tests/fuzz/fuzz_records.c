/* SPDX-License-Identifier: MIT */
/*
 * Records of Burn: whatever bytes are loaded, all tensors are read twice, in other pieces, and all
 * values are written as JSON. What can be written is written and read again, after which it must
 * stay as it is.
 */
#include "format.h"

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

static void run(const uint8_t *data, size_t n_bytes, bool force)
{
    struct wfs_catalog *catalog = load_as(&format_records, data, n_bytes, force);
    if (catalog == NULL)
        return;
    check_findings(catalog);
    read_tensors(catalog);
    read_values(catalog);
    write_again(&format_records, catalog, N_OUT, true);
    wfs_catalog_free(catalog);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    run(data, n_bytes, false);
    run(data, n_bytes, true);
    return 0;
}
