/* SPDX-License-Identifier: MIT */
/*
 * Collecting lists of numbers, and reading their numbers again.
 */
#include "format/records/record_list.h"

#include <weightfs/array.h>
#include "base/arena.h"
#include "base/bytes.h"
#include "base/search.h"
#include "base/source.h"
#include "base/stream.h"
#include "catalog/catalog.h"
#include "format/records/record_write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

int list_put(struct list_draft *draft, struct record_lists *lists, const struct token *token,
             uint64_t offset)
{
    struct record_list *list = &draft->list;
    if (list->n == 0)
        list->offset = offset;
    if (list->n < RECORD_LIST_SHORT)
        draft->first[list->n] = *token;
    if (list->n % RECORD_LIST_STEP == 0) {
        if (array_reserve(&lists->points, sizeof(*lists->points), lists->n_points, 1,
                          &lists->n_point_room) < 0)
            return -ENOMEM;
        lists->points[lists->n_points++] = offset;
    }
    list->n++;
    list->kinds |= (uint8_t)(1 << token->kind);
    if (token->kind == TOKEN_UINT && token->n > list->largest)
        list->largest = token->n;
    if (token->kind == TOKEN_NEGATIVE && (int64_t)token->n < list->least)
        list->least = (int64_t)token->n;
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
        struct token *elements = arena_calloc(arena, list.n, sizeof(*elements));
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

/* Stores a number as an element of a dtype, little-endian. Half floats are given by their bits. */
static void element_store(const struct token *token, enum wfs_dtype dtype, uint8_t *out)
{
    uint64_t bits = token->n;
    if (dtype == WFS_F32 && token->kind != TOKEN_F32) {
        const float real = (float)token_real(token);
        uint32_t low;
        memcpy(&low, &real, sizeof(low));
        bits = low;
    } else if (dtype == WFS_F64 && token->kind != TOKEN_F64) {
        const double real = token_real(token);
        memcpy(&bits, &real, sizeof(bits));
    }
    for (unsigned i = 0; i < wfs_dtype_bits(dtype) / 8; i++)
        out[i] = (uint8_t)(bits >> 8 * i);
}

/* Starts at a number of the list. -ENOMEM. list_reader_done is due in any case. */
/* ---- reading ---- */

static int list_reader_init(const struct wfs_io *io, struct list_reader *reader,
                            const struct record_lists *lists, const struct record_list *list,
                            const struct source *bytes, uint64_t from)
{
    *reader = (struct list_reader){.list = list, .encoding = lists->encoding, .next = from};
    if (list->elements != NULL || list->text != NULL)
        return 0;
    const uint64_t point = from / RECORD_LIST_STEP;
    int code = stream_init(&reader->stream, bytes, lists->points[list->first_point + point],
                           bytes->n_bytes);
    reader->stream.io = io;
    for (reader->next = point * RECORD_LIST_STEP; code == 0 && reader->next < from;) {
        struct token unused;
        code = list_reader_next(reader, &unused);
    }
    return code;
}

void list_reader_done(struct list_reader *reader)
{
    stream_done(&reader->stream);
}

static int next_of_mpk(struct stream *stream, struct token *ret)
{
    const int code = mpk_next(stream, ret);
    if (code < 0)
        return code == -ENODATA ? -EIO : code;
    return token_is_number(ret) ? 0 : -EIO;
}

static bool is_in_number(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' ||
           c == 'E';
}

/* The characters of a number, or of true and false, behind white space and a comma. */
static int next_of_json(struct stream *stream, struct token *ret)
{
    char text[TOKEN_NUMBER_MAX + 1];
    size_t n = 0;
    const uint8_t *c;
    int code;
    while ((code = stream_take(stream, 1, &c)) == 0) {
        if (!is_in_number(*c)) {
            if (n == 0)
                continue;
            break;
        }
        if (n == TOKEN_NUMBER_MAX)
            return -EIO;
        text[n++] = (char)*c;
    }
    if (n == 0 || (code < 0 && code != -ENODATA))
        return code < 0 && code != -ENODATA ? code : -EIO;
    if (text[0] == 't' || text[0] == 'f') {
        *ret = (struct token){.kind = TOKEN_BOOL, .n = text[0] == 't'};
        return 0;
    }
    return token_parse(text, n, ret) ? 0 : -EIO;
}

int list_reader_next(struct list_reader *reader, struct token *ret)
{
    const uint64_t i = reader->next++;
    if (reader->list->elements != NULL) {
        *ret = reader->list->elements[i];
        return 0;
    }
    if (reader->list->text != NULL) {
        *ret = (struct token){.kind = TOKEN_UINT, .n = (uint8_t)reader->list->text[i]};
        return 0;
    }
    return reader->encoding == RECORD_MPK ? next_of_mpk(&reader->stream, ret)
                                          : next_of_json(&reader->stream, ret);
}

/* Ranges begin at multiples of this and never touch: no read continues into the next one. */
enum { RANGE_STEP = 64, ELEMENT_MAX = 8 };

struct range {
    uint64_t offset;
    uint32_t list;
    uint8_t dtype;
};

struct decoded {
    struct source *bytes; /* that the lists are in */
    bool owns_bytes;
    struct record_lists lists;
    struct range *ranges; /* malloc'ed */
    size_t n_ranges, n_room;
};

static size_t element_bytes(const struct range *range)
{
    return wfs_dtype_bits((enum wfs_dtype)range->dtype) / 8;
}

/* Returns the last range that begins at or before the offset, NULL: none. */
static const struct range *range_at(const struct decoded *decoded, uint64_t offset)
{
    const size_t n = search_starts(decoded->ranges, decoded->n_ranges, sizeof(*decoded->ranges),
                                   offsetof(struct range, offset), offset);
    return n == 0 ? NULL : &decoded->ranges[n - 1];
}

/* Decodes bytes of a range from an offset in it. */
static int decode(struct list_reader *reader, const struct range *range, size_t skip, uint8_t *out,
                  size_t n_bytes)
{
    const size_t n_element = element_bytes(range);
    uint8_t stored[ELEMENT_MAX];
    struct token element;
    while (n_bytes > 0) {
        const int code = list_reader_next(reader, &element);
        if (code < 0)
            return code;
        const size_t n = n_bytes < n_element - skip ? n_bytes : n_element - skip;
        element_store(&element, (enum wfs_dtype)range->dtype, stored);
        memcpy(out, stored + skip, n);
        out += n;
        n_bytes -= n;
        skip = 0;
    }
    return 0;
}

static int read_decoded(const struct source *source, const struct wfs_io *io, uint64_t offset,
                        void *buf, size_t n_bytes)
{
    const struct decoded *decoded = source->ctx;
    const struct range *range = range_at(decoded, offset);
    struct list_reader reader;
    if (n_bytes == 0)
        return 0;
    if (range == NULL)
        return -EIO;
    const struct record_list *list = &decoded->lists.items[range->list];
    const size_t n_element = element_bytes(range);
    const uint64_t from = offset - range->offset;
    if (from > list->n * n_element || n_bytes > list->n * n_element - from)
        return -EIO;
    int code =
        list_reader_init(io, &reader, &decoded->lists, list, decoded->bytes, from / n_element);
    if (code == 0)
        code = decode(&reader, range, (size_t)(from % n_element), buf, n_bytes);
    list_reader_done(&reader);
    return code;
}

static void free_decoded(void *ctx)
{
    struct decoded *decoded = ctx;
    if (decoded->owns_bytes)
        source_free(decoded->bytes);
    record_lists_done(&decoded->lists);
    free(decoded->ranges);
    free(decoded);
}

static const struct source_kind decoded_kind = {.read = read_decoded, .done = free_decoded};

int record_source_new(struct source *file, struct source *bytes, bool is_owned,
                      struct record_lists *lists, struct source **out)
{
    struct decoded *decoded = calloc(1, sizeof(*decoded));
    if (source_new(&decoded_kind, file->path, decoded, 0, out) < 0)
        return -ENOMEM;
    decoded->bytes = bytes;
    decoded->owns_bytes = is_owned;
    decoded->lists = *lists;
    *lists = (struct record_lists){0};
    (*out)->origin = file;
    return 0;
}

int record_source_add(struct source *source, uint32_t list, enum wfs_dtype dtype,
                      uint64_t *ret_offset)
{
    struct decoded *decoded = source->ctx;
    struct range range = {.list = list, .dtype = (uint8_t)dtype};
    uint64_t n_bytes, end;
    if (!checked_add(source->n_bytes, (uint64_t)1, &range.offset) ||
        !checked_round_up(range.offset, RANGE_STEP, &range.offset) ||
        !checked_mul(decoded->lists.items[list].n, (uint64_t)element_bytes(&range), &n_bytes) ||
        !checked_add(range.offset, n_bytes, &end) || end > INT64_MAX)
        return -EOVERFLOW;
    if (array_reserve(&decoded->ranges, sizeof(*decoded->ranges), decoded->n_ranges, 1,
                      &decoded->n_room) < 0)
        return -ENOMEM;
    decoded->ranges[decoded->n_ranges++] = range;
    source->n_bytes = end;
    *ret_offset = range.offset;
    return 0;
}

const struct record_list *record_source_list(const struct source *source, uint32_t list)
{
    const struct decoded *decoded = source->ctx;
    return &decoded->lists.items[list];
}

int record_source_read(const struct source *source, uint32_t list, struct list_reader *reader)
{
    const struct decoded *decoded = source->ctx;
    return list_reader_init(NULL, reader, &decoded->lists, &decoded->lists.items[list],
                            decoded->bytes, 0);
}

const struct record_list *record_source_whole(const struct wfs_tensor *tensor,
                                              const struct source **ret_bytes)
{
    const struct wfs_stored *stored = &tensor->stored;
    if (stored->source == NULL || stored->source->kind != &decoded_kind ||
        stored->strides != NULL || stored->is_big_endian || stored->dtype != tensor->dtype)
        return NULL;
    const struct decoded *decoded = stored->source->ctx;
    const struct range *range = range_at(decoded, stored->offset);
    if (decoded->lists.encoding != RECORD_MPK || range == NULL || range->offset != stored->offset ||
        range->dtype != tensor->dtype)
        return NULL;
    const struct record_list *list = &decoded->lists.items[range->list];
    *ret_bytes = decoded->bytes;
    return list->n * element_bytes(range) == tensor->n_bytes ? list : NULL;
}
