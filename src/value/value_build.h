/* SPDX-License-Identifier: MIT */
/*
 * Values from an encoding of structured data, whichever it is: JSON, CBOR or MessagePack. Each has
 * an adapter that takes it apart into tokens; here they become a graph.
 */
#ifndef WFS_VALUE_BUILD_H
#define WFS_VALUE_BUILD_H

#include "base/text_index.h"
#include "text/json.h"
#include "value/value.h"

/* The numbers come first. */
enum token_kind {
    TOKEN_BOOL,
    TOKEN_UINT,
    TOKEN_NEGATIVE,
    TOKEN_F32,
    TOKEN_F64,
    TOKEN_DECIMAL, /* of JSON, which does not say how wide it is */
    TOKEN_NULL,
    TOKEN_TEXT,
    TOKEN_BYTES,
    TOKEN_LIST,
    TOKEN_MAP,
    TOKEN_END,   /* of the innermost list or map */
    TOKEN_OTHER, /* what only one encoding has */
};

struct token {
    /* Number: its bits, negative ones in two's complement, DECIMAL: of the nearest double. Text,
     * bytes: how many there are. List: items; map: pairs; where the encoding says it. */
    uint64_t n;
    const char *bytes; /* of a text, where the adapter has it in memory */
    uint8_t kind;
};

/* What comes next, as far as the containers around it say. */
enum token_place {
    AT_VALUE, /* a value: outermost, or behind its key */
    AT_ITEM,  /* an item of a list, or its end */
    AT_KEY,   /* a key of a map, or its end */
};

/* A float that has 32 bits in the file has this tag. */
enum { VALUE_NARROW = 1 };

static inline bool token_is_number(const struct token *token)
{
    return token->kind <= TOKEN_DECIMAL;
}

/* Returns a number as a double. */
double token_real(const struct token *token);

enum { TOKEN_NUMBER_MAX = 512 }; /* characters of a number in JSON */

/* Reads a number as JSON spells it. Returns false when it is too long. */
bool token_parse(const char *text, size_t n_bytes, struct token *ret);

/* The adapter of JSON. Returns false in error, which the parser has then. */
bool token_take_json(struct json *json, enum token_place place, struct token *ret);

/*
 * Returns a new value: a number, a text, which is copied, or null for all others; 0 when out of
 * memory. Integers above the signed ones take nine bytes of two's complement, and are unsigned.
 */
uint32_t value_of_token(struct graph *graph, const struct token *token);

/* Returns a text that lasts as long as the graph; 0 when out of memory. */
uint32_t value_new_lasting(struct graph *graph, const char *text, size_t n_bytes);

/* An open container. */
struct build_level {
    size_t first, first_outer; /* of its items, of the keys that it hides */
    uint64_t n_left;           /* for the adapter: items or pairs that are yet to come */
    uint32_t serial;           /* of a map: no other has it */
    bool is_map, has_twins;
};

/*
 * A value that is being built. A zeroed struct with a graph is ready to use. A lack of memory is
 * remembered: there is no root then.
 */
struct build {
    struct graph *graph;
    bool numbers_twins;         /* of equal keys in a map the others get ~2, ~3 ...; else the last
                                   one counts, at the place of the first */
    struct build_level *levels; /* malloc'ed */
    size_t depth, n_level_room;
    uint32_t *items; /* malloc'ed; of all open containers: values, in a map keys and values */
    size_t n_items, n_item_room;
    struct text_index keys;
    struct build_key *key_items; /* malloc'ed; by number of the key */
    size_t n_key_room;
    struct build_outer *outers; /* malloc'ed; of all open maps */
    size_t n_outers, n_outer_room;
    uint32_t n_maps;
    uint32_t root;   /* once it is complete */
    bool has_twins;  /* somewhere */
    bool has_failed; /* for lack of memory */
};

void build_done(struct build *build);

/* Returns the innermost open container; NULL: none. */
struct build_level *build_level(const struct build *build);

/* Returns what comes next. */
enum token_place build_place(const struct build *build);

/* Returns whether the value that comes next is that of the key. */
bool build_is_at(const struct build *build, const char *key);

/* Returns whether the innermost map has the key. */
bool build_has_key(const struct build *build, const char *key, size_t n_bytes);

void build_open(struct build *build, bool is_map);
void build_key(struct build *build, const char *key, size_t n_bytes); /* copies it */
void build_add(struct build *build, uint32_t id); /* 0: there was no memory for it */

/* Closes the innermost container; a key that has no value yet is dropped. Returns its value, which
 * is to be added to the container around it, or 0. */
uint32_t build_close(struct build *build);

/* Adds a token of any kind. Returns false for a key that is not a text. */
bool build_token(struct build *build, const struct token *token);

/* Builds the value that a JSON text describes; *ret is 0 when it is not JSON, or has two equal keys
 * in an object. -ENOMEM. */
int value_of_json(struct graph *graph, const char *text, uint32_t *ret);

#endif
