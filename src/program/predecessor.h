/* SPDX-License-Identifier: MIT */
/*
 * An earlier mount with the same output that crashed: where its staging directory is, and which of
 * its commits were published. What the directory says about paths and options is shown and
 * compared, and never used: it may be the text of somebody else.
 */
#ifndef WFS_PREDECESSOR_H
#define WFS_PREDECESSOR_H

#include <weightfs/stage.h>

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
