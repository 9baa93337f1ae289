/* SPDX-License-Identifier: MIT */
/*
 * Which edits of a patch fit a checkpoint, and what it becomes. An edit that is left out leaves
 * what it was made of where it was. That may take the name from another edit, which is left out
 * then, too.
 */
#include <weightfs/cleanup.h>
#include <weightfs/patch.h>
#include <weightfs/value.h>
#include <weightfs/workload.h>
#include "base/text_index.h"
#include "catalog/catalog_values.h"
#include "edits/edits.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of tensors or of values. */
struct patch_fit {
    struct patch_keys keys; /* of the checkpoint */
    const struct patch_edits *edits;
    size_t *bases;      /* of each edit: what it is made of; SIZE_MAX: nothing */
    bool *is_refused;   /* of each edit */
    uint32_t *taken_by; /* of each loaded one: 1 + the edit that renames, changes or removes it; 0:
                           none does */
};

struct patch_refusals {
    void (*refuse)(void *ctx, const char *line); /* NULL: none */
    void *ctx;
    uint64_t n;
};

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

/*
 * Looks at each edit, and at the keys that would result: no two may be equal. Without refusals,
 * nothing is compared. -EIO of content that has to be compared; -ENOMEM. patch_fit_done is due in
 * any case.
 */
static int patch_fit_init(struct patch_fit fits[PATCH_N_KINDS], const struct wfs_patch *patch,
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

static void patch_fit_done(struct patch_fit *fit)
{
    patch_keys_done(&fit->keys);
    free(fit->bases);
    free(fit->is_refused);
    free(fit->taken_by);
}

enum { ORDER_LAST = UINT32_MAX };

/* One tensor or value of the result. */
struct item {
    const char *key;
    const struct patch_edit *edit; /* NULL: it is as it was */
    size_t base;                   /* position in the checkpoint; SIZE_MAX: none */
    uint32_t order;                /* tensors before values, as in the checkpoint */
};

struct items {
    struct item *items; /* malloc'ed */
    size_t n_items;
};

struct application {
    const struct wfs_patch *patch;
    const struct wfs_catalog *to;
    struct patch_fit *fits;
    struct wfs_catalog *out;
    struct source **sources; /* of each content, borrowed; NULL: not made yet. NULL: the edits are
                                the checkpoint's own */
    void (*visit)(void *ctx, const char *line); /* as patch_apply_own has it */
    void *ctx;
    struct wfs_error *err;
};

/* ---- the order ---- */

static uint32_t place_of(const struct application *all, unsigned kind, const char *key)
{
    const size_t i = patch_keys_find(&all->fits[kind].keys, key);
    if (i == SIZE_MAX)
        return ORDER_LAST;
    return (uint32_t)(kind == PATCH_VALUES ? all->fits[PATCH_TENSORS].keys.n + i : i);
}

/* The place of what it was; for a new one, that of what had its key. */
static uint32_t order_of(const struct application *all, unsigned kind,
                         const struct patch_edit *edit)
{
    if (edit->has_place)
        return edit->place == NULL
                   ? ORDER_LAST
                   : place_of(all, edit->is_place_of_value ? PATCH_VALUES : PATCH_TENSORS,
                              edit->place);
    return place_of(all, kind, edit->from != NULL && !edit->is_copy ? edit->from : edit->to);
}

static int compare(const void *a, const void *b)
{
    const struct item *one = a, *other = b;
    if (one->order != other->order)
        return one->order < other->order ? -1 : 1;
    return strcmp(one->key, other->key);
}

static int list_items(const struct application *all, unsigned kind, struct items *ret)
{
    const struct patch_fit *fit = &all->fits[kind];
    const size_t n_before = kind == PATCH_VALUES ? all->fits[PATCH_TENSORS].keys.n : 0;
    ret->items = calloc(fit->keys.n + fit->edits->n_items + 1, sizeof(*ret->items));
    if (ret->items == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < fit->keys.n; i++) {
        if (fit->taken_by[i] == 0)
            ret->items[ret->n_items++] =
                (struct item){patch_key(&fit->keys, i), NULL, i, (uint32_t)(n_before + i)};
    }
    for (size_t i = 0; i < fit->edits->n_items; i++) {
        const struct patch_edit *edit = &fit->edits->items[i];
        if (!fit->is_refused[i] && edit->to != NULL)
            ret->items[ret->n_items++] =
                (struct item){edit->to, edit, fit->bases[i], order_of(all, kind, edit)};
    }
    qsort(ret->items, ret->n_items, sizeof(*ret->items), compare);
    return 0;
}

static void items_done(struct items *items)
{
    free(items->items);
}

/* ---- tensors ---- */

/* Contents of a tree lie in staged files as they are. Empty ones lie nowhere: a tree and its patch
 * must give the same file, and a saver would take two that are empty for one. */
static int replace_content(struct application *all, uint32_t number, struct wfs_tensor *tensor)
{
    const struct wfs_tensor *content = wfs_catalog_tensor(all->patch->contents, number - 1);
    struct source **made = all->sources == NULL ? NULL : &all->sources[number - 1];
    tensor->n_bytes = content->n_bytes;
    tensor->changes = tensor->trouble = NULL;
    if (made != NULL && *made == NULL && content->n_bytes > 0 &&
        (shown_source(content, made) < 0 || catalog_adopt_source(all->out, *made) < 0))
        return -ENOMEM;
    struct source *source = made == NULL ? content->stored.source : *made;
    tensor->stored = (struct wfs_stored){.source = content->n_bytes == 0 ? NULL : source,
                                         .offset = made == NULL ? content->stored.offset : 0,
                                         .dtype = tensor->dtype};
    return 0;
}

/* The bytes that the base shows, under another description. */
static int describe_anew(struct application *all, const struct wfs_tensor *base, unsigned dtype,
                         struct wfs_stored *ret)
{
    struct source *source = base->stored.source;
    *ret = (struct wfs_stored){
        .source = source, .offset = base->stored.offset, .dtype = (uint8_t)dtype};
    if (wfs_tensor_is_plain(base))
        return 0;
    if (shown_source(base, &source) < 0 || catalog_adopt_source(all->out, source) < 0)
        return -ENOMEM;
    ret->source = source;
    ret->offset = 0;
    return 0;
}

static int change(struct application *all, const struct patch_edit *edit,
                  const struct wfs_tensor *base, struct wfs_tensor *tensor)
{
    tensor->dtype = edit->has_dtype ? edit->dtype : tensor->dtype;
    tensor->shape = edit->has_shape ? edit->shape : tensor->shape;
    if (edit->content != 0 ? replace_content(all, edit->content, tensor) < 0
                           : (edit->has_dtype || edit->has_shape) &&
                                 describe_anew(all, base, tensor->dtype, &tensor->stored) < 0)
        return -ENOMEM;
    return tensor_texts_make(edit->texts, base, (enum wfs_dtype)tensor->dtype, &all->out->arena,
                             &tensor->attrs);
}

/* Returns the tensor that the base becomes; NULL when out of memory. */
static const struct wfs_tensor *edited(struct application *all, const struct item *item,
                                       const struct wfs_tensor *base)
{
    struct wfs_tensor *tensor = arena_calloc(&all->out->arena, 1, sizeof(*tensor));
    if (tensor == NULL)
        return NULL;
    if (base != NULL) {
        *tensor = *base;
        tensor->origin = wfs_tensor_origin(base);
    }
    if (change(all, item->edit, base, tensor) < 0)
        return NULL;
    tensor->key = item->key;
    if (all->to->values.n_places > 0) /* of several files, a copy stays in that of its base */
        tensor->place = item->order < wfs_catalog_n_tensors(all->to)
                            ? wfs_catalog_tensor(all->to, item->order)->place
                            : 0;
    return tensor;
}

static int add_tensor(struct application *all, const struct item *item)
{
    const struct wfs_tensor *base =
        item->base == SIZE_MAX ? NULL : wfs_catalog_tensor(all->to, item->base);
    const struct wfs_tensor *tensor = item->edit == NULL ? base : edited(all, item, base);
    if (tensor == NULL || catalog_borrow(all->out, tensor) < 0)
        return wfs_fail_memory(all->err);
    return 0;
}

/* ---- values ---- */

static int edit_value(struct application *all, const struct item *item, uint32_t *id)
{
    const char *path = item->edit->path;
    const struct wfs_tensor *content =
        wfs_catalog_tensor(all->patch->contents, item->edit->content - 1);
    autofree char *text = malloc((size_t)content->n_bytes + 1);
    if (text == NULL)
        return wfs_fail_memory(all->err);
    const ssize_t n = wfs_tensor_read(content, 0, text, (size_t)content->n_bytes);
    if (n < 0 && path != NULL)
        return wfs_fail(all->err, (int)-n, "'%s' %s", wfs_quote(path).text, strerror((int)-n));
    if (n < 0)
        return wfs_fail(all->err, (int)-n, "cannot read the new value '%s': %s",
                        wfs_quote(item->key).text, strerror((int)-n));
    text[n] = '\0';
    const uint32_t was = *id;
    const int code = catalog_edit_value(all->out, was, path != NULL ? path : item->key, text,
                                        (size_t)n, id, all->err);
    if (code == 0 && was != 0)
        graph_at(&all->out->values.graph, *id)->marks |=
            graph_at(&all->out->values.graph, was)->marks & MARK_WHOLE;
    return code;
}

static int add_value(struct application *all, const struct item *item)
{
    const struct catalog_value none = {0};
    const struct catalog_value *was =
        item->base == SIZE_MAX ? &none : &all->to->values.list[item->base];
    const struct patch_edit *edit = item->edit;
    uint32_t id = was->id;
    if (edit != NULL && edit->problem.reason != NULL)
        return wfs_fail(all->err, edit->problem.code, "'%s' %s", wfs_quote(edit->path).text,
                        edit->problem.reason);
    const int code = edit != NULL && edit->content != 0 ? edit_value(all, item, &id) : 0;
    if (code < 0)
        return code;
    if (catalog_add_value(all->out, item->key, id, was->place) < 0)
        return wfs_fail_memory(all->err);
    struct catalog_value *added = &all->out->values.list[all->out->values.n - 1];
    added->filler = was->filler;
    added->is_edited = id != was->id;
    return 0;
}

/* ---- metadata ---- */

/* What the texts become, in the order of the list that is made. */
struct metas {
    struct meta_index was;
    bool *is_gone;                /* of each name of the checkpoint */
    const struct patch_meta **is; /* of each of them: what it is set to; NULL: as it was */
};

static bool is_as_expected(const struct patch_meta *meta, const struct wfs_text *found)
{
    if (meta->was == NULL || found == NULL)
        return meta->was == NULL && found == NULL;
    return meta->n_was == found->n_bytes && memcmp(meta->was, found->value, meta->n_was) == 0;
}

/* Returns whether the text is what it is set to already. */
static bool is_done(const struct patch_meta *meta, const struct wfs_text *found)
{
    return found != NULL && meta->value != NULL && meta->n_value == found->n_bytes &&
           memcmp(meta->value, found->value, found->n_bytes) == 0;
}

static void refuse_meta(struct patch_refusals *refusals, const struct patch_meta *meta,
                        const struct wfs_text *found)
{
    char line[WFS_ERROR_TEXT_MAX];
    if (refusals != NULL)
        refusals->n++;
    if (refusals == NULL || refusals->refuse == NULL)
        return;
    snprintf(line, sizeof(line), "metadata '%s' %s", wfs_quote(meta->name).text,
             found == NULL       ? "does not exist"
             : meta->was == NULL ? "exists"
                                 : "has another value");
    refusals->refuse(refusals->ctx, line);
}

static int put_meta(struct application *all, const char *name, const char *value, size_t n_bytes)
{
    return catalog_add_meta_bytes(all->out, name, value, n_bytes);
}

/* A text that is removed and set again goes to the end. */
static int fill_metadata(struct application *all, struct metas *metas,
                         struct patch_refusals *refusals)
{
    const struct wfs_patch *patch = all->patch;
    autofree bool *is_added = calloc(patch->n_metas + 1, sizeof(*is_added));
    if (is_added == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < patch->n_metas; i++) {
        const struct patch_meta *meta = &patch->metas[i];
        const uint32_t n = text_index_find(&metas->was.names, meta->name, strlen(meta->name));
        const bool has = n != TEXT_INDEX_NONE && !metas->is_gone[n];
        const struct wfs_text *found = has ? metas->was.texts[n] : NULL;
        if (is_done(meta, found))
            continue;
        if (!is_as_expected(meta, found)) {
            refuse_meta(refusals, meta, found);
            continue;
        }
        is_added[i] = found == NULL;
        if (found != NULL && meta->value == NULL)
            metas->is_gone[n] = true;
        else if (found != NULL)
            metas->is[n] = meta;
    }
    int code = 0;
    for (const struct wfs_text *text = all->to->meta.first; text != NULL && code == 0;
         text = text->next) {
        const uint32_t n = text_index_find(&metas->was.names, text->name, strlen(text->name));
        const struct patch_meta *is = metas->is[n];
        if (metas->is_gone[n])
            continue;
        code = is != NULL ? put_meta(all, is->name, is->value, is->n_value)
                          : put_meta(all, text->name, text->value, text->n_bytes);
    }
    for (size_t i = 0; i < patch->n_metas && code == 0; i++) {
        const struct patch_meta *meta = &patch->metas[i];
        if (is_added[i] && meta->value != NULL)
            code = put_meta(all, meta->name, meta->value, meta->n_value);
    }
    if (patch->n_metas == 0)
        all->out->meta.exists = all->to->meta.exists;
    return code;
}

static int add_metadata(struct application *all, struct patch_refusals *refusals)
{
    struct metas metas = {0};
    int code = meta_index_init(&metas.was, all->to->meta.first);
    metas.is_gone = calloc(metas.was.names.n_texts + 1, sizeof(*metas.is_gone));
    metas.is = calloc(metas.was.names.n_texts + 1, sizeof(*metas.is));
    if (code == 0)
        code = metas.is_gone == NULL || metas.is == NULL ? -ENOMEM
                                                         : fill_metadata(all, &metas, refusals);
    meta_index_done(&metas.was);
    free(metas.is_gone);
    free(metas.is);
    return code < 0 ? wfs_fail_memory(all->err) : 0;
}

/* ---- the whole ---- */

static int add_kind(struct application *all, unsigned kind,
                    int (*add)(struct application *, const struct item *))
{
    cleanup(items_done) struct items items = {0};
    if (list_items(all, kind, &items) < 0)
        return wfs_fail_memory(all->err);
    for (size_t i = 0; i < items.n_items; i++) {
        const int code = add(all, &items.items[i]);
        if (code < 0 && (code == -ENOMEM || all->visit == NULL))
            return code;
        if (code < 0) {
            all->visit(all->ctx, all->err->text);
            *all->err = (struct wfs_error){0};
        }
    }
    return 0;
}

static int fill(struct application *all)
{
    const int code = add_kind(all, PATCH_TENSORS, add_tensor);
    if (code < 0)
        return code;
    catalog_copy_graph(all->out, all->to);
    graph_fork(&all->out->values.graph, &all->to->values.graph, &all->out->arena);
    all->out->format = all->to->format;
    all->out->container = all->to->container;
    all->out->output = all->to->output;
    return add_kind(all, PATCH_VALUES, add_value);
}

static int apply(struct application *all, const struct wfs_patch_options *options,
                 struct patch_refusals *refusals)
{
    struct patch_fit fits[PATCH_N_KINDS];
    all->fits = fits;
    int code = patch_fit_init(fits, all->patch, all->to, refusals, all->err);
    if (code == 0)
        code = add_metadata(all, refusals);
    if (code == 0 && refusals != NULL && refusals->n > 0 && !options->is_forced)
        code = wfs_fail(all->err, EINVAL, "%s of %" PRIu64 " cannot be applied",
                        wfs_count(refusals->n, "edit").text, wfs_patch_n_edits(all->patch));
    if (code == 0)
        code = fill(all);
    for (unsigned kind = 0; kind < PATCH_N_KINDS; kind++)
        patch_fit_done(&fits[kind]);
    return code;
}

int patch_apply_own(const struct wfs_patch *patch, const struct wfs_catalog *to,
                    void (*visit)(void *ctx, const char *line), void *ctx, struct wfs_catalog *made,
                    struct wfs_error *err)
{
    struct wfs_error own = {0};
    struct application all = {.patch = patch,
                              .to = to,
                              .out = made,
                              .visit = visit,
                              .ctx = ctx,
                              .err = err == NULL ? &own : err};
    return apply(&all, NULL, NULL);
}

int wfs_patch_apply(const struct wfs_patch *patch, const struct wfs_catalog *to,
                    const struct wfs_patch_options *options, uint64_t *ret_n_refused,
                    struct wfs_catalog **out, struct wfs_error *err)
{
    struct patch_refusals refusals = {options->refuse, options->ctx, 0};
    auto_catalog struct wfs_catalog *made = NULL;
    autofree struct source **sources =
        calloc(wfs_catalog_n_tensors(patch->contents) + 1, sizeof(struct source *));
    if (sources == NULL || catalog_new(&made) < 0)
        return wfs_fail_memory(err);
    struct application all = {
        .patch = patch, .to = to, .out = made, .sources = sources, .err = err};
    int code = apply(&all, options, &refusals);
    *ret_n_refused = refusals.n;
    if (code == 0 && catalog_own_tensors(made) < 0)
        code = wfs_fail_memory(err);
    if (code == 0)
        *out = steal(&made);
    return code;
}
