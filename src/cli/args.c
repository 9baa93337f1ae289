/* SPDX-License-Identifier: MIT */
/*
 * Parses the command line of a verb by the table that its help is made from.
 */
#include "cli/args.h"

#include "program/print.h"
#include "program/screen.h"
#include "program/spelling.h"
#include "program/wrapping.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct args_option limit_option = {"limit", "NAME=N", "change a safety limit"};
static const struct args_option help_option = {"help", NULL, "print this text"};
static const struct args_option color_option = {"color", "WHEN", "colours: auto, always or never"};

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

static bool takes(const struct args_usage *usage, const struct setting *setting)
{
    return setting->subject == SETTING_OF_SOURCE ? usage->has_source : usage->has_output;
}

/* The options of the verb itself, ended as a table is. */
static const struct args_option *own_options(const struct args_usage *usage)
{
    static const struct args_option none = {NULL, NULL, NULL};
    return usage->options != NULL ? usage->options : &none;
}

static bool is_option(const struct args_option *option, const char *name, size_t n_name)
{
    return strlen(option->name) == n_name && memcmp(option->name, name, n_name) == 0;
}

static bool find_option(const struct args_usage *usage, const char *name, size_t n_name,
                        struct args_option *ret)
{
    for (const struct args_option *option = own_options(usage); option->name != NULL; option++) {
        *ret = *option;
        if (is_option(option, name, n_name))
            return true;
    }
    const struct setting *setting = settings_find(name, n_name);
    if (setting != NULL && takes(usage, setting)) {
        *ret = (struct args_option){setting->name, setting->argument, setting->help};
        return true;
    }
    *ret = help_option;
    if (is_option(&help_option, name, n_name))
        return true;
    *ret = color_option;
    if (is_option(&color_option, name, n_name))
        return true;
    *ret = limit_option;
    return usage->has_source &&
           (is_option(&limit_option, name, n_name) || find_view_option(name, n_name, ret));
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

/* The name with dashes. */
static void flag_name(const char *name, char *ret, size_t n_bytes)
{
    snprintf(ret, n_bytes, "%s", name);
    for (char *at = ret; *at != '\0'; at++)
        *at = *at == '_' ? '-' : *at;
}

static void print_settings(enum setting_subject subject)
{
    const struct setting *setting;
    for (size_t i = 0; (setting = settings_row(i)) != NULL; i++) {
        char name[SPELLING_NAME_MAX + 1];
        flag_name(setting->name, name, sizeof(name));
        if (setting->subject == subject)
            print_option(name, setting->argument, setting->help);
    }
}

static void print_view_options(void)
{
    const struct wfs_view_option *option;
    printf("\nview options, in the order in which they are applied (see weightfs(1)):\n");
    for (size_t i = 0; (option = wfs_view_option(i)) != NULL; i++)
        print_option(option->name, option->argument, option->help);
}

static void print_help(const struct args_usage *usage)
{
    wrapping_start(false);
    printf("usage: weightfs %s [OPTION...] %s\n\n%s\n\noptions:\n", usage->verb, usage->operands,
           usage->text);
    for (const struct args_option *option = own_options(usage); option->name != NULL; option++)
        print_option(option->name, option->argument, option->help);
    if (usage->has_output)
        print_settings(SETTING_OF_OUTPUT);
    if (usage->has_source) {
        print_settings(SETTING_OF_SOURCE);
        print_option(limit_option.name, limit_option.argument, limit_option.help);
    }
    print_option(color_option.name, color_option.argument, color_option.help);
    print_option(help_option.name, help_option.argument, help_option.help);
    if (usage->lists_views)
        print_view_options();
    else if (usage->has_source)
        printf("\nView options (rename, filter, cast ...): see 'weightfs plan --help'.\n");
}

static bool fail(int *ret_exit, const struct args_usage *usage, const char *problem,
                 const char *what)
{
    *ret_exit = print_error(EXIT_USAGE, NULL, "%s '%s'; see 'weightfs %s --help'", problem,
                            wfs_quote(what).text, usage->verb);
    return false;
}

/* A flag that is near to the one given; for "-l" one that begins with it. */
static const char *find_similar(const struct args_usage *usage, const char *text)
{
    struct spelling spelling;
    const struct setting *setting;
    const struct wfs_view_option *view;
    spelling_start(&spelling, text + strspn(text, "-"));
    for (const struct args_option *option = own_options(usage); option->name != NULL; option++) {
        if (text[1] == option->name[0] && text[2] == '\0')
            return option->name;
        spelling_try(&spelling, option->name);
    }
    for (size_t i = 0; (setting = settings_row(i)) != NULL; i++) {
        if (takes(usage, setting))
            spelling_try(&spelling, setting->name);
    }
    for (size_t i = 0; usage->has_source && (view = wfs_view_option(i)) != NULL; i++)
        spelling_try(&spelling, view->name);
    return spelling.best;
}

static bool refuse_option(int *ret_exit, const struct args_usage *usage, const char *text)
{
    if (strcmp(text, "-o") == 0 || strcmp(text, "--output") == 0 ||
        strncmp(text, "--output=", strlen("--output=")) == 0) {
        *ret_exit = print_error(EXIT_USAGE, NULL, "unknown option '%s'; usage: weightfs %s %s",
                                wfs_quote(text).text, usage->verb, usage->operands);
        return false;
    }
    const char *similar = find_similar(usage, text);
    if (similar == NULL)
        return fail(ret_exit, usage, "unknown option", text);
    char name[SPELLING_NAME_MAX + 1];
    flag_name(similar, name, sizeof(name));
    *ret_exit = print_error(EXIT_USAGE, NULL, "unknown option '%s'; did you mean '--%s'?",
                            wfs_quote(text).text, name);
    return false;
}

static bool apply_setting(struct args *args, const struct args_usage *usage, const char *name,
                          size_t n_name, const char *value, int *ret_exit)
{
    struct wfs_error err = {0};
    const struct setting *setting = settings_find(name, n_name);
    if (setting == NULL || !takes(usage, setting) ||
        setting->apply(&args->settings, value, &err) == 0)
        return true;
    *ret_exit = print_error(EXIT_USAGE, NULL, "--%.*s %s", (int)n_name, name, err.text);
    return false;
}

/* Returns the long name of a flag of one letter, or NULL. */
static const char *name_of_letter(const struct args_usage *usage, char letter)
{
    static const struct {
        char letter;
        const char *name;
    } letters[] = {
        {'0', "null"},  {'b', "bytes"}, {'b', "backup"}, {'d', "directory"},
        {'h', "human"}, {'h', "help"},  {'l', "long"},   {'S', "suffix"},
    };
    struct args_option option;
    for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++) {
        if (letter == letters[i].letter &&
            find_option(usage, letters[i].name, strlen(letters[i].name), &option))
            return letters[i].name;
    }
    return NULL;
}

static bool apply_color(const char *value, int *ret_exit)
{
    static const char *const names[] = {
        [SCREEN_AUTO] = "auto", [SCREEN_ALWAYS] = "always", [SCREEN_NEVER] = "never"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(value, names[i]) == 0) {
            screen_set_colour((enum screen_when)i);
            return true;
        }
    }
    *ret_exit = print_error(EXIT_USAGE, NULL, "--color must be auto, always or never, not '%s'",
                            wfs_quote(value).text);
    return false;
}

/* The value of an option in the words that follow it: one, or two where its help names two. */
static const char *following(struct args *args, const struct args_option *option, char **argv,
                             int *i)
{
    const bool is_pair = strchr(option->argument, ' ') != NULL;
    if (argv[*i + 1] == NULL || (is_pair && argv[*i + 2] == NULL))
        return NULL;
    *i += is_pair ? 2 : 1;
    if (!is_pair)
        return argv[*i];
    return args->joined[args->n_joined++] = wfs_view_pair(argv[*i - 1], argv[*i]);
}

/* Parses one option of the word argv[*i], `text`, which moves on over its value. */
static bool parse_option(struct args *args, const struct args_usage *usage, const char *text,
                         const char *name, char **argv, int *i, int *ret_exit)
{
    const size_t n_name = strcspn(name, "=");
    struct args_option option;
    if (!find_option(usage, name, n_name, &option))
        return refuse_option(ret_exit, usage, text);
    const char *value = name[n_name] == '=' ? name + n_name + 1 : NULL;
    if (option.argument == NULL && value != NULL)
        return fail(ret_exit, usage, "this option takes no value:", text);
    if (settings_needs_value(option.argument) && value == NULL) {
        value = following(args, &option, argv, i);
        args->taker = text;
        args->taken = value;
    }
    if (settings_needs_value(option.argument) && value == NULL) {
        *ret_exit = print_error(EXIT_USAGE, NULL,
                                "missing value of option '%s': %s; see 'weightfs %s --help'",
                                wfs_quote(text).text, option.argument, usage->verb);
        return false;
    }
    args->given[args->n_given++] = (struct args_given){option.name, value};
    if (strcmp(option.name, color_option.name) == 0)
        return apply_color(value, ret_exit);
    if (strcmp(option.name, "limit") == 0) {
        if (strchr(value, '=') == NULL)
            return fail(ret_exit, usage, "--limit needs NAME=N, not", value);
        args->limits[args->n_limits++] = value;
    }
    return apply_setting(args, usage, name, n_name, value, ret_exit);
}

/* Parses the word argv[*i]: a long option, or letters. */
static bool parse_word(struct args *args, const struct args_usage *usage, char **argv, int *i,
                       int *ret_exit)
{
    const char *text = argv[*i];
    if (text[1] == '-')
        return parse_option(args, usage, text, text + 2, argv, i, ret_exit);
    for (const char *letter = text + 1; *letter != '\0'; letter++) {
        if (name_of_letter(usage, *letter) == NULL)
            return refuse_option(ret_exit, usage, text);
    }
    for (const char *letter = text + 1; *letter != '\0'; letter++) {
        if (!parse_option(args, usage, text, name_of_letter(usage, *letter), argv, i, ret_exit))
            return false;
    }
    return true;
}

/* The name that the help text has for the n-th operand. */
static int operand_name(const struct args_usage *usage, size_t n, const char **ret)
{
    const char *name = usage->operands;
    for (; n > 0; n--)
        name += strcspn(name, " ") + 1;
    *ret = name;
    return (int)strcspn(name, " .");
}

/* An empty word is what a variable of the shell leaves that is not set; a key may be empty, no
 * path. */
static bool check_empty(const struct args *args, const struct args_usage *usage, int *ret_exit)
{
    for (size_t i = 0; i < args->n_operands && i < usage->n_min; i++) {
        const char *name;
        const int n_name = operand_name(usage, i, &name);
        if (*args->operands[i] != '\0' || strncmp(name, "KEY", 3) == 0 ||
            strncmp(name, "WHAT", 4) == 0)
            continue;
        *ret_exit = print_error(EXIT_USAGE, NULL, "%.*s is empty; usage: weightfs %s %s", n_name,
                                name, usage->verb, usage->operands);
        return false;
    }
    return true;
}

static bool check_operands(const struct args *args, const struct args_usage *usage, int *ret_exit)
{
    if (args->n_operands < usage->n_min) {
        const char *name;
        const int n_name = operand_name(usage, args->n_operands, &name);
        if (args->taken != NULL && access(args->taken, F_OK) == 0)
            *ret_exit = print_error(EXIT_USAGE, NULL,
                                    "missing %.*s ('%s' is the value of %s); usage: weightfs %s %s",
                                    n_name, name, wfs_quote(args->taken).text, args->taker,
                                    usage->verb, usage->operands);
        else
            *ret_exit = print_error(EXIT_USAGE, NULL, "missing %.*s; usage: weightfs %s %s", n_name,
                                    name, usage->verb, usage->operands);
        return false;
    }
    if (!check_empty(args, usage, ret_exit))
        return false;
    if (args->n_operands > usage->n_max)
        return fail(ret_exit, usage, "unexpected operand", args->operands[usage->n_max]);
    return true;
}

bool args_parse(struct args *args, const struct args_usage *usage, int argc, char **argv,
                int *ret_exit)
{
    const size_t n_room = (size_t)argc + 1;
    *args = (struct args){
        .usage = usage,
        .operands = calloc(n_room, sizeof(*args->operands)),
        .given = calloc(n_room, sizeof(*args->given)),
        .limits = calloc(n_room, sizeof(*args->limits)),
        .joined = calloc(n_room, sizeof(*args->joined)),
    };
    if (args->operands == NULL || args->given == NULL || args->limits == NULL ||
        args->joined == NULL) {
        *ret_exit = print_error(EXIT_UNSUPPORTED, NULL, "out of memory");
        return false;
    }
    bool has_ended = false;
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i];
        if (has_ended || text[0] != '-' || text[1] == '\0')
            args->operands[args->n_operands++] = text;
        else if (strcmp(text, "--") == 0)
            has_ended = true;
        else if (!parse_word(args, usage, argv, &i, ret_exit))
            return false;
    }
    /* -h alone asks for help, as with most programs. */
    if (args_has(args, "help") || (args_has(args, "human") && args->n_operands == 0)) {
        print_help(usage);
        *ret_exit = EXIT_DONE;
        return false;
    }
    if (!check_operands(args, usage, ret_exit))
        return false;
    wrapping_start(usage->is_json || args_has(args, "json") || args_has(args, "null"));
    return true;
}

const char *args_order(const struct args *args, struct args_hint *hint)
{
    const char *text = args->usage->operands;
    hint->text[0] = '\0';
    if (args->n_operands >= 2 && strncmp(text, "SOURCE ", 7) == 0 &&
        strcmp(text, "SOURCE TARGET") != 0 && access(args->operands[0], F_OK) < 0 &&
        access(args->operands[1], F_OK) == 0)
        snprintf(hint->text, sizeof(hint->text), "; SOURCE comes first: weightfs %s %s",
                 args->usage->verb, text);
    return hint->text;
}

void args_done(struct args *args)
{
    free(args->operands);
    free(args->given);
    free(args->limits);
    for (size_t i = 0; i < args->n_joined; i++)
        free(args->joined[i]);
    free(args->joined);
    *args = (struct args){0};
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

struct wfs_load_options args_load_options(const struct args *args)
{
    return (struct wfs_load_options){
        .force = args->settings.force,
        .escapes_nul = args->settings.escapes_nul,
        .shards = args->settings.shards,
        .has_epoch = args->settings.has_epoch,
        .epoch = args->settings.epoch,
        .limits = args->limits,
        .n_limits = args->n_limits,
    };
}
