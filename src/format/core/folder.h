/* SPDX-License-Identifier: MIT */
/*
 * What a folder has in it, and what its names mean to the programs that write such folders: which
 * file is the checkpoint, and which are only the state of a training run.
 */
#ifndef WFS_FOLDER_H
#define WFS_FOLDER_H

#include "base/arena.h"
#include "catalog/catalog.h"

/* Names, in natural order. A zeroed struct is empty. */
struct folder_names {
    struct arena arena;
    const char **names; /* malloc'ed */
    size_t n, n_room;
};

/* Everything up to the last slash, and that; empty when there is none. malloc'ed. */
char *folder_of(const char *path);

/* Adds a name, which is copied. -ENOMEM. */
int folder_names_add(struct folder_names *names, const char *name);

/*
 * Adds the names in the folder that is_wanted takes, but for hidden ones; NULL: all. No more are
 * read than n_most. -E2BIG, -ENOMEM, and what opening the folder gives.
 */
int folder_names_list(struct folder_names *names, const char *folder, size_t n_most,
                      bool (*is_wanted)(const char *name));

/* Returns whether a name is among them. */
bool folder_names_has(const struct folder_names *names, const char *name);

/* Prints "'a', 'b' and 3 more, the last one 'z'". */
enum { FOLDER_LIST = 6 * WFS_QUOTE_MAX };
const char *folder_names_print(const struct folder_names *names, char text[FOLDER_LIST]);
void folder_names_done(struct folder_names *names);

/* Returns whether a file of that name has the state of a training run, and not a model. */
bool folder_is_state(const char *name);

/* What a folder is, by the names in it. */
struct folder_layout {
    const char *take;           /* what to load; NULL: none of it alone is the checkpoint */
    const char *what;           /* the message then: what it is, and what to do */
    struct folder_names choice; /* what to name instead; none: the message says it all */
};

/*
 * Compares with the folders that programs are known to write. names are those in the folder, which
 * ends with a slash; is_last: nothing in it was recognised otherwise. 1; 0: it is none of them.
 * -ENOMEM. folder_names_done of ret->choice is due in any case.
 */
int folder_layout_find(const char *folder, const struct folder_names *names, bool is_last,
                       bool (*names_checkpoint)(const char *path), struct folder_layout *ret);

/* Returns the i-th of the names of files that it takes, in their order; NULL: there are no more. */
const char *folder_layout_file(size_t i);

/* Returns the path, in a folder that ends with a slash, of the file of rank 0 where programs write
 * one for each rank; NULL: there is none. */
const char *folder_first_rank(const char *folder);

/* Returns which of these files a URL names; NULL: another one. */
const char *folder_rank_of_url(const char *url);

/*
 * Adds the folders, each with a slash, below one that have a checkpoint, n_depth folders deep at
 * most: not what is below one that has. -ENOMEM.
 */
int folder_find_below(const char *folder, const struct folder_names *names, unsigned n_depth,
                      bool (*names_checkpoint)(const char *path), struct folder_names *ret);

/* Adds a finding about what lies beside the checkpoint of a folder and was not read. -ENOMEM. */
int folder_tell_rest(struct wfs_catalog *catalog, const struct folder_names *rest);

#endif
