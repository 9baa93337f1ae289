/* SPDX-License-Identifier: MIT */
/*
 * Options are rows of a table. mount(8) passes "rw" unless the user gave "ro", and mount.fuse adds
 * "dev" and "suid" unless the user gave the opposite. A list with one of these four therefore comes
 * from there, and its "rw" is not a request to replace the source.
 */
#include "fuse/mount_options.h"

#include <weightfs/view.h>
#include "fuse/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum option_kind { SET, TEXT, DECIMAL, OCTAL, LIMIT, FROM_MOUNT, OF_KERNEL };

struct option_rule {
    const char *name; /* a value or a rest follows where it ends with '=', '.' or '-' */
    enum option_kind kind;
    size_t field;
    unsigned value;
};

#define FIELD(name) offsetof(struct mount_options, name)

static const struct option_rule rules[] = {
    {"ro", SET, FIELD(access), MOUNT_ACCESS_RO},
    {"rw", SET, FIELD(access), MOUNT_ACCESS_RW},
    {"output=", TEXT, FIELD(output), 0},
    {"stage=", TEXT, FIELD(stage), 0},
    {"layout=nested", SET, FIELD(layout), WFS_LAYOUT_NESTED},
    {"layout=flat", SET, FIELD(layout), WFS_LAYOUT_FLAT},
    {"files=raw", SET, FIELD(files), WFS_FILES_RAW},
    {"files=npy", SET, FIELD(files), WFS_FILES_NPY},
    {"limit.", LIMIT, 0, 0},
    {"sandbox=auto", SET, FIELD(sandbox), SANDBOX_AUTO},
    {"sandbox=off", SET, FIELD(sandbox), SANDBOX_OFF},
    {"sandbox=require", SET, FIELD(sandbox), SANDBOX_REQUIRE},
    {"redact", SET, FIELD(redact), 1},
    {"uid=", DECIMAL, FIELD(uid), 0},
    {"gid=", DECIMAL, FIELD(gid), 0},
    {"umask=", OCTAL, FIELD(umask), 0},
    {"allow_other", SET, FIELD(allow_other), 1},
    {"auto_unmount", SET, FIELD(auto_unmount), 1},
    {"debug", SET, FIELD(is_debug), 1},
    {"dev", FROM_MOUNT, 0, 0},
    {"nodev", FROM_MOUNT, 0, 0},
    {"suid", FROM_MOUNT, 0, 0},
    {"nosuid", FROM_MOUNT, 0, 0},
    {"remount", SET, FIELD(is_remount), 1},
    {"user_id=", OF_KERNEL, 0, 0},
    {"group_id=", OF_KERNEL, 0, 0},
    {"max_read=", OF_KERNEL, 0, 0},
    {"blksize=", OF_KERNEL, 0, 0},
    {"sync", SET, FIELD(syncs), MOUNT_SYNCS_ALL},
    {"dirsync", SET, FIELD(syncs), MOUNT_SYNCS_NAMES},
    {"async", SET, FIELD(syncs), MOUNT_SYNCS_NOTHING},
};

enum { N_RULES = sizeof(rules) / sizeof(rules[0]) };

/* Of mount(8) and fstab; they change nothing. */
static const char *const ignored[] = {"default_permissions",
                                      "defaults",
                                      "exec",
                                      "noexec",
                                      "lazytime",
                                      "nolazytime",
                                      "symfollow",
                                      "nosymfollow",
                                      "strictatime",
                                      "nostrictatime",
                                      "silent",
                                      "loud",
                                      "atime",
                                      "noatime",
                                      "diratime",
                                      "nodiratime",
                                      "relatime",
                                      "norelatime",
                                      "auto",
                                      "noauto",
                                      "user",
                                      "user=",
                                      "nouser",
                                      "users",
                                      "nofail",
                                      "_netdev",
                                      "comment=",
                                      "x-"};

enum { N_IGNORED = sizeof(ignored) / sizeof(ignored[0]) };

static bool is_named(const char *option, const char *name)
{
    return strchr("=.-", name[strlen(name) - 1]) != NULL ? strncmp(option, name, strlen(name)) == 0
                                                         : strcmp(option, name) == 0;
}

/* Returns the option that was probably meant; NULL: none. */
static const char *find_similar(const char *option)
{
    struct spelling spelling;
    const struct wfs_view_option *known;
    struct setting setting;
    spelling_start(&spelling, option);
    for (size_t i = 0; i < N_RULES; i++)
        spelling_try(&spelling, rules[i].name);
    for (size_t i = 0; i < N_IGNORED; i++)
        spelling_try(&spelling, ignored[i]);
    for (size_t i = 0; settings_row(i, &setting); i++)
        spelling_try(&spelling, setting.name);
    for (size_t i = 0; (known = wfs_view_option(i)) != NULL; i++)
        spelling_try(&spelling, known->name);
    return spelling.best;
}

/* The values of an option that takes one of a few, such as "files=": 'raw', 'npy'. */
static void list_choices(const char *option, char *ret_text, size_t n_bytes)
{
    const size_t n_name = strcspn(option, "=") + 1;
    size_t n_text = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; i < N_RULES && n_text < n_bytes; i++) {
        const char *name = rules[i].name;
        if (strncmp(name, option, n_name) == 0 && strlen(name) > n_name)
            n_text += (size_t)snprintf(ret_text + n_text, n_bytes - n_text, "%s'%s'",
                                       n_text > 0 ? ", " : "", name + n_name);
    }
}

static bool refuse_option(const char *option)
{
    char choices[128] = "";
    const char *similar = find_similar(option);
    const size_t n_name = strlen(option);
    if (similar != NULL && strncmp(similar, option, n_name) == 0 &&
        (similar[n_name] == '\0' || strcmp(similar + n_name, "=") == 0)) {
        log_error("mount option '%s' needs a value, as in %s=VALUE", option, option);
        return false;
    }
    if (strchr(option, '=') != NULL)
        list_choices(option, choices, sizeof(choices));
    if (choices[0] != '\0')
        log_error("mount option '%s': the value must be one of %s", wfs_quote(option).text,
                  choices);
    else if (similar != NULL)
        log_error("unknown mount option '%s'; did you mean '%s'?", wfs_quote(option).text, similar);
    else
        log_error("unknown mount option '%s'; weightfs(1) lists all", wfs_quote(option).text);
    return false;
}

static bool parse_number(const char *option, const char *value, int base, unsigned *ret)
{
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(value, &end, base);
    const unsigned long long limit = base == 8 ? 0777 : 0xfffffffeU;
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || number > limit) {
        log_error("mount option '%s' needs %s", wfs_quote(option).text,
                  base == 8 ? "an octal number up to 777" : "a decimal number");
        return false;
    }
    *ret = (unsigned)number;
    return true;
}

/* Applies a row of the table. */
static bool apply(struct mount_options *options, const struct option_rule *rule, const char *option)
{
    const char *value = option + strlen(rule->name);
    char *field = (char *)options + rule->field;
    switch (rule->kind) {
    case SET:
        *(unsigned *)(void *)field = rule->value;
        return true;
    case TEXT:
        *(const char **)(void *)field = value;
        if (*value == '\0')
            log_error("mount option '%s' needs a value", option);
        return *value != '\0';
    case DECIMAL:
        return parse_number(option, value, 10, (unsigned *)(void *)field);
    case OCTAL:
        return parse_number(option, value, 8, (unsigned *)(void *)field);
    case LIMIT:
        options->limits[options->settings.load.n_limits++] = value;
        return true;
    case FROM_MOUNT:
        options->is_from_mount = true;
        return true;
    case OF_KERNEL:
        options->of_kernel = option;
        return true;
    }
    return false;
}

static bool is_octal_code(const char *text)
{
    for (int i = 0; i < 3; i++) {
        if (text[i] < '0' || text[i] > (i == 0 ? '3' : '7'))
            return false;
    }
    return true;
}

/*
 * Returns the next option of the list, cut off in place at a comma that no backslash precedes, and
 * NULL at the end. As in libfuse, "\NNN" is a byte in octal and "\X" is X.
 */
static char *next_option(char **rest)
{
    char *const option = *rest;
    if (option == NULL)
        return NULL;
    char *out = option;
    const char *in = option;
    for (; *in != '\0' && *in != ','; in++) {
        if (*in == '\\' && is_octal_code(in + 1)) {
            *out++ = (char)((in[1] - '0') * 64 + (in[2] - '0') * 8 + (in[3] - '0'));
            in += 3;
        } else {
            if (*in == '\\' && in[1] != '\0')
                in++;
            *out++ = *in;
        }
    }
    *rest = *in == ',' ? option + (in - option) + 1 : NULL;
    *out = '\0';
    return option;
}

/* Returns true for an option of views, with a value if and only if it takes one. */
static bool is_of_view(const char *option)
{
    const struct wfs_view_option *known;
    const size_t n_name = strcspn(option, "=");
    for (size_t i = 0; (known = wfs_view_option(i)) != NULL; i++) {
        if (strlen(known->name) == n_name && strncmp(option, known->name, n_name) == 0)
            return (known->argument != NULL) == (option[n_name] == '=');
    }
    return false;
}

static bool apply_setting(struct mount_options *options, const struct setting *setting,
                          const char *option)
{
    struct wfs_error err = {0};
    const char *value = strchr(option, '=');
    if (value != NULL ? setting->argument == NULL : settings_needs_value(setting->argument)) {
        log_error("mount option '%s' %s", setting->name,
                  value != NULL ? "takes no value" : "needs a value");
        return false;
    }
    if (settings_apply(&options->settings, setting, value != NULL ? value + 1 : NULL, &err) < 0) {
        log_error("mount option '%s' %s", setting->name, err.text);
        return false;
    }
    return true;
}

static bool parse_option(struct mount_options *options, const char *option)
{
    if (*option == '\0')
        return true;
    for (size_t i = 0; i < N_RULES; i++) {
        if (is_named(option, rules[i].name))
            return apply(options, &rules[i], option);
    }
    for (size_t i = 0; i < N_IGNORED; i++) {
        if (is_named(option, ignored[i]))
            return true;
    }
    struct setting setting;
    if (settings_find(option, strcspn(option, "="), &setting))
        return apply_setting(options, &setting, option);
    if (!is_of_view(option))
        return refuse_option(option);
    options->views[options->n_views++] = option;
    return true;
}

/* Makes room for n_more elements. */
static bool grow(const char ***list, size_t n, size_t n_more)
{
    const char **grown = realloc(*list, (n + n_more) * sizeof(*grown));
    if (grown != NULL)
        *list = grown;
    return grown != NULL;
}

static bool parse_list(struct mount_options *options, const char *list)
{
    size_t n_options = 1;
    for (const char *at = list; *at != '\0'; at++)
        n_options += *at == ',';
    char *text = strdup(list);
    if (text == NULL || !grow(&options->limits, options->settings.load.n_limits, n_options) ||
        !grow(&options->views, options->n_views, n_options)) {
        free(text);
        log_error("out of memory");
        return false;
    }
    options->texts[options->n_texts++] = text;
    for (char *rest = text, *option; (option = next_option(&rest)) != NULL;) {
        if (!parse_option(options, option))
            return false;
    }
    return true;
}

/* Parses the flags after one dash; "o" takes the rest, or the next argument. */
static bool parse_flags(struct mount_options *options, const char *flags, char **next,
                        bool *ret_took)
{
    for (; *flags != '\0'; flags++) {
        switch (*flags) {
        case 'f':
            options->is_foreground = 1;
            break;
        case 'd':
            options->is_debug = 1;
            break;
        case 'v':
            options->is_verbose = 1;
            break;
        case 's':
            options->is_single_threaded = 1;
            break;
        case 'o':
            *ret_took = flags[1] == '\0';
            if (*ret_took && *next == NULL) {
                log_error("-o needs a list of mount options");
                return false;
            }
            return parse_list(options, *ret_took ? *next : flags + 1);
        default:
            log_error("unknown option '-%s'; a mount takes -f, -d, -s, -v and -o OPTION,...%s%s",
                      wfs_quote(flags).text, *flags == '-' ? ", as in -o " : "",
                      *flags == '-' ? wfs_quote(flags + 1).text : "");
            return false;
        }
    }
    return true;
}

static bool parse_operand(struct mount_options *options, const char *operand)
{
    if (*operand == '\0') { /* a variable of the shell that is not set */
        log_error("%s is empty; usage: weightfs SOURCE MOUNTPOINT",
                  options->source == NULL ? "SOURCE" : "MOUNTPOINT");
        return false;
    }
    if (options->source == NULL) {
        options->source = operand;
    } else if (options->mountpoint == NULL) {
        options->mountpoint = operand;
    } else {
        log_error("unexpected operand '%s' after SOURCE and MOUNTPOINT%s", wfs_quote(operand).text,
                  strchr(operand, '=') != NULL ? "; mount options follow -o" : "");
        return false;
    }
    return true;
}

static bool parse_arguments(struct mount_options *options, char **argv)
{
    bool is_flag_possible = true;
    for (char **arg = argv + 1; *arg != NULL; arg++) {
        bool took_next = false;
        if (is_flag_possible && strcmp(*arg, "--") == 0)
            is_flag_possible = false;
        else if (is_flag_possible && (*arg)[0] == '-' && (*arg)[1] != '\0') {
            if (!parse_flags(options, *arg + 1, arg + 1, &took_next))
                return false;
        } else if (!parse_operand(options, *arg))
            return false;
        arg += took_next;
    }
    return true;
}

/* Checks options against each other. */
static bool check(struct mount_options *options)
{
    if (options->mountpoint == NULL) {
        log_error(options->source == NULL
                      ? "missing SOURCE and MOUNTPOINT; see 'weightfs --help'"
                      : "missing MOUNTPOINT; to inspect a file use a verb, such as 'weightfs info "
                        "FILE'");
        return false;
    }
    if (options->is_remount)
        return true;
    if (options->of_kernel != NULL)
        return refuse_option(options->of_kernel);
    if (options->is_from_mount && options->access == MOUNT_ACCESS_RW)
        options->access = MOUNT_ACCESS_UNSAID;
    if (options->access == MOUNT_ACCESS_RO && options->output != NULL) {
        log_error("mount options 'ro' and 'output=' exclude each other");
        return false;
    }
    if (options->access != MOUNT_ACCESS_RW && options->output == NULL &&
        (options->stage != NULL || options->settings.format != NULL)) {
        log_error("mount option '%s' needs 'output=' or 'rw'",
                  options->stage != NULL ? "stage=" : "format=");
        return false;
    }
    options->is_foreground |= options->is_debug;
    return true;
}

bool mount_options_parse(struct mount_options *options, int argc, char **argv)
{
    const mode_t mask = umask(0);
    umask(mask);
    *options = (struct mount_options){
        .uid = getuid(), .gid = getgid(), .umask = mask, .process_umask = mask};
    options->texts = calloc((size_t)argc + 1, sizeof(*options->texts));
    if (options->texts == NULL) {
        log_error("out of memory");
        return false;
    }
    const bool is_good = parse_arguments(options, argv) && check(options);
    options->settings.load.limits = options->limits;
    return is_good;
}

void mount_options_done(struct mount_options *options)
{
    for (size_t i = 0; i < options->n_texts; i++)
        free(options->texts[i]);
    free(options->texts);
    free(options->limits);
    free(options->views);
    *options = (struct mount_options){0};
}
