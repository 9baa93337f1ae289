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
#include "catalog/catalog.h"
#include "value/value_build.h"

enum record_encoding { RECORD_MPK, RECORD_JSON };

/* Kinds of numbers that occur in a list, as bits. */
enum element_kind {
    ELEMENT_BOOL = 1 << TOKEN_BOOL,
    ELEMENT_UINT = 1 << TOKEN_UINT,
    ELEMENT_NEGATIVE = 1 << TOKEN_NEGATIVE,
    ELEMENT_F32 = 1 << TOKEN_F32,
    ELEMENT_F64 = 1 << TOKEN_F64,
    ELEMENT_DECIMAL = 1 << TOKEN_DECIMAL,
    ELEMENT_INTEGERS = ELEMENT_UINT | ELEMENT_NEGATIVE,
};

enum { RECORD_LIST_SHORT = 32, RECORD_LIST_STEP = 4096 };

struct record_list {
    uint64_t offset, end; /* of its first number, and behind its last one (not in JSON) */
    uint64_t n;
    uint64_t largest;             /* of the unsigned ones */
    int64_t least;                /* of the negative ones, or 0 */
    const struct token *elements; /* of a short one, in the arena; NULL: it is long */
    const char *text;   /* whose bytes are the numbers, in the arena; NULL: it is not a text */
    size_t first_point; /* of a long one */
    uint8_t kinds;      /* that occur, enum element_kind */
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
    struct token first[RECORD_LIST_SHORT];
};

/* Starts a list whose points, if it becomes a long one, follow those that exist. */
void list_begin(struct list_draft *draft, const struct record_lists *lists);

/* Adds the number at the offset. -ENOMEM. */
int list_put(struct list_draft *draft, struct record_lists *lists, const struct token *token,
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
int list_reader_next(struct list_reader *reader, struct token *ret);
void list_reader_done(struct list_reader *reader);

/*
 * Makes a source without ranges. bytes has the lists; is_owned: it is freed with the source. Moves
 * the lists into the source. -ENOMEM: neither is taken.
 */
int record_source_new(struct source *file, struct source *bytes, bool is_owned,
                      struct record_lists *lists, struct source **out);

/* Adds the list as elements of a dtype, and returns where they begin. -ENOMEM; -EOVERFLOW when
 * offsets run out. */
int record_source_add(struct source *source, uint32_t list, enum wfs_dtype dtype,
                      uint64_t *ret_offset);

/* Returns a list of the source. */
const struct record_list *record_source_list(const struct source *source, uint32_t list);

/*
 * Returns the list that a tensor is, as it is stored and shown, in MessagePack; *ret_bytes is what
 * it lies in. NULL: the tensor is something else.
 */
const struct record_list *record_source_whole(const struct wfs_tensor *tensor,
                                              const struct source **ret_bytes);

/* Starts to read a list of the source. As list_reader_init. */
int record_source_read(const struct source *source, uint32_t list, struct list_reader *reader);

#endif
