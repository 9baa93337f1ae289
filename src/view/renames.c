/* SPDX-License-Identifier: MIT */
/*
 * Passes that only change keys: a part of the file as the whole, replacements, enum variants; and
 * tensors that are attributes of others, or their parts. Those have keys of their own, but belong
 * to a tensor: a rule that names the tensor alone takes them with it.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_index.h"
#include "view/pass.h"

const struct item *pass_base(const struct pass *pass, const struct item *item)
{
    return item->base == 0 ? NULL : &pass->report->items[item->base - 1];
}

/* Returns the place of the tensor that the item is an attribute of; 0: none. */
static uint32_t base_place(const struct pass *pass, const struct item *item)
{
    return catalog_tensor_around(pass->catalog, catalog_place(pass->catalog, &item->tensor));
}

int pass_attributes(struct pass *pass)
{
    const struct wfs_catalog *catalog = pass->catalog;
    struct item *items = pass->report->items;
    const size_t n_items = pass->report->n_items;
    for (size_t i = 0; i < n_items && !pass->has_attributes; i++)
        pass->has_attributes = base_place(pass, &items[i]) != 0;
    if (!pass->has_attributes)
        return 0;
    autofree uint32_t *numbers = calloc((size_t)catalog->values.n_places + 1, sizeof(*numbers));
    if (numbers == NULL)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < n_items; i++)
        numbers[catalog_place(catalog, &items[i].tensor)] = (uint32_t)i + 1;
    numbers[0] = 0;
    for (size_t i = 0; i < n_items; i++)
        items[i].base = numbers[base_place(pass, &items[i])];
    return 0;
}

/* Renames an attribute whose tensor was renamed while its own key stayed. */
static void follow(const struct pass *pass, struct item *item)
{
    const struct item *base = pass_base(pass, item);
    if (base == NULL || base->tensor.key == base->last_key || item->tensor.key != item->last_key)
        return;
    const size_t n_before = strlen(base->last_key);
    if (strncmp(item->last_key, base->last_key, n_before) != 0 || item->last_key[n_before] != '.')
        return;
    pass_rename(
        pass, item,
        arena_print(&pass->catalog->arena, "%s%s", base->tensor.key, item->last_key + n_before),
        "follows its tensor");
}

/* A tensor precedes its attributes, which can have attributes. */
int pass_follow(struct pass *pass)
{
    if (!pass->has_attributes)
        return 0;
    for_items(item, pass)
    {
        follow(pass, item);
    }
    for (size_t i = 0; i < pass->report->n_items; i++)
        pass->report->items[i].last_key = pass->report->items[i].tensor.key;
    return 0;
}

/* Returns whether it is the attribute _metadata of an OrderedDict that the key leads into. It
 * belongs to the tensors there. */
static bool is_metadata_around(const struct wfs_catalog *catalog, const struct catalog_value *value,
                               const char *key)
{
    static const char own[] = "_metadata";
    const size_t n_name = strlen(value->name), n_own = sizeof(own) - 1;
    const size_t n_holder = n_name > n_own ? n_name - n_own - 1 : 0;
    return n_name >= n_own && (n_name == n_own || value->name[n_holder] == '.') &&
           strcmp(value->name + n_name - n_own, own) == 0 &&
           (n_holder == 0 || (strncmp(key, value->name, n_holder) == 0 && key[n_holder] == '.')) &&
           catalog_is_attribute(catalog, value->place);
}

/* Removes the prefix from the names of values below the key, and drops the other values. */
static void cut_values(struct wfs_catalog *catalog, const char *key)
{
    const size_t n_key = strlen(key);
    size_t n_kept = 0;
    for (size_t i = 0; i < catalog->values.n; i++) {
        struct catalog_value value = catalog->values.list[i];
        if (strncmp(value.name, key, n_key) == 0 && value.name[n_key] == '.')
            value.name += n_key + 1;
        else if (is_metadata_around(catalog, &value, key))
            value.name += strlen(value.name) - strlen("_metadata");
        else
            continue;
        catalog->values.list[n_kept++] = value;
    }
    catalog->values.n = n_kept;
}

/* Lists the first segments of all keys. */
static int fail_top_level(struct pass *pass, const char *key)
{
    struct text_index seen = {0};
    char known[512] = "";
    size_t n_known = 0;
    for_items(item, pass)
    {
        uint32_t id;
        const uint32_t n_before = seen.n_texts;
        const char *name = item->tensor.key;
        const size_t n = strcspn(name, ".");
        if (text_index_add(&seen, name, n, &id) < 0 || seen.n_texts == n_before)
            continue;
        if (seen.n_texts <= 10 && n_known < sizeof(known))
            n_known += (size_t)snprintf(known + n_known, sizeof(known) - n_known, "%s%s",
                                        n_before > 0 ? ", " : "", wfs_quote_n(name, n).text);
    }
    const uint32_t n_more = seen.n_texts > 10 ? seen.n_texts - 10 : 0;
    char more[40] = "";
    if (n_more > 0)
        snprintf(more, sizeof(more), " and %u more", n_more);
    text_index_done(&seen);
    return wfs_fail(pass->err, EINVAL,
                    "top_level_key: no tensor is below '%s'; top-level keys are %s%s",
                    wfs_quote(key).text, known, more);
}

int pass_top_level_key(struct pass *pass)
{
    for_rules(rule, pass->view, RULE_TOP_LEVEL_KEY)
    {
        const char *key = rule->argument;
        const size_t n_key = strlen(key);
        size_t n_below = 0;
        for_items(item, pass)
        {
            const char *name = item->tensor.key;
            const bool is_below = strncmp(name, key, n_key) == 0 && name[n_key] == '.';
            item->drop = is_below ? DROP_NONE : DROP_TOP_LEVEL_KEY;
            n_below += is_below;
        }
        if (n_below == 0) {
            for (size_t i = 0; i < pass->report->n_items; i++)
                pass->report->items[i].drop = DROP_NONE;
            return fail_top_level(pass, key);
        }
        for_items(item, pass)
        {
            pass_rename(pass, item, item->tensor.key + n_key + 1, "top_level_key");
            item->cut_key = item->tensor.key;
        }
        cut_values(pass->catalog, key);
    }
    return 0;
}

int pass_remap(struct pass *pass)
{
    for_rules(rule, pass->view, RULE_REMAP)
    {
        for_items(item, pass)
        {
            const char *key;
            const int code = regex_replace(rule->regex, item->tensor.key, rule->argument,
                                           &pass->catalog->arena, &key, pass->err);
            if (code < 0)
                return code;
            if (code == 0)
                continue;
            char why[256];
            snprintf(why, sizeof(why), "%s %.200s", rule->name, rule->text);
            pass_use(pass, rule);
            pass_rename(pass, item, key, why);
        }
    }
    return 0;
}

bool pass_is_variant(const char *segment, size_t n)
{
    bool has_lower = false;
    for (size_t i = 0; i < n; i++)
        has_lower = has_lower || (segment[i] >= 'a' && segment[i] <= 'z');
    return n > 1 && segment[0] >= 'A' && segment[0] <= 'Z' && has_lower;
}

/* "BaseConv" matches any inner segment, "feature.BaseConv" only the one at that path. */
static bool is_named(const char *argument, const char *key, size_t start, size_t n)
{
    const char *dot = strrchr(argument, '.');
    if (dot == NULL)
        return strlen(argument) == n && memcmp(argument, key + start, n) == 0;
    return strlen(argument) == start + n && memcmp(argument, key, start + n) == 0;
}

static bool is_variant(const struct pass *pass, const char *key, size_t start, size_t n)
{
    for_rules(rule, pass->view, RULE_DROP_VARIANTS)
    {
        if (strcmp(rule->argument, "auto") == 0 ? pass_is_variant(key + start, n)
                                                : is_named(rule->argument, key, start, n)) {
            pass_use(pass, rule);
            return true;
        }
    }
    return false;
}

const char *pass_drop_variants(const struct pass *pass, const char *key)
{
    const char *last = strrchr(key, '.');
    if (last == NULL || rule_next(pass->view->rules, RULE_DROP_VARIANTS) == NULL)
        return key;
    const size_t n_key = strlen(key), n_inner = (size_t)(last - key);
    char *result = arena_chars(&pass->catalog->arena, n_key + 1);
    size_t n_result = strcspn(key, ".");
    if (result == NULL)
        return NULL;
    memcpy(result, key, n_result);
    for (size_t start = n_result + 1; start < n_inner;) {
        const size_t n = strcspn(key + start, ".");
        if (!is_variant(pass, key, start, n)) {
            memcpy(result + n_result, key + start - 1, n + 1);
            n_result += n + 1;
        }
        start += n + 1;
    }
    memcpy(result + n_result, last, n_key - n_inner + 1);
    return result;
}

int pass_variants(struct pass *pass)
{
    if (pass->like != NULL || rule_next(pass->view->rules, RULE_DROP_VARIANTS) == NULL)
        return 0;
    for_items(item, pass)
    {
        pass_rename(pass, item, pass_drop_variants(pass, item->tensor.key), "drop_variants");
    }
    return 0;
}
