/* SPDX-License-Identifier: MIT */
/*
 * Small files of settings in the home directory, read whole.
 */
#ifndef WFS_TEXTFILE_H
#define WFS_TEXTFILE_H

#include <weightfs/error.h>

/* Returns the value of an environment variable; NULL where it is empty, too. */
const char *environment(const char *name);

/* Returns "DIRECTORY/NAME", malloc'ed, in the home directory of the environment; NULL: there is
 * none, or out of memory. */
char *home_path(const char *name);

/*
 * Reads a file as text. *ret is malloc'ed, NULL when there is no such file. err
 * gets a sentence for one that cannot be read, or is longer than 1 MiB.
 */
int textfile_read(const char *path, char **ret, struct wfs_error *err);

#endif
