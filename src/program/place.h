/* SPDX-License-Identifier: MIT */
/*
 * A place: a file as the user named it, found once, before any process leaves the directory that it
 * was started in. What comes later uses the place and never the text that was typed.
 */
#ifndef WFS_PLACE_H
#define WFS_PLACE_H

#include <weightfs/output.h>
#include <weightfs/stage.h>

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

/* Returns true for a name like that. */
bool place_is_stage_name(const char *name);

/* ---- absolute paths ---- */

/* Returns what is opened for a path that was typed: "-" is standard input. */
const char *path_opened(const char *typed);

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

/*
 * ---- an earlier mount ----
 * One with the same output that crashed: where its staging directory is, and which of its commits
 * were published. What the directory says about paths and options is shown and compared, and never
 * used: it may be the text of somebody else.
 */

struct predecessor {
    char *stage;            /* path of the staging directory; NULL: there is none */
    char *output;           /* path; NULL: not known */
    bool is_output_implied; /* the output has the place that the directory's name says, if the
                               mount had no other directory for its edits */
};

/*
 * Finds the staging directory that an operand stands for: the directory itself, or that of the
 * output at the path, beside it or in `directory`, which may be NULL. For another directory it is
 * the one in it: that of a checkpoint in several files, or what `stage=` named. -EEXIST: there are
 * several, which err names; -ENOMEM. predecessor_done is due in any case.
 */
int predecessor_find(const char *operand, const char *directory, struct predecessor *found,
                     struct wfs_error *err);
void predecessor_done(struct predecessor *found);

/* Returns true when the staging directory with that base was beside the output. */
bool predecessor_is_beside(const char *base);

/*
 * Returns which of its commits wrote the file at the path, or NULL. Loads the file to find out.
 */
const struct wfs_written *predecessor_written(const struct wfs_leftover *leftover, const char *path,
                                              const char *const *limits, size_t n_limits);

/*
 * Returns the value of the n-th line of a base text that begins with the word, decoded. The caller
 * frees it; NULL: none.
 */
char *predecessor_base_value(const char *base, const char *word, size_t n);

/*
 * Removes the temporary files that a commit to the output, an absolute path, left beside it. What
 * the journal says about them is not used: it may be the text of somebody else.
 */
void predecessor_remove_temporary(const char *output);

#endif
