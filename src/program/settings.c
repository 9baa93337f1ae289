/* SPDX-License-Identifier: MIT */
/*
 * The table, what each row does to the settings, and the search for the name that was meant: the
 * distance drops most texts after a few characters; of names, two letters may differ, of short
 * names one.
 */
#include "program/settings.h"

#include <weightfs/cleanup.h>
#include <weightfs/size.h>

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int settings_parse_format(const char *name, const struct wfs_format **ret, struct wfs_error *err)
{
    *ret = wfs_format_by_name(name);
    return *ret != NULL
               ? 0
               : wfs_fail(err, EINVAL, "must be one of %s, not '%s'",
                          wfs_format_list(WFS_FORMAT_NAMES, ", ").text, wfs_quote(name).text);
}

static int apply_format(struct settings *settings, const char *value, struct wfs_error *err)
{
    return settings_parse_format(value, &settings->format, err);
}

static const struct {
    const char *name, *other;
    enum wfs_backup_control control;
} controls[] = {
    {"none", "off", WFS_BACKUP_NONE},
    {"simple", "never", WFS_BACKUP_SIMPLE},
    {"numbered", "t", WFS_BACKUP_NUMBERED},
    {"existing", "nil", WFS_BACKUP_EXISTING},
};

/* The suffix that the environment names, as of cp: one with a slash is ignored. */
static const char *default_suffix(void)
{
    const char *suffix = getenv("SIMPLE_BACKUP_SUFFIX");
    return suffix != NULL && *suffix != '\0' && strchr(suffix, '/') == NULL ? suffix : "~";
}

static int choose_backup(struct settings *settings, const char *value, struct wfs_error *err)
{
    const char *variable = getenv("VERSION_CONTROL");
    const bool is_given = value != NULL;
    if (!is_given)
        value = variable != NULL && *variable != '\0' ? variable : "existing";
    if (settings->backup.suffix == NULL)
        settings->backup.suffix = default_suffix();
    for (size_t i = 0; i < sizeof(controls) / sizeof(*controls); i++) {
        if (strcmp(value, controls[i].name) == 0 || strcmp(value, controls[i].other) == 0) {
            settings->backup.control = controls[i].control;
            return 0;
        }
    }
    return wfs_fail(err, EINVAL, "%smust be none, simple, numbered or existing, not '%s'",
                    is_given ? "" : "has no value, and VERSION_CONTROL ", wfs_quote(value).text);
}

static int apply_backup(struct settings *settings, const char *value, struct wfs_error *err)
{
    settings->has_backup_control = true;
    return choose_backup(settings, value, err);
}

/* A suffix asks for a backup, as with cp. */
static int apply_suffix(struct settings *settings, const char *value, struct wfs_error *err)
{
    if (*value == '\0' || strchr(value, '/') != NULL)
        return wfs_fail(err, EINVAL, "must be a text without '/', not '%s'", wfs_quote(value).text);
    settings->backup.suffix = value;
    return settings->has_backup_control ? 0 : choose_backup(settings, NULL, err);
}

const char *settings_backup_name(const struct wfs_backup *backup)
{
    for (size_t i = 0; i < sizeof(controls) / sizeof(*controls); i++) {
        if (controls[i].control == backup->control)
            return controls[i].name;
    }
    return "none";
}

static int apply_max_shard(struct settings *settings, const char *value, struct wfs_error *err)
{
    return wfs_size_parse(value, &settings->max_shard) && settings->max_shard > 0
               ? 0
               : wfs_fail(err, EINVAL, "must be a size like 5GB or 500MiB, not '%s'",
                          wfs_quote(value).text);
}

static int apply_epoch(struct settings *settings, const char *value, struct wfs_error *err)
{
    char *end;
    errno = 0;
    settings->load.epoch = strtoull(value, &end, 10);
    settings->load.has_epoch = true;
    return value[0] >= '0' && value[0] <= '9' && *end == '\0' && errno == 0
               ? 0
               : wfs_fail(err, EINVAL, "must be a number, not '%s'", wfs_quote(value).text);
}

static int apply_endpoint(struct settings *settings, const char *value, struct wfs_error *err)
{
    settings->fetcher.endpoint = value;
    return strncmp(value, "http://", 7) == 0 || strncmp(value, "https://", 8) == 0
               ? 0
               : wfs_fail(err, EINVAL, /* which may have a password in it */
                          "must be a URL with http or https, such as http://HOST:9000");
}

static int apply_cache(struct settings *settings, const char *value, struct wfs_error *err)
{
    settings->fetcher.cache = value;
    return *value != '\0' ? 0 : wfs_fail(err, EINVAL, "must be a directory");
}

char *settings_usual_cache(void)
{
    struct stat st;
    char *path = NULL;
    const char *named = getenv("WEIGHTFS_CACHE"), *cache = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (named != NULL)
        return *named == '\0' || strcmp(named, SETTINGS_NO_CACHE) == 0 ? NULL : strdup(named);
    autofree char *above = NULL;
    if (cache != NULL && *cache == '/')
        above = strdup(cache);
    else if (home == NULL || *home != '/' || stat(home, &st) < 0 || st.st_uid != geteuid() ||
             asprintf(&above, "%s/.cache", home) < 0)
        return above = NULL;
    if (above == NULL || (mkdir(above, S_IRWXU) < 0 && errno != EEXIST))
        return NULL;
    return stat(above, &st) < 0 || st.st_uid != geteuid() ||
                   asprintf(&path, "%s/weightfs", above) < 0
               ? NULL
               : path;
}

static int apply_cache_size(struct settings *settings, const char *value, struct wfs_error *err)
{
    enum { LEAST = 128 << 20 }; /* what is read ahead must not remove what is read */
    return wfs_size_parse(value, &settings->fetcher.cache_size) &&
                   settings->fetcher.cache_size >= LEAST
               ? 0
               : wfs_fail(err, EINVAL, "must be a size of at least 128M, such as 20G, not '%s'",
                          wfs_quote(value).text);
}

/* A number up to `most`. */
static int parse_count(const char *value, unsigned most, unsigned *ret, struct wfs_error *err)
{
    char *end;
    errno = 0;
    const unsigned long number = strtoul(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || number > most)
        return wfs_fail(err, EINVAL, "must be a number from 0 to %u, not '%s'", most,
                        wfs_quote(value).text);
    *ret = (unsigned)number;
    return 0;
}

static int apply_retries(struct settings *settings, const char *value, struct wfs_error *err)
{
    settings->fetcher.has_retries = true;
    return parse_count(value, 100, &settings->fetcher.retries, err);
}

static int apply_timeout(struct settings *settings, const char *value, struct wfs_error *err)
{
    settings->fetcher.has_timeout = true;
    return parse_count(value, 86400, &settings->fetcher.timeout_s, err);
}

/* Set by an option without a value, or by the second word of one with two. */
#define FLAG(member) .flag = offsetof(struct settings, member)

static const struct setting rows[] = {
    {"backup", "[CONTROL]", "keep what is replaced: simple, numbered, existing", SETTING_OF_OUTPUT,
     apply_backup},
    {"cache", "DIR", "keep what is fetched of URLs in DIR, or none", SETTING_OF_SOURCE,
     apply_cache},
    {"cache_size", "SIZE", "let the cache take at most about SIZE", SETTING_OF_SOURCE,
     apply_cache_size},
    {"endpoint", "URL", "the server of s3:// names", SETTING_OF_SOURCE, apply_endpoint},
    {"epoch", "N", "read epoch N of a training run, not the newest", SETTING_OF_SOURCE,
     apply_epoch},
    {"escape_nul", NULL, "show a NUL in a key as %00", SETTING_OF_SOURCE, FLAG(load.escapes_nul)},
    {"force", NULL, "open SOURCE although parts are damaged", SETTING_OF_SOURCE, FLAG(load.force)},
    {"format", "NAME", NULL, SETTING_OF_OUTPUT, apply_format},
    {"large", NULL, "allow a TARGET over 16 times larger than SOURCE", SETTING_OF_OUTPUT,
     FLAG(allows_large)},
    {"max_shard_size", "SIZE", "start a new shard at SIZE, such as 5GB or 500MiB",
     SETTING_OF_OUTPUT, apply_max_shard},
    {"overwrite", NULL, "replace TARGET if it exists, or is SOURCE", SETTING_OF_OUTPUT,
     FLAG(overwrite)},
    {"retries", "N", "repeat a failed request up to N times (5)", SETTING_OF_SOURCE, apply_retries},
    {"safe", NULL, "leave out what may run code when TARGET is loaded", SETTING_OF_OUTPUT,
     FLAG(fit.is_safe)},
    {"shards", NULL, "SOURCE is one of several shards; read all of them", SETTING_OF_SOURCE,
     FLAG(load.shards)},
    {"suffix", "TEXT", "of a simple backup, in place of '~'", SETTING_OF_OUTPUT, apply_suffix},
    {"ties", "copy|drop", "store tied tensors once per name, or only once", SETTING_OF_OUTPUT,
     FLAG(fit.drops_ties)},
    {"timeout", "SECONDS", "give up a request without a byte for so long (60)", SETTING_OF_SOURCE,
     apply_timeout},
    {"values", "drop|metadata", "leave non-tensor values out, or store as metadata",
     SETTING_OF_OUTPUT, FLAG(fit.values_in_metadata)},
};

enum { N_ROWS = sizeof(rows) / sizeof(*rows) };

/* Returns the rows of the table, then those that formats declare. */
static bool row_at(size_t i, struct setting *ret)
{
    const struct wfs_format *format;
    if (i < N_ROWS) {
        *ret = rows[i];
        return true;
    }
    i -= N_ROWS;
    for (size_t f = 0; (format = wfs_format_at(f)) != NULL; f++) {
        const struct wfs_option *option = format->options;
        for (; option != NULL && option->name != NULL; option++) {
            if (i-- > 0)
                continue;
            *ret = (struct setting){.name = option->name,
                                    .argument = option->argument,
                                    .help = option->help,
                                    .subject = SETTING_OF_OUTPUT,
                                    .option = option};
            return true;
        }
    }
    return false;
}

bool settings_row(size_t i, struct setting *ret)
{
    struct setting other;
    for (size_t k = 0; row_at(k, ret); k++) {
        size_t n_before = 0;
        for (size_t m = 0; row_at(m, &other); m++)
            n_before += strcmp(other.name, ret->name) < 0;
        if (n_before == i)
            return true;
    }
    return false;
}

/* Takes the value of an option that a format declares. */
static int apply_option(struct wfs_fit_options *fit, const struct wfs_option *option,
                        const char *value, struct wfs_error *err)
{
    size_t i = 0;
    while (i < fit->n_options && fit->options[i].option != option)
        i++;
    assert(i < WFS_OPTIONS_MAX);
    fit->options[i].option = option;
    fit->options[i].value = value;
    fit->n_options += i == fit->n_options;
    return option->check(value, err);
}

int settings_apply(struct settings *settings, const struct setting *setting, const char *value,
                   struct wfs_error *err)
{
    if (setting->option != NULL)
        return apply_option(&settings->fit, setting->option, value, err);
    if (setting->apply != NULL)
        return setting->apply(settings, value, err);
    bool *flag = (bool *)((char *)settings + setting->flag);
    const char *clear = setting->argument;
    const size_t n_clear = clear == NULL ? 0 : strcspn(clear, "|");
    *flag = clear == NULL || strcmp(value, clear + n_clear + 1) == 0;
    return *flag || (strlen(value) == n_clear && strncmp(value, clear, n_clear) == 0)
               ? 0
               : wfs_fail(err, EINVAL, "must be '%.*s' or '%s', not '%s'", (int)n_clear, clear,
                          clear + n_clear + 1, wfs_quote(value).text);
}

bool settings_needs_value(const char *argument)
{
    return argument != NULL && (argument[0] != '[' || argument[strlen(argument) - 1] != ']');
}

bool settings_is_name(const char *name, const char *given, size_t n_given)
{
    if (strlen(name) != n_given)
        return false;
    for (size_t i = 0; i < n_given; i++) {
        if (name[i] != given[i] && !(name[i] == '_' && given[i] == '-'))
            return false;
    }
    return true;
}

bool settings_find(const char *name, size_t n_name, struct setting *ret)
{
    size_t i = 0;
    while (row_at(i, ret) && !settings_is_name(ret->name, name, n_name))
        i++;
    return row_at(i, ret);
}

void settings_spell(const char *name, char between, char *ret)
{
    snprintf(ret, SPELLING_NAME_MAX + 1, "%s", name);
    for (char *at = ret; *at != '\0'; at++)
        *at = *at == '_' || *at == '-' ? between : *at;
}

/* ---- spelling ---- */

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned spelling_distance(const char *a, size_t n_a, const char *b, size_t n_b, unsigned bound)
{
    unsigned row[SPELLING_TEXT_MAX + 1];
    if (n_b > SPELLING_TEXT_MAX || (n_a > n_b ? n_a - n_b : n_b - n_a) > bound)
        return SPELLING_FAR;
    for (size_t j = 0; j <= n_b; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= n_a; i++) {
        unsigned diagonal = row[0];
        unsigned row_least = (unsigned)i;
        row[0] = row_least;
        for (size_t j = 1; j <= n_b; j++) {
            const unsigned replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, 1 + least(row[j], row[j - 1]));
            row_least = least(row_least, row[j]);
        }
        if (row_least > bound)
            return SPELLING_FAR;
    }
    return row[n_b] <= bound ? row[n_b] : SPELLING_FAR;
}

/* Copies a name up to a '=', with dashes as underscores. */
static void copy_name(char ret[SPELLING_NAME_MAX + 1], const char *name)
{
    const size_t n = strcspn(name, "=");
    const size_t n_kept = n <= SPELLING_NAME_MAX ? n : 0;
    for (size_t i = 0; i < n_kept; i++)
        ret[i] = name[i] == '-' ? '_' : name[i];
    ret[n_kept] = '\0';
}

void spelling_start(struct spelling *spelling, const char *name)
{
    *spelling = (struct spelling){0};
    copy_name(spelling->name, name);
    spelling->distance = strlen(spelling->name) > 3 ? 3 : 2;
}

void spelling_try(struct spelling *spelling, const char *known)
{
    char text[SPELLING_NAME_MAX + 1];
    copy_name(text, known);
    if (spelling->name[0] == '\0' || text[0] == '\0' || spelling->distance == 0)
        return;
    const unsigned distance = spelling_distance(spelling->name, strlen(spelling->name), text,
                                                strlen(text), spelling->distance - 1);
    if (distance == SPELLING_FAR)
        return;
    spelling->distance = distance;
    spelling->best = known;
}
