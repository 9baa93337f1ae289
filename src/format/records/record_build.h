/* SPDX-License-Identifier: MIT */
/*
 * Building the graph of a record from the pieces of its text, whatever that is encoded in: open
 * containers, keys, values, one after another. Depth and counts are bounded here.
 */
#ifndef WFS_RECORD_BUILD_H
#define WFS_RECORD_BUILD_H

#include "format/records/record_load.h"

struct build_level {
    size_t first; /* of its items */
    size_t first_outer;
    uint32_t serial; /* of a map: no other has it */
    bool is_map;
    uint64_t n_left; /* for the parser: items or pairs that are yet to come */
    uint64_t n;      /* for the parser: of them in all */
};

/* A key that occurred. */
struct build_key {
    uint32_t id;     /* of its text */
    uint32_t serial; /* of the innermost open map that has it, or of one that is closed */
    uint32_t n_same; /* in that map */
};

/* What a key was in the maps around one that has it too. */
struct build_outer {
    uint32_t number;
    struct build_key key;
};

struct build {
    struct record_load *load;
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
    uint32_t root; /* once it is complete */
};

void build_init(struct build *build, struct record_load *load);
void build_done(struct build *build);

/* The innermost open container; NULL: none. */
struct build_level *build_level(const struct build *build);

/* Returns whether the value that comes next is that of the key. */
bool build_is_at(const struct build *build, const char *key);

/* Opens a container of n items or pairs, if that is known, at an offset for messages. */
int build_open(struct build *build, bool is_map, uint64_t n, uint64_t offset);

/* Adds a key of the innermost map, which must be UTF-8 without NUL. A duplicate is an error; with
 * force it gets ~2 behind it, so that nothing is written with two equal keys. */
int build_key(struct build *build, const char *key, size_t n_bytes, uint64_t offset);

/* Adds a value; 0: there was no memory for it. */
int build_add(struct build *build, uint32_t id);

/* Closes the innermost container and adds it to the one around it. */
int build_close(struct build *build);

/* Adds a number. */
int build_number(struct build *build, const struct element *element);

/* Adds a text, which is UTF-8 and lives in the arena. */
int build_text(struct build *build, const char *text, size_t n_bytes);

/* Adds a text as the list of its bytes, until its map is complete and not a tensor. */
int build_text_of_bytes(struct build *build, const char *text, size_t n_bytes);

/* Adds a list of numbers. */
int build_list(struct build *build, const struct list_draft *draft);

/* Closes everything that is open, without a key that has no value. */
int build_abandon(struct build *build);

#endif
