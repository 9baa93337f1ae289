/* SPDX-License-Identifier: MIT */
/*
 * Legacy archives: the input is one as it is; or two lengths of 16 bits and the members storages,
 * tensors and pickle, which are put into one with good headers.
 */
#include "pytorch.h"

#include <stdio.h>

#include "base/bytes.h"

enum { BLOCK = 512, MAX = 1 << 16 };

static size_t put_member(uint8_t *to, const char *name, const uint8_t *data, size_t n_bytes)
{
    unsigned sum = 0;
    memset(to, 0, BLOCK);
    snprintf((char *)to, 100, "%s", name);
    snprintf((char *)to + 124, 12, "%011zo", n_bytes);
    memset(to + 148, ' ', 8);
    to[156] = '0';
    memcpy(to + 257, "ustar", 5);
    for (size_t i = 0; i < BLOCK; i++)
        sum += to[i];
    snprintf((char *)to + 148, 8, "%06o", sum);
    if (n_bytes > 0)
        memcpy(to + BLOCK, data, n_bytes);
    const size_t n_padded = (n_bytes + BLOCK - 1) / BLOCK * BLOCK;
    memset(to + BLOCK + n_bytes, 0, n_padded - n_bytes);
    return BLOCK + n_padded;
}

static size_t at_most(size_t n, size_t n_max)
{
    return n < n_max ? n : n_max;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes > BLOCK && memcmp(data + 257, "ustar", 5) == 0) {
        load_and_look(data, n_bytes);
        return 0;
    }
    if (n_bytes < 4 || n_bytes > MAX)
        return 0;
    const size_t n_storages = at_most(load_le16(data), n_bytes - 4);
    const size_t n_tensors = at_most(load_le16(data + 2), n_bytes - 4 - n_storages);
    const uint8_t *storages = data + 4, *tensors = storages + n_storages;
    uint8_t *archive = malloc(n_bytes + 8 * BLOCK);
    if (archive == NULL)
        return 0;
    size_t n = put_member(archive, "storages", storages, n_storages);
    n += put_member(archive + n, "./tensors", tensors, n_tensors);
    n += put_member(archive + n, "pickle", tensors + n_tensors,
                    n_bytes - 4 - n_storages - n_tensors);
    load_and_look(archive, n);
    free(archive);
    return 0;
}
