/* SPDX-License-Identifier: MIT */
/*
 * What a format cannot hold is dropped or stored elsewhere, and listed in either case. PyTorch
 * files keep ties and values but have no metadata; the others have metadata, but cannot hold ties
 * or values other than their own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <weightfs/array.h>
#include <weightfs/format.h>
#include <weightfs/value.h>
#include <weightfs/cleanup.h>

#include "base/hash.h"
#include "base/text_index.h"
#include "base/utf8.h"
#include "format/core/format.h"
#include "format/records/records.h"
#include "format/set/shard_set.h"
#include "tensor/tensor.h"
#include "value/value_leaf.h"

struct fitting {
    struct wfs_catalog *catalog;
    const struct wfs_format *format;
    struct wfs_fit *fit;
    bool is_set;
    struct wfs_error *err;
};

static int tell(struct fitting *fitting, enum wfs_fit_kind kind, const char *name, const char *why)
{
    struct wfs_fit *fit = fitting->fit;
    if (array_reserve(&fit->items, sizeof(*fit->items), fit->n_items, 1, &fit->n_room) < 0)
        return -ENOMEM;
    if (why == NULL)
        return -ENOMEM;
    fit->items[fit->n_items++] = (struct wfs_fit_item){kind, name, why};
    return 0;
}

/* Returns whether the output has all objects of the loaded file. */
static bool keeps_objects(const struct fitting *fitting)
{
    const struct wfs_catalog *catalog = fitting->catalog;
    return !fitting->is_set && fitting->format->values == WFS_VALUES_ANY &&
           catalog->values.is_object && catalog->values.root != 0 && !fitting->format->has_fillers;
}

/* ---- metadata by name ---- */

static int names_init(struct text_index *names, const struct wfs_catalog *catalog)
{
    int code = 0;
    uint32_t number;
    for (const struct wfs_text *text = catalog->meta.first; text != NULL && code == 0;
         text = text->next)
        code = text_index_add(names, text->name, strlen(text->name), &number);
    return code;
}

/* 1: added, 0: a text has that name, or it has a NUL. */
static int add_text(struct fitting *fitting, struct text_index *names, const char *name,
                    const char *value, size_t n_bytes)
{
    uint32_t number;
    if (text_index_find(names, name, strlen(name)) != TEXT_INDEX_NONE)
        return 0;
    struct wfs_text *const *end = fitting->catalog->meta.end;
    if (catalog_add_meta_bytes(fitting->catalog, name, value, n_bytes) < 0 ||
        text_index_add(names, (*end)->name, strlen((*end)->name), &number) < 0)
        return -ENOMEM;
    return 1;
}

/* ---- ties ---- */

struct twin {
    const struct wfs_catalog *catalog;
    const struct wfs_tensor *tensor;
};

static bool is_twin(const void *ctx, uint32_t id)
{
    const struct twin *twin = ctx;
    return tied_are_same(wfs_catalog_tensor(twin->catalog, id), twin->tensor);
}

static int drop_tie(struct fitting *fitting, struct text_index *names, const char *name,
                    const char *kept)
{
    const int code = add_text(fitting, names, name, kept, strlen(kept));
    return code < 0 ? code
                    : tell(fitting, WFS_FIT_TIE, name,
                           arena_print(&fitting->catalog->arena, "is the same tensor as '%s'",
                                       wfs_quote(kept).text));
}

static int drop_ties(struct fitting *fitting, struct text_index *names)
{
    struct wfs_catalog *catalog = fitting->catalog;
    struct map map = {0};
    size_t n_kept = 0;
    int code =
        catalog->n_tensors < UINT32_MAX ? map_reserve(&map, (uint32_t)catalog->n_tensors) : -ENOMEM;
    for (size_t i = 0; i < catalog->n_tensors && code == 0; i++) {
        const struct twin twin = {catalog, wfs_catalog_tensor(catalog, i)};
        const uint64_t hash = tied_hash(twin.tensor);
        uint32_t first;
        if (map_find(&map, hash, is_twin, &twin, &first)) {
            code =
                drop_tie(fitting, names, twin.tensor->key, wfs_catalog_tensor(catalog, first)->key);
            continue;
        }
        (void)map_add(&map, hash, (uint32_t)n_kept); /* there is room */
        catalog_move_tensor(catalog, i, n_kept++);
    }
    map_done(&map);
    catalog->n_tensors = code == 0 ? n_kept : catalog->n_tensors;
    return code;
}

/* ---- values ---- */

/* Returns whether a Burnpack can have the value as a scalar. */
static bool is_number(const struct value *value)
{
    return value->kind == VALUE_INT || value->kind == VALUE_FLOAT || value->kind == VALUE_BOOL ||
           (value->kind == VALUE_BIG && value->form == FORM_UNSIGNED);
}

/* Returns whether the output has a filler in the place of the value. */
static bool is_filled(const struct fitting *fitting, const struct catalog_value *value)
{
    return value->filler != 0 && fitting->format->has_fillers && !value->is_edited;
}

/* Returns whether the output holds the value as it is. A file that gets all objects of a loaded one
 * holds all values; one that is made of tensors holds numbers and what was edited. */
static bool has_room_for(const struct fitting *fitting, const struct catalog_value *value)
{
    const struct wfs_catalog *catalog = fitting->catalog;
    if (fitting->is_set || fitting->format->values == WFS_VALUES_NONE)
        return false;
    if (fitting->format->values == WFS_VALUES_NUMBERS)
        return is_number(graph_at(&catalog->values.graph, value->id));
    return value->is_edited || catalog->values.graph.notation == NULL ||
           is_filled(fitting, value) || keeps_objects(fitting);
}

/* Returns whether a value fills a place that only files of its own format have. */
static bool is_needless(const struct fitting *fitting, const struct catalog_value *value)
{
    const struct wfs_catalog *catalog = fitting->catalog;
    const bool may_be_filler = catalog->format != NULL && catalog->format->has_fillers;
    return !fitting->format->has_fillers && !value->is_edited &&
           (value->filler == value->id ||
            (may_be_filler && value_is_filler(&catalog->values.graph, value->id)));
}

/* A string as it is, all else as JSON without the line feed at its end. 1, 0 as add_text. */
static int store_value(struct fitting *fitting, struct text_index *names, size_t i)
{
    const struct catalog_value *value = &fitting->catalog->values.list[i];
    const struct value *content = graph_at(&fitting->catalog->values.graph, value->id);
    if ((content->marks & MARK_CUT) != 0)
        return 0;
    if (content->kind == VALUE_TEXT && utf8_valid(content->text, content->n) == content->n)
        return add_text(fitting, names, value->name, content->text, content->n);
    autofree char *text = NULL;
    size_t n_bytes;
    const int code = wfs_catalog_value_text(fitting->catalog, i, &text, &n_bytes);
    return code < 0 ? code : add_text(fitting, names, value->name, text, n_bytes - 1);
}

/* What somebody wrote is not left out in silence. */
static int fail_edited(const struct fitting *fitting, const char *name, bool is_stored)
{
    return wfs_fail(
        fitting->err, EINVAL,
        is_stored ? "value '%s': the metadata has another entry of that name"
                  : "value '%s' was edited, and %s cannot store it: %sremove it",
        wfs_quote(name).text, fitting->is_set ? "a set of files" : fitting->format->name,
        fitting->format->keeps_metadata ? "use values=metadata to store it as a text, or " : "");
}

/* Returns why a value is left out, in the arena; NULL without memory. */
static const char *reason_of(const struct fitting *fitting)
{
    const bool has_numbers = fitting->format->values == WFS_VALUES_NUMBERS;
    struct arena *arena = &fitting->catalog->arena;
    if (fitting->is_set)
        return "a set of files can store only tensors and metadata";
    if (fitting->format->values == WFS_VALUES_ANY)
        return "a new file gets only tensors, numbers and edited values";
    return arena_print(arena, "%s can store only tensors%s metadata", fitting->format->name,
                       has_numbers ? ", numbers and" : " and");
}

/* Returns why a value did not become a text. */
static const char *reason_of_text(const struct fitting *fitting, const struct catalog_value *value)
{
    return (graph_at(&fitting->catalog->values.graph, value->id)->marks & MARK_CUT) != 0
               ? "too long: its content is used many times over"
               : "the metadata has another entry of that name";
}

/* Keeps the values in the catalog that the output holds; others become texts or are left out. */
static int fit_values(struct fitting *fitting, struct text_index *names, bool is_stored)
{
    struct wfs_catalog *catalog = fitting->catalog;
    const char *why = reason_of(fitting);
    size_t n_kept = 0;
    for (size_t i = 0; i < catalog->values.n; i++) {
        struct catalog_value value = catalog->values.list[i];
        if (is_needless(fitting, &value))
            continue;
        if (is_filled(fitting, &value)) {
            value.id = value.filler;
            value.place = 0;
        }
        if (has_room_for(fitting, &value)) {
            catalog->values.list[n_kept++] = value;
            continue;
        }
        int code = is_stored ? store_value(fitting, names, i) : 0;
        if (code == 0 && value.is_edited)
            return fail_edited(fitting, value.name, is_stored);
        if (code == 1)
            fitting->fit->n_stored++;
        else if (code == 0)
            code = tell(fitting, WFS_FIT_VALUE, value.name,
                        is_stored ? reason_of_text(fitting, &value) : why);
        if (code < 0)
            return code;
    }
    catalog->values.n = n_kept;
    return 0;
}

/* ---- values of one file of several ---- */

static bool is_taken_whole(const struct wfs_shards *set, const struct source *home)
{
    for (size_t i = 0; i < set->n_shards; i++) {
        if (set->shards[i].layout == NULL && set->shards[i].home == home)
            return true;
    }
    return false;
}

/* set: what is written, or NULL when that is one file. */
static int tell_unshown(struct fitting *fitting, const struct wfs_shards *set)
{
    int code = 0;
    for (const struct catalog_unshown *value = fitting->catalog->notes.unshown;
         value != NULL && code == 0; value = value->next) {
        if (set != NULL && is_taken_whole(set, value->home))
            continue;
        code = tell(fitting, WFS_FIT_VALUE, value->name,
                    arena_print(&fitting->catalog->arena,
                                "is in %s, from which only tensors are taken",
                                wfs_quote(value->home->path).text));
    }
    return code;
}

/* ---- quantized integers ---- */

/* PyTorch's have scale and zero point in the call that makes them, and so in an output with all
 * objects of the file. Opaque elements of Burn are another matter. */
static bool is_dequantized(const struct fitting *fitting, const struct wfs_tensor *tensor)
{
    return tensor->dtype != WFS_OPAQUE && wfs_tensor_attr(tensor, "quantization") != NULL &&
           !(keeps_objects(fitting) && catalog_place(fitting->catalog, tensor) != 0);
}

/* set: what is written, or NULL when that is one file. */
static int tell_quantization(struct fitting *fitting, const struct wfs_shards *set)
{
    const struct wfs_catalog *catalog = fitting->catalog;
    const char *why =
        arena_print(&fitting->catalog->arena, "%s cannot store scale and zero point of integers",
                    fitting->is_set ? "a set of files" : fitting->format->name);
    int code = 0;
    for (size_t i = 0; i < catalog->n_tensors && code == 0; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        if (is_dequantized(fitting, tensor) &&
            (set == NULL || !is_taken_whole(set, catalog_home(catalog, tensor))))
            code = tell(fitting, WFS_FIT_QUANTIZATION, tensor->key, why);
    }
    return code;
}

int wfs_shards_fit(const struct wfs_shards *set, struct wfs_catalog *catalog, struct wfs_fit *fit,
                   struct wfs_error *err)
{
    struct fitting fitting = {catalog, set->format, fit, true, err};
    const struct directory *directory = &set->directory;
    int code = tell_unshown(&fitting, set);
    if (code == 0)
        code = tell_quantization(&fitting, set);
    for (size_t i = 0; i < directory->n_left_out && code == 0; i++)
        code = tell(&fitting, WFS_FIT_VALUE, directory->left_out[i], "is an empty dict");
    return code < 0 ? wfs_fail_memory(err) : 0;
}

/* ---- ids ---- */

/* Of parameters of Burn. */
static int tell_ids(struct fitting *fitting)
{
    const char *why = arena_print(&fitting->catalog->arena, "%s cannot store parameter ids",
                                  fitting->format->name);
    int code = 0;
    for (size_t i = 0; i < fitting->catalog->n_tensors && code == 0; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(fitting->catalog, i);
        const char *id = wfs_tensor_attr(tensor, "param_id");
        const char *lent = wfs_tensor_attr(tensor, CATALOG_LENT_ID);
        if (id != NULL && (lent == NULL || strcmp(id, lent) != 0))
            code = tell(fitting, WFS_FIT_PARAM_ID, tensor->key, why);
    }
    return code;
}

/* ---- storages that no tensor shows ---- */

/* An output with all objects of the loaded file has the storages that they refer to. */
static int tell_storages(struct fitting *fitting)
{
    const struct wfs_catalog *catalog = fitting->catalog;
    int code = 0;
    for (size_t i = 0; i < wfs_catalog_n_hidden(catalog) && code == 0; i++) {
        const struct wfs_hidden *hidden = wfs_catalog_hidden(catalog, i);
        if (hidden->key == NULL && !(keeps_objects(fitting) && hidden->is_named))
            code = tell(fitting, WFS_FIT_STORAGE, hidden->storage, "is not shown by any tensor");
    }
    return code;
}

/* ---- backup copies ---- */

/* No format is asked for room for them. */
static int tell_backups(struct fitting *fitting)
{
    int code = 0;
    for (const struct wfs_note *backup = fitting->catalog->notes.backups;
         backup != NULL && code == 0; backup = backup->next)
        code = tell(fitting, WFS_FIT_BACKUP, backup->path, "is a backup copy of another file");
    return code;
}

/* ---- names of code ---- */

struct purge {
    struct fitting *fitting;
    struct text_index names;
};

static int tell_name(void *ctx, const char *module, const char *name)
{
    struct purge *purge = ctx;
    const char *full = arena_print(&purge->fitting->catalog->arena, "%s.%s", wfs_quote(module).text,
                                   wfs_quote(name).text);
    const size_t n_before = purge->names.n_texts;
    uint32_t number;
    if (full == NULL || text_index_add(&purge->names, full, strlen(full), &number) < 0)
        return -ENOMEM;
    return number < n_before
               ? 0
               : tell(purge->fitting, WFS_FIT_NAME, full, "is not known to be harmless");
}

/* Formats without values have no room for names either, and metadata is never run. */
static int purge(struct fitting *fitting)
{
    struct wfs_catalog *catalog = fitting->catalog;
    struct purge purge = {.fitting = fitting};
    catalog->output.is_safe = true;
    if (fitting->is_set || fitting->format->values != WFS_VALUES_ANY ||
        catalog->format->functions->purge == NULL)
        return 0;
    const int code = catalog->format->functions->purge(catalog, tell_name, &purge);
    text_index_done(&purge.names);
    return code;
}

/* ---- the whole ---- */

static int keep_options(struct wfs_catalog *catalog, const struct wfs_fit_options *options)
{
    for (size_t i = 0; i < options->n_options; i++) {
        const char *value = options->options[i].value;
        const size_t n_bytes = strlen(value);
        struct wfs_text *text = arena_calloc(&catalog->arena, 1, sizeof(*text));
        const char *copy = arena_copy(&catalog->arena, value, n_bytes);
        if (text == NULL || copy == NULL)
            return -ENOMEM;
        *text = (struct wfs_text){.name = options->options[i].option->name,
                                  .value = copy,
                                  .n_bytes = n_bytes,
                                  .next = catalog->output.options};
        catalog->output.options = text;
    }
    return 0;
}

static int tell_metadata(struct fitting *fitting)
{
    const char *why =
        arena_print(&fitting->catalog->arena, "%s cannot store metadata", fitting->format->name);
    int code = 0;
    for (const struct wfs_text *text = fitting->catalog->meta.first; text != NULL && code == 0;
         text = text->next)
        code = tell(fitting, WFS_FIT_METADATA, text->name, why);
    return code;
}

/* Notes what readers of the output will expect. */
static void note_readers(struct fitting *fitting)
{
    const struct wfs_catalog *catalog = fitting->catalog;
    const struct wfs_format *from = catalog->format, *format = fitting->format;
    fitting->fit->kept = from != NULL && from != format ? from->kept_elsewhere : NULL;
    fitting->fit->needed = format->needed_value;
    for (size_t i = 0; i < catalog->values.n && fitting->fit->needed != NULL; i++) {
        if (strcmp(catalog->values.list[i].name, format->needed_value) == 0)
            fitting->fit->needed = NULL;
    }
}

int wfs_catalog_fit(struct wfs_catalog *catalog, const struct wfs_format *format,
                    const struct wfs_fit_options *options, struct wfs_fit *ret,
                    struct wfs_error *err)
{
    const bool is_set = options->is_set && !format->is_directory && !format->sets_have_values;
    struct fitting fitting = {catalog, format, ret, is_set, err};
    cleanup(text_index_done) struct text_index names = {0};
    int code = keep_options(catalog, options);
    if (code == 0)
        code = tell_backups(&fitting);
    if (code == 0)
        code = optimizer_fit(catalog, format);
    if (code == 0 && options->is_safe)
        code = purge(&fitting);
    if (code == 0)
        code = tell_storages(&fitting);
    if (code == 0)
        code = format->keeps_metadata ? names_init(&names, catalog) : tell_metadata(&fitting);
    if (code == 0 && !format->keeps_ties && options->drops_ties)
        code = drop_ties(&fitting, &names);
    if (code == 0)
        code = fit_values(&fitting, &names, format->keeps_metadata && options->values_in_metadata);
    if (code == 0 && !options->is_set)
        code = tell_unshown(&fitting, NULL);
    if (code == 0 && !options->is_set)
        code = tell_quantization(&fitting, NULL);
    if (code == 0 && !format->keeps_param_ids)
        code = tell_ids(&fitting);
    if (code == 0 && format->functions->settle != NULL)
        code = format->functions->settle(catalog, err);
    note_readers(&fitting);
    return code == -ENOMEM ? wfs_fail_memory(err) : code;
}

void wfs_fit_done(struct wfs_fit *fit)
{
    free(fit->items);
    *fit = (struct wfs_fit){0};
}
