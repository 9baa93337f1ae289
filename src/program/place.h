/* SPDX-License-Identifier: MIT */
/*
 * A place: a file as the user named it, found once, before any process leaves the directory that it
 * was started in. What comes later uses the place and never the text that was typed.
 */
#ifndef WFS_PLACE_H
#define WFS_PLACE_H

#include <weightfs/output.h>

#include <stdbool.h>
#include <sys/stat.h>

struct place {
    char *path;     /* absolute, the directory's links resolved; NULL: not found */
    char *opened;   /* what to open: the path, "/dev/fd/N" for an inherited descriptor, or what was
                       typed where nothing was found */
    int directory;  /* the directory that it is in, kept open; -1: not known */
    bool is_there;  /* something was at the path */
    struct stat st; /* of that, links followed */
};

enum place_link {
    PLACE_FOLLOW_LINK, /* the place is what a link at the end of the path leads to */
    PLACE_KEEP_LINK,   /* the place is the link: what is beside it counts */
};

/*
 * Finds the place that a path names; "-" is the standard input. The file itself may be missing, its
 * directory may not: a negative errno. place_done is due in any case.
 */
int place_find(struct place *place, const char *typed, enum place_link link);
void place_done(struct place *place);

/* Returns true when both are the same file, which exists. */
bool place_is_same(const struct place *a, const struct place *b);

/* Returns true when another directory has the path of the one that was found. */
bool place_has_moved(const struct place *place);

/*
 * Returns the path of the staging directory of an output at that path: ".NAME.weightfs" beside it
 * or in `directory`, with NAME cut to fit. The caller frees it; NULL: out of memory.
 */
char *place_stage_path(const char *output, const char *directory);

/* Returns the path of the output beside a staging directory, malloc'ed; NULL: the name is cut, or
 * out of memory. */
char *place_output_path(const char *stage);

/* Returns true for a name like that. */
bool place_is_stage_name(const char *name);

/* ---- absolute paths ---- */

/*
 * Returns the absolute path, without links, of something that may be missing (also behind a link)
 * or a dead mount; only its parent must exist. NULL with errno. The caller frees it.
 */
char *path_resolve(const char *path);

/* What is said of the result -EACCES of path_check_links. */
#define PLACE_PLANTED                                                                              \
    "it leads through a symbolic link of another user in a directory that everybody can write to"

/*
 * Checks the links that a path leads through, before something is written there: -EACCES for one
 * that another user has put into a sticky directory that everybody can write to. The kernel does
 * the same for some, where it is set up to; -ELOOP, -ENOMEM.
 */
int path_check_links(const char *path);

/* Returns the directory that an absolute path is in. The caller frees it. */
char *path_directory(const char *path);

/* Returns the last component; points into path, which does not end with a slash. */
const char *path_name(const char *path);

#endif
