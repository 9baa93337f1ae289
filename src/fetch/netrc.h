/* SPDX-License-Identifier: MIT */
/*
 * The text of a .netrc file: user and password for a host.
 */
#ifndef WFS_NETRC_H
#define WFS_NETRC_H

/*
 * Finds the first entry for the host, or the default; with a login, the first one for that.
 * *ret_user and *ret_password are malloc'ed, NULL when nothing was found. -ENOMEM.
 */
int netrc_find(const char *text, const char *host, const char *login, char **ret_user,
               char **ret_password);

#endif
