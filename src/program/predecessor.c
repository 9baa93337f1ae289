/* SPDX-License-Identifier: MIT */
/*
 * Device numbers are not compared: they may differ after a restart.
 */
#include "program/predecessor.h"

#include "program/place.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/percent.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- finding it ---- */

static bool is_directory_at(int directory, const char *name)
{
    struct stat st;
    return fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* The path of the only staging directory in it; NULL without an error: there is none. */
static int find_in(DIR *directory, const char *path, char **ret, struct wfs_error *err)
{
    autofree char *found = NULL;
    for (const struct dirent *file; (file = readdir(directory)) != NULL;) {
        if (!place_is_stage_name(file->d_name) || !is_directory_at(dirfd(directory), file->d_name))
            continue;
        if (found != NULL)
            return wfs_fail(err, EEXIST,
                            "several mounts left edits here; name one staging directory, such as "
                            "'%s' or '%s'",
                            wfs_quote(path_name(found)).text, wfs_quote(file->d_name).text);
        if (asprintf(&found, "%s/%s", path, file->d_name) < 0) {
            found = NULL;
            return wfs_fail(err, ENOMEM, "out of memory");
        }
    }
    *ret = found;
    found = NULL;
    return 0;
}

/* Without --stage: the directory itself, or one that is found in the place or beside it. */
static int find_here(const struct place *place, struct predecessor *found, struct wfs_error *err)
{
    const bool is_stage = place_is_stage_name(path_name(place->path)) && S_ISDIR(place->st.st_mode);
    DIR *directory = is_stage ? NULL : opendir(place->path);
    const int code = directory == NULL ? 0 : find_in(directory, place->path, &found->stage, err);
    if (directory != NULL)
        closedir(directory);
    if (code < 0)
        return code;
    if (is_stage)
        found->stage = strdup(place->path);
    found->is_output_implied = found->stage != NULL || is_stage;
    if (found->is_output_implied) {
        found->output = found->stage != NULL ? place_output_path(found->stage) : NULL;
        return found->stage != NULL ? 0 : -ENOMEM;
    }
    found->stage = place_stage_path(place->path, NULL);
    found->output = strdup(place->path);
    return found->stage != NULL && found->output != NULL ? 0 : -ENOMEM;
}

static int find_there(const struct place *place, const char *directory, struct predecessor *found)
{
    autofree char *whole = realpath(directory, NULL);
    if (whole == NULL)
        return 0;
    found->stage = place_stage_path(place->path, whole);
    found->output = strdup(place->path);
    return found->stage != NULL && found->output != NULL ? 0 : -ENOMEM;
}

int predecessor_find(const char *operand, const char *directory, struct predecessor *found,
                     struct wfs_error *err)
{
    struct place place;
    *found = (struct predecessor){0};
    if (path_check_links(operand) == -EACCES ||
        (directory != NULL && path_check_links(directory) == -EACCES))
        return wfs_fail(err, EACCES, "cannot be used: " PLACE_PLANTED);
    int code = place_find(&place, operand, PLACE_FOLLOW_LINK);
    if (code < 0)
        code = 0; /* no such directory, and so nothing in it */
    else
        code = directory != NULL ? find_there(&place, directory, found)
                                 : find_here(&place, found, err);
    place_done(&place);
    return code == -ENOMEM ? wfs_fail_memory(err) : code;
}

void predecessor_done(struct predecessor *found)
{
    free(found->stage);
    free(found->output);
    *found = (struct predecessor){0};
}

/* ---- what it wrote ---- */

static bool is_it(const struct wfs_written *written, const struct stat *st, uint64_t digest)
{
    return written->is_known && st->st_ino == written->identity.inode &&
           (uint64_t)st->st_size == written->identity.n_bytes && digest == written->digest;
}

const struct wfs_written *predecessor_written(const struct wfs_leftover *leftover, const char *path,
                                              const char *const *limits, size_t n_limits)
{
    struct stat st;
    uint64_t digest = 0;
    auto_catalog struct wfs_catalog *catalog = NULL;
    const struct wfs_load_options options = {.limits = limits, .n_limits = n_limits};
    if (!leftover->complete.is_known || stat(path, &st) < 0 ||
        wfs_load(path, &options, &catalog, NULL) < 0 || wfs_catalog_digest(catalog, &digest) < 0)
        return NULL;
    if (is_it(&leftover->complete, &st, digest))
        return &leftover->complete;
    return is_it(&leftover->published, &st, digest) ? &leftover->published : NULL;
}

static void remove_own(int directory, const char *name)
{
    struct stat st;
    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        st.st_uid == geteuid())
        unlinkat(directory, name, 0);
}

void predecessor_remove_temporary(const char *output)
{
    char name[WFS_OUTPUT_NAME_MAX], link[WFS_OUTPUT_NAME_MAX];
    autofree char *path = path_directory(output);
    if (path == NULL)
        return;
    (void)wfs_save_clear(output, NULL);
    autoclose int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return;
    wfs_output_temporary(output, name);
    wfs_output_temporary_link(output, link);
    remove_own(directory, name);
    remove_own(directory, link);
}

/* "%XX" stands for a byte. */
static char *decode_line(const char *line)
{
    const size_t n = strcspn(line, "\n");
    char *text = strndup(line, n), *out = text;
    for (const char *at = text; at != NULL && *at != '\0'; at++, out++) {
        if (percent_decode(at, strnlen(at, PERCENT_N), out))
            at += PERCENT_N - 1;
        else
            *out = *at;
    }
    if (out != NULL)
        *out = '\0';
    return text;
}

char *predecessor_base_value(const char *base, const char *word, size_t n)
{
    const size_t n_word = strlen(word);
    for (const char *line = base; *line != '\0'; line += *line != '\0') {
        const bool is_it = strncmp(line, word, n_word) == 0 && line[n_word] == ' ';
        if (is_it && n-- == 0)
            return decode_line(line + n_word + 1);
        line += strcspn(line, "\n");
    }
    return NULL;
}

bool predecessor_is_beside(const char *base)
{
    autofree char *output = predecessor_base_value(base, "#output", 0);
    autofree char *stage = predecessor_base_value(base, "#stage", 0);
    if (output == NULL || stage == NULL || output[0] != '/' || stage[0] != '/')
        return false;
    const size_t n = (size_t)(path_name(output) - output);
    return n == (size_t)(path_name(stage) - stage) && strncmp(output, stage, n) == 0;
}
