/* SPDX-License-Identifier: MIT */
/*
 * What people type as in other programs, and the line that they mean here.
 */
#ifndef WFS_HABITS_H
#define WFS_HABITS_H

#include <weightfs/strbuf.h>

#include <stdbool.h>

/* What was typed. */
struct habits_words {
    const char *verb;
    char *const *words; /* after it, up to a NULL */
    /* Of a verb that exists. */
    bool has_output;                                    /* its last operand is one */
    bool (*takes)(const void *ctx, const char *option); /* this option, "--NAME" or "-N" */
    const void *ctx;
};

/*
 * Each adds the line to type, "weightfs show FILE", and returns true if it knows what was meant: by
 * the verb, or by an option, one of the words.
 */
bool habits_add_verb(const struct habits_words *typed, struct strbuf *line);
bool habits_add_option(const struct habits_words *typed, const char *option, struct strbuf *line);

#endif
