/* SPDX-License-Identifier: MIT */
/*
 * Collecting lists of numbers, and reading their numbers again.
 */
#include "format/records/record_list.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/records/mpk_in.h"

enum { NUMBER_MAX = 512 };

void record_lists_done(struct record_lists *lists)
{
    free(lists->items);
    free(lists->points);
    *lists = (struct record_lists){0};
}

/* ---- collecting ---- */

void list_begin(struct list_draft *draft, const struct record_lists *lists)
{
    draft->list = (struct record_list){.first_point = lists->n_points};
}

int list_put(struct list_draft *draft, struct record_lists *lists, const struct element *element,
             uint64_t offset)
{
    struct record_list *list = &draft->list;
    if (list->n == 0)
        list->offset = offset;
    if (list->n < RECORD_LIST_SHORT)
        draft->first[list->n] = *element;
    if (list->n % RECORD_LIST_STEP == 0) {
        if (array_reserve(&lists->points, sizeof(*lists->points), lists->n_points, 1,
                          &lists->n_point_room) < 0)
            return -ENOMEM;
        lists->points[lists->n_points++] = offset;
    }
    list->n++;
    list->kinds |= element->kind;
    if (element->kind == ELEMENT_UINT && element->bits > list->largest)
        list->largest = element->bits;
    if (element->kind == ELEMENT_NEGATIVE && (int64_t)element->bits < list->least)
        list->least = (int64_t)element->bits;
    return 0;
}

void list_drop(const struct list_draft *draft, struct record_lists *lists)
{
    lists->n_points = draft->list.first_point;
}

static int64_t add_list(struct record_lists *lists, const struct record_list *list)
{
    if (array_reserve(&lists->items, sizeof(*lists->items), lists->n_items, 1, &lists->n_room) < 0)
        return -ENOMEM;
    lists->items[lists->n_items] = *list;
    return (int64_t)lists->n_items++;
}

int64_t list_end(const struct list_draft *draft, struct record_lists *lists, struct arena *arena)
{
    struct record_list list = draft->list;
    if (list.n <= RECORD_LIST_SHORT) {
        struct element *elements = arena_calloc(arena, list.n, sizeof(*elements));
        if (elements == NULL)
            return -ENOMEM;
        memcpy(elements, draft->first, list.n * sizeof(*elements));
        list.elements = elements;
        lists->n_points = list.first_point;
    }
    return add_list(lists, &list);
}

int64_t list_of_text(struct record_lists *lists, const char *text, size_t n_bytes)
{
    return add_list(lists,
                    &(struct record_list){
                        .n = n_bytes, .largest = UINT8_MAX, .kinds = ELEMENT_UINT, .text = text});
}

/* ---- numbers ---- */

static struct element element_of_integer(bool is_negative, uint64_t bits)
{
    return (struct element){bits, is_negative ? ELEMENT_NEGATIVE : ELEMENT_UINT};
}

/* Reads an integer without a fraction. Returns false when it does not fit 64 bits. */
static bool parse_integer(const char *text, size_t n_bytes, struct element *ret)
{
    const bool is_negative = n_bytes > 0 && text[0] == '-';
    uint64_t n = 0;
    for (size_t i = is_negative; i < n_bytes; i++) {
        if (text[i] < '0' || text[i] > '9' || !checked_mul(n, (uint64_t)10, &n) ||
            !checked_add(n, (uint64_t)(text[i] - '0'), &n))
            return false;
    }
    if (is_negative && (n == 0 || n > (uint64_t)INT64_MAX + 1))
        return false; /* -0 is a float */
    *ret = element_of_integer(is_negative, is_negative ? 0 - n : n);
    return true;
}

bool element_parse(const char *text, size_t n_bytes, struct element *ret)
{
    char copy[NUMBER_MAX + 1];
    if (n_bytes > NUMBER_MAX)
        return false;
    if (parse_integer(text, n_bytes, ret))
        return true;
    memcpy(copy, text, n_bytes);
    copy[n_bytes] = '\0';
    const double real = strtod(copy, NULL);
    ret->kind = ELEMENT_DECIMAL;
    memcpy(&ret->bits, &real, sizeof(real));
    return true;
}

static double real_of(const struct element *element)
{
    double real;
    float narrow;
    const uint32_t low = (uint32_t)element->bits;
    switch (element->kind) {
    case ELEMENT_F32:
        memcpy(&narrow, &low, sizeof(narrow));
        return narrow;
    case ELEMENT_F64:
    case ELEMENT_DECIMAL:
        memcpy(&real, &element->bits, sizeof(real));
        return real;
    case ELEMENT_NEGATIVE:
        return (double)(int64_t)element->bits;
    default:
        return (double)element->bits;
    }
}

void element_store(const struct element *element, enum wfs_dtype dtype, uint8_t *out)
{
    uint64_t bits = element->bits;
    if (dtype == WFS_F32 && element->kind != ELEMENT_F32) {
        const float real = (float)real_of(element);
        uint32_t low;
        memcpy(&low, &real, sizeof(low));
        bits = low;
    } else if (dtype == WFS_F64 && element->kind != ELEMENT_F64) {
        const double real = real_of(element);
        memcpy(&bits, &real, sizeof(bits));
    }
    for (unsigned i = 0; i < wfs_dtype_bits(dtype) / 8; i++)
        out[i] = (uint8_t)(bits >> 8 * i);
}

/* ---- reading ---- */

int list_reader_init(struct list_reader *reader, const struct record_lists *lists,
                     const struct record_list *list, const struct source *bytes, uint64_t from)
{
    *reader = (struct list_reader){.list = list, .encoding = lists->encoding, .next = from};
    if (list->elements != NULL || list->text != NULL)
        return 0;
    const uint64_t point = from / RECORD_LIST_STEP;
    int code = stream_init(&reader->stream, bytes, lists->points[list->first_point + point],
                           bytes->n_bytes);
    for (reader->next = point * RECORD_LIST_STEP; code == 0 && reader->next < from;) {
        struct element unused;
        code = list_reader_next(reader, &unused);
    }
    return code;
}

void list_reader_done(struct list_reader *reader)
{
    stream_done(&reader->stream);
}

static int next_of_mpk(struct stream *stream, struct element *ret)
{
    static const uint8_t kinds[] = {[MPK_BOOL] = ELEMENT_BOOL,
                                    [MPK_UINT] = ELEMENT_UINT,
                                    [MPK_NEGATIVE] = ELEMENT_NEGATIVE,
                                    [MPK_F32] = ELEMENT_F32,
                                    [MPK_F64] = ELEMENT_F64};
    struct mpk_token token;
    const int code = mpk_next(stream, &token);
    if (code < 0 || token.kind > MPK_F64 || kinds[token.kind] == 0)
        return code == -ENODATA || code == 0 ? -EIO : code;
    *ret = (struct element){token.n, kinds[token.kind]};
    return 0;
}

static bool is_in_number(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' ||
           c == 'E';
}

/* The characters of a number, or of true and false, behind white space and a comma. */
static int next_of_json(struct stream *stream, struct element *ret)
{
    char text[NUMBER_MAX + 1];
    size_t n = 0;
    const uint8_t *c;
    int code;
    while ((code = stream_take(stream, 1, &c)) == 0) {
        if (!is_in_number(*c)) {
            if (n == 0)
                continue;
            break;
        }
        if (n == NUMBER_MAX)
            return -EIO;
        text[n++] = (char)*c;
    }
    if (n == 0 || (code < 0 && code != -ENODATA))
        return code < 0 && code != -ENODATA ? code : -EIO;
    if (text[0] == 't' || text[0] == 'f') {
        *ret = (struct element){text[0] == 't', ELEMENT_BOOL};
        return 0;
    }
    return element_parse(text, n, ret) ? 0 : -EIO;
}

int list_reader_next(struct list_reader *reader, struct element *ret)
{
    const uint64_t i = reader->next++;
    if (reader->list->elements != NULL) {
        *ret = reader->list->elements[i];
        return 0;
    }
    if (reader->list->text != NULL) {
        *ret = element_of_integer(false, (uint8_t)reader->list->text[i]);
        return 0;
    }
    return reader->encoding == RECORD_MPK ? next_of_mpk(&reader->stream, ret)
                                          : next_of_json(&reader->stream, ret);
}
