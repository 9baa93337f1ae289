/* SPDX-License-Identifier: MIT */
/*
 * Values other than tensors: a graph of plain data, as a pickle describes it. The room knows kinds
 * of values, their JSON and edits of that; names of Python, formats and tensors are left to others.
 * The graph keeps what is needed to write the same pickle again: order, sharing, integers of any
 * size, which objects are calls of what with which arguments and state. Nothing in it was ever
 * executed.
 *
 * Values are numbers (ids) from 1 in a table of small structs; 0 means none. A value that is used
 * twice has one id. The graph can have cycles: whoever walks it keeps a bound.
 */
#ifndef WFS_VALUE_VALUE_H
#define WFS_VALUE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/source.h"

enum value_kind {
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_BIG, /* an integer that does not fit 64 bits */
    VALUE_FLOAT,
    VALUE_TEXT,
    VALUE_BYTES,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT, /* items are key, value, key, value ... */
    VALUE_SET,
    VALUE_GLOBAL, /* a class, function or constant, by name */
    VALUE_CALL,   /* an object that calling something makes */
    VALUE_PERSISTENT,
    VALUE_PARTS,  /* what was added to a call afterwards; not a value by itself */
    VALUE_RECORD, /* a thing outside of the graph: a storage that is about to be written, or an
                     object that was folded while it was read */
};

/* How a value is spelled in the pickle, where the kind leaves a choice. */
enum value_form {
    FORM_PLAIN,
    FORM_BYTE_TEXT,       /* text: a str of Python 2 */
    FORM_BYTE_DATA,       /* text: a str of Python 2 that is not text, but data */
    FORM_BYTEARRAY,       /* bytes: mutable */
    FORM_PAIRS,           /* dict: a list of lists of a key and a value */
    FORM_FROZEN,          /* set: frozenset */
    FORM_REDUCE,          /* call: callable(*args) */
    FORM_NEWOBJ,          /* call: callable.__new__(callable, *args) */
    FORM_NEWOBJ_EX,       /* call: the same with args = (args, kwargs) */
    FORM_INST,            /* call: an instance of an old class, INST or OBJ */
    FORM_EXTENSION,       /* call: args is the code of an extension registry; no callable */
    FORM_PERSISTENT_TEXT, /* persistent: the id was text in the pickle (protocol 0) */
    FORM_UNSIGNED,        /* integer: of an unsigned type, in a Burnpack */
};

enum value_mark {
    MARK_TENSOR = 1 << 0,   /* a tensor is in it */
    MARK_SEEN = 1 << 1,     /* of walks that visit everything once */
    MARK_OPEN = 1 << 2,     /* on the path of the walk */
    MARK_EXPANDED = 1 << 3, /* its content has been listed */
    MARK_OWNED = 1 << 4,    /* a module has it as parameter, buffer or submodule */
    MARK_TAKEN = 1 << 5,    /* its items are those of what a call makes, too */
    MARK_CUT = 1 << 6,      /* it is too long to be written as often as it is used */
    MARK_WHOLE = 1 << 7,    /* it was stored by itself, and is stored so again */
};

struct value_global {
    const char *module, *name; /* as in the file; may hold any byte */
    uint32_t n_module, n_name;
};

/* Those that are more are not copied into memory or text. */
#define VALUE_COPIED_MAX (1 << 20)

/* Bytes stay where they are. */
struct value_bytes {
    const struct source *source;
    uint64_t offset, n_bytes;
};

struct value {
    uint8_t kind;  /* enum value_kind */
    uint8_t form;  /* enum value_form */
    uint8_t tag;   /* global: for the format that asks what it is; 0: not asked yet */
    uint8_t marks; /* enum value_mark */
    uint32_t n; /* items (both of a pair count), bytes of text or integer; call: id of its parts */
    union {
        int64_t integer; /* also of a bool */
        double real;
        const char
            *text; /* ended by NUL, not counted in n; integer: two's complement, little-endian */
        uint32_t pair[2]; /* items, while there are at most two */
        uint32_t *items;
        struct value_bytes *bytes;
        struct value_global *global;
        struct {
            uint32_t callable, args;
        } call;
        uint32_t id; /* persistent: the id that it has outside of the pickle; record: its number */
        struct {
            uint32_t items, elements; /* parts: what was set by key, what was appended; n: states */
        } parts;
    };
};

struct graph;
struct json_writer;
struct strbuf;

/* How the format that a graph is from names and shows what is not plain data. */
struct value_notation {
    /* Adds the name of a key of a dict that is not text; false: it has none, and a part of one may
     * have been added. */
    bool (*add_key)(struct strbuf *text, const struct graph *graph, uint32_t id);
    /* Writes a call, a global or a persistent value as JSON. */
    void (*write_object)(struct json_writer *writer, uint32_t id);
    /* Returns the dict whose items a call shows as its own, NULL when it does not. */
    const struct value *(*dict_of)(const struct graph *graph, const struct value *call);
};

struct value_lookup;

struct graph {
    const struct value_notation *notation; /* NULL: all is plain data */
    struct arena *arena;                   /* borrowed; everything lives there */
    struct value **chunks;
    uint32_t n_chunks, n_chunk_room;
    uint32_t n_values;
    uint32_t *cells; /* room for items */
    uint32_t n_cells;
    uint32_t strays;  /* list of target, state: what BUILD gave to a value that takes none */
    uint32_t n_marks; /* open at the same time in a pickle that was read, at most */
    uint8_t protocol; /* of the first pickle */
    struct value_lookup *lookup; /* borrowed, for one thread; NULL: value_get searches each time */
};

enum { GRAPH_CHUNK = 4096 };

/*
 * A copy that can be changed: its new values live in the arena; those of `from` stay where they are
 * until graph_own copies the chunk that one is in. owned is a zeroed flag for each chunk of from.
 */
void graph_fork(struct graph *to, const struct graph *from, struct arena *arena);
struct value *graph_own(struct graph *graph, uint32_t id, uint8_t *owned, uint32_t n_owned);

/* A zeroed graph with an arena is empty. The root that it had is up to the caller. */
static inline struct value *graph_at(const struct graph *graph, uint32_t id)
{
    return &graph->chunks[(id - 1) / GRAPH_CHUNK][(id - 1) % GRAPH_CHUNK];
}

/* Ids, or 0 when out of memory. */
uint32_t value_new(struct graph *graph, enum value_kind kind);
uint32_t value_new_integer(struct graph *graph, int64_t integer);
uint32_t value_new_text(struct graph *graph, const char *text, size_t n_bytes);
uint32_t value_new_bytes(struct graph *graph, const struct source *source, uint64_t offset,
                         uint64_t n_bytes);
uint32_t value_new_global(struct graph *graph, const char *module, size_t n_module,
                          const char *name, size_t n_name);
uint32_t value_new_items(struct graph *graph, enum value_kind kind, const uint32_t *items,
                         uint32_t n);
uint32_t value_new_call(struct graph *graph, enum value_form form, uint32_t callable,
                        uint32_t args);

/*
 * Copies plain data into another graph with its texts; bytes stay where they are. What is not
 * plain, or nested deeper than 1024 levels, becomes null. Returns an id, 0 when out of memory.
 */
uint32_t value_copy(struct graph *to, const struct graph *from, uint32_t id);

/* Adds items to a list, dict or set. -ENOMEM; -EOVERFLOW past 2^32-1. */
int value_append(struct graph *graph, uint32_t id, const uint32_t *items, uint32_t n);

/* The same for a call, making its parts when needed. */
enum value_part { PART_STATES, PART_ITEMS, PART_ELEMENTS };
int value_append_part(struct graph *graph, uint32_t id, enum value_part part, const uint32_t *items,
                      uint32_t n);

/* Id of a part of a call (a list, or a dict for the items), 0 when it has none. */
uint32_t value_part(const struct graph *graph, const struct value *call, enum value_part part);

/* Items of a list, tuple, dict or set; NULL when it is empty. */
static inline const uint32_t *value_items(const struct value *value)
{
    return value->n <= 2 ? value->pair : value->items;
}

/* Can it have items? */
static inline bool value_has_items(const struct value *value)
{
    return value->kind >= VALUE_LIST && value->kind <= VALUE_SET;
}

/* True for a text (of either Python) with just these bytes. */
bool value_is_text(const struct graph *graph, uint32_t id, const char *text);

/* The value of a text key of a dict, the last one when there are several; 0 when there is none. */
uint32_t value_get(const struct graph *graph, uint32_t dict, const char *key);

/* The texts of large dicts that value_get has searched: thousands of objects can share one. A
 * zeroed struct is empty. */
struct value_lookup {
    struct map map;
    struct value_texts *dicts;
    uint32_t n_dicts;
    size_t n_room;
};

void value_lookup_done(struct value_lookup *lookup);

/* The i-th value that hangs on this one, whatever its kind, in the order of writing; 0: no more. */
uint32_t value_child(const struct graph *graph, uint32_t id, uint32_t i);

/*
 * Equal keys of a dict, as Python compares them: 1, 1.0 and True are one. Tuples of few items are
 * compared by them; what is more complicated is equal only to itself.
 */
bool value_is_same_key(const struct graph *graph, uint32_t a, uint32_t b); /* for tests */

/*
 * Leaves of several pairs with the same key what Python does: the first place, the last value.
 * Returns how many pairs went, or -ENOMEM.
 */
int64_t value_drop_twins(struct graph *graph, uint32_t dict);

/* The items of a list, tuple or set, found as keys are. Borrows the items. */
struct value_set {
    const struct graph *graph;
    const uint32_t *items;
    struct map map;
};

/* -ENOMEM; needs value_set_done in any case. */
int value_set_init(struct value_set *set, const struct graph *graph, const struct value *items);
bool value_set_has(const struct value_set *set, uint32_t key);
void value_set_done(struct value_set *set);

#endif
