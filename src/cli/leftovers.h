/* SPDX-License-Identifier: MIT */
/*
 * The staging directories that mounts have left in a directory and below.
 */
#ifndef WFS_LEFTOVERS_H
#define WFS_LEFTOVERS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct leftovers {
    char **paths; /* malloc'ed, as each of them; in the order of names */
    size_t n_paths, n_room;
    bool is_below; /* one of them is not in the directory itself */
    size_t n_seen; /* names that were looked at */
    bool is_cut;   /* there was more than is searched, or some directory could not be read */
    char cut_at[PATH_MAX];
};

/*
 * Finds them. Follows no link, enters no other filesystem (a mount would be looked through), and
 * stops at a depth and a number of names. A path that is not a directory, or is a staging
 * directory, has none. Returns a negative errno; leftovers_done is due in any case.
 */
int leftovers_find(const char *path, struct leftovers *ret);
void leftovers_done(struct leftovers *leftovers);

#define auto_leftovers cleanup(leftovers_done)

#endif
