/* SPDX-License-Identifier: MIT */
/*
 * Safetensors: any bytes are refused in one clean line or give a catalog that keeps its promises.
 * What was loaded is written, and loads again as the same.
 */
#include "format.h"
#include "format/signatures.h"

/* Dense, in order, complete. */
static void check_strictly(const struct wfs_catalog *catalog, size_t n_file)
{
    uint64_t at = wfs_catalog_n_tensors(catalog) > 0 ? catalog->tensors[0].stored.offset : n_file;
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        uint64_t n_bytes;
        char buf[64];
        demand(wfs_shape_bytes(&tensor->shape, (enum wfs_dtype)tensor->dtype, &n_bytes) == 0);
        demand(tensor->n_bytes == n_bytes && tensor->stored.offset == at &&
               tensor->trouble == NULL);
        at += n_bytes;
        const ssize_t n = n_bytes < sizeof(buf) ? (ssize_t)n_bytes : (ssize_t)sizeof(buf);
        demand(wfs_tensor_read(tensor, 0, buf, sizeof(buf)) == n);
        demand(wfs_tensor_read(tensor, n_bytes, buf, 1) == 0);
    }
    demand(at == n_file);
}

/* Whole, or EIO. */
static void check_loosely(const struct wfs_catalog *catalog)
{
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        const uint64_t half = tensor->n_bytes / 2, n_left = tensor->n_bytes - half;
        char buf[64];
        const ssize_t n = wfs_tensor_read(tensor, half, buf, sizeof(buf));
        demand(n == -EIO || n == (ssize_t)(n_left < sizeof(buf) ? n_left : sizeof(buf)));
        demand(n >= 0 || tensor->trouble != NULL ||
               tensor->stored.offset + tensor->n_bytes > catalog->sources.list[0]->n_bytes);
    }
}

struct taking {
    const struct wfs_catalog *wanted; /* NULL: anything */
    size_t n;
};

static int take(void *ctx, const struct wfs_tensor *tensor)
{
    struct taking *taking = ctx;
    const size_t i = taking->n++;
    if (taking->wanted == NULL)
        return 0;
    demand(i < wfs_catalog_n_tensors(taking->wanted));
    const struct wfs_tensor *wanted = wfs_catalog_tensor(taking->wanted, i);
    demand(strcmp(tensor->key, wanted->key) == 0 && tensor->dtype == wanted->dtype &&
           wfs_shape_is_equal(&tensor->shape, &wanted->shape) &&
           tensor->stored.offset == wanted->stored.offset && tensor->n_bytes == wanted->n_bytes);
    return 0;
}

/* Tensors that are given away are those of the catalog, in a file that a saver wrote. */
static void check_taking(const struct wfs_catalog *wanted, const void *bytes, size_t n_bytes)
{
    struct taking taking = {.wanted = wanted};
    const struct load_taker taker = {take, &taking};
    struct wfs_catalog *rest = load_for(&format_safetensors, bytes, n_bytes, false, &taker);
    demand(rest != NULL ? wfs_catalog_n_tensors(rest) == 0 : wanted == NULL);
    demand(wanted == NULL || taking.n == wfs_catalog_n_tensors(wanted));
    wfs_catalog_free(rest);
}

static void check_again(const struct wfs_catalog *catalog)
{
    size_t n_bytes = 0, n_again = 0;
    char *bytes = write_file(&format_safetensors, catalog, SIZE_MAX, false, &n_bytes);
    demand(bytes != NULL);
    struct wfs_catalog *again = load_as(&format_safetensors, bytes, n_bytes, false);
    demand(again != NULL && wfs_catalog_n_tensors(again) == wfs_catalog_n_tensors(catalog));
    check_strictly(again, n_bytes);
    check_taking(again, bytes, n_bytes);
    char *twice = write_file(&format_safetensors, again, SIZE_MAX, false, &n_again);
    demand(twice != NULL && n_again == n_bytes && memcmp(twice, bytes, n_bytes) == 0);
    for (size_t i = 0; i < wfs_catalog_n_tensors(again) && i < 64; i++)
        demand(wfs_catalog_find(catalog, wfs_catalog_tensor(again, i)->key) != NULL);
    free(twice);
    free(bytes);
    wfs_catalog_free(again);
}

static void check_sniffing(const uint8_t *data, size_t n_bytes)
{
    struct source *source = NULL;
    struct wfs_error err = {0};
    demand(source_new_memory("x", data, n_bytes, &source) == 0);
    if (signatures_guess(data, n_bytes < 4096 ? n_bytes : 4096, source, &err) < 0)
        check_text(err.text);
    source_free(source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct wfs_catalog *strict = load_as(&format_safetensors, data, n_bytes, false);
    struct wfs_catalog *loose = load_as(&format_safetensors, data, n_bytes, true);
    check_sniffing(data, n_bytes);
    check_taking(NULL, data, n_bytes);
    if (loose != NULL) {
        check_findings(loose);
        check_loosely(loose);
    }
    if (strict != NULL) {
        demand(loose != NULL && wfs_catalog_n_tensors(loose) == wfs_catalog_n_tensors(strict));
        check_findings(strict);
        check_strictly(strict, n_bytes);
        check_strictly(loose, n_bytes);
        check_again(strict);
    }
    wfs_catalog_free(strict);
    wfs_catalog_free(loose);
    return 0;
}
