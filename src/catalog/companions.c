/* SPDX-License-Identifier: MIT */
/*
 * Which tensors belong together: those whose elements are codes, and the scales, zero points and
 * tables that turn the codes into values. No file states it; the names do, as the libraries that
 * quantize have chosen them, and the dtype of the codes. What is made of them is left to others.
 */
#include <weightfs/cleanup.h>
#include <weightfs/strbuf.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "catalog/catalog.h"

/* How the key of a companion is made of that of the codes: an ending of it is replaced. */
static const struct form {
    const char *ending, *replacement;
    bool is_scale;
} forms[] = {
    {"", "_scale_inv", true},
    {"", "_scale", true},
    {"", ".absmax", true},
    {"weight", "scale_weight", true},
    {"weight", "SCB", true},
    {"weight", "scale", true},
    {"weight", "scales", true},
    {"weight_packed", "weight_scale", true},
    {"qweight", "scales", true},
    {"_blocks", "_scales", true},
    {"qdata", "scale", true},
    {".absmax", ".nested_absmax", true},
    {"", "_scale_2", false},
    {"", "_global_scale", false},
    {"", "_zero_point", false},
    {"", ".nested_absmax", false},
    {"", ".quant_map", false},
    {"", ".nested_quant_map", false},
    {"weight", "input_scale", false},
    {"weight", "scale_input", false},
    {"weight", "k_scale", false},
    {"weight", "v_scale", false},
    {"weight_packed", "input_global_scale", false},
    {"weight_packed", "weight_global_scale", false},
    {"weight_packed", "weight_zero_point", false},
    {"qweight", "qzeros", false},
    {"qdata", "zero_point", false},
};

static bool is_code(const struct wfs_tensor *tensor)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->stored.dtype;
    const enum wfs_kind kind = wfs_dtype_kind(dtype);
    return (kind == WFS_KIND_UNSIGNED || kind == WFS_KIND_SIGNED || kind == WFS_KIND_FLOAT) &&
           (wfs_dtype_bits(dtype) <= 8 || dtype == WFS_I32);
}

/* Writes the key of a companion. Returns false if keys of codes that end so have no such one. */
static bool spell(const struct form *form, const char *key, struct strbuf *ret)
{
    const size_t n_key = strlen(key), n_ending = strlen(form->ending);
    const size_t n_front = n_key > n_ending ? n_key - n_ending : 0;
    const bool is_segment = form->ending[0] >= 'a' && form->ending[0] <= 'z';
    if (n_key < n_ending || strcmp(key + n_front, form->ending) != 0 ||
        (is_segment && n_front > 0 && key[n_front - 1] != '.'))
        return false;
    ret->n_bytes = 0;
    strbuf_add(ret, key, n_front);
    strbuf_puts(ret, form->replacement);
    return true;
}

/* Scales come first in the table, and the others only beside one. */
static int note(const struct wfs_catalog *catalog, const struct catalog_keys *keys, uint32_t i,
                struct wfs_companion *companions)
{
    autostrbuf struct strbuf key = {0};
    for (size_t j = 0; j < sizeof(forms) / sizeof(*forms); j++) {
        if (!forms[j].is_scale && companions[i].scale == 0)
            break;
        if (!spell(&forms[j], wfs_catalog_tensor(catalog, i)->key, &key))
            continue;
        if (key.has_failed)
            return -ENOMEM;
        const uint32_t found = catalog_keys_find(keys, key.bytes);
        if (found == TEXT_INDEX_NONE)
            continue;
        if (forms[j].is_scale && companions[i].scale == 0)
            companions[i].scale = found + 1;
        companions[found].base = i + 1;
    }
    return 0;
}

int wfs_catalog_companions(const struct wfs_catalog *catalog, struct wfs_companion **ret)
{
    cleanup(catalog_keys_done) struct catalog_keys keys = {0};
    autofree struct wfs_companion *companions = calloc(catalog->n_tensors + 1, sizeof(*companions));
    bool has_codes = false;
    for (size_t i = 0; i < catalog->n_tensors && !has_codes; i++)
        has_codes = is_code(wfs_catalog_tensor(catalog, i));
    int code = companions == NULL ? -ENOMEM : has_codes ? catalog_keys_add(&keys, catalog, 0) : 0;
    for (size_t i = 0; i < catalog->n_tensors && has_codes && code == 0; i++) {
        if (is_code(wfs_catalog_tensor(catalog, i)))
            code = note(catalog, &keys, (uint32_t)i, companions);
    }
    if (code == 0)
        *ret = steal(&companions);
    return code;
}

int wfs_catalog_scale_of(const struct wfs_catalog *catalog, const struct wfs_tensor *tensor,
                         const char **ret)
{
    autofree struct wfs_companion *companions = NULL;
    *ret = NULL;
    if (tensor < catalog->tensors || tensor >= catalog->tensors + catalog->n_tensors ||
        !is_code(tensor))
        return 0;
    const int code = wfs_catalog_companions(catalog, &companions);
    const uint32_t scale = code < 0 ? 0 : companions[tensor - catalog->tensors].scale;
    if (scale != 0)
        *ret = wfs_catalog_tensor(catalog, scale - 1)->key;
    return code;
}
