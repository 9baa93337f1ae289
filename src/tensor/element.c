/* SPDX-License-Identifier: MIT */
/*
 * Single elements in stored order: swapped, negated, cast.
 */
#include "tensor/element.h"

#include "tensor/cast.h"

bool recipe_init(struct recipe *recipe, const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    const unsigned n_from = wfs_dtype_bits((enum wfs_dtype)stored->dtype);
    const unsigned n_to = wfs_dtype_bits((enum wfs_dtype)tensor->dtype);
    const bool is_complex = wfs_dtype_kind((enum wfs_dtype)stored->dtype) == WFS_KIND_COMPLEX;
    *recipe = (struct recipe){
        .from = (enum wfs_dtype)stored->dtype,
        .to = (enum wfs_dtype)tensor->dtype,
        .n_in = n_from / 8,
        .n_out = n_to / 8,
        .is_swapped = stored->is_big_endian && n_from / 8 > (is_complex ? 2 : 1),
        .is_conjugate = stored->is_conjugate && is_complex,
        .is_negative = stored->is_negative,
    };
    return n_from % 8 == 0 && n_to % 8 == 0 &&
           (recipe->from == recipe->to || cast_is_possible(recipe->from, recipe->to));
}

bool recipe_is_verbatim(const struct recipe *recipe)
{
    return recipe->from == recipe->to && !recipe->is_swapped && !recipe->is_conjugate &&
           !recipe->is_negative;
}

static void swap(char *elem, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes / 2; i++) {
        const char c = elem[i];
        elem[i] = elem[n_bytes - 1 - i];
        elem[n_bytes - 1 - i] = c;
    }
}

/* Little-endian: flips the sign of a float, or takes the two's complement of an integer. */
static void negate(char *elem, size_t n_bytes, enum wfs_kind kind)
{
    if (kind == WFS_KIND_FLOAT || kind == WFS_KIND_COMPLEX) {
        elem[n_bytes - 1] ^= (char)0x80;
        return;
    }
    unsigned carry = 1;
    for (size_t i = 0; i < n_bytes; i++) {
        carry += (unsigned char)~elem[i];
        elem[i] = (char)carry;
        carry >>= 8;
    }
}

/* Of a complex element each half is a part. */
static void fix_parts(const struct recipe *recipe, char *elems, size_t n_elems)
{
    const enum wfs_kind kind = wfs_dtype_kind(recipe->from);
    const size_t n_parts = kind == WFS_KIND_COMPLEX ? 2 : 1;
    const size_t n_part = recipe->n_in / n_parts;
    for (size_t i = 0; i < n_elems * n_parts; i++) {
        char *part = elems + i * n_part;
        const bool is_imaginary = n_parts == 2 && i % 2 == 1;
        if (recipe->is_swapped)
            swap(part, n_part);
        if (recipe->is_negative != (is_imaginary && recipe->is_conjugate))
            negate(part, n_part, kind);
    }
}

void recipe_apply(const struct recipe *recipe, char *elems, size_t n_elems, char *out)
{
    if (recipe->is_swapped || recipe->is_conjugate || recipe->is_negative)
        fix_parts(recipe, elems, n_elems);
    if (recipe->from != recipe->to)
        cast_elems(recipe->from, elems, recipe->to, out, n_elems);
}
