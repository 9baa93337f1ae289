/* SPDX-License-Identifier: MIT */
/*
 * Digests of what a tensor shows, and of what a catalog says.
 */
#include "tensor/catalog.h"

#include <weightfs/cleanup.h>
#include <weightfs/value.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

enum { N_PIECE = 1 << 20 };

static void cleanup_hasher(struct hasher **hasher)
{
    hasher_free(*hasher);
}

int wfs_tensor_digest_and(const struct wfs_tensor *tensor, wfs_take take, void *ctx,
                          uint64_t *ret_digest)
{
    autofree char *piece = malloc(N_PIECE);
    cleanup(cleanup_hasher) struct hasher *hasher = hasher_new();
    if (piece == NULL || hasher == NULL)
        return -ENOMEM;
    for (uint64_t offset = 0; offset < tensor->n_bytes;) {
        const ssize_t n = wfs_tensor_read(tensor, offset, piece, N_PIECE);
        if (n < 0)
            return (int)n;
        hasher_update(hasher, piece, (size_t)n);
        const int code = take(ctx, piece, (size_t)n);
        if (code != 0)
            return code;
        offset += (uint64_t)n;
    }
    *ret_digest = hasher_digest(hasher);
    return 0;
}

static int take_nothing(void *ctx, const void *bytes, size_t n_bytes)
{
    return 0;
}

int wfs_tensor_digest(const struct wfs_tensor *tensor, uint64_t *ret_digest)
{
    return wfs_tensor_digest_and(tensor, take_nothing, NULL, ret_digest);
}

/* Numbers go in with a fixed width and order of bytes, texts with the NUL behind them. */
static void add_number(struct hasher *hasher, uint64_t number)
{
    unsigned char bytes[8];
    store_le64(bytes, number);
    hasher_update(hasher, bytes, sizeof(bytes));
}

static void add_texts(struct hasher *hasher, const struct wfs_text *text)
{
    for (; text != NULL; text = text->next) {
        hasher_update(hasher, text->name, strlen(text->name) + 1);
        add_number(hasher, text->n_bytes);
        hasher_update(hasher, text->value, text->n_bytes);
    }
    hasher_update(hasher, "", 1); /* no name is empty: lists that follow each other are not one */
}

static void add_stored(struct hasher *hasher, const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    add_number(hasher, stored->offset);
    add_number(hasher, stored->dtype);
    add_number(hasher, (stored->is_big_endian ? 1u : 0u) | (stored->is_conjugate ? 2u : 0u) |
                           (stored->is_negative ? 4u : 0u) | (stored->strides != NULL ? 8u : 0u));
    for (uint32_t i = 0; stored->strides != NULL && i < tensor->shape.rank; i++)
        add_number(hasher, stored->strides[i]);
}

static void add_tensor(struct hasher *hasher, const struct wfs_tensor *tensor)
{
    hasher_update(hasher, tensor->key, strlen(tensor->key) + 1);
    add_number(hasher, tensor->dtype);
    add_number(hasher, tensor->n_bytes);
    add_number(hasher, tensor->shape.rank);
    for (uint32_t i = 0; i < tensor->shape.rank; i++)
        add_number(hasher, tensor->shape.dims[i]);
    add_stored(hasher, tensor);
    add_texts(hasher, tensor->attrs);
}

/* A pickle that is a file of its own in an archive has a checksum there, which says the same. */
static int add_values(struct hasher *hasher, const struct wfs_catalog *catalog)
{
    add_number(hasher, catalog->pickle_crc);
    for (size_t i = 0; i < catalog->n_values && catalog->pickle_crc == 0; i++) {
        autofree char *text = NULL;
        size_t n_bytes;
        const int code = wfs_catalog_value_text(catalog, i, &text, &n_bytes);
        if (code < 0)
            return code;
        hasher_update(hasher, catalog->values[i].name, strlen(catalog->values[i].name) + 1);
        hasher_update(hasher, text, n_bytes);
    }
    return 0;
}

int wfs_catalog_digest(const struct wfs_catalog *catalog, uint64_t *ret_digest)
{
    cleanup(cleanup_hasher) struct hasher *hasher = hasher_new();
    if (hasher == NULL)
        return -ENOMEM;
    add_number(hasher, catalog->n_tensors);
    for (size_t i = 0; i < catalog->n_tensors; i++)
        add_tensor(hasher, &catalog->tensors[i]);
    add_texts(hasher, catalog->meta);
    const int code = add_values(hasher, catalog);
    if (code == 0)
        *ret_digest = hasher_digest(hasher);
    return code;
}
