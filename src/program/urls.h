/* SPDX-License-Identifier: MIT */
/*
 * URLs of the command line. Everything in the program knows a URL by what may be shown of it; what
 * is opened is looked up where it is opened. So no message, report, journal or status can have a
 * password or a signature in it.
 */
#ifndef WFS_URLS_H
#define WFS_URLS_H

#include "program/checkpoint.h"

/* Returns options of checkpoints whose URLs were taken from the command line. */
struct checkpoint_options urls_options(void);

enum urls_kind {
    URLS_WORD,
    URLS_LIST, /* of options: a URL in it ends at a comma */
    URLS_TEXT, /* written as it is, whatever it looks like */
};

/* Returns what a word of the command line is, and in *ret_next, which is URLS_WORD otherwise, what
 * the next one is as the value of an option. */
typedef enum urls_kind urls_kind_function(const void *ctx, const char *word,
                                          enum urls_kind *ret_next);

/*
 * Replaces the URLs in arguments by what may be shown of them, and overwrites the memory that other
 * users can see. For the program's start. -ENOMEM.
 */
int urls_take(int argc, char **argv, urls_kind_function *kind_of, const void *ctx);

#endif
