/* SPDX-License-Identifier: MIT */
/*
 * An earlier mount with the same output that died, as its staging directory describes it: what it
 * was mounted with, and which of its commits came through.
 */
#ifndef WFS_PREDECESSOR_H
#define WFS_PREDECESSOR_H

#include <weightfs/stage.h>

/*
 * Returns which of its commits wrote the file at the path, NULL: none. The file is read with the
 * ordinary loader to find out.
 */
const struct wfs_written *predecessor_written(const struct wfs_leftover *leftover,
                                              const char *path);

/*
 * Returns the value of the n-th line of a base text that begins with the word, decoded. The caller
 * frees it; NULL: none.
 */
char *predecessor_base_value(const char *base, const char *word, size_t n);

/* Removes the temporary file of its last commit. */
void predecessor_remove_temporary(const struct wfs_leftover *leftover);

#endif
