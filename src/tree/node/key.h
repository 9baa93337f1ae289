/* SPDX-License-Identifier: MIT */
/*
 * Keys as names of files, and back. A key is split at its dots into parts; a part becomes one name:
 *
 *   %            %25                    /             %2F
 *   0x01-0x1F    %01 ... %1F            0x7F          %7F
 *   not UTF-8    %80 ... %FF            leading dot   %2E
 *   no bytes     %                      too long      FRONT%~ and 16 hex digits of the hash
 *
 * No part gives the name %self, which stands for the key of its directory. Each name has exactly
 * one part; a name that no part gives is invalid.
 */
#ifndef WFS_KEY_H
#define WFS_KEY_H

#include "base/arena.h"
#include "base/text_index.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_SELF "%self"
#define KEY_NPY ".npy"

enum {
    KEY_NAME_MAX = 255,  /* bytes of a name, as on every filesystem that names are copied to */
    KEY_DEPTH_MAX = 256, /* parts of a key; the last one takes what is left, dots and all */
};

struct key_part {
    const char *bytes; /* not ended by NUL */
    size_t n_bytes;
    bool is_last;
};

/* {key, depth}: depth is KEY_DEPTH_MAX, or 1 for the whole key as one part. */
struct key_iter {
    const char *at;
    unsigned n_left;
};

/* Returns the next part. Must not be called again after the last one. */
struct key_part key_next(struct key_iter *iter);

struct key_name {
    char text[KEY_NAME_MAX + 1];
    size_t n_bytes;
    bool is_cut; /* the part cannot be recovered from the name */
};

/* Makes the name of a part, with room for n_suffix more bytes. */
void key_encode(const char *part, size_t n_bytes, size_t n_suffix, struct key_name *ret);

/* Returns true when the part is its own name. */
bool key_is_plain(const char *part, size_t n_bytes);

enum key_kind {
    KEY_IS_PART,
    KEY_IS_SELF,
    KEY_IS_CUT,     /* only a table of cut names knows the part */
    KEY_IS_SCRATCH, /* begins with a dot: never part of a key */
    KEY_IS_INVALID,
};

/* Decodes a name. part has room for KEY_NAME_MAX bytes and is filled for KEY_IS_PART only. */
enum key_kind key_decode(const char *name, size_t n_bytes, char *part, size_t *ret_n_bytes);

/* Parts whose names are cut, by name. A zeroed struct is empty. */
struct key_cuts {
    struct text_index names;
    const char **parts; /* by number of the name, ended by NUL; malloc'ed */
    size_t n_room;
};

/* Adds copies of both. -EEXIST: the name is known already, as that of another part; -ENOMEM. */
int key_cuts_add(struct key_cuts *cuts, struct arena *arena, const struct key_name *name,
                 const char *part, size_t n_bytes);

/* Returns the part, or NULL. */
const char *key_cuts_find(const struct key_cuts *cuts, const char *name, size_t n_bytes);
void key_cuts_done(struct key_cuts *cuts);

#endif
