/* SPDX-License-Identifier: MIT */
/*
 * A recursive descent parser with bounded depth, and a walk over the nodes that it makes.
 */
#include "view/condition.h"

#include <weightfs/cleanup.h>
#include <weightfs/size.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "catalog/catalog.h"
#include "view/evidence/verdict.h"
#include "view/regex/regex.h"

enum { MAX_DEPTH = 32, MAX_NODES = 256 };

enum field { KEY, LEAF, DTYPE, CLASS, SHAPE, RANK, BYTES };

static const char *const field_names[] = {"key",   "leaf", "dtype", "class",
                                          "shape", "rank", "bytes"};
enum { N_FIELDS = sizeof(field_names) / sizeof(*field_names) };

enum node_kind { AND, OR, NOT, EQUAL, LESS, GREATER, MATCH };

/* The opposite of a comparison is a NOT with it. */
struct node {
    enum node_kind kind;
    uint32_t left, right; /* of AND, OR; NOT has a left */
    enum field field;
    char *text;
    uint64_t number;
    struct regex *regex;
};

struct wfs_condition {
    struct node nodes[MAX_NODES];
    uint32_t n_nodes, root;
    bool uses_class;
};

struct parser {
    struct wfs_condition *condition;
    const char *start, *at;
    const char *before; /* the token that ends at `at` or at a space before it */
    unsigned depth;
    struct wfs_error *err;
};

static int fail(struct parser *p, const char *problem)
{
    return wfs_fail(p->err, EINVAL, "bad condition '%s': %s", wfs_quote(p->start).text, problem);
}

/* Reports what is expected here, after which token, and what was found instead. */
static int fail_expected(struct parser *p, const char *what)
{
    const size_t n_read = p->before == NULL ? 0 : (size_t)(p->at - p->before);
    struct wfs_quoted after = {""}, found = {""};
    if (n_read > 0)
        after = wfs_quote_n(
            p->before, strcspn(p->before, " \t") < n_read ? strcspn(p->before, " \t") : n_read);
    p->at += strspn(p->at, " \t");
    found = wfs_quote_n(p->at, strcspn(p->at, " \t"));
    const bool is_end = *p->at == '\0';
    return wfs_fail(p->err, EINVAL, "bad condition '%s': expected %s%s%s%s, found %s%s%s",
                    wfs_quote(p->start).text, what, n_read > 0 ? " after '" : "", after.text,
                    n_read > 0 ? "'" : "", is_end ? "the end" : "'", found.text, is_end ? "" : "'");
}

static void skip_space(struct parser *p)
{
    p->at += strspn(p->at, " \t");
}

static bool take(struct parser *p, const char *text)
{
    skip_space(p);
    const size_t n = strlen(text);
    if (strncmp(p->at, text, n) != 0)
        return false;
    p->before = p->at;
    p->at += n;
    return true;
}

static int add_node(struct parser *p, struct node node, uint32_t *ret)
{
    if (p->condition->n_nodes == MAX_NODES)
        return fail(p, "too long");
    *ret = p->condition->n_nodes++;
    p->condition->nodes[*ret] = node;
    return 0;
}

static int add_not(struct parser *p, uint32_t *node)
{
    return add_node(p, (struct node){.kind = NOT, .left = *node}, node);
}

/* Takes a word up to a space or an operator, a list in brackets, or a text in quotes; a regex may
 * have anything but spaces. Returns false if there is none. */
static bool take_value(struct parser *p, bool is_regex, const char **ret, size_t *ret_n)
{
    skip_space(p);
    const char *at = p->at;
    if (*at == '"' || *at == '\'') {
        const char *end = strchr(at + 1, *at);
        if (end == NULL)
            return false;
        *ret = at + 1;
        *ret_n = (size_t)(end - at - 1);
        p->before = at;
        p->at = end + 1;
        return true;
    }
    size_t n =
        *at == '[' && !is_regex ? strcspn(at, "]") + 1 : strcspn(at, is_regex ? " " : " &|)!<>=");
    n = n > strlen(at) ? strlen(at) : n;
    *ret = at;
    *ret_n = n;
    if (n > 0)
        p->before = at;
    p->at += n;
    return n > 0;
}

static bool is_number(enum field field)
{
    return field == RANK || field == BYTES;
}

static void drop_spaces(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        if (*from != ' ')
            *to++ = *from;
    }
    *to = '\0';
}

/* A name that nothing can have is a mistake. */
static int check_value(struct parser *p, struct node *node)
{
    char problem[WFS_QUOTE_MAX + 64];
    const struct wfs_quoted text = wfs_quote(node->text);
    enum wfs_dtype dtype;
    if (node->field == DTYPE && !wfs_dtype_spelled(node->text, strlen(node->text), &dtype)) {
        snprintf(problem, sizeof(problem), "unknown dtype '%s' (write it as 'ls' does: F32)",
                 text.text);
        return fail(p, problem);
    }
    if (node->field == DTYPE) {
        free(node->text);
        node->text = strdup(wfs_dtype_name(dtype));
        return node->text == NULL ? wfs_fail_memory(p->err) : 0;
    }
    if (node->field == CLASS && !class_is_name(node->text)) {
        snprintf(problem, sizeof(problem), "unknown class '%s' (write it as 'plan' does: linear)",
                 text.text);
        return fail(p, problem);
    }
    if (!is_number(node->field))
        return 0;
    const bool has_unit = node->text[strspn(node->text, "0123456789")] != '\0';
    if ((node->field == BYTES || !has_unit) && wfs_size_parse(node->text, &node->number))
        return 0;
    snprintf(problem, sizeof(problem), "'%s' is not a %s", text.text,
             node->field == BYTES ? "number of bytes (such as 4096, 1M or 5GB)" : "number");
    return fail(p, problem);
}

static int parse_value(struct parser *p, struct node *node)
{
    const char *value;
    size_t n_value;
    if (!take_value(p, node->kind == MATCH, &value, &n_value))
        return *p->at == '"' || *p->at == '\'' ? fail(p, "unterminated quote")
                                               : fail_expected(p, "a value");
    node->text = strndup(value, n_value);
    if (node->text == NULL)
        return wfs_fail_memory(p->err);
    if (node->kind == MATCH)
        return regex_new(node->text, &node->regex, p->err);
    if (node->field == SHAPE)
        drop_spaces(node->text);
    return check_value(p, node);
}

static const struct {
    const char *text;
    enum node_kind kind;
    bool is_opposite, for_texts, for_numbers;
} operators[] = {
    {"==", EQUAL, false, true, true},   {"!=", EQUAL, true, true, true},
    {"=~", MATCH, false, true, false},  {"!~", MATCH, true, true, false},
    {"<=", GREATER, true, false, true}, {">=", LESS, true, false, true},
    {"<", LESS, false, false, true},    {">", GREATER, false, false, true},
};

static int parse_comparison(struct parser *p, uint32_t *ret)
{
    const size_t n_operators = sizeof(operators) / sizeof(*operators);
    size_t field = 0, i = 0;
    skip_space(p);
    while (field < N_FIELDS && !take(p, field_names[field]))
        field++;
    if (field == N_FIELDS)
        return fail_expected(p, "key, leaf, rank, dtype, bytes, shape or class");
    const struct parser after_field = *p;
    while (i < n_operators && !take(p, operators[i].text))
        i++;
    const bool is_num = is_number((enum field)field);
    if (i == n_operators || !(is_num ? operators[i].for_numbers : operators[i].for_texts)) {
        *p = after_field;
        return fail_expected(p, is_num ? "==, !=, <, <=, > or >=" : "==, !=, =~ or !~");
    }
    p->condition->uses_class = p->condition->uses_class || field == CLASS;
    int code =
        add_node(p, (struct node){.kind = operators[i].kind, .field = (enum field)field}, ret);
    if (code == 0)
        code = parse_value(p, &p->condition->nodes[*ret]);
    return code == 0 && operators[i].is_opposite ? add_not(p, ret) : code;
}

static int parse_or(struct parser *p, uint32_t *ret);

static int parse_not(struct parser *p, uint32_t *ret)
{
    unsigned n_nots = 0;
    while (take(p, "!"))
        n_nots++;
    int code;
    if (take(p, "(")) {
        if (++p->depth > MAX_DEPTH)
            return fail(p, "nested too deeply");
        code = parse_or(p, ret);
        p->depth--;
        if (code == 0 && !take(p, ")"))
            code = fail_expected(p, "')', && or ||");
    } else {
        code = parse_comparison(p, ret);
    }
    return code == 0 && n_nots % 2 == 1 ? add_not(p, ret) : code;
}

static int parse_chain(struct parser *p, enum node_kind kind, const char *between,
                       int (*parse)(struct parser *, uint32_t *), uint32_t *ret)
{
    int code = parse(p, ret);
    while (code == 0 && take(p, between)) {
        struct node node = {.kind = kind, .left = *ret};
        code = parse(p, &node.right);
        if (code == 0)
            code = add_node(p, node, ret);
    }
    return code;
}

static int parse_and(struct parser *p, uint32_t *ret)
{
    return parse_chain(p, AND, "&&", parse_not, ret);
}

static int parse_or(struct parser *p, uint32_t *ret)
{
    return parse_chain(p, OR, "||", parse_and, ret);
}

int wfs_condition_new(const char *text, struct wfs_condition **out, struct wfs_error *err)
{
    struct wfs_condition *condition = calloc(1, sizeof(*condition));
    if (condition == NULL)
        return wfs_fail_memory(err);
    struct parser p = {.condition = condition, .start = text, .at = text, .err = err};
    int code = parse_or(&p, &condition->root);
    skip_space(&p);
    if (code == 0 && *p.at != '\0')
        code = fail_expected(&p, "&& or ||");
    if (code < 0) {
        wfs_condition_free(condition);
        return code;
    }
    *out = condition;
    return 0;
}

void wfs_condition_free(struct wfs_condition *condition)
{
    if (condition == NULL)
        return;
    for (uint32_t i = 0; i < condition->n_nodes; i++) {
        free(condition->nodes[i].text);
        regex_free(condition->nodes[i].regex);
    }
    free(condition);
}

bool condition_uses_class(const struct wfs_condition *condition)
{
    return condition->uses_class;
}

/* "[2,*]" against the dims. */
static bool is_shape(const char *text, const struct wfs_shape *shape)
{
    if (*text++ != '[')
        return false;
    for (uint32_t i = 0; i < shape->rank; i++) {
        char number[24];
        snprintf(number, sizeof(number), "%" PRIu64, shape->dims[i]);
        const size_t n = *text == '*' ? 1 : strlen(number);
        if (*text != '*' && strncmp(text, number, n) != 0)
            return false;
        text += n;
        if (i + 1 < shape->rank && *text++ != ',')
            return false;
    }
    return strcmp(text, "]") == 0;
}

static const char *text_of(enum field field, const struct wfs_tensor *tensor,
                           const char *class_name)
{
    switch (field) {
    case LEAF:
        return key_leaf(tensor->key);
    case DTYPE:
        return wfs_dtype_name((enum wfs_dtype)tensor->dtype);
    case CLASS:
        return class_name;
    default:
        return tensor->key;
    }
}

static int test(const struct wfs_condition *condition, uint32_t at, const struct wfs_tensor *tensor,
                const char *class_name, struct wfs_error *err)
{
    const struct node *node = &condition->nodes[at];
    const uint64_t number = node->field == RANK ? tensor->shape.rank : tensor->n_bytes;
    char shape[256];
    int left;
    switch (node->kind) {
    case AND:
    case OR:
        left = test(condition, node->left, tensor, class_name, err);
        if (left < 0 || left == (node->kind == OR))
            return left;
        return test(condition, node->right, tensor, class_name, err);
    case NOT:
        left = test(condition, node->left, tensor, class_name, err);
        return left < 0 ? left : !left;
    case LESS:
        return number < node->number;
    case GREATER:
        return number > node->number;
    case MATCH:
        if (node->field != SHAPE)
            return regex_search(node->regex, text_of(node->field, tensor, class_name), err);
        wfs_shape_format(&tensor->shape, shape, sizeof(shape));
        return regex_search(node->regex, shape, err);
    default:
        if (is_number(node->field))
            return number == node->number;
        if (node->field == SHAPE)
            return is_shape(node->text, &tensor->shape);
        if (node->field == CLASS)
            return strcasecmp(class_name, node->text) == 0;
        return strcmp(text_of(node->field, tensor, class_name), node->text) == 0;
    }
}

int condition_test(const struct wfs_condition *condition, const struct wfs_tensor *tensor,
                   const char *class_name, struct wfs_error *err)
{
    return test(condition, condition->root, tensor, class_name, err);
}

int wfs_condition_select(const struct wfs_condition *condition, const struct wfs_catalog *catalog,
                         bool *marks, struct wfs_error *err)
{
    const struct evidence_question question = {.convention = evidence_convention(catalog->format),
                                               .to = LAYOUT_BURN};
    enum layout layout;
    int code = 0;
    autofree struct verdict *verdicts = calloc(catalog->n_tensors + 1, sizeof(*verdicts));
    if (verdicts == NULL)
        return wfs_fail_memory(err);
    if (condition_uses_class(condition))
        code = evidence_decide(catalog->tensors, catalog->n_tensors, &question, verdicts, &layout,
                               err);
    for (size_t i = 0; code == 0 && i < catalog->n_tensors; i++) {
        if (!marks[i])
            continue;
        const int fits =
            condition_test(condition, &catalog->tensors[i], class_name(verdicts[i].class_), err);
        marks[i] = fits > 0;
        code = fits < 0 ? fits : 0;
    }
    return code;
}
