/* SPDX-License-Identifier: MIT */
/*
 * URLs on the command line. Everything in the program knows a URL by what may be shown of it; what
 * is opened is looked up here, once, where it is opened. So no message, report, journal or status
 * can have a password or a signature in it.
 */
#ifndef WFS_URLS_H
#define WFS_URLS_H

/*
 * Replaces the URLs in arguments by what may be shown of them, and overwrites the memory that other
 * users can see. For the program's start. -ENOMEM.
 */
int urls_take(int argc, char **argv);

/* Returns what to open for a name: the URL of which it is shown, or the name. */
const char *urls_full(const char *name);

#endif
