/* SPDX-License-Identifier: MIT */
/*
 * Shapes: counts, sizes, text.
 */
#include "tensor/shape.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

int wfs_shape_count(const struct wfs_shape *shape, uint64_t *ret_n_elems)
{
    uint64_t n_elems = 1;
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (!checked_mul(n_elems, shape->dims[i], &n_elems))
            return -EOVERFLOW;
    }
    *ret_n_elems = n_elems;
    return 0;
}

bool wfs_shape_is_equal(const struct wfs_shape *a, const struct wfs_shape *b)
{
    return a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dims, b->dims, a->rank * sizeof(*a->dims)) == 0);
}

int wfs_shape_bytes(const struct wfs_shape *shape, enum wfs_dtype dtype, uint64_t *ret_n_bytes)
{
    uint64_t n_elems, n_bits;
    const int code = wfs_shape_count(shape, &n_elems);
    if (code < 0)
        return code;
    if (!checked_mul(n_elems, (uint64_t)wfs_dtype_bits(dtype), &n_bits))
        return -EOVERFLOW;
    if (n_bits % 8 != 0)
        return -EDOM;
    *ret_n_bytes = n_bits / 8;
    return 0;
}

int shape_own(struct wfs_shape *shape, struct arena *arena)
{
    uint64_t *dims = arena_calloc(arena, shape->rank, sizeof(*dims));
    if (shape->rank == 0)
        return 0;
    if (dims == NULL)
        return -ENOMEM;
    memcpy(dims, shape->dims, shape->rank * sizeof(*dims));
    shape->dims = dims;
    return 0;
}

void shape_print(struct strbuf *text, const struct wfs_shape *shape)
{
    strbuf_puts(text, "[");
    for (uint32_t i = 0; i < shape->rank; i++)
        strbuf_printf(text, "%s%" PRIu64, i == 0 ? "" : ", ", shape->dims[i]);
    strbuf_puts(text, "]");
}

/* Appends as snprintf would, counting what does not fit. */
static void append(char *buf, size_t n_bytes, size_t *n_used, const char *text)
{
    const size_t n_text = strlen(text);
    for (size_t i = 0; i < n_text; i++) {
        if (*n_used + i + 1 < n_bytes)
            buf[*n_used + i] = text[i];
    }
    *n_used += n_text;
    if (n_bytes > 0)
        buf[*n_used < n_bytes ? *n_used : n_bytes - 1] = '\0';
}

size_t wfs_shape_format(const struct wfs_shape *shape, char *buf, size_t n_bytes)
{
    size_t n_used = 0;
    char number[24];
    append(buf, n_bytes, &n_used, "[");
    for (uint32_t i = 0; i < shape->rank; i++) {
        snprintf(number, sizeof(number), "%s%" PRIu64, i == 0 ? "" : ", ", shape->dims[i]);
        append(buf, n_bytes, &n_used, number);
    }
    append(buf, n_bytes, &n_used, "]");
    return n_used;
}
