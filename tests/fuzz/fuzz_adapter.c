/* SPDX-License-Identifier: MIT */
/*
 * An adapter: the input is its configuration, a NUL, and a line for each tensor: "KEY DTYPE DIM
 * DIM...", or "META JSON", the configuration of diffusers. Whatever it adds to the base, all
 * tensors can be read afterwards.
 */
#include "view.h"

#include <math.h>
#include <stdio.h>

#include "view/adapter/adapter_base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static float content[4096];

static int take_name(void *ctx, const char *name, struct arena *arena, const char **ret,
                     struct wfs_error *err)
{
    *ret = name;
    return 0;
}

static int ignore(void *ctx, const char *about, const char *text)
{
    return 0;
}

/* Adds the tensor of a line, unless it is none or larger than the content. */
static void add_line(struct wfs_catalog *catalog, char *line)
{
    enum wfs_dtype dtype;
    uint64_t *dims = arena_calloc(&catalog->arena, 8, sizeof(*dims)), n_bytes;
    struct wfs_shape shape = {0, dims};
    if (strncmp(line, "META ", 5) == 0) {
        demand(catalog_add_meta(catalog, "lora_adapter_metadata", line + 5) == 0);
        return;
    }
    const char *key = strsep(&line, " "), *name = strsep(&line, " ");
    if (name == NULL || !wfs_dtype_parse(name, strlen(name), &dtype))
        return;
    for (const char *dim; shape.rank < 8 && (dim = strsep(&line, " ")) != NULL;)
        dims[shape.rank++] = strtoull(dim, NULL, 10);
    if (wfs_shape_bytes(&shape, dtype, &n_bytes) < 0 || n_bytes > sizeof(content))
        return;
    struct wfs_tensor *tensor = catalog_add(catalog);
    *tensor = (struct wfs_tensor){.key = arena_copy(&catalog->arena, key, strlen(key)),
                                  .shape = shape,
                                  .n_bytes = n_bytes,
                                  .dtype = (uint8_t)dtype};
    tensor->stored =
        (struct wfs_stored){.source = catalog->sources.list[0], .dtype = (uint8_t)dtype};
}

static struct wfs_catalog *make_file(char *text)
{
    struct wfs_catalog *catalog;
    struct source *source;
    demand(catalog_new(&catalog) == 0 &&
           source_new_memory("a", content, sizeof(content), &source) == 0 &&
           catalog_adopt_source(catalog, source) == 0);
    for (size_t i = 0; i < sizeof(content) / sizeof(*content); i++)
        content[i] = (float)(i % 7) - 3;
    for (char *line; (line = strsep(&text, "\n")) != NULL;)
        add_line(catalog, line);
    return catalog;
}

/* Adds experts apart, and what Flux has apart. */
static void add_parts(struct wfs_catalog *catalog)
{
    static const uint64_t wide[] = {2, 4}, high[] = {4, 2};
    static const struct {
        const char *key;
        const uint64_t *dims;
    } parts[] = {
        {"l.0.mlp.experts.0.gate_proj.weight", wide},
        {"l.0.mlp.experts.0.up_proj.weight", wide},
        {"l.0.mlp.experts.0.down_proj.weight", high},
        {"l.0.mlp.experts.1.gate_proj.weight", wide},
        {"l.0.mlp.experts.1.up_proj.weight", wide},
        {"l.0.mlp.experts.1.down_proj.weight", high},
        {"l.1.block_sparse_moe.experts.0.w1.weight", wide},
        {"l.1.block_sparse_moe.experts.0.w3.weight", wide},
        {"l.1.block_sparse_moe.experts.0.w2.weight", high},
        {"transformer_blocks.0.attn.to_q.weight", wide},
        {"transformer_blocks.0.attn.to_k.weight", wide},
        {"transformer_blocks.0.attn.to_v.weight", wide},
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        struct wfs_tensor *tensor = catalog_add(catalog);
        demand(tensor != NULL);
        *tensor = (struct wfs_tensor){
            .key = parts[i].key, .shape = {2, parts[i].dims}, .n_bytes = 32, .dtype = WFS_F32};
        tensor->stored = (struct wfs_stored){.source = catalog->sources.list[0], .dtype = WFS_F32};
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct wfs_error err = {0};
    struct adapter_base base;
    char *text = calloc(1, n_bytes + 2);
    memcpy(text, data, n_bytes);
    struct wfs_catalog *catalog = fuzz_catalog(), *file = make_file(text + strlen(text) + 1);
    const struct adapter_request request = {.path = "adapter",
                                            .weight = 1,
                                            .alpha = NAN,
                                            .rename = take_name,
                                            .warn = ignore,
                                            .note = ignore};
    add_parts(catalog);
    demand(adapter_base_init(&base, catalog) == 0 && catalog_adopt_part(catalog, file) == 0);
    const int code = adapter_add(&base, &request, file, *text != '\0' ? text : NULL, &err);
    demand(code == 0 ? err.code == 0 : err.code == -code);
    if (code == 0)
        fuzz_look(catalog);
    adapter_base_done(&base);
    wfs_catalog_free(catalog);
    free(text);
    return 0;
}
