/* SPDX-License-Identifier: MIT */
/*
 * The header of a .npy file, as numpy writes it:
 *
 *   \x93 N U M P Y | major minor | length of the text (2 bytes, or 4 in version 2) | text
 *
 * The text is a Python dict, padded with spaces and one newline until the data starts at a multiple
 * of 64.
 */
#include <weightfs/tensor.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

/* Text that is cut at the end of buf but counted in full. */
struct text {
    char *buf;
    size_t n_room, n_used;
};

static void put(struct text *text, const char *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++, text->n_used++) {
        if (text->n_used < text->n_room)
            text->buf[text->n_used] = bytes[i];
    }
}

static void put_string(struct text *text, const char *string)
{
    put(text, string, strlen(string));
}

static void put_dim(struct text *text, uint64_t dim, bool is_first)
{
    char number[24];
    snprintf(number, sizeof(number), "%s%" PRIu64, is_first ? "" : ", ", dim);
    put_string(text, number);
}

/* Sub-byte and opaque tensors as bytes: per row of the last dimension where that is whole, else all
 * in one. */
static void put_shape(struct text *text, const struct wfs_tensor *tensor)
{
    const struct wfs_shape *shape = &tensor->shape;
    const unsigned n_bits = wfs_dtype_bits((enum wfs_dtype)tensor->dtype);
    const uint64_t last = shape->rank == 0 ? 1 : shape->dims[shape->rank - 1];
    uint64_t last_bits;
    put_string(text, "(");
    if (tensor->dtype == WFS_OPAQUE || (n_bits < 8 && shape->rank == 0) ||
        !checked_mul(last, (uint64_t)n_bits, &last_bits) || last_bits % 8 != 0) {
        put_dim(text, tensor->n_bytes, true);
        put_string(text, ",");
    } else {
        for (uint32_t i = 0; i < shape->rank; i++) {
            const bool is_packed = n_bits < 8 && i + 1 == shape->rank;
            put_dim(text, is_packed ? last_bits / 8 : shape->dims[i], i == 0);
        }
        if (shape->rank == 1)
            put_string(text, ",");
    }
    put_string(text, ")");
}

static void put_dict(struct text *text, const struct wfs_tensor *tensor)
{
    put_string(text, "{'descr': '");
    put_string(text, wfs_dtype_descr((enum wfs_dtype)tensor->dtype));
    put_string(text, "', 'fortran_order': False, 'shape': ");
    put_shape(text, tensor);
    put_string(text, ", }");
}

size_t wfs_npy_header(const struct wfs_tensor *tensor, char *buf, size_t n_bytes)
{
    struct text measure = {0};
    put_dict(&measure, tensor);
    size_t n_start = 10; /* before the text */
    size_t n_all = (n_start + measure.n_used + 1 + 63) / 64 * 64;
    const bool is_long = n_all - n_start > UINT16_MAX;
    if (is_long) {
        n_start = 12;
        n_all = (n_start + measure.n_used + 1 + 63) / 64 * 64;
    }
    uint8_t start[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', is_long ? 2 : 1, 0};
    if (is_long)
        store_le32(start + 8, (uint32_t)(n_all - n_start));
    else
        store_le16(start + 8, (uint16_t)(n_all - n_start));
    struct text text = {.buf = buf, .n_room = n_bytes};
    put(&text, (const char *)start, n_start);
    put_dict(&text, tensor);
    while (text.n_used < n_all - 1)
        put(&text, " ", 1);
    put(&text, "\n", 1);
    return n_all;
}
