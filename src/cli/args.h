/* SPDX-License-Identifier: MIT */
/*
 * The command line of a verb: options anywhere before "--", all else operands; and the help
 * text that describes them.
 */
#ifndef WFS_ARGS_H
#define WFS_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "program/print.h"
#include "program/receipt.h"
#include "program/settings.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/view.h>

struct args_option {
    const char *name;     /* without the dashes; NULL ends a list */
    const char *argument; /* what stands for the value in the help; NULL: takes none */
    const char *help;     /* one line */
};

struct args;

struct verb {
    const char *operands;           /* as the help shows them */
    const char *text;               /* what the verb does; lines of at most 80 columns */
    const char *examples;           /* lines below the text, before the views that most need; "@1"
                                       is the extension of a format; NULL: none */
    size_t n_max;                   /* operands; 0: as many as the help shows */
    bool has_source;                /* takes the settings of a source, and the options of views */
    bool has_output;                /* takes the settings of an output */
    bool lists_views;               /* the help text shows the options of views */
    bool lists_directories;         /* and what formats write into directories, after its text */
    bool is_json;                   /* prints JSON, whose lines are not broken on a terminal */
    struct args_option options[12]; /* of its own; the last one has no name */
    enum exit_code (*run)(const struct args *args);
};

struct args_given {
    const char *name;
    const char *value; /* NULL for an option without one */
};

/* Everything in it is borrowed from argv and the verb, but for the arrays and what they join. */
struct args {
    const struct verb *verb;
    const char *name;   /* of the verb */
    char *const *words; /* all that follow it, up to a NULL */
    const char **operands;
    size_t n_operands;
    struct args_given *given;
    size_t n_given;
    const char **limits; /* values of --limit, which the settings have */
    char **joined;       /* values that were given as two words */
    size_t n_joined;
    const char *taker, *taken; /* the last option with its value in a word of its own, and that */
    struct settings settings;
    struct receipt *receipt; /* of a verb that writes */
};

/*
 * Parses the command line, argv[0] is the verb, and runs it; or prints its help, or one line about
 * the mistake. Returns the exit code.
 */
int args_run(const struct verb *verb, int argc, char **argv);

/* Prints the options of every verb that loads a source: of URLs, of damaged files, limits. */
void args_print_common(void);

/* Returns what stands for the value of a long option in the help of a verb; NULL: it is none. */
const char *args_argument(const struct verb *verb, const char *option);

bool args_has(const struct args *args, const char *name);

/* Returns the last value given, or NULL. */
const char *args_value(const struct args *args, const char *name);

/*
 * ---- the verbs ----
 * A verb calls the library and prints. This room knows how results are shown. Exit codes, commits,
 * escapes and unmounting are left to src/program, everything about serving a mount to src/fuse.
 */

extern const struct verb verb_cache, verb_cat, verb_check, verb_commit, verb_config, verb_convert;
extern const struct verb verb_diff, verb_discard, verb_edit, verb_extract, verb_find, verb_info;
extern const struct verb verb_ls, verb_map, verb_patch, verb_plan, verb_recover, verb_report;
extern const struct verb verb_show, verb_status, verb_sum, verb_umount;

#endif
