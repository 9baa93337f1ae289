/* SPDX-License-Identifier: MIT */
/*
 * GGUF: whatever bytes are loaded, all tensors are read, blocks as numbers, too, and all values are
 * written as JSON. What can be written is written and read again, after which it must stay as it
 * is.
 */
#include "format.h"

static void read_tensors(const struct wfs_catalog *catalog)
{
    char buf[4096];
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        const size_t n = tensor->n_bytes < sizeof(buf) ? (size_t)tensor->n_bytes : sizeof(buf);
        const ssize_t n_read = wfs_tensor_read(tensor, 0, buf, sizeof(buf));
        demand(n_read == (ssize_t)n || (wfs_tensor_trouble(tensor) != NULL && n_read == -EIO));
        check_text(tensor->key[0] == '\0' ? "-" : wfs_quote(tensor->key).text);
        wfs_npy_header(tensor, buf, sizeof(buf));
    }
}

/* Any range of the numbers is what it is in the whole. */
static void read_numbers(const struct wfs_catalog *catalog)
{
    char buf[4096], piece[700];
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        struct wfs_numbers numbers;
        const int code = wfs_numbers_init(&numbers, wfs_catalog_tensor(catalog, i));
        demand(code == 0 || code == -EOPNOTSUPP);
        const ssize_t n = wfs_tensor_read(numbers.tensor, 0, buf, sizeof(buf));
        for (ssize_t at = 0; at < n; at += 301) {
            const size_t n_piece =
                (size_t)(n - at) < sizeof(piece) ? (size_t)(n - at) : sizeof(piece);
            demand(wfs_tensor_read(numbers.tensor, (uint64_t)at, piece, n_piece) ==
                   (ssize_t)n_piece);
            demand(memcmp(piece, buf + at, n_piece) == 0);
        }
        wfs_numbers_done(&numbers);
    }
}

static void run(const uint8_t *data, size_t n_bytes, bool force)
{
    struct wfs_catalog *catalog = load_as(&format_gguf, data, n_bytes, force);
    if (catalog == NULL)
        return;
    check_findings(catalog);
    read_tensors(catalog);
    read_numbers(catalog);
    read_values(catalog);
    write_again(&format_gguf, catalog, 1 << 20, true);
    wfs_catalog_free(catalog);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    run(data, n_bytes, false);
    run(data, n_bytes, true);
    return 0;
}
