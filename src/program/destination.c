/* SPDX-License-Identifier: MIT */
/*
 * Verbs and mounts differ in their sentences, which are beside each other in one table.
 */
#include "program/destination.h"

#include "program/place.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum sentence {
    NO_FORMAT,
    NO_FORMAT_OF_SET,
    WRONG_OPTION,
    WRONG_SIZE,
    PLANTED,
    IS_SOURCE,
    IS_TAKEN,
    IS_STREAM,
    NOT_A_FILE,
};

/* The sentence of a verb, of a mount and of a caller; "%1$s" is the path, or the option. */
static const struct {
    bool is_usage; /* it is about the command line, not about the file */
    const char *text[3];
} sentences[] = {
    [NO_FORMAT] = {true,
                   {"cannot infer the format from the name '%1$s': use --format, or 'NAME/' for a "
                    "directory of shards; known are %2$s",
                    "cannot infer the format from the name '%1$s': use -o format=NAME, or '%1$s/' "
                    "for a directory of shards",
                    "cannot infer the format from the name '%1$s': set format, or use 'NAME/' for "
                    "a directory of shards; known are %2$s"}},
    [NO_FORMAT_OF_SET] =
        {true,
         {"cannot infer the format of '%1$s' from the name of its source: use --format with "
          "%2$s",
          "cannot infer the format of '%1$s' from the name of its source: use -o format=NAME, with "
          "%2$s",
          "cannot infer the format of '%1$s' from the name of its source: set format to %2$s"}},
    [WRONG_OPTION] = {true,
                      {"--%1$s applies to %2$s files only",
                       "mount option '%1$s' applies to %2$s files only",
                       "%1$s: applies to %2$s files only"}},
    [WRONG_SIZE] = {true,
                    {"--max-shard-size needs a directory or NAME.index.json as TARGET",
                     "mount option 'max_shard_size' needs an output that is a directory or "
                     "NAME.index.json",
                     "max_shard_size: needs a directory or NAME.index.json as target"}},
    [PLANTED] = {false,
                 {"cannot be used: " PLACE_PLANTED, "cannot use '%1$s': " PLACE_PLANTED,
                  "cannot be used: " PLACE_PLANTED}},
    [IS_SOURCE] = {false,
                   {"would overwrite the source (use --overwrite to do that)", NULL,
                    "would overwrite the source (set overwrite to do that)"}},
    [IS_TAKEN] = {false,
                  {"already exists (use --overwrite to replace it)", NULL,
                   "already exists (set overwrite to replace it)"}},
    [IS_STREAM] = {true,
                   {"cannot save to standard output: name a file ('./-' for one of that name)"}},
    [NOT_A_FILE] = {false,
                    {"exists and is not a regular file: use another name", NULL,
                     "exists and is not a regular file: use another name"}},
};

static enum exit_code exit_of_file(const struct destination *destination)
{
    return destination->speaker == DESTINATION_OF_MOUNT ? EXIT_MOUNT : EXIT_OUTPUT;
}

static enum exit_code fail(const struct destination *destination, enum sentence sentence,
                           const char *path, const char *other, struct wfs_error *err)
{
    wfs_fail(err, EINVAL, sentences[sentence].text[destination->speaker], wfs_quote(path).text,
             other);
    return sentences[sentence].is_usage ? EXIT_USAGE : exit_of_file(destination);
}

/* As a source, this name is the standard input. */
static bool is_stream(const struct destination *destination)
{
    return destination->speaker == DESTINATION_OF_VERB && strcmp(destination->typed, "-") == 0;
}

enum exit_code destination_find(struct destination *destination, const char *source,
                                struct wfs_error *err)
{
    destination->format = destination->settings->format;
    if (is_stream(destination))
        return fail(destination, IS_STREAM, destination->typed, NULL, err);
    if (wfs_output_index(destination->typed, source, &destination->format, &destination->index) < 0)
        return exit_of_errno(-wfs_fail_memory(err));
    return destination->index != NULL && destination->format == NULL
               ? fail(destination, NO_FORMAT_OF_SET, destination->typed,
                      wfs_format_list(WFS_FORMAT_NAMES, " or ").text, err)
               : EXIT_DONE;
}

enum exit_code destination_choose_format(struct destination *destination, bool can_keep,
                                         struct wfs_error *err)
{
    if (destination->format == NULL)
        destination->format = wfs_format_by_path(destination->typed);
    return destination->format != NULL || can_keep
               ? EXIT_DONE
               : fail(destination, NO_FORMAT, destination->typed,
                      wfs_format_list(WFS_FORMAT_ENDINGS, " and ").text, err);
}

/* Returns the ending of the files that an option is for; NULL: those of the format. */
static const char *other_ending(const struct wfs_option *option, const struct wfs_format *format)
{
    for (size_t i = 0; wfs_format_at(i) != NULL; i++) {
        const struct wfs_option *known = wfs_format_at(i)->options;
        while (known != NULL && known->name != NULL && known != option)
            known++;
        if (known == option)
            return wfs_format_at(i) == format ? NULL : wfs_format_at(i)->extensions[0];
    }
    return NULL;
}

enum exit_code destination_check_options(const struct destination *destination,
                                         struct wfs_error *err)
{
    const struct wfs_fit_options *fit = &destination->settings->fit;
    for (size_t i = 0; i < fit->n_options; i++) {
        char name[SPELLING_NAME_MAX + 1];
        const char *ending = other_ending(fit->options[i].option, destination->format);
        if (ending == NULL)
            continue;
        settings_spell(fit->options[i].option->name,
                       destination->speaker == DESTINATION_OF_VERB ? '-' : '_', name);
        return fail(destination, WRONG_OPTION, name, ending, err);
    }
    return EXIT_DONE;
}

enum exit_code destination_check_size(const struct destination *destination, struct wfs_error *err)
{
    return destination->index != NULL || destination->settings->max_shard == 0
               ? EXIT_DONE
               : fail(destination, WRONG_SIZE, destination->typed, NULL, err);
}

enum exit_code destination_check_links(const struct destination *destination, const char *path,
                                       struct wfs_error *err)
{
    return path_check_links(path) == -EACCES ? fail(destination, PLANTED, path, NULL, err)
                                             : EXIT_DONE;
}

enum exit_code destination_choose_replacement(struct destination *destination,
                                              const struct stat *there, struct wfs_error *err)
{
    const bool is_mount = destination->speaker == DESTINATION_OF_MOUNT;
    const bool overwrites = destination->settings->overwrite;
    if (is_stream(destination))
        return fail(destination, IS_STREAM, destination->typed, NULL, err);
    if (!is_mount && there != NULL && !S_ISREG(there->st_mode))
        return fail(destination, NOT_A_FILE, destination->typed, NULL, err);
    destination->replace = is_mount && overwrites ? WFS_REPLACE_ANY : WFS_REPLACE_NONE;
    if (is_mount || there != NULL)
        destination->backup = destination->settings->backup;
    if (there == NULL)
        return EXIT_DONE;
    destination->known = wfs_identity_of(there);
    destination->is_taken = !overwrites && !(is_mount && destination->is_source);
    if (destination->replace == WFS_REPLACE_NONE && !destination->is_taken)
        destination->replace = WFS_REPLACE_KNOWN;
    return is_mount || !destination->is_taken
               ? EXIT_DONE
               : fail(destination, destination->is_source ? IS_SOURCE : IS_TAKEN,
                      destination->typed, NULL, err);
}

enum exit_code destination_check_backup(const struct destination *destination, const char *path,
                                        const struct wfs_catalog *read, struct wfs_error *err)
{
    struct wfs_error own = {0};
    if (wfs_catalog_check_backup(read, path, &destination->backup, &own) == 0)
        return EXIT_DONE;
    if (destination->speaker != DESTINATION_OF_MOUNT)
        *err = own;
    else
        wfs_fail(err, EINVAL, "cannot use output '%s': %s", wfs_quote(path).text, own.text);
    return exit_of_file(destination);
}

/* Other threads would see another mask if it was set to be found out. */
mode_t destination_mode(void)
{
    char text[4096] = "";
    static const char name[] = "\nUmask:";
    autoclose int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : io_read_at(fd, text, sizeof(text) - 1, 0);
    const char *line = n > 0 ? strstr(text, name) : NULL;
    if (line != NULL)
        return 0666 & ~(mode_t)strtoul(line + strlen(name), NULL, 8);
    const mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

struct wfs_save_options destination_save_options(const struct destination *destination)
{
    return (struct wfs_save_options){.mode = destination_mode(),
                                     .replace = destination->replace,
                                     .known = destination->known,
                                     .backup = destination->backup,
                                     .narrows_replaced = destination->is_source};
}

void destination_done(struct destination *destination)
{
    free(destination->index);
    destination->index = NULL;
}
