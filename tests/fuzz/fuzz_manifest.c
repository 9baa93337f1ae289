/* SPDX-License-Identifier: MIT */
/*
 * Manifests of sums: each text that is read lies in the memory of the manifest, and each line is
 * found by its key.
 */
#include "cli/manifest.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void demand(bool is_so)
{
    if (!is_so)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct manifest manifest = {0};
    struct wfs_error err = {0};
    char *text = malloc(n_bytes + 1);
    demand(text != NULL);
    memcpy(text, data, n_bytes);
    text[n_bytes] = '\0';
    const int code = manifest_parse(text, n_bytes, &manifest, &err);
    demand(code < 0 ? err.text[0] != '\0' : manifest.n_lines <= n_bytes);
    for (size_t i = 0; code == 0 && i < manifest.n_parts; i++) {
        const struct manifest_part *part = &manifest.parts[i];
        for (size_t k = part->start; k < part->end; k++) {
            const struct manifest_line *line = &manifest.lines[k];
            demand(strlen(line->sha256) == 64 && strlen(line->xxh3) == 16);
            demand(line->dtype[0] != '\0' && line->shape[0] == '[');
            demand(line->shape[strlen(line->shape) - 1] == ']');
            demand(manifest_find(&manifest, part, line->key) == line);
        }
    }
    manifest_done(&manifest);
    return 0;
}
