/* SPDX-License-Identifier: MIT */
/*
 * Legacy streams: the input is one as it is, or what follows the first three pickles of one.
 */
#include "pytorch.h"

static const uint8_t start[] = {
    0x80, 2,   0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50,
    0x19, '.', 0x80, 2,  'M',  0xe9, 3,    '.',  0x80, 2,    '}',  '.',
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes > 15 && memcmp(data, start, 15) == 0) {
        load_and_look(data, n_bytes);
        return 0;
    }
    uint8_t *stream = malloc(sizeof(start) + n_bytes);
    if (stream == NULL)
        return 0;
    memcpy(stream, start, sizeof(start));
    if (n_bytes > 0)
        memcpy(stream + sizeof(start), data, n_bytes);
    load_and_look(stream, sizeof(start) + n_bytes);
    free(stream);
    return 0;
}
