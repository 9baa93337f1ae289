/* SPDX-License-Identifier: MIT */
/*
 * The options of a view: one table, and what each does with its value.
 *
 * A rules file is an array of objects with options as members: {"remap": "A=>B"}. A pair may be an
 * array of two texts, {"remap": ["A", "B"]}, and an option without a value is true.
 */
#include <weightfs/cleanup.h>
#include <weightfs/view.h>

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "view/rule.h"

/* ---- rules files ---- */

/* The file that is being read. */
struct reading {
    struct wfs_quoted path;
    struct wfs_view *view;
    struct wfs_error *err;
};

static void free_json(json_t **json)
{
    json_decref(*json);
}

static bool is_pair(const json_t *value)
{
    return json_is_array(value) && json_array_size(value) == 2 &&
           json_is_string(json_array_get(value, 0)) && json_is_string(json_array_get(value, 1));
}

/* Returns the option as a command line would have it, malloc'ed; NULL when out of memory. */
static char *option_text(const char *name, const json_t *value)
{
    char *text = NULL;
    if (json_is_true(value))
        return strdup(name);
    autofree char *pair = json_is_string(value)
                              ? NULL
                              : wfs_view_pair(json_string_value(json_array_get(value, 0)),
                                              json_string_value(json_array_get(value, 1)));
    const char *plain = json_is_string(value) ? json_string_value(value) : pair;
    return plain == NULL || asprintf(&text, "%s=%s", name, plain) < 0 ? NULL : text;
}

static int add_member(const struct reading *r, size_t i, const char *name, const json_t *value)
{
    if (!json_is_true(value) && !json_is_string(value) && !is_pair(value))
        return wfs_fail(r->err, EINVAL,
                        "rules file '%s': rule %zu: the value of '%s' is not a string, a pair of "
                        "strings or true",
                        r->path.text, i + 1, wfs_quote(name).text);
    struct wfs_error inner = {0};
    autofree char *text = option_text(name, value);
    if (text == NULL)
        return wfs_fail_memory(r->err);
    const int code = wfs_view_add(r->view, text, &inner);
    if (code == 0)
        return wfs_fail(r->err, EINVAL, "rules file '%s': rule %zu: unknown option '%s'",
                        r->path.text, i + 1, wfs_quote(name).text);
    if (inner.code == ENOMEM)
        return wfs_fail_memory(r->err);
    return code > 0 ? 0
                    : wfs_fail(r->err, inner.code, "rules file '%s': rule %zu: %s", r->path.text,
                               i + 1, inner.text);
}

static int add_members(const struct reading *r, size_t i, json_t *object)
{
    const char *name;
    json_t *value;
    int code = 0;
    if (!json_is_object(object))
        return wfs_fail(r->err, EINVAL, "rules file '%s': rule %zu is not an object", r->path.text,
                        i + 1);
    json_object_foreach(object, name, value)
    {
        code = code < 0 ? code : add_member(r, i, name, value);
    }
    return code;
}

/* The parser quotes what it found in the file. */
static int fail_syntax(const struct reading *r, const json_error_t *where)
{
    char text[sizeof(where->text) * WFS_ESCAPE_MAX] = "", *end = text;
    const size_t n_bytes = strlen(where->text);
    for (size_t i = 0; i < n_bytes; end += strlen(end))
        i += wfs_escape(WFS_ESCAPE_TEXT, where->text + i, n_bytes - i, end);
    return wfs_fail(r->err, EINVAL, "rules file '%s', line %d: %s", r->path.text, where->line,
                    text);
}

/* Adds each option of the file. -EINVAL names the file, and the rule that is wrong. */
static int read_rules(struct wfs_view *view, const char *path, struct wfs_error *err)
{
    enum { MAX_FILES = 8 };
    const struct reading r = {wfs_quote(path), view, err};
    autofree char *text = NULL;
    size_t n = 0, i;
    if (view->n_files == MAX_FILES)
        return wfs_fail(err, EINVAL, "rules files include each other: '%s'", r.path.text);
    int code = text_file_read("rules file", path, &text, &n, err);
    if (code < 0)
        return code;
    json_error_t where;
    errno = 0;
    cleanup(free_json) json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (json == NULL && errno == ENOMEM)
        return wfs_fail_memory(err);
    if (json == NULL)
        return fail_syntax(&r, &where);
    if (!json_is_array(json))
        return wfs_fail(err, EINVAL, "rules file '%s': not an array of objects", r.path.text);
    json_t *object;
    view->n_files++;
    json_array_foreach(json, i, object)
    {
        code = code < 0 ? code : add_members(&r, i, object);
    }
    view->n_files--;
    return code;
}

/* ---- options ---- */

enum option_kind { IS_RULE, IS_WORD, IS_FLAG, IS_PATH, IS_NUMBER, IS_RULES_FILE };

struct option {
    struct wfs_view_option public;
    enum option_kind kind;
    enum rule_kind rule;
    size_t at;            /* where the value goes in struct wfs_view */
    const char *words[4]; /* the values that an enum there is named by, ended by NULL */
    const char *needs[8]; /* changes nothing without one of these, ended by NULL */
};

/* Returns "a, b or c". */
static struct view_words list_words(const char *const *words)
{
    struct view_words list = {""};
    for (size_t i = 0; words[i] != NULL; i++) {
        const char *between = i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ";
        strncat(list.text, between, sizeof(list.text) - strlen(list.text) - 1);
        strncat(list.text, words[i], sizeof(list.text) - strlen(list.text) - 1);
    }
    return list;
}

/* Writes which of the words it is. */
static int choose(const char *value, const char *const *words, unsigned *ret, struct wfs_error *err)
{
    for (unsigned i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], value) == 0) {
            *ret = i;
            return 0;
        }
    }
    return wfs_fail(err, EINVAL, "must be %s, not '%s'", list_words(words).text,
                    wfs_quote(value).text);
}

static int set_path(char **path, const char *value, struct wfs_error *err)
{
    char *copy = strdup(value);
    if (copy == NULL)
        return wfs_fail_memory(err);
    free(*path);
    *path = copy;
    return 0;
}

static int add_rule(struct wfs_view *view, const struct option *option, const char *value,
                    struct wfs_error *err)
{
    struct rule *rule = NULL;
    const int code = rule_new(&option->public, option->rule, value, &rule, err);
    if (code < 0)
        return code;
    rule->number = view->n_rules++;
    *view->end = rule;
    view->end = &rule->next;
    return 0;
}

static int set(struct wfs_view *view, const struct option *option, const char *value,
               struct wfs_error *err)
{
    void *field = (char *)view + option->at;
    if (option->kind == IS_RULE)
        return add_rule(view, option, value, err);
    if (option->kind == IS_WORD)
        return choose(value, option->words, field, err);
    if (option->kind == IS_PATH)
        return set_path(field, value, err);
    if (option->kind == IS_NUMBER)
        return rule_number(value, field)
                   ? 0
                   : wfs_fail(err, EINVAL, "'%s' is not a number", wfs_quote(value).text);
    *(bool *)field = true;
    return 0;
}

static const struct option options[] = {
    {{"join", "[REGEX:]DIM", "read the ranks of model parallelism as one"}, .rule = RULE_JOIN},
    {{"overlay", "[REGEX:]FILE", "add or replace tensors with those of FILE"},
     .rule = RULE_OVERLAY},
    {{"dequantize", "[REGEX]", "show codes with scales beside them as BF16"},
     .rule = RULE_DEQUANTIZE},
    {{"gptq_v2", NULL, "zero points of GPTQ are stored as they are"},
     IS_FLAG,
     .at = offsetof(struct wfs_view, has_gptq_v2),
     .needs = {"dequantize", "cast"}},
    {{"average", "FILE[:WEIGHT]", "the weighted mean with the tensors of FILE"},
     .rule = RULE_AVERAGE},
    {{"weight", "N", "weight of the source itself in a sum (1)"}, .rule = RULE_WEIGHT},
    {{"add", "FILE[:WEIGHT]", "add the tensors of FILE, times WEIGHT"}, .rule = RULE_ADD},
    {{"minus", "FILE[:WEIGHT]", "subtract the tensors of FILE"}, .rule = RULE_MINUS},
    {{"task", "FILE[:WEIGHT]", "add WEIGHT times the difference to FILE"}, .rule = RULE_TASK},
    {{"slerp", "FILE:T", "go the part T of the way to FILE, on an arc"}, .rule = RULE_SLERP},
    {{"lora", "PATH[:WEIGHT]", "add the adapter in a directory or file"}, .rule = RULE_LORA},
    {{"lora_remap", "s/REGEX/TEXT/", "rename the modules of adapters"}, .rule = RULE_LORA_REMAP},
    {{"lora_part", "NAME", "of an adapter for several components, this one"},
     IS_PATH,
     .at = offsetof(struct wfs_view, lora_part),
     .needs = {"lora"}},
    {{"lora_alpha", "N", "alpha of adapters whose files lack it"},
     IS_NUMBER,
     .at = offsetof(struct wfs_view, lora_alpha),
     .needs = {"lora"}},
    {{"top_level_key", "KEY", "show only what is below KEY, without its name"},
     .rule = RULE_TOP_LEVEL_KEY},
    {{"rename", "OLD NEW", "rename a tensor, or a module and all below it"}, .rule = RULE_RENAME},
    {{"remap", "s/REGEX/TEXT/", "rename keys; TEXT may use $1, ${name} and $$"},
     .rule = RULE_REMAP},
    {{"contiguous", "auto|on|off", "renumber lists in keys to close gaps"},
     IS_WORD,
     .at = offsetof(struct wfs_view, contiguous),
     .words = {"auto", "on", "off"}},
    {{"contiguous_except", "REGEX", "do not renumber the lists that match"},
     .rule = RULE_CONTIGUOUS_EXCEPT},
    {{"include", "REGEX", "show only tensors whose key matches"}, .rule = RULE_INCLUDE},
    {{"key", "NAME", "show only the tensor with this key"}, .rule = RULE_KEY},
    {{"exclude", "REGEX", "hide tensors whose key matches"}, .rule = RULE_EXCLUDE},
    {{"where", "CONDITION", "show only these, e.g. 'rank==2 && dtype==F32'"}, .rule = RULE_WHERE},
    {{"drop_variants", "auto|SEGMENT", "remove the names of enum variants from keys"},
     .rule = RULE_DROP_VARIANTS},
    {{"to", "burn|torch", "convert to the conventions of Burn or PyTorch"},
     IS_WORD,
     .at = offsetof(struct wfs_view, to),
     .words = {"burn", "torch", "none"}},
    {{"from", "burn|torch", "state whose conventions the source has, for --to"},
     IS_WORD,
     .at = offsetof(struct wfs_view, from),
     .words = {"burn", "torch"},
     .needs = {"to", "like"}},
    {{"class", "REGEX:TYPE", "set the type of modules, e.g. Linear"}, .rule = RULE_CLASS},
    {{"like", "FILE", "use names, order and shapes of FILE"},
     IS_PATH,
     .at = offsetof(struct wfs_view, like)},
    {{"transpose", "REGEX", "swap the last two dimensions"}, .rule = RULE_TRANSPOSE},
    {{"permute", "REGEX:1,0,2", "reorder the dimensions"}, .rule = RULE_PERMUTE},
    {{"split", "REGEX:A,B,C", "split the first dimension; A=4,B=1 in sizes"}, .rule = RULE_SPLIT},
    {{"fuse", "WHOLE:A,B,C", "join tensors whose keys have A, B, C, as rows"}, .rule = RULE_FUSE},
    {{"slice", "REGEX:RANGES", "show a part of each, e.g. 0:1000,:"}, .rule = RULE_SLICE},
    {{"cast", "[REGEX:]DTYPE", "convert floats of 16 bits or more, or by REGEX"},
     .rule = RULE_CAST},
    {{"keep", "REGEX", "show tensors as they are stored"}, .rule = RULE_KEEP},
    {{"rules", "FILE", "read more view options from a JSON file"}, IS_RULES_FILE},
    {{"on_collision", "error|suffix", "two keys become equal: fail, or add a number"},
     IS_WORD,
     .at = offsetof(struct wfs_view, collision),
     .words = {"error", "suffix"}},
    {{"partial", NULL, "with --like and sums: accept missing tensors"},
     IS_FLAG,
     .at = offsetof(struct wfs_view, is_partial),
     .needs = {"like", "join", "average", "add", "minus", "task", "slerp"}},
    {{"strict", NULL, "fail if a decision would be a guess"},
     IS_FLAG,
     .at = offsetof(struct wfs_view, is_strict)},
};

enum { N_OPTIONS = sizeof(options) / sizeof(*options) };

const struct wfs_view_option *wfs_view_option(size_t i)
{
    return i < N_OPTIONS ? &options[i].public : NULL;
}

int wfs_view_new(struct wfs_view **out)
{
    struct wfs_view *view = calloc(1, sizeof(*view));
    if (view == NULL)
        return -ENOMEM;
    view->end = &view->rules;
    view->from = view->to = TO_UNSAID;
    view->lora_alpha = NAN;
    *out = view;
    return 0;
}

void wfs_view_free(struct wfs_view *view)
{
    if (view == NULL)
        return;
    while (view->rules != NULL) {
        struct rule *rule = view->rules;
        view->rules = rule->next;
        rule_free(rule);
    }
    free(view->like);
    free(view->lora_part);
    free(view);
}

static const struct option *find_option(const char *name, size_t n_name)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (strlen(options[i].public.name) == n_name &&
            memcmp(options[i].public.name, name, n_name) == 0)
            return &options[i];
    }
    return NULL;
}

static bool is_given(const struct wfs_view *view, const struct option *option)
{
    const void *field = (const char *)view + option->at;
    switch (option->kind) {
    case IS_RULE:
        return rule_next(view->rules, option->rule) != NULL;
    case IS_WORD:
        return *(const unsigned *)field != TO_UNSAID;
    case IS_PATH:
        return *(char *const *)field != NULL;
    case IS_NUMBER:
        return !isnan(*(const double *)field);
    default:
        return *(const bool *)field;
    }
}

const char *view_idle_option(const struct wfs_view *view, size_t *i, struct view_words *ret_needs)
{
    while (*i < N_OPTIONS) {
        const struct option *option = &options[(*i)++];
        bool is_idle = option->needs[0] != NULL && is_given(view, option);
        for (size_t k = 0; is_idle && option->needs[k] != NULL; k++)
            is_idle = !is_given(view, find_option(option->needs[k], strlen(option->needs[k])));
        if (is_idle) {
            *ret_needs = list_words(option->needs);
            return option->public.name;
        }
    }
    return NULL;
}

int wfs_view_add(struct wfs_view *view, const char *text, struct wfs_error *err)
{
    const size_t n_name = strcspn(text, "=");
    const struct option *option = find_option(text, n_name);
    if (option == NULL)
        return 0;
    const bool is_optional = option->public.argument != NULL && option->public.argument[0] == '[' &&
                             option->public.argument[strlen(option->public.argument) - 1] == ']';
    const char *value = text[n_name] == '=' ? text + n_name + 1 : is_optional ? "" : NULL;
    if (value != NULL && option->public.argument == NULL)
        return wfs_fail(err, EINVAL, "%s: takes no value", option->public.name);
    if (value == NULL && option->public.argument != NULL)
        return wfs_fail(err, EINVAL, "%s: needs a value: %s=%s", option->public.name,
                        option->public.name, option->public.argument);
    if (option->kind == IS_RULES_FILE) {
        const int read = read_rules(view, value, err); /* names the file, and the option in it */
        return read < 0 ? read : 1;
    }
    struct wfs_error inner = {0};
    const int code = set(view, option, value, &inner);
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    return code < 0 ? wfs_fail(err, inner.code, "%s: %s", option->public.name, inner.text) : 1;
}

int wfs_view_widen(struct wfs_view *view, struct wfs_error *err)
{
    view->is_widening = true;
    return wfs_view_add(view, "cast=F32", err);
}

bool wfs_view_joins(const struct wfs_view *view)
{
    return rule_next(view->rules, RULE_JOIN) != NULL;
}

bool wfs_view_is_empty(const struct wfs_view *view)
{
    struct view_words needs;
    return view->rules == NULL && view->like == NULL && view->contiguous != CONTIGUOUS_ON &&
           (view->to == TO_UNSAID || view->to == TO_NONE) &&
           view_idle_option(view, &(size_t){0}, &needs) == NULL;
}
