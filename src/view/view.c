/* SPDX-License-Identifier: MIT */
/*
 * Options of a view: one table, and what each makes of its value.
 */
#include <weightfs/view.h>

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/class.h"
#include "view/rule.h"

/* How the value of a rule is written. */
enum value_form {
    VALUE_TEXT,     /* a text of its own */
    VALUE_REGEX,    /* a regex */
    VALUE_PAIR,     /* REGEX=>ARGUMENT */
    VALUE_ANY_PAIR, /* REGEX=>ARGUMENT or ARGUMENT */
    VALUE_CONDITION,
};

struct option {
    struct wfs_view_option public;
    int (*set)(struct wfs_view *view, const char *value, struct wfs_error *err); /* NULL: a rule */
    enum rule_kind kind;
    enum value_form form;
};

/* The position of the word in a list ended by NULL. */
static int choose(const char *option, const char *value, const char *const *words, int *ret,
                  struct wfs_error *err)
{
    char known[128] = "";
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], value) == 0) {
            *ret = i;
            return 0;
        }
        strncat(known, i > 0 ? ", " : "", sizeof(known) - strlen(known) - 1);
        strncat(known, words[i], sizeof(known) - strlen(known) - 1);
    }
    return wfs_fail(err, EINVAL, "%s is one of %s, not '%s'", option, known, wfs_quote(value).text);
}

static int set_contiguous(struct wfs_view *view, const char *value, struct wfs_error *err)
{
    static const char *const words[] = {"auto", "on", "off", NULL};
    int choice = 0;
    const int code = choose("contiguous", value, words, &choice, err);
    view->contiguous = (enum contiguous)choice;
    return code;
}

static int set_to(struct wfs_view *view, const char *value, struct wfs_error *err)
{
    static const char *const words[] = {"burn", "torch", "none", NULL};
    int choice = 0;
    const int code = choose("to", value, words, &choice, err);
    if (code == 0)
        view->to = (enum direction)(choice + 1);
    return code;
}

static int set_collision(struct wfs_view *view, const char *value, struct wfs_error *err)
{
    static const char *const words[] = {"error", "suffix", NULL};
    int choice = 0;
    const int code = choose("on_collision", value, words, &choice, err);
    view->collision = (enum collision)choice;
    return code;
}

static int set_like(struct wfs_view *view, const char *value, struct wfs_error *err)
{
    char *like = strdup(value);
    if (like == NULL)
        return wfs_fail_memory(err);
    free(view->like);
    view->like = like;
    return 0;
}

static int set_partial(struct wfs_view *view, const char *value, struct wfs_error *err)
{
    view->is_partial = true;
    return 0;
}

static int set_strict(struct wfs_view *view, const char *value, struct wfs_error *err)
{
    view->is_strict = true;
    return 0;
}

static const struct option options[] = {
    {{"overlay", "[REGEX=>]FILE", "add or replace tensors with those of FILE"},
     .kind = RULE_OVERLAY,
     .form = VALUE_ANY_PAIR},
    {{"top_level_key", "KEY", "show only what is below KEY, without its name"},
     .kind = RULE_TOP_LEVEL_KEY,
     .form = VALUE_TEXT},
    {{"remap", "REGEX=>TEXT", "rename keys; TEXT may use $1, ${name} and $$"},
     .kind = RULE_REMAP,
     .form = VALUE_PAIR},
    {{"contiguous", "auto|on|off", "renumber lists in keys to close gaps"}, set_contiguous, 0, 0},
    {{"contiguous_except", "REGEX", "do not renumber the lists that match"},
     .kind = RULE_CONTIGUOUS_EXCEPT,
     .form = VALUE_REGEX},
    {{"include", "REGEX", "show only tensors whose key matches"},
     .kind = RULE_INCLUDE,
     .form = VALUE_REGEX},
    {{"key", "NAME", "show only the tensor with this key"}, .kind = RULE_KEY, .form = VALUE_TEXT},
    {{"exclude", "REGEX", "hide tensors whose key matches"},
     .kind = RULE_EXCLUDE,
     .form = VALUE_REGEX},
    {{"where", "CONDITION", "show only these, e.g. 'rank==2 && dtype==F32'"},
     .kind = RULE_WHERE,
     .form = VALUE_CONDITION},
    {{"drop_variants", "auto|SEGMENT", "remove the names of enum variants from keys"},
     .kind = RULE_DROP_VARIANTS,
     .form = VALUE_TEXT},
    {{"to", "burn|torch", "convert to the conventions of Burn or PyTorch"}, set_to, 0, 0},
    {{"class", "REGEX=>TYPE", "set the type of modules, e.g. Linear"},
     .kind = RULE_CLASS,
     .form = VALUE_PAIR},
    {{"like", "FILE", "use names, order and shapes of FILE"}, set_like, 0, 0},
    {{"transpose", "REGEX", "swap the last two dimensions"},
     .kind = RULE_TRANSPOSE,
     .form = VALUE_REGEX},
    {{"permute", "REGEX=>1,0,2", "reorder the dimensions"},
     .kind = RULE_PERMUTE,
     .form = VALUE_PAIR},
    {{"split", "REGEX=>A,B,C", "split the first dimension into equal parts"},
     .kind = RULE_SPLIT,
     .form = VALUE_PAIR},
    {{"cast", "[REGEX=>]DTYPE", "convert elements; by default of all float tensors"},
     .kind = RULE_CAST,
     .form = VALUE_ANY_PAIR},
    {{"keep", "REGEX", "show tensors as they are stored"}, .kind = RULE_KEEP, .form = VALUE_REGEX},
    {{"rules", "FILE", "read more view options from a JSON file"}, rules_file_add, 0, 0},
    {{"on_collision", "error|suffix", "two keys become equal: fail, or add a number"},
     set_collision,
     0,
     0},
    {{"partial", NULL, "with --like: accept missing tensors"}, set_partial, 0, 0},
    {{"strict", NULL, "fail if a decision would be a guess"}, set_strict, 0, 0},
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
    *out = view;
    return 0;
}

static void rule_free(struct rule *rule)
{
    if (rule == NULL)
        return;
    free(rule->text);
    free(rule->argument);
    free(rule->list);
    regex_free(rule->regex);
    where_free(rule->where);
    free(rule);
}

static void cleanup_rule(struct rule **rule)
{
    rule_free(*rule);
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
    free(view);
}

const struct rule *rule_next(const struct rule *rule, enum rule_kind kind)
{
    while (rule != NULL && rule->kind != kind)
        rule = rule->next;
    return rule;
}

/* The parts of a list, cut at commas. */
static int cut_list(struct rule *rule, const char *option, struct wfs_error *err)
{
    rule->list = strdup(rule->argument);
    if (rule->list == NULL)
        return wfs_fail_memory(err);
    char *rest = rule->list;
    for (const char *part; (part = strsep(&rest, ",")) != NULL;) {
        if (rule->n_parts == RULE_MAX_PARTS)
            return wfs_fail(err, EINVAL, "%s has more than %d parts", option, RULE_MAX_PARTS);
        rule->parts[rule->n_parts++] = part;
    }
    return 0;
}

static int read_order(struct rule *rule, struct wfs_error *err)
{
    uint64_t seen = 0;
    const int code = cut_list(rule, "permute", err);
    if (code < 0)
        return code;
    for (uint32_t i = 0; i < rule->n_parts; i++) {
        char *end;
        const unsigned long axis = strtoul(rule->parts[i], &end, 10);
        if (*end != '\0' || end == rule->parts[i] || axis >= rule->n_parts || seen >> axis & 1)
            return wfs_fail(err, EINVAL, "permute wants each of 0 to %u once, not '%s'",
                            rule->n_parts - 1, wfs_quote(rule->argument).text);
        seen |= (uint64_t)1 << axis;
        rule->order[i] = (uint32_t)axis;
    }
    return 0;
}

/* Names of safetensors in any case, and those of torch. */
static bool find_dtype(const char *name, enum wfs_dtype *ret)
{
    static const struct {
        const char *name;
        enum wfs_dtype dtype;
    } others[] = {
        {"float16", WFS_F16},         {"half", WFS_F16},
        {"bfloat16", WFS_BF16},       {"float32", WFS_F32},
        {"float", WFS_F32},           {"float64", WFS_F64},
        {"double", WFS_F64},          {"float8_e4m3fn", WFS_F8_E4M3},
        {"float8_e5m2", WFS_F8_E5M2}, {"int8", WFS_I8},
        {"int16", WFS_I16},           {"int32", WFS_I32},
        {"int64", WFS_I64},           {"uint8", WFS_U8},
    };
    for (int i = 0; i < WFS_N_DTYPES; i++) {
        if (strcasecmp(wfs_dtype_name((enum wfs_dtype)i), name) == 0) {
            *ret = (enum wfs_dtype)i;
            return true;
        }
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        if (strcasecmp(others[i].name, name) == 0) {
            *ret = others[i].dtype;
            return true;
        }
    }
    return false;
}

/* `\1` as `${1}`, which is what was meant. */
static int replace_backslashes(struct wfs_view *view, struct rule *rule, struct wfs_error *err)
{
    char *text = malloc(strlen(rule->argument) * 3 + 1), *to = text;
    if (text == NULL)
        return wfs_fail_memory(err);
    for (const char *from = rule->argument; *from != '\0';) {
        const size_t n = *from == '\\' ? strspn(from + 1, "0123456789") : 0;
        if (n == 0) {
            *to++ = *from++;
            continue;
        }
        view->has_backslash = true;
        *to++ = '$';
        *to++ = '{';
        memcpy(to, from + 1, n);
        to += n;
        *to++ = '}';
        from += n + 1;
    }
    *to = '\0';
    free(rule->argument);
    rule->argument = text;
    return 0;
}

/* What is special about the argument of some kinds. */
static int finish_rule(struct wfs_view *view, struct rule *rule, struct wfs_error *err)
{
    switch (rule->kind) {
    case RULE_REMAP:
        return replace_backslashes(view, rule, err);
    case RULE_PERMUTE:
        return read_order(rule, err);
    case RULE_SPLIT:
        return cut_list(rule, "split", err);
    case RULE_CAST:
        if (!find_dtype(rule->argument, &rule->dtype))
            return wfs_fail(err, EINVAL, "cast: no dtype is called '%s'",
                            wfs_quote(rule->argument).text);
        return 0;
    case RULE_OVERLAY:
        return *rule->argument != '\0' ? 0 : wfs_fail(err, EINVAL, "overlay wants a file");
    case RULE_CLASS:
        rule->class_ = class_find(rule->argument);
        if (rule->class_ == NULL)
            return wfs_fail(err, EINVAL, "class: '%s' is none of %s",
                            wfs_quote(rule->argument).text, class_names_text);
        return 0;
    default:
        return 0;
    }
}

/* Cuts the value into regex and argument. */
static int read_value(const struct option *option, struct rule *rule, struct wfs_error *err)
{
    const char *arrow = strstr(rule->text, "=>");
    if (option->form == VALUE_CONDITION)
        return where_new(rule->text, &rule->where, err);
    if (option->form == VALUE_REGEX)
        return regex_new(rule->text, &rule->regex, err);
    if (option->form == VALUE_PAIR && arrow == NULL)
        return wfs_fail(err, EINVAL, "%s wants %s, not '%s'", option->public.name,
                        option->public.argument, wfs_quote(rule->text).text);
    if (option->form == VALUE_TEXT || arrow == NULL) {
        rule->argument = strdup(rule->text);
        return rule->argument == NULL ? wfs_fail_memory(err) : 0;
    }
    autofree char *pattern = strndup(rule->text, (size_t)(arrow - rule->text));
    rule->argument = strdup(arrow + 2);
    if (pattern == NULL || rule->argument == NULL)
        return wfs_fail_memory(err);
    rule->is_negated = rule->kind == RULE_OVERLAY && pattern[0] == '!';
    return regex_new(pattern + rule->is_negated, &rule->regex, err);
}

static int add_rule(struct wfs_view *view, const struct option *option, const char *value,
                    struct wfs_error *err)
{
    cleanup(cleanup_rule) struct rule *rule = calloc(1, sizeof(*rule));
    if (rule == NULL)
        return wfs_fail_memory(err);
    rule->kind = option->kind;
    rule->text = strdup(value);
    if (rule->text == NULL)
        return wfs_fail_memory(err);
    int code = read_value(option, rule, err);
    code = code < 0 ? code : finish_rule(view, rule, err);
    if (code < 0)
        return code;
    *view->end = rule;
    view->end = &rule->next;
    rule = NULL;
    return 0;
}

int wfs_view_add(struct wfs_view *view, const char *text, struct wfs_error *err)
{
    const size_t n_name = strcspn(text, "=");
    const struct option *option = NULL;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (strlen(options[i].public.name) == n_name &&
            memcmp(options[i].public.name, text, n_name) == 0)
            option = &options[i];
    }
    if (option == NULL)
        return 0;
    const char *value = text[n_name] == '=' ? text + n_name + 1 : NULL;
    if ((value == NULL) != (option->public.argument == NULL))
        return wfs_fail(err, EINVAL, value == NULL ? "%s wants a value" : "%s takes no value",
                        option->public.name);
    const int code =
        option->set != NULL ? option->set(view, value, err) : add_rule(view, option, value, err);
    return code < 0 ? code : 1;
}

bool wfs_view_is_empty(const struct wfs_view *view)
{
    return view->rules == NULL && view->like == NULL && view->contiguous != CONTIGUOUS_ON &&
           (view->to == TO_UNSAID || view->to == TO_NONE);
}

const char *wfs_view_like(const struct wfs_view *view)
{
    return view->like;
}
