/* SPDX-License-Identifier: MIT */
/*
 * A view applied: the tensors are taken out of the catalog as items, each pass goes over them, and
 * those that are left are put back.
 */
#include "view/pass.h"

#include <weightfs/cleanup.h>

#include <stdlib.h>
#include <string.h>

static int take_out(struct pass *pass)
{
    const size_t n = pass->catalog->n_tensors;
    struct wfs_report *report = pass->report;
    report->items = calloc(n + 1, sizeof(*report->items));
    if (report->items == NULL)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < n; i++) {
        report->items[i].tensor = pass->catalog->tensors[i];
        report->items[i].cut_key = pass->catalog->tensors[i].key;
        report->items[i].last_key = pass->catalog->tensors[i].key;
    }
    report->n_items = n;
    return 0;
}

/* The order of the items, unless `like` has set another one. */
static int make_order(struct pass *pass)
{
    struct wfs_report *report = pass->report;
    if (report->order != NULL)
        return 0;
    report->order = calloc(report->n_items + 1, sizeof(*report->order));
    if (report->order == NULL)
        return wfs_fail_memory(pass->err);
    for_items(item, pass)
    {
        report->order[report->n_order++] = (uint32_t)(item - report->items);
    }
    return 0;
}

static int put_back(struct pass *pass)
{
    struct wfs_report *report = pass->report;
    struct wfs_catalog *catalog = pass->catalog;
    if (catalog_reserve(catalog, report->n_order) < 0)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < report->n_order; i++)
        catalog->tensors[i] = report->items[report->order[i]].tensor;
    catalog->n_tensors = report->n_order;
    return 0;
}

/* Finds what to adapt to: as `to` says, else the layout of the file of `like`. -ENOMEM. */
static int find_direction(struct pass *pass)
{
    const struct wfs_catalog *like = pass->like;
    pass->to = pass->view->to;
    if (pass->to != TO_UNSAID || like == NULL)
        return 0;
    struct evidence_question question = {.convention = evidence_convention(like->format),
                                         .to = LAYOUT_BURN};
    enum layout layout = LAYOUT_TORCH;
    for (size_t i = 0; i < like->n_tensors; i++) {
        /* What is not known is assumed to be the other one. */
        if (strcmp(key_leaf(like->tensors[i].key), "gamma") == 0)
            question.to = LAYOUT_TORCH;
    }
    const int code =
        evidence_decide(like->tensors, like->n_tensors, &question, NULL, &layout, pass->err);
    pass->to = layout == LAYOUT_BURN ? TO_BURN : TO_TORCH;
    return code;
}

static bool has_backslash(const struct wfs_view *view)
{
    for (const struct rule *rule = view->rules; rule != NULL; rule = rule->next) {
        if (rule->has_backslash)
            return true;
    }
    return false;
}

/* The effect that a rule of that kind did not have; NULL: it is an error then, or no matter. */
static const char *lack_of(const struct pass *pass, const struct rule *rule)
{
    switch (rule->kind) {
    case RULE_OVERLAY:
    case RULE_DEQUANTIZE:
    case RULE_AVERAGE:
    case RULE_ADD:
    case RULE_MINUS:
    case RULE_TASK:
    case RULE_SLERP:
    case RULE_LORA:
    case RULE_TOP_LEVEL_KEY:
        return NULL;
    case RULE_WEIGHT:
    case RULE_LORA_REMAP:
        return "changes nothing";
    case RULE_CONTIGUOUS_EXCEPT:
        return "exempts no list";
    case RULE_CLASS:
        return pass->has_classes ? "decides no type" : NULL;
    case RULE_DROP_VARIANTS:
        return strcmp(rule->argument, "auto") == 0 ? NULL : "removes nothing";
    case RULE_WHERE:
        return "matches no tensor";
    default:
        return "matches no key";
    }
}

static int pass_unused_rules(struct pass *pass)
{
    const bool has_remap = rule_next(pass->view->rules, RULE_REMAP) != NULL;
    int code = 0;
    for (const struct rule *rule = pass->view->rules; code == 0 && rule != NULL;
         rule = rule->next) {
        const char *lack = lack_of(pass, rule);
        if (pass->is_used[rule->number] || lack == NULL)
            continue;
        const char *hint =
            has_remap && rule->kind != RULE_REMAP ? "; it sees the keys that remap made" : "";
        code = pass_warn(pass, rule->text, "this %s %s%s", rule->name, lack, hint);
    }
    return code;
}

static int pass_idle_options(struct pass *pass)
{
    const char *name;
    struct view_words needs;
    int code = 0;
    for (size_t i = 0; code == 0 && (name = view_idle_option(pass->view, &i, &needs)) != NULL;)
        code = pass_warn(pass, name, "changes nothing without %s", needs.text);
    return code;
}

static int run(struct pass *pass)
{
    static int (*const passes[])(struct pass *) = {
        take_out,          pass_attributes,   pass_top_level_key, pass_follow,     pass_evidence,
        pass_remap,        pass_follow,       pass_contiguous,    pass_follow,     pass_classes,
        pass_filter,       pass_variants,     pass_follow,        pass_companions, pass_split,
        pass_adapters,     pass_fuse,         pass_parts_of_burn, pass_follow,     pass_like,
        pass_follow,       pass_surgery,      make_order,         pass_collisions, pass_value_names,
        pass_unused_rules, pass_idle_options, put_back,           pass_parted,     pass_fillers,
    };
    for (size_t i = 0; i < sizeof(passes) / sizeof(*passes); i++) {
        const int code = passes[i](pass);
        if (code < 0 || pass->report->has_failed)
            return code < 0 ? code : wfs_fail_memory(pass->err);
    }
    return 0;
}

/* Loads the checkpoints that rules need: overlays are laid at once, in order. */
static int load_others(struct pass *pass, const struct wfs_view_loader *loader)
{
    const struct wfs_view *view = pass->view;
    int code = ranks_join(pass, loader);
    for_rules(rule, view, RULE_OVERLAY)
    {
        struct wfs_catalog *over = NULL;
        code = code < 0 ? code : loader->load(loader->ctx, rule->argument, &over, pass->err);
        if (code == 0)
            code = overlay_lay(rule, pass->catalog, over, pass->report, pass->err);
        if (code < 0)
            return code;
    }
    code = code < 0 ? code : dequantize_apply(pass);
    code = code < 0 ? code : arithmetic_apply(pass, loader);
    if (code < 0)
        return code;
    return view->like == NULL ? 0 : loader->load(loader->ctx, view->like, &pass->like, pass->err);
}

int wfs_view_apply(const struct wfs_view *view, struct wfs_catalog *catalog,
                   const struct wfs_view_loader *loader, struct wfs_report **out,
                   struct wfs_error *err)
{
    auto_report struct wfs_report *report = calloc(1, sizeof(*report));
    autofree bool *is_used = calloc(view->n_rules + 1, sizeof(*is_used));
    struct pass pass = {
        .view = view, .catalog = catalog, .report = report, .is_used = is_used, .err = err};
    *out = NULL;
    if (report == NULL || is_used == NULL)
        return wfs_fail_memory(err);
    int code = load_others(&pass, loader);
    if (code < 0)
        return code;
    report->has_like = pass.like != NULL;
    if (has_backslash(view))
        report_add(report, REPORT_NOTICES, "remap", "\\1 in a replacement is read as ${1}");
    code = find_direction(&pass);
    code = code < 0 ? code : run(&pass);
    wfs_catalog_free(pass.like);
    *out = steal(&report);
    return code;
}

const char *wfs_view_other(const struct wfs_view *view, size_t i)
{
    if (view->like != NULL && i-- == 0)
        return view->like;
    for (const struct rule *rule = view->rules; rule != NULL; rule = rule->next) {
        if (rule_has_file(rule->kind) && i-- == 0)
            return rule->argument;
        if (rule->config != NULL && i-- == 0)
            return rule->config;
    }
    return NULL;
}
