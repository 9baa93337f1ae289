/* SPDX-License-Identifier: MIT */
/*
 * The filters: a tensor is shown if any of include, key and where matches, or if there are none of
 * these, and no exclude does.
 */
#include <errno.h>
#include <string.h>

#include "view/pass.h"

static bool has_positive(const struct wfs_view *view)
{
    return rule_next(view->rules, RULE_INCLUDE) != NULL ||
           rule_next(view->rules, RULE_KEY) != NULL || rule_next(view->rules, RULE_WHERE) != NULL;
}

static bool has_filters(const struct wfs_view *view)
{
    return has_positive(view) || rule_next(view->rules, RULE_EXCLUDE) != NULL;
}

static int is_included(const struct pass *pass, const struct item *item, const char *key)
{
    int code = 0;
    if (!has_positive(pass->view))
        return 1;
    for_rules(rule, pass->view, RULE_KEY)
    {
        if (strcmp(rule->argument, key) == 0)
            return 1;
    }
    for_rules(rule, pass->view, RULE_INCLUDE)
    {
        code = code != 0 ? code : regex_search(rule->regex, key, pass->err);
    }
    struct wfs_tensor tensor = item->tensor;
    tensor.key = key;
    for_rules(rule, pass->view, RULE_WHERE)
    {
        code = code != 0 ? code
                         : condition_test(rule->condition, &tensor,
                                          class_name(item->verdict.class_), pass->err);
    }
    return code;
}

int pass_filter_one(const struct pass *pass, const struct item *item, const char *key)
{
    const int included = is_included(pass, item, key);
    if (included <= 0)
        return included;
    for_rules(rule, pass->view, RULE_EXCLUDE)
    {
        const int code = regex_search(rule->regex, key, pass->err);
        if (code != 0)
            return code < 0 ? code : 0;
    }
    return 1;
}

/* Names the filter where there is only one. */
static int fail_empty(const struct pass *pass, size_t n_seen)
{
    const struct rule *only = NULL;
    size_t n_filters = 0;
    for (const struct rule *rule = pass->view->rules; rule != NULL; rule = rule->next) {
        const bool is_filter = rule->kind == RULE_INCLUDE || rule->kind == RULE_KEY ||
                               rule->kind == RULE_WHERE || rule->kind == RULE_EXCLUDE;
        only = is_filter ? rule : only;
        n_filters += is_filter;
    }
    if (n_filters > 1)
        return wfs_fail(pass->err, EINVAL, "the filters exclude all of %zu tensors", n_seen);
    return wfs_fail(pass->err, EINVAL,
                    only->kind == RULE_EXCLUDE ? "%s='%s' excludes all of %zu tensors"
                                               : "%s='%s' matches none of %zu tensors",
                    only->name, wfs_quote(only->text).text, n_seen);
}

int pass_filter(struct pass *pass)
{
    if (pass->like != NULL || !has_filters(pass->view))
        return 0;
    size_t n_shown = 0, n_seen = 0;
    for_items(item, pass)
    {
        const int code = pass_filter_one(pass, item, item->tensor.key);
        if (code < 0)
            return code;
        n_seen++;
        n_shown += code > 0;
        item->drop = code > 0 ? DROP_NONE : DROP_FILTER;
        if (code == 0 &&
            report_add(pass->report, &pass->report->skipped, item->tensor.key, NULL) < 0)
            return wfs_fail_memory(pass->err);
    }
    report_sort(&pass->report->skipped);
    if (n_shown == 0 && n_seen > 0)
        return fail_empty(pass, n_seen);
    return 0;
}
