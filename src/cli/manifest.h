/* SPDX-License-Identifier: MIT */
/*
 * A manifest: the sums of the tensors of one or several checkpoints, as `weightfs sum` prints them.
 *
 *     # weightfs sum SOURCE
 *     SHA256 XXH3 DTYPE SHAPE KEY
 *
 * with any blanks between. SOURCE and KEY are escaped, their blanks too. A line that begins with a
 * blank goes on with the one before, where a terminal had no room for it. Lines may stand without a
 * heading; other lines with a # are comments.
 */
#ifndef WFS_MANIFEST_H
#define WFS_MANIFEST_H

#include <stdbool.h>

#include <weightfs/cleanup.h>
#include <weightfs/error.h>

enum { MANIFEST_N_SHA256 = 64, MANIFEST_N_XXH3 = 16 }; /* hexadecimal digits */

/* All texts are those of the file: digits are in lower case, a shape is "[2,3]", a key is
 * unescaped. */
struct manifest_line {
    const char *sha256, *xxh3, *dtype, *shape, *key;
    size_t number; /* of its line in the file, from 1 */
    bool is_seen;  /* the caller's */
};

/* The lines of one source. */
struct manifest_part {
    const char *source; /* NULL: they have no heading */
    size_t start, end;
};

struct manifest {
    char *text;
    struct manifest_line *lines; /* of each part by key */
    size_t n_lines, n_lines_room;
    struct manifest_part *parts;
    size_t n_parts, n_parts_room;
};

/* Reads it; "-" is the standard input. -EBADMSG names the line, -E2BIG, -ENOMEM, or the errno of
 * reading. */
int manifest_read(const char *path, struct manifest *ret, struct wfs_error *err);

/* The same of a text, whose memory is the manifest's then. */
int manifest_parse(char *text, size_t n_bytes, struct manifest *ret,
                   struct wfs_error *err); /* for tests */
void manifest_done(struct manifest *manifest);

#define auto_manifest cleanup(manifest_done)

/* Finds the line of a key; NULL: none has it. */
struct manifest_line *manifest_find(const struct manifest *manifest,
                                    const struct manifest_part *part, const char *key);

#endif
