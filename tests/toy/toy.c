/* SPDX-License-Identifier: MIT */
/*
 * A toy format of vectors of bytes:
 *
 *     "TOY"  edition  { n_key, key, n_bytes, bytes }...
 *
 * where both numbers are one byte. The edition is a digit, which an option chooses.
 */
#include "format/toy/toy.h"

#include <errno.h>
#include <string.h>

#include "format/core/layout.h"

enum { N_MAGIC = 4 }; /* with the edition */

static const struct wfs_limit limits[] = {{"toy_vectors", 100, "vectors of a toy"}, {0}};

static int check_edition(const char *value, struct wfs_error *err)
{
    return value[0] >= '1' && value[0] <= '9' && value[1] == '\0'
               ? 0
               : wfs_fail(err, EINVAL, "must be a digit from 1 to 9, not '%s'", value);
}

static const struct wfs_option options[] = {
    {"toy_edition", "N", "the edition of a toy", check_edition}, {0}};

static bool probe(const uint8_t *head, size_t n_head, uint64_t n_bytes)
{
    return n_head >= N_MAGIC && memcmp(head, "TOY", 3) == 0;
}

static int read_piece(struct source *source, uint64_t *at, uint8_t *room, uint8_t *ret_n,
                      struct wfs_error *err)
{
    if (source_read(source, *at, ret_n, 1) < 0 || source_read(source, *at + 1, room, *ret_n) < 0)
        return wfs_fail(err, EBADMSG, "the toy breaks at byte %llu", (unsigned long long)*at);
    *at += 1 + *ret_n;
    return 0;
}

static int load(struct source *source, const struct load_context *context,
                struct wfs_catalog *catalog, struct wfs_error *err)
{
    static const struct wfs_container container = {.name = "toy"};
    uint8_t room[256], n;
    const uint64_t n_most = limits_own(&context->limits, &limits[0]);
    catalog->container = &container;
    for (uint64_t at = N_MAGIC; at < source->n_bytes;) {
        int code = read_piece(source, &at, room, &n, err);
        if (code < 0)
            return code;
        if (catalog->n_tensors == n_most)
            return wfs_fail(err, E2BIG, "more than %llu vectors (limit %s)",
                            (unsigned long long)n_most, limits[0].name);
        struct wfs_tensor *tensor =
            catalog_reserve(catalog, catalog->n_tensors + 1) < 0 ? NULL : catalog_add(catalog);
        if (tensor == NULL ||
            (tensor->key = arena_copy(&catalog->arena, (const char *)room, n)) == NULL)
            return catalog_fail_memory(catalog, err);
        tensor->dtype = tensor->stored.dtype = WFS_U8;
        tensor->stored.source = source;
        tensor->stored.offset = at + 1;
        code = read_piece(source, &at, room, &n, err);
        if (code < 0)
            return code;
        uint64_t *dims = arena_alloc(&catalog->arena, sizeof(*dims));
        if (dims == NULL)
            return catalog_fail_memory(catalog, err);
        tensor->n_bytes = dims[0] = n;
        tensor->shape = (struct wfs_shape){1, dims};
    }
    return 0;
}

static bool stores(const struct wfs_tensor *tensor)
{
    return tensor->dtype == WFS_U8;
}

static int plan(const struct wfs_catalog *catalog, struct wfs_layout *layout, struct wfs_error *err)
{
    const struct wfs_text *edition = catalog->output.options;
    char *magic = arena_print(&layout->arena, "TOY%s", edition == NULL ? "1" : edition->value);
    if (magic == NULL || layout_add_bytes(layout, 0, magic, N_MAGIC) < 0)
        return wfs_fail_memory(err);
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct wfs_tensor *tensor = &catalog->tensors[i];
        const size_t n_key = strlen(tensor->key);
        if (storable_check_tensor(layout->format, tensor, err) < 0)
            return err->code;
        if (n_key > UINT8_MAX || tensor->n_bytes > UINT8_MAX || tensor->shape.rank != 1)
            return wfs_fail(err, EOPNOTSUPP, "tensor '%s' is too large for a toy", tensor->key);
        char *head = arena_chars(&layout->arena, n_key + 2);
        if (head == NULL)
            return wfs_fail_memory(err);
        head[0] = (char)n_key;
        memcpy(head + 1, tensor->key, n_key);
        head[n_key + 1] = (char)tensor->n_bytes;
        if (layout_add_bytes(layout, layout->n_bytes, head, n_key + 2) < 0 ||
            layout_add_tensor(layout, layout->n_bytes, tensor) < 0)
            return wfs_fail_memory(err);
    }
    return 0;
}

static const struct format_functions functions = {
    .probe = probe, .load = load, .stores = stores, .plan = plan};

static const char *const extensions[] = {".toy", NULL};

const struct wfs_format format_toy = {
    .name = "toy",
    .title = "Toy",
    .extensions = extensions,
    .set_name = "model.toy",
    .limits = limits,
    .options = options,
    .functions = &functions,
};
