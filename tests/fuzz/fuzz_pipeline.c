/* SPDX-License-Identifier: MIT */
/*
 * The file that describes a pipeline, in a folder without components: whatever it names, nothing is
 * found, and there is one line about it.
 */
#include <stdint.h>
#include <stdlib.h>

#include "format/registry.h"
#include "format/set/pipeline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct source *source;
    if (source_new_memory("/var/empty/" PIPELINE_INDEX, data, n_bytes, &source) < 0)
        return 0;
    for (int force = 0; force < 2; force++) {
        struct load_context context = {.table = &registry_table, .force = force != 0};
        struct wfs_catalog *catalog = NULL;
        struct wfs_error err = {0};
        limits_init(&context.limits);
        const int code = pipeline_source_load(source, &context, &catalog, &err);
        if (code == 0 || err.code != -code || err.text[0] == '\0')
            abort();
    }
    source_free(source);
    return 0;
}
