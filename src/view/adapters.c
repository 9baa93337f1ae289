/* SPDX-License-Identifier: MIT */
/*
 * The adapters: tensors are changed as the type of their module demands, which the user or the
 * evidence says.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_index.h"
#include "view/pass.h"

static bool is_adapting(const struct pass *pass)
{
    return pass->to == TO_BURN || pass->to == TO_TORCH;
}

static bool has_class_condition(const struct pass *pass)
{
    for_rules(rule, pass->view, RULE_WHERE)
    {
        if (condition_uses_class(rule->condition))
            return true;
    }
    return false;
}

/* Runs before any rename: the names in the file are the better evidence. */
int pass_evidence(struct pass *pass)
{
    pass->has_classes = is_adapting(pass) || has_class_condition(pass);
    if (!pass->has_classes)
        return 0;
    size_t n = 0;
    autofree struct wfs_tensor *tensors = calloc(pass->report->n_items + 1, sizeof(*tensors));
    autofree struct verdict *verdicts = calloc(pass->report->n_items + 1, sizeof(*verdicts));
    if (tensors == NULL || verdicts == NULL)
        return wfs_fail_memory(pass->err);
    for_items(item, pass)
    {
        tensors[n++] = item->tensor;
    }
    static const enum wfs_convention stated[] = {
        [TO_BURN] = WFS_CONVENTION_BURN,
        [TO_TORCH] = WFS_CONVENTION_TORCH,
        [TO_UNSAID] = WFS_CONVENTION_ANY,
    };
    const struct evidence_question question = {
        .convention = evidence_convention(pass->catalog->format),
        .stated = stated[pass->view->from],
        .to = pass->to == TO_TORCH ? LAYOUT_TORCH : LAYOUT_BURN,
    };
    const int code = evidence_decide(tensors, n, &question, verdicts, &pass->layout, pass->err);
    n = 0;
    for_items(item, pass)
    {
        item->verdict = verdicts[n++];
    }
    return code;
}

/* Returns 1 if the rule matches the key or the path of the module, else 0, or an error. */
static int is_for_module(const struct pass *pass, const struct rule *rule, const struct item *item)
{
    const int code = pass_matches(pass, rule, item);
    const char *dot = strrchr(item->tensor.key, '.');
    if (code != 0 || dot == NULL)
        return code;
    autofree char *path = strndup(item->tensor.key, (size_t)(dot - item->tensor.key));
    if (path == NULL)
        return wfs_fail_memory(pass->err);
    const int is_path = regex_search(rule->regex, path, pass->err);
    if (is_path > 0)
        pass_use(pass, rule);
    return is_path;
}

static enum action action_of(const struct pass *pass, const struct item *item, enum class type)
{
    const enum layout to = pass->to == TO_TORCH ? LAYOUT_TORCH : LAYOUT_BURN;
    switch (type) {
    case TYPE_LINEAR:
        return strcmp(key_leaf(item->tensor.key), "weight") == 0 && pass->layout != to
                   ? ACTION_TRANSPOSE
                   : ACTION_NONE;
    case TYPE_LAYER_NORM:
    case TYPE_BATCH_NORM:
    case TYPE_GROUP_NORM:
    case TYPE_RMS_NORM:
    case TYPE_INSTANCE_NORM:
    case TYPE_PRELU:
        return ACTION_RENAME;
    default:
        return ACTION_NONE;
    }
}

static int take_class(const struct pass *pass, struct item *item)
{
    for_rules(rule, pass->view, RULE_CLASS)
    {
        const int code = is_for_module(pass, rule, item);
        if (code > 0)
            item->verdict = (struct verdict){(uint8_t)action_of(pass, item, rule->class_), TOLD,
                                             (uint8_t)rule->class_, "class="};
        if (code != 0)
            return code < 0 ? code : 0;
    }
    return 0;
}

int pass_classes(struct pass *pass)
{
    if (!has_class_condition(pass))
        return 0;
    for_items(item, pass)
    {
        const int code = take_class(pass, item);
        if (code < 0)
            return code;
    }
    return 0;
}

/* Replaces the evidence by what the user says. */
static int take_told(const struct pass *pass, struct item *item)
{
    for_rules(rule, pass->view, RULE_KEEP)
    {
        const int code = is_for_module(pass, rule, item);
        if (code < 0)
            return code;
        item->is_kept = item->is_kept || code > 0;
    }
    if (item->is_kept) {
        item->verdict = (struct verdict){ACTION_NONE, TOLD, CLASS_KEPT, "keep="};
        return 0;
    }
    return take_class(pass, item);
}

/* Returns the leaf that the other framework uses for it, or NULL. */
static const char *other_leaf(const struct pass *pass, const struct item *item)
{
    static const char *const pairs[][2] = {{"weight", "gamma"}, {"bias", "beta"}};
    const char *leaf = key_leaf(item->tensor.key);
    const int from = pass->to == TO_BURN ? 0 : 1;
    if (item->verdict.class_ == TYPE_PRELU)
        return strcmp(leaf, from == 0 ? "weight" : "alpha") == 0 ? from == 0 ? "alpha" : "weight"
                                                                 : NULL;
    for (size_t i = 0; i < 2; i++) {
        if (strcmp(leaf, pairs[i][from]) == 0)
            return pairs[i][1 - from];
    }
    return NULL;
}

static void rename_leaf(const struct pass *pass, struct item *item, const char *why)
{
    const char *leaf = other_leaf(pass, item);
    if (leaf == NULL)
        return;
    item->done = ACTION_RENAME;
    pass_rename(pass, item,
                arena_print(&pass->catalog->arena, "%.*s%s", (int)item_path_bytes(item),
                            item->tensor.key, leaf),
                why);
}

static void turn(const struct pass *pass, struct item *item, const char *why)
{
    if (item->tensor.shape.rank != 2)
        return;
    if (item_is_rigid(item)) {
        report_add(pass->report, REPORT_ERRORS, item->tensor.key,
                   "quantized data cannot be transposed: left as stored");
        return;
    }
    item->done = ACTION_TRANSPOSE;
    pass_swap_last(pass, item);
    pass_note(pass, item, "%s", why);
}

static void adapt(const struct pass *pass, struct item *item)
{
    char why[256];
    const struct verdict *verdict = &item->verdict;
    snprintf(why, sizeof(why), "%s for %s (%s, %s: %s)",
             verdict->action == ACTION_RENAME ? "renamed" : "transposed",
             pass->to == TO_BURN ? "burn" : "torch", class_name(verdict->class_),
             certainty_name(verdict->certainty), verdict->row);
    if (verdict->action == ACTION_TRANSPOSE)
        turn(pass, item, why);
    else if (verdict->action == ACTION_RENAME)
        rename_leaf(pass, item, why);
}

/* Reports the first guess under `strict`. */
static int refuse_guesses(const struct pass *pass)
{
    size_t n_guesses = 0;
    const struct item *first = NULL;
    for_items(item, pass)
    {
        const bool is_guess = item->verdict.certainty >= LIKELY;
        first = first == NULL && is_guess ? item : first;
        n_guesses += is_guess;
    }
    if (first == NULL)
        return 0;
    const char *key = first->tensor.key;
    const struct wfs_quoted path = wfs_quote_n(key, item_path_bytes(first));
    return wfs_fail(
        pass->err, EINVAL,
        "strict: the module type of '%s' is %s (%s); set it with class='^%s:TYPE'; tensors "
        "without a certain type: %zu",
        wfs_quote(key).text, first->verdict.certainty == LIKELY ? "a guess" : "unknown",
        first->verdict.row, path.text, n_guesses);
}

static void make_notice(struct pass *pass)
{
    struct wfs_report *report = pass->report;
    size_t n_guessed = 0, n_undecided = 0;
    for_items(item, pass)
    {
        n_guessed += item_is_guessed(item);
        n_undecided += item_is_undecided(item);
    }
    if (n_guessed + n_undecided == 0)
        return;
    report->notice = arena_print(&report->arena, "%s adapted by guess, %zu left undecided",
                                 wfs_count(n_guessed, "tensor").text, n_undecided);
    report->has_failed = report->has_failed || report->notice == NULL;
}

/* Modules of Burn whose parts PyTorch has in one tensor: the keys by which one is known. */
static const struct {
    const char *name, *fuse, *keys[4]; /* fuse: the option for one of its tensors */
} joined[] = {
    {"Lstm",
     "weight_hh_l0:input_gate.hidden_transform.weight,forget_gate.hidden_transform.weight,"
     "cell_gate.hidden_transform.weight,output_gate.hidden_transform.weight",
     {"cell_gate.hidden_transform.weight"}},
    {"Gru",
     "weight_hh_l0:reset_gate.hidden_transform.weight,update_gate.hidden_transform.weight,"
     "new_gate.hidden_transform.weight",
     {"reset_gate.hidden_transform.weight"}},
    {"MultiHeadAttention",
     "in_proj_weight:query.weight,key.weight,value.weight",
     {"query.weight", "key.weight", "value.weight", "output.weight"}},
};

enum { N_JOINED = sizeof(joined) / sizeof(*joined), N_KEYS = 4 };

/* Returns the bytes of the path of the module that the key is one of, with its dot; SIZE_MAX: none.
 */
static size_t path_before(const char *key, const char *end)
{
    const size_t n_key = strlen(key), n_end = strlen(end);
    const size_t n_path = n_key < n_end ? 0 : n_key - n_end;
    return strcmp(key + n_path, end) == 0 && (n_path == 0 || key[n_path - 1] == '.') ? n_path
                                                                                     : SIZE_MAX;
}

/* Returns 1 or 0: whether a module of that kind is at the start of the key. -ENOMEM. */
static int has_module(const struct text_index *keys, const char *key, size_t n_path, size_t kind)
{
    for (size_t i = 1; i < N_KEYS && joined[kind].keys[i] != NULL; i++) {
        autofree char *other = NULL;
        const int n = asprintf(&other, "%.*s%s", (int)n_path, key, joined[kind].keys[i]);
        if (n < 0 || text_index_find(keys, other, (size_t)n) == TEXT_INDEX_NONE)
            return n < 0 ? -ENOMEM : 0;
    }
    return 1;
}

/* Notes modules of a kind that are left in parts. */
static int notice_parts(const struct pass *pass, const struct text_index *keys, size_t kind)
{
    const struct item *first = NULL;
    size_t n = 0;
    for_items(item, pass)
    {
        const char *key = item->tensor.key;
        const size_t n_path = path_before(key, joined[kind].keys[0]);
        const int code = n_path == SIZE_MAX ? 0 : has_module(keys, key, n_path, kind);
        if (code < 0)
            return wfs_fail_memory(pass->err);
        first = first == NULL && code > 0 ? item : first;
        n += (size_t)code;
    }
    if (n == 0)
        return 0;
    char text[WFS_ERROR_TEXT_MAX];
    snprintf(text, sizeof(text),
             "is part of the module %s of Burn, which stays in parts%s: PyTorch has them in one "
             "tensor; fuse=%s makes it",
             joined[kind].name, pass_more(n).text, joined[kind].fuse);
    report_add_line(pass->report, REPORT_NOTICES,
                    &(struct report_line){{first->tensor.key, text}, true});
    return 0;
}

int pass_parts_of_burn(struct pass *pass)
{
    cleanup(text_index_done) struct text_index keys = {0};
    uint32_t number;
    int code = 0;
    if (!is_adapting(pass) || pass->to != TO_TORCH || pass->layout == LAYOUT_TORCH)
        return 0;
    for_items(item, pass)
    {
        if (text_index_add(&keys, item->tensor.key, strlen(item->tensor.key), &number) < 0)
            return wfs_fail_memory(pass->err);
    }
    for (size_t kind = 0; kind < N_JOINED && code == 0; kind++)
        code = notice_parts(pass, &keys, kind);
    return code;
}

int pass_adapters(struct pass *pass)
{
    if (!is_adapting(pass))
        return 0;
    pass->report->has_adapted = true;
    for_items(item, pass)
    {
        const int code = take_told(pass, item);
        if (code < 0)
            return code;
    }
    const int code = pass->view->is_strict ? refuse_guesses(pass) : 0;
    if (code < 0 || pass->like != NULL)
        return code;
    for_items(item, pass)
    {
        adapt(pass, item);
    }
    make_notice(pass);
    return 0;
}
