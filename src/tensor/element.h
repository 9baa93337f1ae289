/* SPDX-License-Identifier: MIT */
/*
 * What happens to stored elements on the way to being shown: byte order, conjugation, sign, cast.
 */
#ifndef WFS_ELEMENT_H
#define WFS_ELEMENT_H

#include <weightfs/tensor.h>

/* What is done to every element of a tensor; sizes in bytes, whole ones. */
struct recipe {
    enum wfs_dtype from, to;
    size_t n_in, n_out;
    bool is_swapped, is_conjugate, is_negative;
};

/* Returns false when an element is not a whole number of bytes. */
bool recipe_init(struct recipe *recipe, const struct wfs_tensor *tensor);

/* Returns whether stored elements are shown as they are. */
bool recipe_is_verbatim(const struct recipe *recipe);

/* Converts n_elems stored elements, which are overwritten on the way. out may be the same as elems
 * when the dtype stays. */
void recipe_apply(const struct recipe *recipe, char *elems, size_t n_elems, char *out);

#endif
