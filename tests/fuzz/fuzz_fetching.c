/* SPDX-License-Identifier: MIT */
/*
 * Messages between the process that reads and the one that fetches: the input is one.
 */
#include <weightfs/fetching.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct fetching message, again;
    uint8_t bytes[FETCHING_MAX];
    if (fetching_decode(data, n_bytes, &message) < 0)
        return 0;
    if (message.n_text > FETCHING_TEXT_MAX || message.offset + message.n_bytes > INT64_MAX)
        abort();
    const int n = fetching_encode(&message, bytes);
    if (n < 0 || (size_t)n != n_bytes || fetching_decode(bytes, (size_t)n, &again) < 0 ||
        again.n_text != message.n_text || again.digest != message.digest ||
        memcmp(again.text, message.text, again.n_text) != 0)
        abort();
    return 0;
}
