/* SPDX-License-Identifier: MIT */
/*
 * Headers of .npy files that somebody wrote: the input is the front of one.
 */
#include "tensor/npy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct arena arena = {0};
    const char *reason = NULL;
    struct npy_header header;
    const int code = npy_parse((const char *)data, n_bytes, &arena, &header, &reason);
    if (code < 0 ? reason == NULL : header.n_bytes > n_bytes)
        abort();
    uint64_t product = 1;
    for (uint32_t i = 0; code == 0 && i < header.shape.rank; i++)
        product *= header.shape.dims[i] | 1; /* looks at each of them */
    arena_done(&arena);
    return product == 0;
}
