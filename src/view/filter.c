/* SPDX-License-Identifier: MIT */
/*
 * The filters: a tensor is shown if any of include, key and where matches, or if there are none of
 * these, and no exclude does.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_index.h"
#include "view/pass.h"

static bool is_positive(const struct rule *rule)
{
    return rule->kind == RULE_INCLUDE || rule->kind == RULE_KEY || rule->kind == RULE_WHERE;
}

static bool has_positive(const struct wfs_view *view)
{
    return rule_next(view->rules, RULE_INCLUDE) != NULL ||
           rule_next(view->rules, RULE_KEY) != NULL || rule_next(view->rules, RULE_WHERE) != NULL;
}

static int match(const struct pass *pass, const struct rule *rule, const struct wfs_tensor *tensor,
                 const struct item *item)
{
    if (rule->kind == RULE_KEY)
        return strcmp(rule->argument, tensor->key) == 0;
    if (rule->kind == RULE_WHERE)
        return condition_test(rule->condition, tensor, class_name(item->verdict.class_), pass->err);
    return regex_search(rule->regex, tensor->key, pass->err);
}

/* Returns whether any of the filters that hide tensors, or of those that show them, matches. When
 * that is known, only those that are not known to match anything are tried. */
static int is_any(const struct pass *pass, const struct item *item, const char *key, bool hides,
                  bool is_known)
{
    int result = 0;
    struct wfs_tensor tensor = item->tensor;
    tensor.key = key;
    for (const struct rule *rule = pass->view->rules; rule != NULL; rule = rule->next) {
        if ((hides ? rule->kind != RULE_EXCLUDE : !is_positive(rule)) ||
            ((is_known || result > 0) && pass->is_used[rule->number]))
            continue;
        const int code = match(pass, rule, &tensor, item);
        if (code < 0)
            return code;
        if (code > 0) {
            pass_use(pass, rule);
            result = 1;
        }
    }
    return result;
}

int pass_filter_one(const struct pass *pass, const struct item *item, const char *key)
{
    const int is_shown = has_positive(pass->view) ? is_any(pass, item, key, false, false) : 1;
    const int is_hidden = is_shown < 0 ? is_shown : is_any(pass, item, key, true, is_shown == 0);
    return is_hidden < 0 ? is_hidden : is_shown && !is_hidden;
}

int pass_filter_value(const struct pass *pass, const char *name)
{
    bool is_shown = !has_positive(pass->view), is_hidden = false;
    for (const struct rule *rule = pass->view->rules; rule != NULL; rule = rule->next) {
        if (rule->kind != RULE_INCLUDE && rule->kind != RULE_KEY && rule->kind != RULE_EXCLUDE)
            continue;
        const int code = match(pass, rule, &(struct wfs_tensor){.key = name}, NULL);
        if (code < 0)
            return code;
        is_shown = is_shown || (code > 0 && rule->kind != RULE_EXCLUDE);
        is_hidden = is_hidden || (code > 0 && rule->kind == RULE_EXCLUDE);
    }
    return is_shown && !is_hidden;
}

/* The same as pass_filter_one for an item: an attribute that no filter matches is shown if its
 * tensor is. */
static int filter(const struct pass *pass, const struct item *item)
{
    const struct item *base = pass_base(pass, item);
    const bool is_positive = has_positive(pass->view);
    int code = pass_filter_one(pass, item, item->tensor.key);
    if (base == NULL || code != !is_positive)
        return code;
    code = is_positive ? is_any(pass, item, item->tensor.key, true, false) : 0;
    return code < 0 ? code : code == 0 && item_is_shown(base);
}

/* Names the filter where there is only one. */
static int fail_empty(const struct pass *pass, size_t n_seen)
{
    const struct rule *only = NULL;
    size_t n_filters = 0;
    for (const struct rule *rule = pass->view->rules; rule != NULL; rule = rule->next) {
        const bool is_filter = is_positive(rule) || rule->kind == RULE_EXCLUDE;
        only = is_filter ? rule : only;
        n_filters += is_filter;
    }
    if (n_filters > 1)
        return wfs_fail(pass->err, EINVAL, "the filters exclude all of %s",
                        wfs_count(n_seen, "tensor").text);
    return wfs_fail(pass->err, EINVAL,
                    only->kind == RULE_EXCLUDE ? "%s='%s' excludes all of %s"
                                               : "%s='%s' matches none of %s",
                    only->name, wfs_quote(only->text).text, wfs_count(n_seen, "tensor").text);
}

static int index_key(struct text_index *keys, const char *key)
{
    uint32_t id;
    return text_index_add(keys, key, strlen(key), &id);
}

/* Returns the hidden tensor that has had this key from the start. */
static const struct item *find_original(const struct pass *pass, const char *key)
{
    for (size_t i = 0; i < pass->report->n_items; i++) {
        const struct item *item = &pass->report->items[i];
        if (item->drop == DROP_FILTER && item->tensor.key == item->cut_key &&
            strcmp(item->tensor.key, key) == 0)
            return item;
    }
    return NULL;
}

/*
 * Refuses filters that were meant for a tensor and hide the one that is to take its place too,
 * because they see the key that it has got.
 */
static int refuse_lost(const struct pass *pass, const struct text_index *shown)
{
    autofree bool *is_used = calloc(pass->view->n_rules + 1, sizeof(*is_used));
    cleanup(text_index_done) struct text_index originals = {0};
    struct pass trial = *pass;
    trial.is_used = is_used;
    if (is_used == NULL)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < pass->report->n_items; i++) {
        const struct item *item = &pass->report->items[i];
        if (item->drop == DROP_FILTER && item->tensor.key == item->cut_key &&
            index_key(&originals, item->tensor.key) < 0)
            return wfs_fail_memory(pass->err);
    }
    for (size_t i = 0; i < pass->report->n_items; i++) {
        const struct item *item = &pass->report->items[i];
        const char *key = item->tensor.key;
        if (item->drop != DROP_FILTER || key == item->cut_key ||
            text_index_find(&originals, key, strlen(key)) == TEXT_INDEX_NONE ||
            text_index_find(shown, key, strlen(key)) != TEXT_INDEX_NONE)
            continue;
        const int code = pass_filter_one(&trial, item, item->cut_key);
        if (code < 0)
            return code;
        if (code > 0)
            return wfs_fail(
                pass->err, EINVAL,
                "the filters hide both '%s' and '%s', which becomes '%s': they see the keys that "
                "remap made; rename the first one too, and hide its new key",
                wfs_quote(wfs_tensor_origin(&find_original(pass, key)->tensor)).text,
                wfs_quote(wfs_tensor_origin(&item->tensor)).text, wfs_quote(key).text);
    }
    return 0;
}

int pass_filter(struct pass *pass)
{
    const bool has_filters =
        has_positive(pass->view) || rule_next(pass->view->rules, RULE_EXCLUDE) != NULL;
    if (pass->like != NULL || !has_filters)
        return 0;
    size_t n_shown = 0, n_seen = 0;
    cleanup(text_index_done) struct text_index shown = {0};
    for_items(item, pass)
    {
        const int code = filter(pass, item);
        if (code < 0)
            return code;
        n_seen++;
        n_shown += code > 0;
        item->drop = code > 0 ? DROP_NONE : DROP_FILTER;
        if (code > 0 && index_key(&shown, item->tensor.key) < 0)
            return wfs_fail_memory(pass->err);
        if (code == 0)
            report_add(pass->report, REPORT_SKIPPED, item->tensor.key, NULL);
    }
    report_sort(pass->report, REPORT_SKIPPED);
    const int code = refuse_lost(pass, &shown);
    if (code < 0)
        return code;
    if (n_shown == 0 && n_seen > 0)
        return fail_empty(pass, n_seen);
    return 0;
}
