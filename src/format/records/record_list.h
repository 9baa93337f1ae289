/* SPDX-License-Identifier: MIT */
/*
 * Lists of numbers in a record: tensors up to Burn 0.13, and the bytes of tensors in JSON. They
 * stay in the file and are decoded when they are read; of long ones, only the place of every 4096th
 * number is kept.
 */
#ifndef WFS_RECORD_LIST_H
#define WFS_RECORD_LIST_H

#include "base/arena.h"
#include "base/source.h"
#include "base/stream.h"
#include "tensor/catalog.h"

enum record_encoding { RECORD_MPK, RECORD_JSON };

/* Kinds of numbers, as bits. */
enum element_kind {
    ELEMENT_BOOL = 1 << 0,
    ELEMENT_UINT = 1 << 1,
    ELEMENT_NEGATIVE = 1 << 2,
    ELEMENT_F32 = 1 << 3,
    ELEMENT_F64 = 1 << 4,
    ELEMENT_DECIMAL = 1 << 5, /* of JSON, which does not say how wide it is */
};

enum { ELEMENT_INTEGERS = ELEMENT_UINT | ELEMENT_NEGATIVE };

struct element {
    uint64_t bits; /* integer: two's complement; DECIMAL: of the nearest double */
    uint8_t kind;
};

enum { RECORD_LIST_SHORT = 32, RECORD_LIST_STEP = 4096 };

struct record_list {
    uint64_t offset, end; /* of its first number, and behind its last one (not in JSON) */
    uint64_t n;
    uint64_t largest;               /* of the unsigned ones */
    int64_t least;                  /* of the negative ones, or 0 */
    const struct element *elements; /* of a short one, in the arena; NULL: it is long */
    const char *text;   /* whose bytes are the numbers, in the arena; NULL: it is not a text */
    size_t first_point; /* of a long one */
    uint8_t kinds;      /* that occur */
};

/* All lists of a record. A zeroed struct is empty. */
struct record_lists {
    enum record_encoding encoding;
    struct record_list *items; /* malloc'ed */
    size_t n_items, n_room;
    uint64_t *points; /* malloc'ed; the offset of every 4096th number of the long lists */
    size_t n_points, n_point_room;
};

void record_lists_done(struct record_lists *lists);

/* A list that is being collected. */
struct list_draft {
    struct record_list list;
    struct element first[RECORD_LIST_SHORT];
};

/* Starts a list whose points, if it becomes a long one, follow those that exist. */
void list_begin(struct list_draft *draft, const struct record_lists *lists);

/* Adds the number at the offset. -ENOMEM. */
int list_put(struct list_draft *draft, struct record_lists *lists, const struct element *element,
             uint64_t offset);

/* Gives up on the list. */
void list_drop(const struct list_draft *draft, struct record_lists *lists);

/* Keeps the list. Returns its number, or a negative errno. */
int64_t list_end(const struct list_draft *draft, struct record_lists *lists, struct arena *arena);

/* Adds a text of JSON as the list of its bytes. Returns its number, or a negative errno. */
int64_t list_of_text(struct record_lists *lists, const char *text, size_t n_bytes);

/* Reads numbers one after another. */
struct list_reader {
    const struct record_list *list;
    enum record_encoding encoding;
    uint64_t next;
    struct stream stream; /* not used for short ones */
};

/* Starts at a number of the list. -ENOMEM. list_reader_done is due in any case. */
int list_reader_init(struct list_reader *reader, const struct record_lists *lists,
                     const struct record_list *list, const struct source *bytes, uint64_t from);
int list_reader_next(struct list_reader *reader, struct element *ret);
void list_reader_done(struct list_reader *reader);

/* Parses a number of JSON. Returns false when it is longer than 512 characters. */
bool element_parse(const char *text, size_t n_bytes, struct element *ret);

/* Stores a number as an element of a dtype, little-endian. Half floats are given by their bits. */
void element_store(const struct element *element, enum wfs_dtype dtype, uint8_t *out);

#endif
