/* SPDX-License-Identifier: MIT */
/*
 * Headers of .npy files that somebody wrote: the input is the front of one.
 */
#include "tensor/npy.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* What is written of such a tensor says the same. */
static void write_and_read(const struct npy_header *header)
{
    struct arena arena = {0};
    const char *reason = NULL;
    struct npy_header again;
    const struct wfs_tensor tensor = {
        .key = "w", .dtype = (uint8_t)header->dtype, .shape = header->shape};
    char *text = malloc(NPY_FRONT_MAX);
    const size_t n = text == NULL ? SIZE_MAX : wfs_npy_header(&tensor, text, NPY_FRONT_MAX);
    if (n <= NPY_FRONT_MAX &&
        (npy_parse(text, n, &arena, &again, &reason) < 0 || again.n_bytes != n ||
         again.dtype != header->dtype || again.shape.rank != header->shape.rank ||
         (again.shape.rank > 0 && memcmp(again.shape.dims, header->shape.dims,
                                         again.shape.rank * sizeof(*again.shape.dims)) != 0)))
        abort();
    free(text);
    arena_done(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct arena arena = {0};
    const char *reason = NULL;
    struct npy_header header;
    const int code = npy_parse((const char *)data, n_bytes, &arena, &header, &reason);
    if (code < 0 ? reason == NULL : header.n_bytes > n_bytes)
        abort();
    if (code == 0 && header.has_dtype)
        write_and_read(&header);
    uint64_t product = 1;
    for (uint32_t i = 0; code == 0 && i < header.shape.rank; i++)
        product *= header.shape.dims[i] | 1; /* looks at each of them */
    arena_done(&arena);
    return product == 0;
}
