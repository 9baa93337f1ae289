/* SPDX-License-Identifier: MIT */
/*
 * Changes to single tensors that the user asks for, in the order of the rules: transpose, permute,
 * split and cast. With `like`, tensors are split before they fill others, and each is changed
 * otherwise when it has got its key. Quantized weights are codes whose scales are often in tensors
 * of their own. No scales are applied here, so what would change the meaning of codes is refused or
 * noticed.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/blocks.h"
#include "tensor/cast.h"
#include "tensor/tensor.h"
#include "view/pass.h"

/* Reports that the rule cannot be applied to the item; to: what it should become. */
static int __attribute__((format(printf, 5, 6)))
refuse(const struct pass *pass, const struct rule *rule, const struct item *item, const char *to,
       const char *format, ...)
{
    char shape[128], problem[WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(problem, sizeof(problem), format, args);
    va_end(args);
    wfs_shape_format(&item->tensor.shape, shape, sizeof(shape));
    return wfs_fail(pass->err, EINVAL, "cannot %s '%s' (%s %s)%s%s: %s", rule->name,
                    wfs_quote(item->tensor.key).text,
                    wfs_dtype_name((enum wfs_dtype)item->tensor.dtype), shape,
                    *to != '\0' ? " to " : "", to, problem);
}

static int refuse_rigid(const struct pass *pass, const struct rule *rule, const struct item *item)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)item->tensor.dtype;
    if (wfs_dtype_has_blocks(dtype))
        return refuse(pass, rule, item, "",
                      "its elements lie in blocks of %u: cast=F32 before this rule decodes them",
                      wfs_dtype_block(dtype).n_elems);
    return refuse(pass, rule, item, "", "its elements are packed or of an unknown type");
}

/* What is noticed of items when all rules were applied. */
enum { LEFT_CODES = 1, LEFT_NARROW = 2, CAST_SCALE = 4, TURNED_CODES = 8 };

/* A rule that turns the scales, too, is right for both. */
static int note_turned(const struct pass *pass, const struct rule *rule, struct item *item)
{
    const int code = item->scale == NULL ? 1 : regex_search(rule->regex, item->scale, pass->err);
    if (code == 0)
        item->oddities |= TURNED_CODES;
    return code < 0 ? code : 0;
}

static int transpose(const struct pass *pass, const struct rule *rule, struct item *item)
{
    const uint32_t rank = item->tensor.shape.rank;
    if (rank < 2)
        return refuse(pass, rule, item, "",
                      rank == 0 ? "it has no dimensions" : "it has only one dimension");
    if (rank > RULE_MAX_PARTS)
        return refuse(pass, rule, item, "", "it has more than %d dimensions", RULE_MAX_PARTS);
    if (item_is_rigid(item))
        return refuse_rigid(pass, rule, item);
    pass_swap_last(pass, item);
    pass_note(pass, item, "transpose %.200s", rule->text);
    return note_turned(pass, rule, item);
}

static int permute_dims(const struct pass *pass, const struct rule *rule, struct item *item)
{
    if (item->tensor.shape.rank != rule->n_parts)
        return refuse(pass, rule, item, "",
                      "'%s' is for tensors of rank %" PRIu32 ", this one has rank %" PRIu32,
                      wfs_quote(rule->argument).text, rule->n_parts, item->tensor.shape.rank);
    if (item_is_rigid(item))
        return refuse_rigid(pass, rule, item);
    pass_permute(pass, item, rule->order);
    pass_note(pass, item, "permute %.200s", rule->argument);
    return note_turned(pass, rule, item);
}

/* Returns whether widening is for the item: what it shows is narrow, and has a value as it is. */
static bool is_narrow(const struct item *item)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)item->tensor.dtype;
    if (dtype_is_packed(dtype))
        return blocks_are_known(&item->tensor);
    return wfs_dtype_kind(dtype) == WFS_KIND_FLOAT && wfs_dtype_bits(dtype) < 32 &&
           cast_is_possible((enum wfs_dtype)item->tensor.stored.dtype, WFS_F32);
}

/* Returns whether a cast is for the item, and notes what is odd about that. */
static bool is_for_cast(const struct pass *pass, const struct rule *rule, struct item *item)
{
    const enum wfs_dtype stored = (enum wfs_dtype)item->tensor.stored.dtype;
    const bool is_wide = dtype_is_wide_float(stored);
    const bool is_named = rule->regex != NULL;
    const bool is_widening = pass->view->is_widening;
    if (item->is_kept || item->tensor.dtype == rule->dtype || (is_widening && !is_narrow(item)))
        return false;
    if (!is_named && wfs_dtype_has_blocks(rule->dtype) && item->tensor.shape.rank < 2)
        return false; /* biases and norms */
    const bool has_scales = item->has_codes || item->has_scale;
    if (!is_named && has_scales)
        item->oddities |= LEFT_CODES;
    else if (!is_named && !is_widening && wfs_dtype_kind(stored) == WFS_KIND_FLOAT && !is_wide)
        item->oddities |= LEFT_NARROW;
    else if (item->has_codes)
        item->oddities |= CAST_SCALE;
    if (is_widening)
        return !has_scales;
    return is_named || ((is_wide || wfs_dtype_has_blocks(stored)) && !item->has_codes);
}

/* Shows what a source makes of the blocks or numbers of the item. */
static int show_made(const struct pass *pass, const struct rule *rule, struct item *item,
                     enum wfs_dtype dtype, struct source *made)
{
    if (made == NULL || catalog_adopt_made(pass->catalog, made) < 0)
        return wfs_fail_memory(pass->err);
    return blocks_show(&item->tensor, dtype, made) < 0
               ? refuse(pass, rule, item, wfs_dtype_name(rule->dtype), "the result is too large")
               : 0;
}

/* Shows elements of blocks as F32, which is exact. */
static int decode(const struct pass *pass, const struct rule *rule, struct item *item)
{
    struct source *made = NULL;
    if (!blocks_are_known(&item->tensor))
        return refuse(pass, rule, item, wfs_dtype_name(rule->dtype),
                      "its file is big-endian, and does not state whether numbers in blocks are");
    (void)blocks_source_new(&item->tensor, &made);
    return show_made(pass, rule, item, WFS_F32, made);
}

/* Shows F32 as blocks. */
static int encode(const struct pass *pass, const struct rule *rule, struct item *item)
{
    const struct wfs_shape *shape = &item->tensor.shape;
    const uint64_t n_row = shape->rank == 0 ? 1 : shape->dims[shape->rank - 1];
    const unsigned n_block = wfs_dtype_block(rule->dtype).n_elems;
    struct source *made = NULL;
    if (n_row % n_block != 0)
        return refuse(pass, rule, item, wfs_dtype_name(rule->dtype),
                      "its rows of %s are not whole blocks of %u", wfs_count(n_row, "element").text,
                      n_block);
    (void)blocks_made_new(&item->tensor, rule->dtype, &made);
    return show_made(pass, rule, item, rule->dtype, made);
}

/* Shows numbers as those of another dtype. */
static int convert(const struct pass *pass, const struct rule *rule, struct item *item,
                   enum wfs_dtype dtype)
{
    struct wfs_tensor *tensor = &item->tensor;
    tensor->dtype = (uint8_t)dtype;
    return wfs_shape_bytes(&tensor->shape, dtype, &tensor->n_bytes) < 0
               ? refuse(pass, rule, item, wfs_dtype_name(rule->dtype), "the result is too large")
               : 0;
}

static int cast(const struct pass *pass, const struct rule *rule, struct item *item)
{
    const enum wfs_dtype before = (enum wfs_dtype)item->tensor.dtype;
    const enum wfs_dtype stored = (enum wfs_dtype)item->tensor.stored.dtype;
    const bool is_packed = dtype_is_packed(stored);
    const bool makes_blocks = wfs_dtype_has_blocks(rule->dtype);
    const enum wfs_dtype numbers = makes_blocks ? WFS_F32 : rule->dtype;
    if (!is_for_cast(pass, rule, item))
        return 0;
    if (item->has_scale)
        return refuse(pass, rule, item, wfs_dtype_name(rule->dtype),
                      "its scales are in '%s', and a cast does not apply them; keep=REGEX leaves "
                      "it as it is",
                      wfs_quote(item->scale != NULL ? item->scale : "quantization").text);
    if (makes_blocks && !blocks_can_be_made(rule->dtype))
        return refuse(pass, rule, item, wfs_dtype_name(rule->dtype),
                      "there is no one result for these blocks; Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 "
                      "can be made");
    if (!cast_is_possible(is_packed ? WFS_F32 : stored, numbers))
        return refuse(pass, rule, item, wfs_dtype_name(rule->dtype),
                      "casts are from BOOL, integers and floats to those of 8 bits or more");
    int code = is_packed ? decode(pass, rule, item) : 0;
    if (code == 0)
        code = convert(pass, rule, item, numbers);
    if (code == 0 && makes_blocks)
        code = encode(pass, rule, item);
    if (code == 0)
        pass_note(pass, item, "cast %s to %s", wfs_dtype_name(before), wfs_dtype_name(rule->dtype));
    return code;
}

/* The parts of a tensor have its attributes, except for the id, which is that of the whole. */
static int copy_attrs(const struct pass *pass, struct wfs_tensor *part)
{
    const struct wfs_text *text = part->attrs;
    part->attrs = NULL;
    for (; text != NULL; text = text->next) {
        if (strcmp(text->name, "param_id") != 0 &&
            catalog_add_attr(pass->catalog, part, text->name, text->value) < 0)
            return wfs_fail_memory(pass->err);
    }
    return 0;
}

/* Returns the bytes of one index of the first dimension, as they are stored. */
static uint64_t row_bytes(const struct wfs_tensor *tensor, const uint64_t *strides)
{
    const struct wfs_stored *stored = &tensor->stored;
    if (wfs_dtype_has_blocks((enum wfs_dtype)stored->dtype))
        return tensor->shape.dims[0] == 0 ? 0 : tensor->n_bytes / tensor->shape.dims[0];
    return strides[0] * (wfs_dtype_bits((enum wfs_dtype)stored->dtype) / 8);
}

/* Part number i, with the rows behind those of the parts before it. */
static int make_part(const struct pass *pass, const struct rule *rule, const struct item *whole,
                     uint32_t i, struct item *part)
{
    const struct wfs_tensor *from = &whole->tensor;
    struct wfs_tensor *tensor = &part->tensor;
    const uint64_t n_each = from->shape.dims[0] / rule->n_order, n_rows = n_each * rule->order[i];
    uint64_t first = 0;
    for (uint32_t k = 0; k < i; k++)
        first += n_each * rule->order[k];
    uint64_t *dims = arena_calloc(&pass->catalog->arena, from->shape.rank, sizeof(*dims));
    const uint64_t *strides = from->stored.strides;
    if (strides == NULL)
        strides = catalog_dense_strides(pass->catalog, &from->shape);
    if (dims == NULL || strides == NULL)
        return wfs_fail_memory(pass->err);
    *part = *whole;
    memcpy(dims, from->shape.dims, from->shape.rank * sizeof(*dims));
    dims[0] = n_rows;
    tensor->shape.dims = dims;
    tensor->n_bytes = from->n_bytes / rule->n_order * rule->order[i];
    tensor->stored.offset += first * row_bytes(from, strides);
    const char *key;
    int code = regex_replace(rule->regex, from->key, rule->parts[i], &pass->catalog->arena, &key,
                             pass->err);
    code = code < 0 ? code : copy_attrs(pass, tensor);
    if (code < 0)
        return code;
    pass_rename(pass, part, key, "split");
    pass_note(pass, part, "rows %" PRIu64 " to %" PRIu64, first, first + n_rows - (n_rows > 0));
    return 0;
}

/* Reads "3", "2:5", ":5", "-4:" or ":" for a dimension of n; a number alone keeps the dimension. */
static bool read_range(const char *text, uint64_t n, uint64_t *ret_first, uint64_t *ret_end)
{
    const char *colon = strchr(text, ':');
    const char *const texts[] = {text, colon == NULL ? text : colon + 1};
    int64_t values[2] = {0, (int64_t)n};
    for (size_t i = 0; i < 2; i++) {
        char *end;
        const bool is_empty = texts[i][0] == '\0' || texts[i][0] == ':';
        if (is_empty && colon != NULL)
            continue;
        values[i] = strtoll(texts[i], &end, 10);
        if (end == texts[i] || (*end != '\0' && end != colon))
            return false;
        values[i] += values[i] < 0 ? (int64_t)n : 0;
        values[i] += colon == NULL && i == 1;
    }
    *ret_first = (uint64_t)values[0];
    *ret_end = (uint64_t)values[1];
    return values[0] >= 0 && values[0] <= values[1] && values[1] <= (int64_t)n;
}

static int slice(const struct pass *pass, const struct rule *rule, struct item *item)
{
    struct wfs_tensor *tensor = &item->tensor;
    const uint32_t rank = tensor->shape.rank;
    const uint64_t n_elem = wfs_dtype_bits((enum wfs_dtype)tensor->stored.dtype) / 8;
    if (item_is_rigid(item))
        return refuse_rigid(pass, rule, item);
    if (rule->n_parts > rank)
        return refuse(pass, rule, item, "", "'%s' is for more dimensions than it has",
                      wfs_quote(rule->argument).text);
    uint64_t *dims = arena_calloc(&pass->catalog->arena, rank, sizeof(*dims));
    const uint64_t *strides = tensor->stored.strides;
    if (strides == NULL)
        strides = catalog_dense_strides(pass->catalog, &tensor->shape);
    if (dims == NULL || strides == NULL)
        return wfs_fail_memory(pass->err);
    memcpy(dims, tensor->shape.dims, rank * sizeof(*dims));
    for (uint32_t i = 0; i < rule->n_parts; i++) {
        uint64_t first, end;
        if (dims[i] > INT64_MAX || !read_range(rule->parts[i], dims[i], &first, &end))
            return refuse(pass, rule, item, "", "'%s' is not a range of dimension %" PRIu32,
                          wfs_quote(rule->parts[i]).text, i);
        tensor->stored.offset += end > first ? first * strides[i] * n_elem : 0;
        dims[i] = end - first;
    }
    tensor->shape.dims = dims;
    tensor->stored.strides = strides;
    if (wfs_shape_bytes(&tensor->shape, (enum wfs_dtype)tensor->dtype, &tensor->n_bytes) < 0)
        return refuse(pass, rule, item, "", "the result is too large");
    pass_note(pass, item, "slice [%s]", wfs_quote(rule->argument).text);
    return 0;
}

static int check_split(const struct pass *pass, const struct rule *rule, const struct item *item)
{
    const struct wfs_shape *shape = &item->tensor.shape;
    if (shape->rank == 0)
        return refuse(pass, rule, item, "", "it has no dimensions");
    if (shape->dims[0] % rule->n_order != 0)
        return refuse(pass, rule, item, "",
                      "%" PRIu64 " is not divisible into %" PRIu32 " equal parts", shape->dims[0],
                      rule->n_order);
    if (wfs_dtype_has_blocks((enum wfs_dtype)item->tensor.dtype) && shape->rank > 1)
        return 0; /* rows are whole blocks */
    if (item_is_rigid(item))
        return refuse_rigid(pass, rule, item);
    return 0;
}

static int count_matches(const struct pass *pass, const struct rule *rule, size_t *ret)
{
    *ret = 0;
    for_items(item, pass)
    {
        const int code = pass_matches(pass, rule, item);
        if (code < 0)
            return code;
        *ret += (size_t)code;
    }
    return 0;
}

/* Replaces each tensor by its parts, in its place. */
static int split(struct pass *pass, const struct rule *rule)
{
    struct wfs_report *report = pass->report;
    size_t n_hits, n = 0;
    int code = count_matches(pass, rule, &n_hits);
    if (code < 0)
        return code;
    autofree struct item *items =
        calloc(report->n_items + n_hits * rule->n_parts + 1, sizeof(*items));
    if (items == NULL)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < report->n_items; i++) {
        struct item *item = &report->items[i];
        const int is_hit = !item_is_shown(item) ? 0 : pass_matches(pass, rule, item);
        if (is_hit == 0)
            items[n++] = *item;
        code = is_hit > 0 ? check_split(pass, rule, item) : is_hit;
        for (uint32_t part = 0; is_hit > 0 && code == 0 && part < rule->n_parts; part++)
            code = make_part(pass, rule, item, part, &items[n++]);
        if (code < 0)
            return code;
    }
    free(report->items);
    report->items = steal(&items);
    report->n_items = n;
    return 0;
}

/* Applies the rule to the item if it matches and is for single tensors. */
static int run_on(const struct pass *pass, const struct rule *rule, struct item *item)
{
    int (*operate)(const struct pass *, const struct rule *, struct item *) = NULL;
    if (rule->kind == RULE_TRANSPOSE)
        operate = transpose;
    if (rule->kind == RULE_PERMUTE)
        operate = permute_dims;
    if (rule->kind == RULE_SLICE)
        operate = slice;
    if (rule->kind == RULE_CAST)
        operate = cast;
    const int code = operate == NULL ? 0 : pass_matches(pass, rule, item);
    return code > 0 ? operate(pass, rule, item) : code;
}

/* Notes that a keep rule matches the item. */
static int keep(const struct pass *pass, struct item *item)
{
    for_rules(rule, pass->view, RULE_KEEP)
    {
        const int is_kept = pass_matches(pass, rule, item);
        if (is_kept < 0)
            return is_kept;
        item->is_kept = item->is_kept || is_kept > 0;
    }
    return 0;
}

int pass_change(const struct pass *pass, struct item *item)
{
    int code = keep(pass, item);
    for (const struct rule *rule = pass->view->rules; code == 0 && rule != NULL; rule = rule->next)
        code = run_on(pass, rule, item);
    return code;
}

int pass_companions(struct pass *pass)
{
    autofree struct wfs_companion *companions = NULL;
    struct item *items = pass->report->items;
    if (wfs_view_is_empty(pass->view))
        return 0;
    if (wfs_catalog_companions(pass->catalog, &companions) < 0)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < pass->report->n_items; i++) {
        const struct wfs_companion *companion = &companions[i];
        items[i].has_scale = wfs_tensor_attr(&items[i].tensor, "quantization") != NULL;
        if (companion->scale != 0) {
            items[i].scale = items[companion->scale - 1].tensor.key;
            items[i].has_scale = item_is_shown(&items[companion->scale - 1]);
        }
        if (companion->base != 0 && item_is_shown(&items[companion->base - 1]))
            items[i].has_codes = true;
    }
    return 0;
}

int pass_parted(struct pass *pass)
{
    autofree struct wfs_companion *companions = NULL;
    const struct wfs_report *report = pass->report;
    const struct item *first = NULL;
    size_t n = 0;
    if (wfs_view_is_empty(pass->view))
        return 0;
    if (wfs_catalog_companions(pass->catalog, &companions) < 0)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < report->n_order; i++) {
        const struct item *item = &report->items[report->order[i]];
        if (item->scale == NULL || companions[i].scale != 0 ||
            (!item->has_scale && !item_is_cast(item)))
            continue;
        first = first == NULL ? item : first;
        n++;
    }
    return n == 0 ? 0
                  : pass_warn(pass, first->tensor.key,
                              "has lost its scales%s: by their names, those in '%s' do not belong "
                              "to it any more",
                              pass_more(n).text, wfs_quote(first->scale).text);
}

static int warn_of_odd(const struct pass *pass)
{
    static const struct {
        uint8_t oddity;
        const char *text;
    } notices[] = {
        {LEFT_CODES, "a cast does not apply scales: codes and their scales stay as they are"},
        {LEFT_NARROW, "stays as it is: a cast without a REGEX is for F64, F32, F16 and BF16"},
        {CAST_SCALE, "is cast, and the values of the codes that it is a scale of change with it"},
        {TURNED_CODES, "is codes whose scales, in another tensor, do not get the new order"},
    };
    int code = 0;
    for (size_t i = 0; i < sizeof(notices) / sizeof(*notices) && code == 0; i++) {
        const struct item *first = NULL;
        size_t n = 0;
        for_items(item, pass)
        {
            const bool is_odd = (item->oddities & notices[i].oddity) != 0;
            first = is_odd && first == NULL ? item : first;
            n += is_odd;
        }
        if (n > 0)
            code = pass_warn(pass, first->tensor.key, "%s%s", notices[i].text, pass_more(n).text);
    }
    return code;
}

int pass_split(struct pass *pass)
{
    int code = 0;
    for_rules(rule, pass->view, RULE_SPLIT)
    {
        code = code < 0 || pass->like == NULL ? code : split(pass, rule);
    }
    return code;
}

/* Applies all rules to all items, one rule after another. */
static int change_all(struct pass *pass)
{
    int code = 0;
    for_items(item, pass)
    {
        code = code < 0 ? code : keep(pass, item);
    }
    for (const struct rule *rule = pass->view->rules; code == 0 && rule != NULL;
         rule = rule->next) {
        code = rule->kind == RULE_SPLIT ? split(pass, rule) : 0;
        for_items(item, pass)
        {
            code = code < 0 ? code : run_on(pass, rule, item);
        }
    }
    return code;
}

int pass_surgery(struct pass *pass)
{
    const int code = pass->like == NULL ? change_all(pass) : 0;
    return code < 0 ? code : warn_of_odd(pass);
}
