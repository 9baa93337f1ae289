/* SPDX-License-Identifier: MIT */
/*
 * Names of sources on the network: what of one may be shown, and what is beside it. Shared by
 * library and programs, not installed.
 */
#ifndef WFS_URL_H
#define WFS_URL_H

#include <stdbool.h>
#include <stddef.h>

#include <weightfs/error.h>

/* Returns true for a text that begins like http://, https://, s3:// or hf://. */
bool url_is(const char *text);

/*
 * Returns where in a text a URL begins that may have a secret in it, or NULL: one of any scheme,
 * and one of these four whose slashes are missing, also behind a blank, a quote or an option's
 * name.
 */
const char *url_find(const char *text);

/*
 * Returns what may be shown of what url_find finds: it without the user before the host, and but
 * for s3 and hf without query and fragment, in which passwords and signatures are. malloc'ed; NULL:
 * out of memory.
 */
char *url_shown(const char *url);

/* Returns the last component of the path, malloc'ed, with escapes like %20 undone for http and
 * https; "download" for none. NULL: out of memory. */
char *url_name(const char *url);

/* Returns how long the name of an owner, a repository or a bucket is that the text begins with. */
size_t url_word_length(const char *text);

/* Returns true for a path with "." or ".." between slashes, or nothing where that is not allowed.
 */
bool url_path_is_odd(const char *path, bool allows_empty);

/*
 * Makes the URL of a file beside the one that a URL names, as a relative reference to its name is
 * resolved: the query is not taken over. *ret is malloc'ed. -EINVAL for a name with a scheme or a
 * slash, or "..", -ENOMEM.
 */
int url_sibling(const char *url, const char *name, char **ret, struct wfs_error *err);

/* The same for a path of names with slashes between them, below the folder that the file is in. */
int url_below(const char *url, const char *path, char **ret, struct wfs_error *err);

/* Returns the path of which url_below makes the other URL, malloc'ed; NULL: there is none, or out
 * of memory. */
char *url_path_below(const char *url, const char *other);

#endif
