/* SPDX-License-Identifier: MIT */
/*
 * Device numbers are not compared: they may differ after a restart.
 */
#include "program/predecessor.h"

#include "program/place.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>

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

static int find_stage(const struct place *place, char **ret, struct wfs_error *err)
{
    const bool is_stage = place_is_stage_name(path_name(place->path));
    DIR *directory = is_stage ? NULL : opendir(place->path);
    const int code = directory == NULL ? 0 : find_in(directory, place->path, ret, err);
    if (directory != NULL)
        closedir(directory);
    if (code < 0 || *ret != NULL)
        return code;
    *ret = is_stage && S_ISDIR(place->st.st_mode) ? strdup(place->path)
                                                  : place_stage_path(place->path, NULL);
    return *ret != NULL ? 0 : wfs_fail(err, ENOMEM, "out of memory");
}

int predecessor_find(const char *operand, char **ret, struct wfs_error *err)
{
    struct place place;
    *ret = NULL;
    const int code = place_find(&place, operand, PLACE_FOLLOW_LINK) < 0
                         ? 0 /* no such directory, and so nothing in it */
                         : find_stage(&place, ret, err);
    place_done(&place);
    return code;
}

/* ---- what it wrote ---- */

static bool is_it(const struct wfs_written *written, const struct stat *st, uint64_t digest)
{
    return written->is_known && st->st_ino == written->identity.inode &&
           (uint64_t)st->st_size == written->identity.n_bytes && digest == written->digest;
}

enum { MAX_LIMITS = 64 };

/* Loads with the limits of that mount: its output may exceed the default ones. */
static int load(const struct wfs_leftover *leftover, const char *path, struct wfs_catalog **out)
{
    char *limits[MAX_LIMITS];
    struct wfs_load_options options = {.limits = (const char *const *)limits};
    while (leftover->base != NULL && options.n_limits < MAX_LIMITS) {
        char *limit = predecessor_base_value(leftover->base, "#option limit", options.n_limits);
        if (limit == NULL)
            break;
        limits[options.n_limits++] = limit;
    }
    const int code = wfs_load(path, &options, out, NULL);
    while (options.n_limits > 0)
        free(limits[--options.n_limits]);
    return code;
}

const struct wfs_written *predecessor_written(const struct wfs_leftover *leftover, const char *path)
{
    struct stat st;
    uint64_t digest = 0;
    auto_catalog struct wfs_catalog *catalog = NULL;
    if (!leftover->complete.is_known || stat(path, &st) < 0 || load(leftover, path, &catalog) < 0 ||
        wfs_catalog_digest(catalog, &digest) < 0)
        return NULL;
    if (is_it(&leftover->complete, &st, digest))
        return &leftover->complete;
    return is_it(&leftover->published, &st, digest) ? &leftover->published : NULL;
}

void predecessor_remove_temporary(const char *output)
{
    struct stat st;
    char name[WFS_OUTPUT_NAME_MAX];
    autofree char *path = path_directory(output);
    if (path == NULL)
        return;
    (void)wfs_save_clear(output, NULL);
    autoclose int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    wfs_output_temporary(output, name);
    if (directory >= 0 && fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode) && st.st_uid == geteuid())
        unlinkat(directory, name, 0);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "%XX" stands for a byte. */
static char *decode_line(const char *line)
{
    const size_t n = strcspn(line, "\n");
    char *text = strndup(line, n), *out = text;
    for (const char *at = text; at != NULL && *at != '\0'; at++) {
        const int high = *at == '%' ? hex_digit(at[1]) : -1;
        const int low = high < 0 ? -1 : hex_digit(at[2]);
        *out++ = low < 0 ? *at : (char)(high * 16 + low);
        at += low < 0 ? 0 : 2;
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
