/* SPDX-License-Identifier: MIT */
/*
 * An edit that is left out leaves what it was made of where it was. That may take the name from
 * another edit, which is left out then, too.
 */
#include "edits/edits_fit.h"

#include <weightfs/cleanup.h>
#include <weightfs/distinct.h>
#include <weightfs/value.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_index.h"

struct fitting {
    const struct wfs_patch *patch;
    bool is_own; /* it was made of the checkpoint: nothing is compared */
    struct patch_fit *fits;
    struct patch_refusals *refusals;
    struct wfs_error *err;
};

static const char *name_of(unsigned kind)
{
    return kind == PATCH_VALUES ? "value" : "tensor";
}

static void refuse(struct fitting *fitting, unsigned kind, size_t i, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void refuse(struct fitting *fitting, unsigned kind, size_t i, const char *format, ...)
{
    const struct patch_edit *edit = &fitting->fits[kind].edits->items[i];
    char reason[WFS_ERROR_TEXT_MAX / 2], line[WFS_ERROR_TEXT_MAX];
    va_list args;
    fitting->fits[kind].is_refused[i] = true;
    fitting->refusals->n++;
    if (fitting->refusals->refuse == NULL)
        return;
    va_start(args, format);
    wfs_format(reason, sizeof(reason), format, args);
    va_end(args);
    snprintf(line, sizeof(line), "%s '%s' %s", name_of(kind),
             wfs_quote(edit->from != NULL ? edit->from : edit->to).text, reason);
    fitting->refusals->refuse(fitting->refusals->ctx, line);
}

/* ---- each edit by itself ---- */

struct description {
    char text[128];
};

static struct description describe(unsigned dtype, const struct wfs_shape *shape)
{
    struct description description;
    char dims[96];
    const size_t n = wfs_shape_format(shape, dims, sizeof(dims));
    snprintf(description.text, sizeof(description.text), "%s %s%s",
             wfs_dtype_name((enum wfs_dtype)dtype), dims, n >= sizeof(dims) ? "..." : "");
    return description;
}

int patch_digest_value(const struct wfs_catalog *catalog, size_t i, uint64_t *ret)
{
    autofree char *text = NULL;
    size_t n_bytes;
    const int code = wfs_catalog_value_text(catalog, i, &text, &n_bytes);
    if (code == 0)
        *ret = hash_bytes(text, n_bytes, 0);
    return code;
}

/* Compares the content with the one for which the patch was made. */
static int check_digest(struct fitting *fitting, unsigned kind, size_t i)
{
    const struct patch_fit *fit = &fitting->fits[kind];
    const struct patch_edit *edit = &fit->edits->items[i];
    const struct wfs_catalog *catalog = fit->keys.catalog;
    const size_t base = fit->bases[i];
    uint64_t digest;
    if (!edit->was.has_digest)
        return 0;
    if (kind == PATCH_TENSORS && wfs_tensor_is_large(wfs_catalog_tensor(catalog, base))) {
        refuse(fitting, kind, i, "is too large to be compared");
        return 0;
    }
    const int code = kind == PATCH_VALUES
                         ? patch_digest_value(catalog, base, &digest)
                         : wfs_tensor_digest(wfs_catalog_tensor(catalog, base), &digest);
    if (code < 0)
        return wfs_fail(fitting->err, -code, "cannot read %s '%s': %s", name_of(kind),
                        wfs_quote(edit->from).text, strerror(-code));
    if (digest != edit->was.digest)
        refuse(fitting, kind, i, "has other content (xxh3 %016" PRIx64 ", not %016" PRIx64 ")",
               digest, edit->was.digest);
    return 0;
}

static bool is_described_alike(const struct patch_edit *edit, const struct wfs_tensor *base)
{
    return !edit->was.is_known ||
           (edit->was.dtype == base->dtype && wfs_shape_is_equal(&edit->was.shape, &base->shape));
}

/* Without new content, a new dtype and shape must take the bytes that there are. */
static bool has_bytes_for(const struct patch_edit *edit, const struct wfs_tensor *base)
{
    const unsigned dtype = edit->has_dtype ? edit->dtype : base->dtype;
    uint64_t n_bytes;
    if (edit->content != 0 || !(edit->has_dtype || edit->has_shape) ||
        (dtype == WFS_OPAQUE && base->dtype == WFS_OPAQUE))
        return true;
    return wfs_shape_bytes(edit->has_shape ? &edit->shape : &base->shape, (enum wfs_dtype)dtype,
                           &n_bytes) == 0 &&
           n_bytes == base->n_bytes;
}

static int check_base(struct fitting *fitting, unsigned kind, size_t i)
{
    const struct patch_fit *fit = &fitting->fits[kind];
    const struct patch_edit *edit = &fit->edits->items[i];
    if (fit->bases[i] == SIZE_MAX) {
        refuse(fitting, kind, i, "does not exist");
        return 0;
    }
    if (kind == PATCH_VALUES)
        return check_digest(fitting, kind, i);
    const struct wfs_tensor *base = wfs_catalog_tensor(fit->keys.catalog, fit->bases[i]);
    if (!is_described_alike(edit, base)) {
        refuse(fitting, kind, i, "is %s, not %s", describe(base->dtype, &base->shape).text,
               describe(edit->was.dtype, &edit->was.shape).text);
        return 0;
    }
    if (!has_bytes_for(edit, base)) {
        refuse(fitting, kind, i, "has %s, which do not make %s",
               wfs_count(base->n_bytes, "byte").text,
               describe(edit->has_dtype ? edit->dtype : base->dtype,
                        edit->has_shape ? &edit->shape : &base->shape)
                   .text);
        return 0;
    }
    return check_digest(fitting, kind, i);
}

static int check_each(struct fitting *fitting, unsigned kind)
{
    struct patch_fit *fit = &fitting->fits[kind];
    for (size_t i = 0; i < fit->edits->n_items; i++) {
        const struct patch_edit *edit = &fit->edits->items[i];
        fit->bases[i] = edit->from == NULL ? SIZE_MAX : patch_keys_find(&fit->keys, edit->from);
        const int code = edit->from == NULL || fitting->is_own ? 0 : check_base(fitting, kind, i);
        if (code < 0)
            return code;
        if (!fit->is_refused[i] && edit->from != NULL && !edit->is_copy)
            fit->taken_by[fit->bases[i]] = (uint32_t)i + 1;
    }
    return 0;
}

/* ---- the keys that would result ---- */

enum { HELD_BY_NONE = 0, HELD_BY_LOADED = 1 };

/* Who has each key: none, what was loaded, or 2 + an edit. */
struct holders {
    struct text_index names;
    uint32_t *by; /* by number of the name, malloc'ed */
};

static int number_of(struct holders *holders, const char *key, uint32_t *ret)
{
    return text_index_add(&holders->names, key, strlen(key), ret);
}

static uint32_t holder_of(const struct holders *holders, const char *key)
{
    const uint32_t i = text_index_find(&holders->names, key, strlen(key));
    return i == TEXT_INDEX_NONE ? HELD_BY_NONE : holders->by[i];
}

/* Gives a name back to what an edit that was left out was made of, and so on. */
static int release(struct fitting *fitting, unsigned kind, size_t i, struct holders *holders)
{
    struct patch_fit *fit = &fitting->fits[kind];
    for (;;) {
        const struct patch_edit *edit = &fit->edits->items[i];
        uint32_t number;
        if (edit->to != NULL && holder_of(holders, edit->to) == i + 2) {
            if (number_of(holders, edit->to, &number) < 0)
                return -ENOMEM;
            holders->by[number] = HELD_BY_NONE;
        }
        if (edit->from == NULL || edit->is_copy || fit->bases[i] == SIZE_MAX)
            return 0;
        fit->taken_by[fit->bases[i]] = 0;
        if (number_of(holders, edit->from, &number) < 0)
            return -ENOMEM;
        const uint32_t holder = holders->by[number];
        holders->by[number] = HELD_BY_LOADED;
        if (holder < 2)
            return 0;
        i = holder - 2;
        refuse(fitting, kind, i, "cannot become '%s', which stays",
               wfs_quote(fit->edits->items[i].to).text);
    }
}

static int hold_keys(struct fitting *fitting, unsigned kind, struct holders *holders)
{
    struct patch_fit *fit = &fitting->fits[kind];
    const size_t n_most = fit->keys.n + 2 * fit->edits->n_items + 1;
    uint32_t number;
    holders->by = calloc(n_most, sizeof(*holders->by));
    if (holders->by == NULL || text_index_reserve(&holders->names, n_most) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < fit->keys.n; i++) {
        if (number_of(holders, patch_key(&fit->keys, i), &number) < 0)
            return -ENOMEM;
        if (fit->taken_by[i] == 0)
            holders->by[number] = HELD_BY_LOADED;
    }
    for (size_t i = 0; i < fit->edits->n_items; i++) {
        const struct patch_edit *edit = &fit->edits->items[i];
        if (fit->is_refused[i] || edit->to == NULL)
            continue;
        if (number_of(holders, edit->to, &number) < 0)
            return -ENOMEM;
        if (holders->by[number] == HELD_BY_NONE) {
            holders->by[number] = (uint32_t)i + 2;
            continue;
        }
        refuse(fitting, kind, i,
               edit->from == NULL ? "cannot be added: '%s' exists"
                                  : "cannot become '%s', which exists",
               wfs_quote(edit->to).text);
        if (release(fitting, kind, i, holders) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* A name that is new may not be that of something of the other kind. */
static int check_others(struct fitting *fitting, unsigned kind, struct holders holders[])
{
    struct patch_fit *fit = &fitting->fits[kind];
    const unsigned other = kind == PATCH_TENSORS ? PATCH_VALUES : PATCH_TENSORS;
    for (size_t i = 0; i < fit->edits->n_items; i++) {
        const struct patch_edit *edit = &fit->edits->items[i];
        const bool is_new =
            edit->to != NULL && (edit->from == NULL || strcmp(edit->from, edit->to) != 0);
        if (fit->is_refused[i] || !is_new || holder_of(&holders[other], edit->to) == HELD_BY_NONE)
            continue;
        refuse(fitting, kind, i, "cannot become '%s', the name of a %s", wfs_quote(edit->to).text,
               name_of(other));
        if (release(fitting, kind, i, &holders[kind]) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int check_keys(struct fitting *fitting)
{
    struct holders holders[PATCH_N_KINDS] = {{{{0}, NULL, 0, 0}, NULL}, {{{0}, NULL, 0, 0}, NULL}};
    int code = 0;
    for (unsigned kind = 0; kind < PATCH_N_KINDS && code == 0; kind++)
        code = hold_keys(fitting, kind, &holders[kind]);
    for (unsigned kind = 0; kind < PATCH_N_KINDS && code == 0; kind++)
        code = check_others(fitting, kind, holders);
    for (unsigned kind = 0; kind < PATCH_N_KINDS; kind++) {
        text_index_done(&holders[kind].names);
        free(holders[kind].by);
    }
    return code;
}

/* ---- the whole ---- */

static int init_one(struct patch_fit *fit, const struct wfs_patch *patch,
                    const struct wfs_catalog *to, unsigned kind)
{
    fit->edits = &patch->edits[kind];
    const size_t n = fit->edits->n_items;
    if (patch_keys_init(&fit->keys, to, kind == PATCH_VALUES) < 0)
        return -ENOMEM;
    fit->bases = calloc(n + 1, sizeof(*fit->bases));
    fit->is_refused = calloc(n + 1, sizeof(*fit->is_refused));
    fit->taken_by = calloc(fit->keys.n + 1, sizeof(*fit->taken_by));
    return fit->bases == NULL || fit->is_refused == NULL || fit->taken_by == NULL ? -ENOMEM : 0;
}

int patch_fit_init(struct patch_fit fits[PATCH_N_KINDS], const struct wfs_patch *patch,
                   const struct wfs_catalog *to, struct patch_refusals *refusals,
                   struct wfs_error *err)
{
    struct fitting fitting = {patch, refusals == NULL, fits, refusals, err};
    memset(fits, 0, PATCH_N_KINDS * sizeof(*fits));
    for (unsigned kind = 0; kind < PATCH_N_KINDS; kind++) {
        if (init_one(&fits[kind], patch, to, kind) < 0)
            return wfs_fail_memory(err);
    }
    for (unsigned kind = 0; kind < PATCH_N_KINDS; kind++) {
        const int code = check_each(&fitting, kind);
        if (code < 0)
            return code;
    }
    return !fitting.is_own && check_keys(&fitting) < 0 ? wfs_fail_memory(err) : 0;
}

void patch_fit_done(struct patch_fit *fit)
{
    patch_keys_done(&fit->keys);
    free(fit->bases);
    free(fit->is_refused);
    free(fit->taken_by);
}
