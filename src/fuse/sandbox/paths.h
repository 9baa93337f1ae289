/* SPDX-License-Identifier: MIT */
/*
 * Paths made absolute once, before the processes of a mount leave the directory they were started
 * in.
 */
#ifndef WFS_PATHS_H
#define WFS_PATHS_H

/*
 * Absolute and without links, of something that may be missing (also behind a link) or a dead
 * mount; only its parent must be there. NULL with errno. Yours to free.
 */
char *path_resolve(const char *path);

/* The same, where a link at the end of the path stays one. */
char *path_resolve_parent(const char *path);

/* Of an absolute path, the directory that it is in. Yours to free. */
char *path_directory(const char *path);

/* The last component; points into path, which has no slash at its end. */
const char *path_name(const char *path);

#endif
