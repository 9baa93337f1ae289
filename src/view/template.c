/* SPDX-License-Identifier: MIT */
/*
 * The checkpoint of a `like` option as a template: each of its tensors is a parameter to fill, in
 * its order, as Burn fills a module from a file.
 *
 * Fillers are what a record has besides parameters, taken over from the record that `like` names:
 * null for each constant, lists of it, and the names of variants without content. A flat list of
 * tensors does not have them, and Burn does not load a record that lacks some of them.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_index.h"
#include "tensor/tensor.h"
#include "value/value_leaf.h"
#include "view/pass.h"

/* ---- similar keys ---- */

enum { MAX_CHARS = 512, MAX_COMPARED = 20000 };

/* Decodes code points; a byte that is not UTF-8 becomes a code point of its own. */
static size_t decode(const char *text, uint32_t *ret)
{
    size_t n = 0;
    for (const uint8_t *at = (const uint8_t *)text; *at != 0 && n < MAX_CHARS;) {
        const size_t n_more = *at >= 0xf0 ? 3 : *at >= 0xe0 ? 2 : *at >= 0xc0 ? 1 : 0;
        uint32_t code = n_more == 0 ? *at : *at & (0x3fu >> n_more);
        at++;
        for (size_t i = 0; i < n_more && (*at & 0xc0) == 0x80; i++)
            code = code << 6 | (*at++ & 0x3f);
        ret[n++] = code;
    }
    return n;
}

double similarity_jaro(const char *a, const char *b)
{
    uint32_t x[MAX_CHARS], y[MAX_CHARS];
    bool is_taken[MAX_CHARS] = {false};
    const size_t n_x = decode(a, x), n_y = decode(b, y);
    if (n_x == 0 || n_y == 0)
        return n_x == n_y;
    if (n_x == 1 && n_y == 1)
        return x[0] == y[0];
    const size_t longest = n_x > n_y ? n_x : n_y, range = longest / 2 - 1;
    size_t n_matches = 0, n_turned = 0, last = 0;
    for (size_t i = 0; i < n_x; i++) {
        const size_t from = i > range ? i - range : 0;
        const size_t to = i + range + 1 < n_y ? i + range + 1 : n_y;
        for (size_t j = from; j < to; j++) {
            if (x[i] != y[j] || is_taken[j])
                continue;
            is_taken[j] = true;
            n_turned += n_matches > 0 && j < last;
            last = j;
            n_matches++;
            break;
        }
    }
    if (n_matches == 0)
        return 0;
    const double m = (double)n_matches;
    return (m / (double)n_x + m / (double)n_y + (m - (double)n_turned) / m) / 3;
}

/* Returns the dot before the first inner segment that looks like a variant, or NULL. */
static const char *find_variant(const char *key)
{
    const char *last = strrchr(key, '.');
    const char *at = strchr(key, '.');
    while (at != NULL && at < last) {
        const size_t n = strcspn(at + 1, ".");
        if (pass_is_variant(at + 1, n))
            return at;
        at += 1 + n;
    }
    return NULL;
}

/* Returns true if other is the key without its first variant, whose segment begins at dot + 1. */
static bool is_without_variant(const char *key, const char *dot, const char *other)
{
    const size_t n_before = (size_t)(dot - key);
    const char *rest = dot + 1 + strcspn(dot + 1, ".");
    return strncmp(key, other, n_before) == 0 && strcmp(rest, other + n_before) == 0;
}

const char *similarity_suggest(const char *missing, const struct report_lines *unused)
{
    const char *variant = find_variant(missing);
    const char *best = NULL;
    double best_value = 0;
    for (size_t i = 0; variant != NULL && i < unused->n_lines; i++) {
        if (is_without_variant(missing, variant, unused->lines[i].texts[0]))
            return unused->lines[i].texts[0];
    }
    for (size_t i = 0; i < unused->n_lines && i < MAX_COMPARED; i++) {
        const double value = similarity_jaro(missing, unused->lines[i].texts[0]);
        if (value >= 0.7 && value > best_value) {
            best = unused->lines[i].texts[0];
            best_value = value;
        }
    }
    return best;
}

/* ---- parameters ---- */

struct filling {
    struct pass *pass;
    struct text_index keys; /* of the items that are shown */
    uint32_t *item_of;      /* by key; the last of two that have it */
};

static int index_items(struct filling *f)
{
    struct wfs_report *report = f->pass->report;
    f->item_of = calloc(report->n_items + 1, sizeof(*f->item_of));
    report->order = calloc(f->pass->like->n_tensors + 1, sizeof(*report->order));
    if (f->item_of == NULL || report->order == NULL)
        return wfs_fail_memory(f->pass->err);
    for_items(item, f->pass)
    {
        uint32_t id;
        if (text_index_add(&f->keys, item->tensor.key, strlen(item->tensor.key), &id) < 0)
            return wfs_fail_memory(f->pass->err);
        f->item_of[id] = (uint32_t)(item - report->items);
    }
    return 0;
}

static struct item *find_item(const struct filling *f, const char *key, size_t n_key)
{
    const uint32_t id = text_index_find(&f->keys, key, n_key);
    return id == TEXT_INDEX_NONE ? NULL : &f->pass->report->items[f->item_of[id]];
}

/* Returns true if the user named a type to whose tensors this is not done. */
static bool is_told_other(const struct item *item, enum action action)
{
    return item->verdict.row != NULL && item->verdict.certainty == TOLD &&
           item->verdict.action != action;
}

/* Finds it by its key, else by the leaf that the other framework has for a norm; NULL: none. */
static int find_source(const struct filling *f, const char *key, struct item **ret)
{
    static const char *const pairs[][2] = {
        {"gamma", "weight"}, {"beta", "bias"}, {"weight", "gamma"}, {"bias", "beta"}};
    const char *leaf = key_leaf(key);
    struct item *item = find_item(f, key, strlen(key));
    for (size_t i = 0; item == NULL && f->pass->to != TO_NONE && i < 4; i++) {
        if (strcmp(leaf, pairs[i][0]) != 0)
            continue;
        autofree char *other = NULL;
        const int n = asprintf(&other, "%.*s%s", (int)(leaf - key), key, pairs[i][1]);
        if (n < 0)
            return wfs_fail_memory(f->pass->err);
        item = find_item(f, other, (size_t)n);
        if (item != NULL && is_told_other(item, ACTION_RENAME))
            item = NULL;
    }
    *ret = item;
    return 0;
}

static bool has_dims(const struct wfs_shape *a, const struct wfs_shape *b, bool is_swapped)
{
    if (a->rank != b->rank || (is_swapped && a->rank != 2))
        return false;
    for (uint32_t i = 0; i < a->rank; i++) {
        if (a->dims[i] != b->dims[is_swapped ? 1 - i : i])
            return false;
    }
    return true;
}

/* Float, integer or boolean: what Burn compares of dtypes. Quantized ones are floats. */
static int kind_of(const struct wfs_tensor *tensor)
{
    const enum wfs_kind kind = wfs_dtype_kind((enum wfs_dtype)tensor->dtype);
    if (tensor->dtype == WFS_OPAQUE && wfs_tensor_attr(tensor, "quantization") != NULL)
        return WFS_KIND_FLOAT;
    return kind == WFS_KIND_SIGNED ? WFS_KIND_UNSIGNED : (int)kind;
}

/* Returns whether Burn loads the tensor into the parameter, as far as dtypes matter. It stores
 * bools as U8 or U32, too. */
static bool has_kind(const struct wfs_tensor *tensor, const struct wfs_tensor *model)
{
    return kind_of(tensor) == kind_of(model) ||
           (kind_of(model) == WFS_KIND_BOOL &&
            (tensor->dtype == WFS_U8 || tensor->dtype == WFS_U32));
}

static void __attribute__((format(printf, 3, 4)))
add_error(const struct filling *f, const char *key, const char *format, ...)
{
    char text[WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    report_add(f->pass->report, REPORT_ERRORS, key, text);
}

/* The evidence knows no matrix that is not called weight, such as `weight_hh_l0`: one that fills a
 * weight, perhaps as a part, is likely to be a Linear's in the layout of the file. */
static void take_for_linear(const struct filling *f, struct item *item)
{
    const enum layout to = f->pass->to == TO_BURN ? LAYOUT_BURN : LAYOUT_TORCH;
    if (item->verdict.class_ != CLASS_OTHER || strcmp(key_leaf(item->tensor.key), "weight") != 0 ||
        strcmp(key_leaf(item->cut_key), "weight") == 0)
        return;
    item->verdict = (struct verdict){f->pass->layout == to ? ACTION_NONE : ACTION_TRANSPOSE, LIKELY,
                                     CLASS_LINEAR, "25 filled into a weight"};
}

/* Transposes a matrix if its shape says so, or, for a square one, if the evidence does. Returns
 * whether the item has the shape then. */
static bool fit(const struct filling *f, struct item *item, const struct wfs_tensor *model,
                bool may_turn)
{
    const struct wfs_shape *shape = &item->tensor.shape;
    const bool is_equal = has_dims(shape, &model->shape, false);
    const bool is_square = shape->rank == 2 && shape->dims[0] == shape->dims[1];
    may_turn = may_turn && f->pass->to != TO_NONE && !is_told_other(item, ACTION_TRANSPOSE) &&
               !item_is_rigid(item);
    if (may_turn && is_square)
        take_for_linear(f, item);
    const bool is_turned =
        may_turn && (is_equal ? is_square && item->verdict.action == ACTION_TRANSPOSE
                              : has_dims(shape, &model->shape, true));
    if (!is_turned)
        return is_equal;
    item->done = ACTION_TRANSPOSE;
    pass_swap_last(f->pass, item);
    if (is_square)
        pass_note(f->pass, item, "transposed as in like (%s)", item->verdict.row);
    else
        pass_note(f->pass, item, "transposed as in like");
    return true;
}

/* Takes over the id of the parameter where the source has none. */
static int take_param_id(const struct filling *f, struct item *item, const struct wfs_tensor *model)
{
    const char *id = wfs_tensor_attr(model, "param_id");
    if (id == NULL || wfs_tensor_attr(&item->tensor, "param_id") != NULL)
        return 0;
    return catalog_add_attr(f->pass->catalog, &item->tensor, "param_id", id) < 0 ||
                   catalog_add_attr(f->pass->catalog, &item->tensor, CATALOG_LENT_ID, id) < 0
               ? wfs_fail_memory(f->pass->err)
               : 0;
}

/* Gives the item the key of the parameter. */
static int take_name(const struct filling *f, struct item *item, const struct wfs_tensor *model)
{
    const char *name = arena_copy(&f->pass->catalog->arena, model->key, strlen(model->key));
    if (name == NULL)
        return wfs_fail_memory(f->pass->err);
    if (item->done == ACTION_NONE && strcmp(key_leaf(name), key_leaf(item->tensor.key)) != 0)
        item->done = ACTION_RENAME;
    pass_rename(f->pass, item, name, "named as in like");
    return 0;
}

/* Applies a tensor to a parameter if it can be read and, as the rules change it, has its shape and
 * kind of dtype. */
static int fill_with(const struct filling *f, struct item *item, const struct wfs_tensor *model,
                     const char *key)
{
    struct wfs_report *report = f->pass->report;
    char wanted[128], has[128];
    const char *trouble = wfs_tensor_trouble(&item->tensor);
    if (trouble != NULL) {
        item->drop = DROP_UNREADABLE;
        add_error(f, key, "cannot be read: %s", trouble);
        return 0;
    }
    const uint64_t *dims = item->tensor.shape.dims;
    int code = take_name(f, item, model);
    code = code < 0 ? code : pass_change(f->pass, item);
    if (code < 0)
        return code;
    wfs_shape_format(&model->shape, wanted, sizeof(wanted));
    wfs_shape_format(&item->tensor.shape, has, sizeof(has));
    if (!fit(f, item, model, dims == item->tensor.shape.dims)) { /* no rule has reordered it */
        item->drop = DROP_SHAPE;
        add_error(f, key, "shape mismatch: expected %s, found %s", wanted, has);
        return 0;
    }
    if (!has_kind(&item->tensor, model)) {
        item->drop = DROP_DTYPE;
        add_error(f, key, "dtype mismatch: expected %s, found %s",
                  wfs_dtype_name((enum wfs_dtype)model->dtype),
                  wfs_dtype_name((enum wfs_dtype)item->tensor.dtype));
        return 0;
    }
    if (f->pass->view->is_strict && item->verdict.certainty == LIKELY) {
        item->drop = DROP_SHAPE;
        add_error(f, key, "strict: the type of its module is a guess (%s); set it with class=",
                  item->verdict.row);
        return 0;
    }
    report_add(report, REPORT_APPLIED, key, NULL);
    report->order[report->n_order++] = (uint32_t)(item - report->items);
    return take_param_id(f, item, model);
}

/* Fills one parameter, with the steps in the order that Burn has. */
static int fill(const struct filling *f, const struct wfs_tensor *model)
{
    struct wfs_report *report = f->pass->report;
    const char *key = pass_drop_variants(f->pass, model->key);
    struct item *item = NULL;
    const int code = key == NULL ? wfs_fail_memory(f->pass->err) : find_source(f, key, &item);
    if (code < 0)
        return code;
    if (item == NULL) {
        report_add(report, REPORT_MISSING, key, NULL);
        return 0;
    }
    if (item->is_visited) {
        add_error(f, key, "the tensor '%s' is already used",
                  wfs_quote(wfs_tensor_origin(&item->tensor)).text);
        return 0;
    }
    item->is_visited = true;
    const int shown = pass_filter_one(f->pass, item, key);
    if (shown > 0)
        return fill_with(f, item, model, key);
    item->drop = DROP_FILTER;
    if (shown == 0)
        report_add(report, REPORT_SKIPPED, key, NULL);
    return shown;
}

static void drop_unused(struct pass *pass)
{
    struct wfs_report *report = pass->report;
    for_items(item, pass)
    {
        if (item->is_visited)
            continue;
        item->drop = DROP_UNUSED;
        report_add(report, REPORT_UNUSED, item->tensor.key, NULL);
    }
    report_sort(report, REPORT_UNUSED);
    report_sort(report, REPORT_SKIPPED);
    report_sort(report, REPORT_MISSING);
}

/* Suggests an unused key for each missing one. Nobody reads more than some hundreds, and each costs
 * a look at all unused keys, and each look the product of two lengths: both are limited so that it
 * takes a second or two. */
static void suggest(const struct wfs_report *report)
{
    enum { N_LEAST = 10, N_MOST = 200, N_LOOKS = 1000000 };
    const uint64_t n_most_pairs = UINT64_C(4000000000);
    const struct report_lines *missing = &report->lists[REPORT_MISSING];
    const struct report_lines *unused = &report->lists[REPORT_UNUSED];
    const size_t n = N_LOOKS / (unused->n_lines + 1);
    const size_t n_suggested = n < N_LEAST ? N_LEAST : n > N_MOST ? N_MOST : n;
    uint64_t n_chars = 0, n_pairs = 0;
    for (size_t i = 0; i < unused->n_lines && i < MAX_COMPARED; i++)
        n_chars += strnlen(unused->lines[i].texts[0], MAX_CHARS);
    for (size_t i = 0; i < missing->n_lines && i < n_suggested && n_pairs < n_most_pairs; i++) {
        n_pairs += n_chars * strnlen(missing->lines[i].texts[0], MAX_CHARS);
        missing->lines[i].texts[1] = similarity_suggest(missing->lines[i].texts[0], unused);
    }
}

/* Notes missing keys that have names of enum variants, which Burn's paths have and files lack. */
static void notice_variants(const struct pass *pass)
{
    const struct report_lines *missing = &pass->report->lists[REPORT_MISSING];
    size_t n = 0;
    char text[256];
    for (size_t i = 0; i < missing->n_lines; i++)
        n += find_variant(missing->lines[i].texts[0]) != NULL;
    snprintf(text, sizeof(text),
             "%s a segment that looks like an enum variant: drop_variants=auto "
             "removes it, or a remap can add it to the keys of the source",
             wfs_count_as(n, "of these has", "of these have").text);
    if (n > 0)
        report_add(pass->report, REPORT_NOTICES, "missing", text);
}

/* Returns whether PyTorch has parts of a recurrent module or an attention in a tensor of that key.
 */
static bool is_fused(const char *key)
{
    static const char *const starts[] = {"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l",
                                         "in_proj_"};
    const char *leaf = key_leaf(key);
    bool is_one = false;
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
        is_one = is_one || strncmp(leaf, starts[i], strlen(starts[i])) == 0;
    return is_one;
}

static int verdict(const struct pass *pass)
{
    const struct report_lines *errors = &pass->report->lists[REPORT_ERRORS];
    const struct report_lines *missing = &pass->report->lists[REPORT_MISSING];
    if (errors->n_lines > 0)
        return wfs_fail(pass->err, EINVAL, "like: '%s': %s; %s not fit",
                        wfs_quote(errors->lines[0].texts[0]).text, errors->lines[0].texts[1],
                        wfs_count_as(errors->n_lines, "tensor does", "tensors do").text);
    if (missing->n_lines == 0 || pass->view->is_partial)
        return 0;
    const char *suggestion = missing->lines[0].texts[1];
    char hint[WFS_QUOTE_MAX + 96] = "";
    if (pass->to == TO_TORCH && pass->layout == LAYOUT_BURN && is_fused(missing->lines[0].texts[0]))
        snprintf(hint, sizeof(hint), " (Burn has it in parts, which are not joined)");
    else if (suggestion != NULL)
        snprintf(hint, sizeof(hint), " (did you mean '%s'?)", wfs_quote(suggestion).text);
    return wfs_fail(pass->err, EINVAL,
                    "like: %s missing, first '%s'%s; use the option 'partial' to accept that",
                    wfs_count_as(missing->n_lines, "tensor is", "tensors are").text,
                    wfs_quote(missing->lines[0].texts[0]).text, hint);
}

static void cleanup_filling(struct filling *f)
{
    text_index_done(&f->keys);
    free(f->item_of);
}

int pass_like(struct pass *pass)
{
    if (pass->like == NULL)
        return 0;
    cleanup(cleanup_filling) struct filling filling = {.pass = pass};
    int code = index_items(&filling);
    for (size_t i = 0; code == 0 && i < pass->like->n_tensors; i++)
        code = fill(&filling, &pass->like->tensors[i]);
    if (code < 0)
        return code;
    drop_unused(pass);
    notice_variants(pass);
    suggest(pass->report);
    if (pass->report->has_failed)
        return wfs_fail_memory(pass->err);
    return verdict(pass);
}

/* ---- fillers ---- */

/* The names of a catalog. A value that Python made has no room in a file with fillers, so that it
 * does not take the place of one. */
struct taken {
    struct text_index names;  /* of tensors and of values, and of all that they are in */
    struct text_index python; /* of such values, by their number */
};

static void cleanup_taken(struct taken *taken)
{
    text_index_done(&taken->names);
    text_index_done(&taken->python);
}

/* Adds a name and everything that it is in. -ENOMEM. */
static int add_name(struct text_index *names, const char *name)
{
    uint32_t number;
    for (size_t n = strlen(name); n > 0; n--) {
        if ((name[n] == '.' || name[n] == '\0') && text_index_add(names, name, n, &number) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int add_names(struct taken *taken, const struct wfs_catalog *catalog)
{
    const bool is_python = catalog->values.graph.notation != NULL;
    int code = 0;
    for (size_t i = 0; i < catalog->n_tensors && code == 0; i++)
        code = add_name(&taken->names, catalog->tensors[i].key);
    for (size_t i = 0; i < catalog->values.n && code == 0; i++) {
        const char *name = catalog->values.list[i].name;
        uint32_t number;
        code = is_python ? text_index_add(&taken->python, name, strlen(name), &number)
                         : add_name(&taken->names, name);
    }
    return code;
}

/* Adds what a record has besides tensors, unless something else has its name. -ENOMEM. */
static int add_filler(struct wfs_catalog *catalog, const struct taken *taken,
                      const struct graph *graph, const struct catalog_value *value)
{
    const size_t n_name = strlen(value->name);
    if (text_index_find(&taken->names, value->name, n_name) != TEXT_INDEX_NONE)
        return 0;
    const uint32_t python = text_index_find(&taken->python, value->name, n_name);
    const uint32_t id = value_copy(&catalog->values.graph, graph, value->id);
    const char *name = arena_copy(&catalog->arena, value->name, n_name);
    if (id == 0 || name == NULL)
        return -ENOMEM;
    if (python == TEXT_INDEX_NONE && catalog_add_value(catalog, name, id, 0) < 0)
        return -ENOMEM;
    catalog->values.list[python != TEXT_INDEX_NONE ? python : catalog->values.n - 1].filler = id;
    return 0;
}

/* A record is for the Burn that reads the one of `like`. -ENOMEM. */
static int take_version(struct wfs_catalog *catalog, const struct wfs_catalog *like)
{
    const struct wfs_text *text = text_find(wfs_catalog_meta(like), "version");
    if (text == NULL)
        return 0;
    catalog->output.reader_version = arena_copy(&catalog->arena, text->value, text->n_bytes);
    return catalog->output.reader_version == NULL ? -ENOMEM : 0;
}

int pass_fillers(struct pass *pass)
{
    const struct wfs_catalog *like = pass->like;
    struct wfs_catalog *catalog = pass->catalog;
    cleanup(cleanup_taken) struct taken taken = {0};
    if (like == NULL || like->format == NULL || !like->format->has_fillers)
        return 0;
    if (catalog->values.graph.arena == NULL)
        catalog->values.graph.arena = &catalog->arena;
    int code = take_version(catalog, like);
    if (code == 0)
        code = add_names(&taken, catalog);
    for (size_t i = 0; i < like->values.n && code == 0; i++) {
        const struct catalog_value *value = &like->values.list[i];
        if (value_is_filler(&like->values.graph, value->id))
            code = add_filler(catalog, &taken, &like->values.graph, value);
    }
    return code < 0 ? wfs_fail_memory(pass->err) : 0;
}
