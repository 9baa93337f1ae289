/* SPDX-License-Identifier: MIT */
/*
 * What the last commit of an earlier process left beside its output.
 */
#ifndef WFS_PUBLISHED_H
#define WFS_PUBLISHED_H

#include <weightfs/stage.h>

/*
 * Which of the commits wrote the file at the path: the file is read with the ordinary loader to
 * find out. NULL: none of them.
 */
const struct wfs_written *published_find(const struct wfs_leftover *leftover, const char *path);

/*
 * Of the text of a base: the value of the n-th line that begins with the word, decoded. Yours to
 * free; NULL: none.
 */
char *published_base_value(const char *base, const char *word, size_t n);

/* Removes its temporary file. */
void published_remove_temporary(const struct wfs_leftover *leftover);

#endif
