/* SPDX-License-Identifier: MIT */
/*
 * Renumbers the lists in keys from 0, without gaps. A list is a prefix with its original numbers;
 * the numbers that follow it are collected first, and replaced by their rank in a second pass.
 */
#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_index.h"
#include "view/pass.h"

struct number {
    uint32_t list;
    uint64_t value;
    size_t rank; /* among those of the list */
};

struct numbering {
    struct text_index lists;
    bool *is_excepted; /* by list */
    struct number *numbers;
    size_t n_numbers, n_room;
};

static int compare(const void *a, const void *b)
{
    const struct number *x = a, *y = b;
    if (x->list != y->list)
        return x->list < y->list ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

static int add_number(struct numbering *n, const char *key, size_t n_prefix, uint64_t value)
{
    if (array_reserve(&n->numbers, sizeof(*n->numbers), n->n_numbers, 1, &n->n_room) < 0)
        return -ENOMEM;
    struct number *number = &n->numbers[n->n_numbers++];
    *number = (struct number){.value = value};
    return text_index_add(&n->lists, key, n_prefix, &number->list);
}

static int collect(struct pass *pass, struct numbering *n)
{
    for_items(item, pass)
    {
        const char *key = item->tensor.key;
        for (size_t start = 0;;) {
            uint64_t value;
            const size_t n_segment = strcspn(key + start, ".");
            if (regex_parse_number(key + start, n_segment, &value) &&
                add_number(n, key, start, value) < 0)
                return wfs_fail_memory(pass->err);
            if (key[start + n_segment] == '\0')
                break;
            start += n_segment + 1;
        }
    }
    if (n->n_numbers > 0)
        qsort(n->numbers, n->n_numbers, sizeof(*n->numbers), compare);
    for (size_t i = 1; i < n->n_numbers; i++) {
        const struct number *last = &n->numbers[i - 1];
        if (n->numbers[i].list == last->list)
            n->numbers[i].rank = last->rank + (n->numbers[i].value != last->value);
    }
    return 0;
}

/* Marks the lists whose path, without the final dot, matches a contiguous_except rule. */
static int find_exceptions(struct pass *pass, struct numbering *n)
{
    n->is_excepted = calloc(n->lists.n_texts + 1, sizeof(bool));
    if (n->is_excepted == NULL)
        return wfs_fail_memory(pass->err);
    for_rules(rule, pass->view, RULE_CONTIGUOUS_EXCEPT)
    {
        for (uint32_t i = 0; i < n->lists.n_texts; i++) {
            const struct text_slice *text = &n->lists.texts[i];
            autofree char *path = strndup(text->bytes, text->n_bytes > 0 ? text->n_bytes - 1 : 0);
            if (path == NULL)
                return wfs_fail_memory(pass->err);
            const int code = regex_search(rule->regex, path, pass->err);
            if (code < 0)
                return code;
            n->is_excepted[i] = n->is_excepted[i] || code > 0;
            if (code > 0)
                pass_use(pass, rule);
        }
    }
    return 0;
}

/* Appends the segment at start, renumbered if it is a number of a list. */
static size_t put_segment(const struct numbering *n, const char *key, size_t start,
                          size_t n_segment, char *to)
{
    struct number sought;
    if (regex_parse_number(key + start, n_segment, &sought.value)) {
        sought.list = text_index_find(&n->lists, key, start);
        const struct number *found =
            bsearch(&sought, n->numbers, n->n_numbers, sizeof(sought), compare);
        if (!n->is_excepted[sought.list])
            return (size_t)sprintf(to, "%zu", found->rank);
    }
    memcpy(to, key + start, n_segment);
    return n_segment;
}

/* Returns whether the item has another key then. */
static bool renumber(const struct pass *pass, const struct numbering *n, struct item *item)
{
    const char *key = item->tensor.key;
    /* A segment of one digit at least becomes one of 20 at most. */
    autofree char *text = malloc(strlen(key) * 21 + 21);
    size_t n_text = 0;
    if (text == NULL) {
        pass->report->has_failed = true;
        return false;
    }
    for (size_t start = 0;;) {
        const size_t n_segment = strcspn(key + start, ".");
        n_text += put_segment(n, key, start, n_segment, text + n_text);
        if (key[start + n_segment] == '\0')
            break;
        text[n_text++] = '.';
        start += n_segment + 1;
    }
    text[n_text] = '\0';
    if (strcmp(text, key) == 0)
        return false;
    pass_rename(pass, item, arena_copy(&pass->catalog->arena, text, n_text), "contiguous");
    return item->tensor.key != key;
}

/* Says what nobody asked for by name, also under `strict`: the rule is certain. */
static void tell_renumbered(const struct pass *pass, const struct item *first, const char *key,
                            size_t n)
{
    char text[WFS_ERROR_TEXT_MAX];
    snprintf(text, sizeof(text), "is '%s' for burn, which numbers lists without gaps%s",
             wfs_quote(first->tensor.key).text, pass_more(n).text);
    report_add_line(pass->report, REPORT_NOTICES, &(struct report_line){{key, text}, true});
}

static bool is_on(const struct pass *pass)
{
    const struct wfs_format *format = pass->catalog->format;
    if (pass->view->contiguous != CONTIGUOUS_AUTO)
        return pass->view->contiguous == CONTIGUOUS_ON;
    return pass->to == TO_BURN && format != NULL && format->convention == WFS_CONVENTION_TORCH;
}

static void cleanup_numbering(struct numbering *n)
{
    text_index_done(&n->lists);
    free(n->is_excepted);
    free(n->numbers);
}

int pass_contiguous(struct pass *pass)
{
    if (!is_on(pass))
        return 0;
    cleanup(cleanup_numbering) struct numbering numbering = {0};
    int code = collect(pass, &numbering);
    code = code < 0 ? code : find_exceptions(pass, &numbering);
    if (code < 0)
        return code;
    const struct item *first = NULL;
    const char *key_of_first = NULL;
    size_t n_renumbered = 0;
    for_items(item, pass)
    {
        const char *key = item->tensor.key;
        if (renumber(pass, &numbering, item) && n_renumbered++ == 0) {
            first = item;
            key_of_first = key;
        }
    }
    if (n_renumbered > 0 && pass->view->contiguous == CONTIGUOUS_AUTO)
        tell_renumbered(pass, first, key_of_first, n_renumbered);
    return 0;
}
