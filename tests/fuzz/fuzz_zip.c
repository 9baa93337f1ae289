/* SPDX-License-Identifier: MIT */
/*
 * Zips: the input is one as it is.
 */
#include "pytorch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes >= 4 && memcmp(data, "PK\3\4", 4) == 0)
        load_and_look(data, n_bytes);
    return 0;
}
