/* SPDX-License-Identifier: MIT */
/*
 * One rule, made of the value of its option.
 */
#include "view/rule.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/url.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/*
 * ---- pairs ----
 *
 * How a value with two parts is written:
 *
 *   s/FIRST/SECOND/   with any punctuation in place of the slash that neither part contains
 *   FIRST:SECOND      divided at the first colon outside of brackets
 *   FIRST=>SECOND     the first way there was; a shell has to be kept from the > by quotes. Where
 *                     it is allowed, a text with => is read this way.
 */

/* The second part goes on to n_second bytes. */
struct pair {
    const char *first, *second;
    size_t n_first, n_second;
};

/* What is allowed besides s/FIRST/SECOND/. */
enum pair_way { PAIR_COLON = 1, PAIR_ARROW = 2 };

static bool cut_arrow(const char *text, struct pair *ret)
{
    const char *arrow = strstr(text, "=>");
    if (arrow == NULL)
        return false;
    *ret = (struct pair){text, arrow + 2, (size_t)(arrow - text), strlen(arrow + 2)};
    return true;
}

/* As sed writes it, with exactly three delimiters. */
static bool cut_delimiters(const char *text, struct pair *ret)
{
    const char delimiter = text[0] == 's' ? text[1] : '\0';
    if (!ispunct((unsigned char)delimiter) || delimiter == '\\')
        return false;
    const char *first = text + 2, *middle = strchr(first, delimiter);
    const char *end = middle != NULL ? strchr(middle + 1, delimiter) : NULL;
    if (end == NULL || end[1] != '\0')
        return false;
    *ret = (struct pair){first, middle + 1, (size_t)(middle - first), (size_t)(end - middle - 1)};
    return true;
}

/* Colons in (?:groups) and [[:classes:]] do not divide, and neither does an escaped one. */
static bool cut_colon(const char *text, struct pair *ret)
{
    size_t depth = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\\' && at[1] != '\0')
            at++;
        else if (*at == '(' || *at == '[')
            depth++;
        else if ((*at == ')' || *at == ']') && depth > 0)
            depth--;
        else if (*at == ':' && depth == 0) {
            *ret = (struct pair){text, at + 1, (size_t)(at - text), strlen(at + 1)};
            return true;
        }
    }
    return false;
}

/* Returns false if the text is not a pair. */
static bool find_pair(const char *text, unsigned ways, struct pair *ret)
{
    return ((ways & PAIR_ARROW) != 0 && cut_arrow(text, ret)) || cut_delimiters(text, ret) ||
           ((ways & PAIR_COLON) != 0 && cut_colon(text, ret));
}

char *wfs_view_pair(const char *first, const char *second)
{
    static const char delimiters[] = "/|,#%@!~;:_\"'&=<>-+*?.$^`()[]{}";
    char *text = NULL;
    for (const char *d = delimiters; *d != '\0'; d++) {
        if (strchr(first, *d) == NULL && strchr(second, *d) == NULL)
            return asprintf(&text, "s%c%s%c%s%c", *d, first, *d, second, *d) < 0 ? NULL : text;
    }
    return asprintf(&text, "%s=>%s", first, second) < 0 ? NULL : text;
}

/* ---- the value ---- */

/* How the value of a rule is written. */
enum form {
    FORM_TEXT,         /* one text */
    FORM_REGEX,        /* REGEX */
    FORM_PAIR,         /* REGEX:ARGUMENT */
    FORM_PAIR_OR_TEXT, /* REGEX:ARGUMENT, or ARGUMENT for all keys */
    FORM_SUBSTITUTION, /* s/REGEX/TEXT/ */
    FORM_NAMES,        /* OLD:NEW */
    FORM_CONDITION,
};

static const enum form forms[] = {
    [RULE_JOIN] = FORM_PAIR_OR_TEXT,
    [RULE_OVERLAY] = FORM_PAIR_OR_TEXT,
    [RULE_DEQUANTIZE] = FORM_REGEX,
    [RULE_AVERAGE] = FORM_PAIR_OR_TEXT,
    [RULE_WEIGHT] = FORM_PAIR_OR_TEXT,
    [RULE_ADD] = FORM_PAIR_OR_TEXT,
    [RULE_MINUS] = FORM_PAIR_OR_TEXT,
    [RULE_TASK] = FORM_PAIR_OR_TEXT,
    [RULE_SLERP] = FORM_PAIR_OR_TEXT,
    [RULE_LORA] = FORM_PAIR_OR_TEXT,
    [RULE_LORA_REMAP] = FORM_SUBSTITUTION,
    [RULE_TOP_LEVEL_KEY] = FORM_TEXT,
    [RULE_RENAME] = FORM_NAMES,
    [RULE_REMAP] = FORM_SUBSTITUTION,
    [RULE_CONTIGUOUS_EXCEPT] = FORM_REGEX,
    [RULE_INCLUDE] = FORM_REGEX,
    [RULE_KEY] = FORM_TEXT,
    [RULE_EXCLUDE] = FORM_REGEX,
    [RULE_WHERE] = FORM_CONDITION,
    [RULE_DROP_VARIANTS] = FORM_TEXT,
    [RULE_CLASS] = FORM_PAIR,
    [RULE_TRANSPOSE] = FORM_REGEX,
    [RULE_PERMUTE] = FORM_PAIR,
    [RULE_SPLIT] = FORM_PAIR,
    [RULE_FUSE] = FORM_TEXT,
    [RULE_SLICE] = FORM_PAIR,
    [RULE_CAST] = FORM_PAIR_OR_TEXT,
    [RULE_KEEP] = FORM_REGEX,
};

void rule_free(struct rule *rule)
{
    if (rule == NULL)
        return;
    free(rule->text);
    free(rule->argument);
    free(rule->config);
    free(rule->list);
    regex_free(rule->regex);
    wfs_condition_free(rule->condition);
    free(rule);
}

static void cleanup_rule(struct rule **rule)
{
    rule_free(*rule);
}

const struct rule *rule_next(const struct rule *rule, enum rule_kind kind)
{
    while (rule != NULL && rule->kind != kind)
        rule = rule->next;
    return rule;
}

/* Cuts the argument at commas. */
static int cut_list(struct rule *rule, struct wfs_error *err)
{
    rule->list = strdup(rule->argument);
    if (rule->list == NULL)
        return wfs_fail_memory(err);
    char *rest = rule->list;
    for (const char *part; (part = strsep(&rest, ",")) != NULL;) {
        if (rule->n_parts == RULE_MAX_PARTS)
            return wfs_fail(err, EINVAL, "more than %d parts", RULE_MAX_PARTS);
        rule->parts[rule->n_parts++] = part;
    }
    return 0;
}

static int read_order(struct rule *rule, struct wfs_error *err)
{
    uint64_t seen = 0;
    const int code = cut_list(rule, err);
    if (code < 0)
        return code;
    for (uint32_t i = 0; i < rule->n_parts; i++) {
        char *end;
        const unsigned long axis = strtoul(rule->parts[i], &end, 10);
        if (*end != '\0' || end == rule->parts[i] || axis >= rule->n_parts || seen >> axis & 1)
            return wfs_fail(err, EINVAL,
                            "'%s' is not a permutation: each number from 0 to %u must "
                            "occur once",
                            wfs_quote(rule->argument).text, rule->n_parts - 1);
        seen |= (uint64_t)1 << axis;
        rule->order[i] = (uint32_t)axis;
    }
    return 0;
}

static int read_dtype(const char *name, enum wfs_dtype *ret, struct wfs_error *err)
{
    return wfs_dtype_spelled(name, strlen(name), ret)
               ? 0
               : wfs_fail(err, EINVAL,
                          "unknown dtype '%s'; known are F64, F32, F16, BF16, F8_E4M3, F8_E5M2, "
                          "F8_E4M3FNUZ, F8_E5M2FNUZ, F8_E8M0, I64, I32, I16, I8, U64, U32, U16, "
                          "U8, BOOL, Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1",
                          wfs_quote(name).text);
}

/* Rewrites `\1` as `${1}`, which is what was meant. */
static int replace_backslashes(struct rule *rule, struct wfs_error *err)
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
        rule->has_backslash = true;
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

/* Each part is what a key gets in the place of the match. */
/* Cuts the sizes off the names of parts: all have one (q=8,k=2,v=2), or none has. */
static int read_sizes(struct rule *rule, struct wfs_error *err)
{
    enum { MOST = 1000000 };
    uint32_t n_sizes = 0;
    for (uint32_t i = 0; i < rule->n_parts; i++) {
        char *equals = strrchr(rule->parts[i], '='), *end = NULL;
        const unsigned long size = equals == NULL ? 1 : strtoul(equals + 1, &end, 10);
        if (equals != NULL && (equals[1] < '1' || equals[1] > '9' || *end != '\0' || size > MOST))
            return wfs_fail(err, EINVAL, "'%s' is not the size of a part",
                            wfs_quote(equals + 1).text);
        if (equals != NULL)
            *equals = '\0';
        n_sizes += equals != NULL;
        rule->order[i] = (uint32_t)size;
        rule->n_order += (uint32_t)size;
    }
    return n_sizes == 0 || n_sizes == rule->n_parts
               ? 0
               : wfs_fail(err, EINVAL, "'%s': some parts have a size, others none",
                          wfs_quote(rule->argument).text);
}

static int read_parts(struct rule *rule, struct wfs_error *err)
{
    int code = replace_backslashes(rule, err);
    code = code < 0 ? code : cut_list(rule, err);
    code = code < 0 ? code : read_sizes(rule, err);
    for (uint32_t i = 0; i < rule->n_parts && code == 0; i++) {
        if (rule->parts[i][0] == '\0')
            code = wfs_fail(err, EINVAL, "name %u of '%s' is empty", i + 1,
                            wfs_quote(rule->argument).text);
    }
    return code;
}

/* "llama", "copy", "first", "1", or "0/2". */
static int read_join(struct rule *rule, struct wfs_error *err)
{
    static const char *const words[] = {"llama", "copy", "first"};
    struct rule_join *join = &rule->join;
    for (unsigned i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (strcmp(rule->argument, words[i]) == 0 && (i > 0 || rule->regex == NULL)) {
            join->way = (enum join_way)i;
            return 0;
        }
    }
    char end;
    const int n =
        sscanf(rule->argument, "%2" SCNu32 "/%4" SCNu32 "%c", &join->dim, &join->n_pieces, &end);
    if (!isdigit((unsigned char)rule->argument[0]) || n > 2 ||
        (n == 1 && rule->argument[strspn(rule->argument, "0123456789")] != '\0') ||
        (n == 2 && join->n_pieces == 0))
        return wfs_fail(err, EINVAL,
                        "'%s' is not a dimension (0, 1, or 0/2 for parts of two pieces), `copy`, "
                        "`first`, or `llama` alone",
                        wfs_quote(rule->argument).text);
    join->way = JOIN_DIM;
    join->n_pieces = n == 1 ? 1 : join->n_pieces;
    return 0;
}

/* "WHOLE:A,B,C" */
static int read_fuse(struct rule *rule, struct wfs_error *err)
{
    char *colon = strchr(rule->argument, ':');
    if (colon != NULL)
        *colon = ',';
    int code = cut_list(rule, err);
    for (uint32_t i = 1; i < rule->n_parts && code == 0; i++)
        code = rule->parts[i][0] == '\0' ? -EINVAL : 0;
    return code == 0 && colon != NULL && rule->n_parts > 2
               ? 0
               : wfs_fail(err, EINVAL, "'%s' is not of the form WHOLE:A,B,C",
                          wfs_quote(rule->text).text);
}

static int read_argument(struct rule *rule, struct wfs_error *err)
{
    switch (rule->kind) {
    case RULE_JOIN:
        return read_join(rule, err);
    case RULE_REMAP:
    case RULE_LORA_REMAP:
        return replace_backslashes(rule, err);
    case RULE_WEIGHT:
        return rule_number(rule->argument, &rule->weight)
                   ? 0
                   : wfs_fail(err, EINVAL, "'%s' is not a number", wfs_quote(rule->argument).text);
    case RULE_PERMUTE:
        return read_order(rule, err);
    case RULE_SPLIT:
        return read_parts(rule, err);
    case RULE_FUSE:
        return read_fuse(rule, err);
    case RULE_SLICE:
        return cut_list(rule, err);
    case RULE_CAST:
        return read_dtype(rule->argument, &rule->dtype, err);
    case RULE_CLASS:
        return class_find(rule->argument, &rule->class_)
                   ? 0
                   : wfs_fail(err, EINVAL, "unknown type '%s'; known are %s",
                              wfs_quote(rule->argument).text, class_names);
    default:
        return rule_has_file(rule->kind) && *rule->argument == '\0'
                   ? wfs_fail(err, EINVAL, "FILE is missing")
                   : 0;
    }
}

/* What is left of "A=>B" ends in "=" when a shell took the unquoted > as a redirection. */
static int fail_pair(const struct wfs_view_option *option, enum rule_kind kind, const char *text,
                     struct wfs_error *err)
{
    const size_t n = strlen(text);
    const bool is_cut = n > 0 && text[n - 1] == '=';
    return wfs_fail(err, EINVAL, "'%s' is not of the form %s%s", wfs_quote(text).text,
                    forms[kind] == FORM_NAMES ? "OLD:NEW" : option->argument,
                    is_cut ? " (the shell has taken an unquoted > away)" : "");
}

/* Appends the bytes, each of those in `special` behind `mark`. Returns the end. */
static char *put_marked(char *to, const char *from, size_t n, const char *special, char mark)
{
    for (size_t i = 0; i < n; i++) {
        if (strchr(special, from[i]) != NULL)
            *to++ = mark;
        *to++ = from[i];
    }
    return to;
}

/* A rename is a remap of the key OLD, or of what is below it. */
static int read_names(struct rule *rule, const struct pair *pair, struct wfs_error *err)
{
    if (pair->n_first == 0 || pair->n_second == 0)
        return wfs_fail(err, EINVAL,
                        "%s is empty; remap='s/^OLD\\.//' or top_level_key removes a prefix",
                        pair->n_first == 0 ? "OLD" : "NEW");
    autofree char *pattern = malloc(2 * pair->n_first + sizeof("^(\\.|$)"));
    rule->argument = malloc(2 * pair->n_second + sizeof("${1}"));
    if (pattern == NULL || rule->argument == NULL)
        return wfs_fail_memory(err);
    pattern[0] = '^';
    strcpy(put_marked(pattern + 1, pair->first, pair->n_first, "\\.+*?()|[]{}^$#&-~", '\\'),
           "(\\.|$)");
    strcpy(put_marked(rule->argument, pair->second, pair->n_second, "$", '$'), "${1}");
    rule->kind = RULE_REMAP;
    return regex_new(pattern, &rule->regex, err);
}

/* A value that begins as a path or a URL does has no regex: its colons are part of a name. */
static bool is_path(const char *text)
{
    return url_is(text) || text[0] == '/' || strncmp(text, "./", 2) == 0 ||
           strncmp(text, "../", 3) == 0;
}

bool rule_has_file(enum rule_kind kind)
{
    return kind == RULE_OVERLAY ||
           (kind >= RULE_AVERAGE && kind <= RULE_LORA && kind != RULE_WEIGHT);
}

bool rule_number(const char *text, double *ret)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || isspace((unsigned char)*text))
        return false;
    *ret = value;
    return true;
}

int rule_takes(const struct rule *rule, const char *key, struct wfs_error *err)
{
    const int code = rule->regex == NULL ? 1 : regex_search(rule->regex, key, err);
    return code < 0 ? code : (code > 0) != rule->is_negated;
}

/* Finds the configuration of an adapter on the network: beside a file that is called as one that
 * has it, or in a folder. */
static int find_config(struct rule *rule, struct wfs_error *err)
{
    static const char name[] = "adapter_config.json";
    const char *path = rule->argument, *last = strrchr(path, '/') + 1;
    const char *start = strstr(path, "://") + 3, *owner = strchr(start, '/');
    const bool is_repository = strncmp(path, "hf://", 5) == 0 && owner == last - 1;
    const bool is_file = strchr(last, '.') != NULL && !is_repository;
    const bool is_adapter = is_file && strncmp(last, "adapter", strlen("adapter")) == 0;
    if (is_file && !is_adapter)
        return 0;
    if ((is_adapter
             ? asprintf(&rule->config, "%.*s%s", (int)(last - path), path, name)
             : asprintf(&rule->config, "%s%s%s", path, *last == '\0' ? "" : "/", name)) < 0) {
        rule->config = NULL;
        return wfs_fail_memory(err);
    }
    return 0;
}

/* Cuts off a weight, which is what follows the last colon, if that is a number. */
static void cut_weight(struct rule *rule, char *text)
{
    char *colon = strrchr(text, ':');
    if (rule->kind != RULE_OVERLAY && rule_has_file(rule->kind) && colon != NULL &&
        rule_number(colon + 1, &rule->weight)) {
        *colon = '\0';
        rule->has_weight = true;
    }
}

/* Cuts the value into regex and argument. */
static int read_value(const struct wfs_view_option *option, struct rule *rule,
                      struct wfs_error *err)
{
    const enum form form = forms[rule->kind];
    autofree char *text = strdup(rule->text);
    if (text == NULL)
        return wfs_fail_memory(err);
    cut_weight(rule, text);
    const bool has_colons = rule_has_file(rule->kind) && is_path(text);
    const unsigned ways = (form != FORM_NAMES ? PAIR_ARROW : 0) |
                          (form != FORM_SUBSTITUTION && !has_colons ? PAIR_COLON : 0);
    struct pair pair;
    if (form == FORM_CONDITION)
        return wfs_condition_new(rule->text, &rule->condition, err);
    if (form == FORM_REGEX)
        return regex_new(rule->text, &rule->regex, err);
    const bool is_pair = form != FORM_TEXT && find_pair(text, ways, &pair);
    if (!is_pair && form != FORM_TEXT && form != FORM_PAIR_OR_TEXT)
        return fail_pair(option, rule->kind, rule->text, err);
    if (!is_pair) {
        rule->argument = strdup(text);
        return rule->argument == NULL ? wfs_fail_memory(err) : 0;
    }
    if (form == FORM_NAMES)
        return read_names(rule, &pair, err);
    autofree char *pattern = strndup(pair.first, pair.n_first);
    rule->argument = strndup(pair.second, pair.n_second);
    if (pattern == NULL || rule->argument == NULL)
        return wfs_fail_memory(err);
    if (!rule->has_weight)
        cut_weight(rule, rule->argument);
    rule->is_negated = rule_has_file(rule->kind) && pattern[0] == '!';
    return regex_new(pattern + rule->is_negated, &rule->regex, err);
}

int rule_new(const struct wfs_view_option *option, enum rule_kind kind, const char *value,
             struct rule **out, struct wfs_error *err)
{
    cleanup(cleanup_rule) struct rule *rule = calloc(1, sizeof(*rule));
    if (rule == NULL)
        return wfs_fail_memory(err);
    rule->kind = kind;
    rule->weight = 1;
    rule->name = option->name;
    rule->text = strdup(value);
    if (rule->text == NULL)
        return wfs_fail_memory(err);
    int code = read_value(option, rule, err);
    if (code == 0 && kind == RULE_SLERP && !rule->has_weight)
        return wfs_fail(err, EINVAL, "'%s' is not of the form %s", wfs_quote(value).text,
                        option->argument);
    code = code < 0 || kind == RULE_RENAME ? code : read_argument(rule, err);
    if (code == 0 && kind == RULE_LORA && url_is(rule->argument))
        code = find_config(rule, err);
    if (code < 0)
        return code;
    *out = steal(&rule);
    return 0;
}

int text_file_read(const char *what, const char *path, char **ret, size_t *ret_n,
                   struct wfs_error *err)
{
    enum { MAX_BYTES = 16 << 20 };
    struct stat st;
    const struct wfs_quoted quoted = wfs_quote(path);
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return wfs_fail(err, errno, "cannot open the %s '%s': %s", what, quoted.text,
                        strerror(errno));
    if (!S_ISREG(st.st_mode))
        return wfs_fail(err, EINVAL, "%s '%s' is not a regular file", what, quoted.text);
    if (st.st_size > MAX_BYTES)
        return wfs_fail(err, EINVAL, "%s '%s' is larger than %d bytes", what, quoted.text,
                        MAX_BYTES);
    autofree char *text = malloc((size_t)st.st_size + 1);
    if (text == NULL)
        return wfs_fail_memory(err);
    const ssize_t n = io_read_at(fd, text, (size_t)st.st_size, 0);
    if (n < 0)
        return wfs_fail(err, (int)-n, "cannot read the %s '%s': %s", what, quoted.text,
                        strerror((int)-n));
    text[n] = '\0';
    *ret = steal(&text);
    *ret_n = (size_t)n;
    return 0;
}
