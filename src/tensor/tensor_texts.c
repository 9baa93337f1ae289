/* SPDX-License-Identifier: MIT */
/*
 * A quantization belongs to a dtype: it goes with it.
 */
#include "tensor/tensor_texts.h"

#include <errno.h>
#include <string.h>

const char *const tensor_text_names[TENSOR_N_TEXTS] = {"param_id", "quantization"};

bool tensor_can_be_quantized(enum wfs_dtype dtype)
{
    return dtype == WFS_OPAQUE || (dtype >= WFS_QI8 && dtype <= WFS_QU2X4);
}

static bool is_of_quantization(const char *name)
{
    const char *prefix = tensor_text_names[TENSOR_QUANTIZATION];
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Returns the text that was set, if the type of the file can have it. */
static const char *text_of(const char *const *set, enum tensor_text which, enum wfs_dtype dtype)
{
    const bool is_fit = which != TENSOR_QUANTIZATION || tensor_can_be_quantized(dtype);
    return set == NULL || !is_fit ? NULL : set[which];
}

/* A quantization belongs to the type that the tensor was loaded with. */
static bool is_attr_kept(const struct wfs_text *attr, const char *const *set,
                         const struct wfs_tensor *base, enum wfs_dtype dtype)
{
    if (is_of_quantization(attr->name))
        return base->dtype == dtype && text_of(set, TENSOR_QUANTIZATION, dtype) == NULL;
    return strcmp(attr->name, tensor_text_names[TENSOR_PARAM_ID]) != 0 ||
           text_of(set, TENSOR_PARAM_ID, dtype) == NULL;
}

static int add_attr(struct wfs_text **end, const struct wfs_text *attr, struct arena *arena)
{
    struct wfs_text *copy = arena_calloc(arena, 1, sizeof(*copy));
    if (copy == NULL)
        return -ENOMEM;
    *copy = (struct wfs_text){attr->name, attr->value, attr->n_bytes, *end};
    *end = copy;
    return 0;
}

int tensor_texts_make(const char *const *set, const struct wfs_tensor *base, enum wfs_dtype dtype,
                      struct arena *arena, const struct wfs_text **ret)
{
    const struct wfs_text *attrs = base == NULL ? NULL : base->attrs;
    bool is_same = true;
    struct wfs_text *made = NULL, **end = &made;
    for (unsigned i = 0; i < TENSOR_N_TEXTS; i++) {
        const char *value = text_of(set, (enum tensor_text)i, dtype);
        if (value == NULL)
            continue;
        const struct wfs_text text = {tensor_text_names[i], value, strlen(value), NULL};
        if (add_attr(end, &text, arena) < 0)
            return -ENOMEM;
        end = &(*end)->next;
        is_same = false;
    }
    for (const struct wfs_text *attr = attrs; attr != NULL; attr = attr->next)
        is_same = is_same && is_attr_kept(attr, set, base, dtype);
    for (const struct wfs_text *attr = attrs; attr != NULL && !is_same; attr = attr->next) {
        if (!is_attr_kept(attr, set, base, dtype))
            continue;
        if (add_attr(end, attr, arena) < 0)
            return -ENOMEM;
        end = &(*end)->next;
    }
    *ret = is_same ? attrs : made;
    return 0;
}
