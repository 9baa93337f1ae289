/* SPDX-License-Identifier: MIT */
/*
 * An earlier mount with the same output that crashed, as its staging directory describes it: its
 * options, and which of its commits were published.
 */
#ifndef WFS_PREDECESSOR_H
#define WFS_PREDECESSOR_H

#include <weightfs/stage.h>

/*
 * Finds the staging directory that an operand stands for: the directory itself, or that of the
 * output at the path. For another directory it is the one in it: that of a checkpoint in several
 * files, or what `stage=` named. *ret is NULL when there is none, otherwise the caller frees it.
 * -EEXIST: there are several, which err names; -ENOMEM.
 */
int predecessor_find(const char *operand, char **ret, struct wfs_error *err);

/*
 * Returns which of its commits wrote the file at the path, or NULL. Loads the file to find out.
 */
const struct wfs_written *predecessor_written(const struct wfs_leftover *leftover,
                                              const char *path);

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
