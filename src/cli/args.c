/* SPDX-License-Identifier: MIT */
/*
 * Parses the command line of a verb by the table that its help is made from.
 */
#include "cli/args.h"

#include "cli/habits.h"
#include "program/print.h"
#include "program/settings.h"
#include "program/terminal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of every verb; the first one of those that load a source. */
static const struct args_option common_options[] = {
    {"limit", "NAME=N", "change a safety limit"},
    {"color", "WHEN", "colours: auto, always or never"},
    {"help", NULL, "print this text"},
};

enum { N_COMMON = sizeof(common_options) / sizeof(common_options[0]) };

static bool find_view_option(const char *name, size_t n_name, struct args_option *ret)
{
    const struct wfs_view_option *option;
    for (size_t i = 0; (option = wfs_view_option(i)) != NULL; i++) {
        if (!settings_is_name(option->name, name, n_name))
            continue;
        *ret = (struct args_option){option->name, option->argument, option->help};
        return true;
    }
    return false;
}

static bool takes(const struct verb *verb, const struct setting *setting)
{
    return setting->subject == SETTING_OF_SOURCE ? verb->has_source : verb->has_output;
}

static bool is_option(const struct args_option *option, const char *name, size_t n_name)
{
    return strlen(option->name) == n_name && memcmp(option->name, name, n_name) == 0;
}

static bool find_option(const struct verb *verb, const char *name, size_t n_name,
                        struct args_option *ret)
{
    for (const struct args_option *option = verb->options; option->name != NULL; option++) {
        *ret = *option;
        if (is_option(option, name, n_name))
            return true;
    }
    struct setting setting;
    if (settings_find(name, n_name, &setting) && takes(verb, &setting)) {
        *ret = (struct args_option){setting.name, setting.argument, setting.help};
        return true;
    }
    for (size_t i = verb->has_source ? 0 : 1; i < N_COMMON; i++) {
        *ret = common_options[i];
        if (is_option(ret, name, n_name))
            return true;
    }
    return verb->has_source && find_view_option(name, n_name, ret);
}

const char *args_argument(const struct verb *verb, const char *option)
{
    struct args_option found;
    return strncmp(option, "--", 2) == 0 &&
                   find_option(verb, option + 2, strcspn(option + 2, "="), &found)
               ? found.argument
               : NULL;
}

/* Returns the long name of a flag of one letter, or NULL. */
static const char *name_of_letter(const struct verb *verb, char letter)
{
    static const struct {
        char letter;
        const char *name;
    } letters[] = {
        {'0', "null"}, {'b', "bytes"}, {'b', "backup"}, {'d', "directory"}, {'h', "human"},
        {'h', "help"}, {'l', "long"},  {'o', "output"}, {'S', "suffix"},
    };
    struct args_option option;
    for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++) {
        if (letter == letters[i].letter &&
            find_option(verb, letters[i].name, strlen(letters[i].name), &option))
            return letters[i].name;
    }
    return NULL;
}

/* Whether a verb has an option: "--NAME", "--NAME=VALUE" or "-N". */
static bool has_option(const void *ctx, const char *option)
{
    struct args_option found;
    if (option[1] != '-')
        return strlen(option) == 2 && name_of_letter(ctx, option[1]) != NULL;
    return find_option(ctx, option + 2, strcspn(option + 2, "="), &found);
}

enum { N_OPTION_COLUMNS = 28 }; /* width of the longest option with its argument */

static void print_option(const char *name, const char *argument, const char *help)
{
    char left[3 * N_OPTION_COLUMNS];
    const char *between = argument == NULL ? "" : strchr(argument, ' ') != NULL ? " " : "=";
    if (argument != NULL && !settings_needs_value(argument))
        snprintf(left, sizeof(left), "--%s[=%s", name, argument + 1);
    else
        snprintf(left, sizeof(left), "--%s%s%s", name, between, argument != NULL ? argument : "");
    printf("  %-*s %s\n", N_OPTION_COLUMNS, left, help);
}

static void print_settings(enum setting_subject subject)
{
    struct setting setting;
    for (size_t i = 0; settings_row(i, &setting); i++) {
        char name[SPELLING_NAME_MAX + 1];
        settings_spell(setting.name, '-', name);
        if (setting.subject == subject)
            print_option(name, setting.argument,
                         setting.help != NULL ? setting.help
                                              : wfs_format_list(WFS_FORMAT_NAMES, " or ").text);
    }
}

static void print_directories(void)
{
    const struct wfs_format *format;
    for (size_t i = 0; (format = wfs_format_at(i)) != NULL; i++) {
        if (format->directory != NULL)
            printf(" With --format=%s,\nTARGET is a directory: %s.", format->name,
                   format->directory);
    }
}

/* Prints the names of views with hyphens, as flags of verbs are listed. */
static void print_view(const struct wfs_view_option *view)
{
    char name[SPELLING_NAME_MAX + 1];
    settings_spell(view->name, '-', name);
    print_option(name, view->argument, view->help);
}

/* The examples of a verb, and the views that most are given to it. */
static void print_examples(const struct verb *verb)
{
    static const char *const views[] = {"cast", "include", "rename"};
    const struct wfs_view_option *view;
    printf("\n\nexamples:\n  ");
    for (const char *at = verb->examples; *at != '\0'; at++) {
        const struct wfs_format *format =
            at[0] == '@' ? wfs_format_at((size_t)(at[1] - '0')) : NULL;
        if (format != NULL)
            fputs(format->extensions[0], stdout);
        else
            fputc(*at, stdout);
        fputs(*at == '\n' ? "  " : "", stdout);
        at += format != NULL;
    }
    printf("\n\noptions:\n");
    for (size_t k = 0; k < sizeof(views) / sizeof(views[0]); k++) {
        for (size_t i = 0; (view = wfs_view_option(i)) != NULL; i++) {
            if (strcmp(view->name, views[k]) == 0)
                print_view(view);
        }
    }
}

void args_print_common(void)
{
    puts("options of every verb that reads a SOURCE:");
    print_settings(SETTING_OF_SOURCE);
    print_option(common_options[0].name, common_options[0].argument, common_options[0].help);
    puts("\nView options (rename, filter, cast ...): see 'weightfs plan --help'.");
}

static void print_help(const struct args *args)
{
    const struct verb *verb = args->verb;
    printf("usage: weightfs %s [OPTION...] %s\n\n%s", args->name, verb->operands, verb->text);
    if (verb->lists_directories)
        print_directories();
    if (verb->examples != NULL)
        print_examples(verb);
    else
        printf("\n\noptions:\n");
    for (const struct args_option *option = verb->options; option->name != NULL; option++)
        print_option(option->name, option->argument, option->help);
    if (verb->has_output)
        print_settings(SETTING_OF_OUTPUT);
    for (size_t i = 1; i < N_COMMON; i++)
        print_option(common_options[i].name, common_options[i].argument, common_options[i].help);
    if (verb->has_source)
        printf("\nOptions of URLs, damaged files and limits: see 'weightfs help common'.\n");
    if (verb->lists_views)
        printf("\nview options, in the order in which they are applied (see weightfs(1)):\n");
    else if (verb->has_source)
        printf("View options (rename, filter, cast ...): see 'weightfs plan --help'.\n");
    const struct wfs_view_option *view;
    for (size_t i = 0; verb->lists_views && (view = wfs_view_option(i)) != NULL; i++)
        print_view(view);
}

static enum exit_code fail(const struct args *args, const char *problem, const char *what)
{
    return print_error(EXIT_USAGE, NULL, "%s '%s'; see 'weightfs %s --help'", problem,
                       wfs_quote(what).text, args->name);
}

/* A flag that is near to the one given; for "-l" one that begins with it. */
static const char *find_similar(const struct verb *verb, const char *text)
{
    struct spelling spelling;
    struct setting setting;
    const struct wfs_view_option *view;
    spelling_start(&spelling, text + strspn(text, "-"));
    for (const struct args_option *option = verb->options; option->name != NULL; option++) {
        if (text[1] == option->name[0] && text[2] == '\0')
            return option->name;
        spelling_try(&spelling, option->name);
    }
    for (size_t i = 0; settings_row(i, &setting); i++) {
        if (takes(verb, &setting))
            spelling_try(&spelling, setting.name);
    }
    for (size_t i = 0; verb->has_source && (view = wfs_view_option(i)) != NULL; i++)
        spelling_try(&spelling, view->name);
    return spelling.best;
}

static enum exit_code refuse_option(const struct args *args, const char *text)
{
    const struct verb *verb = args->verb;
    autostrbuf struct strbuf line = {0};
    const struct habits_words typed = {args->name, args->words, verb->has_output, has_option, verb};
    if (habits_add_option(&typed, text, &line) && !line.has_failed)
        return print_error(EXIT_USAGE, NULL, "unknown option '%s'; use '%s'", wfs_quote(text).text,
                           line.bytes);
    if (strcmp(text, "-o") == 0 || strcmp(text, "--output") == 0 ||
        strncmp(text, "--output=", strlen("--output=")) == 0)
        return print_error(EXIT_USAGE, NULL, "unknown option '%s'; usage: weightfs %s %s",
                           wfs_quote(text).text, args->name, verb->operands);
    const char *similar = find_similar(verb, text);
    if (similar == NULL)
        return fail(args, "unknown option", text);
    char name[SPELLING_NAME_MAX + 1];
    settings_spell(similar, '-', name);
    return print_error(EXIT_USAGE, NULL, "unknown option '%s'; did you mean '--%s'?",
                       wfs_quote(text).text, name);
}

static enum exit_code apply_color(const char *value)
{
    static const char *const names[] = {
        [SCREEN_AUTO] = "auto", [SCREEN_ALWAYS] = "always", [SCREEN_NEVER] = "never"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(value, names[i]) == 0) {
            screen_set_colour((enum screen_when)i);
            return EXIT_DONE;
        }
    }
    return print_error(EXIT_USAGE, NULL, "--color must be auto, always or never, not '%s'",
                       wfs_quote(value).text);
}

/* Does what an option says that is not the verb's own; name is as it was typed. */
static enum exit_code apply(struct args *args, const struct args_option *option, const char *name,
                            size_t n_name, const char *value)
{
    struct wfs_error err = {0};
    if (strcmp(option->name, "color") == 0)
        return apply_color(value);
    if (strcmp(option->name, "limit") == 0) {
        if (strchr(value, '=') == NULL)
            return fail(args, "--limit needs NAME=N, not", value);
        args->limits[args->settings.load.n_limits++] = value;
    }
    struct setting setting;
    return !settings_find(name, n_name, &setting) || !takes(args->verb, &setting) ||
                   settings_apply(&args->settings, &setting, value, &err) == 0
               ? EXIT_DONE
               : print_error(EXIT_USAGE, NULL, "--%.*s %s", (int)n_name, name, err.text);
}

/* The value of an option in the words that follow it: one, or two where its help names two. */
static const char *following(struct args *args, const struct args_option *option, char ***word)
{
    const bool is_pair = strchr(option->argument, ' ') != NULL;
    char **at = *word;
    if (at[1] == NULL || (is_pair && at[2] == NULL))
        return NULL;
    *word += is_pair ? 2 : 1;
    if (!is_pair)
        return at[1];
    args->joined[args->n_joined] = wfs_view_pair(at[1], at[2]);
    return args->joined[args->n_joined++];
}

/* Parses one option of a word, which moves on over its value; name is what follows the dashes. */
static enum exit_code parse_option(struct args *args, const char *name, char ***word)
{
    const struct verb *verb = args->verb;
    const char *text = **word;
    const size_t n_name = strcspn(name, "=");
    struct args_option option;
    if (!find_option(verb, name, n_name, &option))
        return refuse_option(args, text);
    const char *value = name[n_name] == '=' ? name + n_name + 1 : NULL;
    if (option.argument == NULL && value != NULL)
        return fail(args, "this option takes no value:", text);
    const size_t n_joined = args->n_joined;
    if (settings_needs_value(option.argument) && value == NULL) {
        value = following(args, &option, word);
        args->taker = text;
        args->taken = value;
        if (value == NULL && args->n_joined > n_joined)
            return print_memory(NULL);
        if (value == NULL)
            return print_error(EXIT_USAGE, NULL,
                               "missing value of option '%s': %s; see 'weightfs %s --help'",
                               wfs_quote(text).text, option.argument, args->name);
    }
    args->given[args->n_given++] = (struct args_given){option.name, value};
    return apply(args, &option, name, n_name, value);
}

/* Parses a word: a long option, or letters. */
static enum exit_code parse_word(struct args *args, char ***word)
{
    const char *text = **word;
    enum exit_code exit_code = EXIT_DONE;
    if (text[1] == '-')
        return parse_option(args, text + 2, word);
    for (const char *letter = text + 1; *letter != '\0'; letter++) {
        if (name_of_letter(args->verb, *letter) == NULL)
            return refuse_option(args, text);
    }
    for (const char *letter = text + 1; *letter != '\0' && exit_code == EXIT_DONE; letter++)
        exit_code = parse_option(args, name_of_letter(args->verb, *letter), word);
    return exit_code;
}

/* Counts the operands that the help shows: "SOURCE [GLOB...]" is at least one. */
static void count_operands(const struct verb *verb, size_t *ret_min, size_t *ret_max)
{
    size_t n = 0;
    *ret_min = 0;
    for (const char *at = verb->operands; at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        *ret_min += *at != '[';
        n++;
    }
    *ret_max = verb->n_max > 0 ? verb->n_max : strstr(verb->operands, "...") != NULL ? SIZE_MAX : n;
}

/* The name that the help text has for the n-th operand. */
static int operand_name(const struct verb *verb, size_t n, const char **ret)
{
    const char *name = verb->operands;
    for (; n > 0; n--)
        name += strcspn(name, " ") + 1;
    *ret = name;
    return (int)strcspn(name, " .");
}

static enum exit_code fail_missing(const struct args *args)
{
    const char *name;
    const struct verb *verb = args->verb;
    const int n_name = operand_name(verb, args->n_operands, &name);
    if (args->taken != NULL && access(args->taken, F_OK) == 0)
        return print_error(
            EXIT_USAGE, NULL, "missing %.*s ('%s' is the value of %s); usage: weightfs %s %s",
            n_name, name, wfs_quote(args->taken).text, args->taker, args->name, verb->operands);
    return print_error(EXIT_USAGE, NULL, "missing %.*s; usage: weightfs %s %s", n_name, name,
                       args->name, verb->operands);
}

/* An empty word is what a variable of the shell leaves that is not set; a key may be empty, no
 * path. */
static enum exit_code check_operands(const struct args *args)
{
    const struct verb *verb = args->verb;
    size_t n_min, n_max;
    count_operands(verb, &n_min, &n_max);
    if (args->n_operands < n_min)
        return fail_missing(args);
    for (size_t i = 0; i < n_min; i++) {
        const char *name;
        const int n_name = operand_name(verb, i, &name);
        if (*args->operands[i] == '\0' && strncmp(name, "KEY", 3) != 0 &&
            strncmp(name, "WHAT", 4) != 0)
            return print_error(EXIT_USAGE, NULL, "%.*s is empty; usage: weightfs %s %s", n_name,
                               name, args->name, verb->operands);
    }
    return args->n_operands > n_max ? fail(args, "unexpected operand", args->operands[n_max])
                                    : EXIT_DONE;
}

static enum exit_code parse(struct args *args, char **argv)
{
    bool has_ended = false;
    enum exit_code exit_code = EXIT_DONE;
    for (char **word = argv + 1; *word != NULL && exit_code == EXIT_DONE; word++) {
        if (has_ended || (*word)[0] != '-' || (*word)[1] == '\0')
            args->operands[args->n_operands++] = *word;
        else if (strcmp(*word, "--") == 0)
            has_ended = true;
        else
            exit_code = parse_word(args, &word);
    }
    return exit_code;
}

static void args_done(struct args *args)
{
    free(args->operands);
    free(args->given);
    free(args->limits);
    for (size_t i = 0; i < args->n_joined; i++)
        free(args->joined[i]);
    free(args->joined);
}

int args_run(const struct verb *verb, int argc, char **argv)
{
    const size_t n_room = (size_t)argc + 1;
    cleanup(args_done) struct args args = {
        .verb = verb,
        .name = argv[0],
        .words = argv + 1,
        .operands = calloc(n_room, sizeof(*args.operands)),
        .given = calloc(n_room, sizeof(*args.given)),
        .limits = calloc(n_room, sizeof(*args.limits)),
        .joined = calloc(n_room, sizeof(*args.joined)),
    };
    if (args.operands == NULL || args.given == NULL || args.limits == NULL || args.joined == NULL)
        return print_memory(NULL);
    args.settings.load.limits = args.limits;
    enum exit_code exit_code = parse(&args, argv);
    if (exit_code != EXIT_DONE)
        return exit_code;
    /* -h alone asks for help, as with most programs. */
    if (args_has(&args, "help") || (args_has(&args, "human") && args.n_operands == 0)) {
        print_help(&args);
        return EXIT_DONE;
    }
    exit_code = check_operands(&args);
    if (exit_code != EXIT_DONE)
        return exit_code;
    struct receipt receipt = {.is_json = args_has(&args, "json")};
    args.receipt = &receipt;
    if (verb->is_json || receipt.is_json || args_has(&args, "csv") || args_has(&args, "null"))
        wrapping_keep_lines();
    return receipt_end(&receipt, verb->run(&args));
}

bool args_has(const struct args *args, const char *name)
{
    for (size_t i = 0; i < args->n_given; i++) {
        if (strcmp(args->given[i].name, name) == 0)
            return true;
    }
    return false;
}

const char *args_value(const struct args *args, const char *name)
{
    const char *value = NULL;
    for (size_t i = 0; i < args->n_given; i++) {
        if (strcmp(args->given[i].name, name) == 0)
            value = args->given[i].value;
    }
    return value;
}
