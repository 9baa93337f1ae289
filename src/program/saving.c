/* SPDX-License-Identifier: MIT */
/*
 * What may be replaced is decided before the source is read; what cannot be stored before the
 * target is written.
 */
#include "program/saving.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where it goes ---- */

/* Finds what is at the target, and whether it is what the source is loaded from. Returns NULL where
 * nothing is. */
static const struct stat *look_at(struct saving *saving, const char *path, struct stat *st)
{
    struct stat own;
    autofree char *source = saving->source == NULL ? NULL : wfs_source_file(saving->source, false);
    if (stat(path, st) < 0)
        return NULL;
    saving->destination.is_source = source != NULL && stat(source, &own) == 0 &&
                                    own.st_dev == st->st_dev && own.st_ino == st->st_ino;
    return st;
}

/* An edited file that replaces itself keeps its format, whatever its name is. */
static enum exit_code choose_format(struct saving *saving, struct wfs_error *err)
{
    struct stat st;
    struct destination *destination = &saving->destination;
    const bool is_named = saving->source != NULL && strcmp(saving->source, "-") != 0;
    enum exit_code exit_code = destination_find(destination, is_named ? saving->source : "", err);
    if (exit_code != EXIT_DONE)
        return exit_code;
    saving->keeps_format =
        saving->keeps_format && destination->index == NULL && destination->format == NULL &&
        look_at(saving, destination->typed, &st) != NULL && destination->is_source;
    if (saving->keeps_format)
        return EXIT_DONE;
    exit_code = destination_choose_format(destination, false, err);
    if (exit_code == EXIT_DONE)
        exit_code = destination_check_options(destination, err);
    return exit_code;
}

enum exit_code saving_choose(struct saving *saving, struct wfs_error *err)
{
    struct stat st;
    struct destination *destination = &saving->destination;
    saving->target = destination->typed;
    enum exit_code exit_code = choose_format(saving, err);
    if (exit_code == EXIT_DONE)
        exit_code = destination_check_size(destination, err);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (destination->index != NULL) {
        saving->target = destination->index;
        if (wfs_output_is_directory(destination->typed, destination->format))
            saving->directory = destination->typed;
    }
    exit_code = destination_check_links(destination, saving->target, err);
    return exit_code != EXIT_DONE ? exit_code
                                  : destination_choose_replacement(
                                        destination, look_at(saving, saving->target, &st), err);
}

enum exit_code saving_check(struct saving *saving, const struct wfs_catalog *read,
                            const struct wfs_catalog *file, struct wfs_error *err)
{
    struct destination *destination = &saving->destination;
    const struct wfs_format *format = wfs_catalog_format(read);
    if (saving->keeps_format && !wfs_format_can_write(format)) {
        wfs_fail(err, EINVAL, "%s is only read: use %s and another name", format->title,
                 destination->speaker == DESTINATION_OF_VERB ? "--format" : "format");
        return EXIT_OUTPUT;
    }
    if (saving->keeps_format)
        destination->format = format;
    const enum exit_code exit_code =
        destination_check_backup(destination, saving->target, read, err);
    return exit_code != EXIT_DONE || file == NULL
               ? exit_code
               : destination_check_backup(destination, saving->target, file, err);
}

/* ---- writing ---- */

int saving_plan(struct saving *saving, struct wfs_catalog *written, const struct wfs_access *access,
                struct wfs_error *err)
{
    const struct settings *settings = saving->destination.settings;
    saving->save = destination_save_options(&saving->destination);
    saving->save.access = *access;
    saving->commit = (struct commit){
        .catalog = written,
        .format = saving->destination.format,
        .max_shard = settings->max_shard,
        .fit_options = settings->fit,
        .large_option = settings->allows_large                               ? NULL
                        : saving->destination.speaker == DESTINATION_OF_VERB ? "--large"
                                                                             : "large"};
    saving->commit.fit_options.is_set = saving->destination.index != NULL;
    return commit_plan(&saving->commit, err);
}

int saving_write(struct saving *saving, struct wfs_error *err)
{
    const char *directory = saving->directory;
    const bool is_new = directory != NULL && mkdir(directory, 0777) == 0;
    if (directory != NULL && !is_new && errno != EEXIST) {
        saving->target = directory;
        return wfs_fail(err, errno, "cannot create the directory: %s", strerror(errno));
    }
    const int code = commit_save(&saving->commit, saving->target, &saving->save, NULL, err);
    if (is_new && code < 0)
        rmdir(directory);
    return code;
}

void saving_done(struct saving *saving)
{
    commit_done(&saving->commit);
    destination_done(&saving->destination);
}
