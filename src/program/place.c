/* SPDX-License-Identifier: MIT */
/*
 * realpath(3) refuses a missing file; then the parent is resolved instead, and a link that leads
 * nowhere is followed by hand. The directory of a place is kept open, so that no other one can get
 * its inode number. Device numbers are not compared: they may differ after a restart.
 */
#include "program/place.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/percent.h>
#include <weightfs/url.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_LINKS_MAX = 40 };

static char *join(const char *directory, const char *name)
{
    char *path;
    const char *separator = strcmp(directory, "/") == 0 ? "" : "/";
    return asprintf(&path, "%s%s%s", directory, separator, name) < 0 ? NULL : path;
}

static void strip_slashes(char *path)
{
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
}

static char *resolve_parent(const char *path)
{
    autofree char *copy = strdup(path);
    if (copy == NULL)
        return NULL;
    strip_slashes(copy);
    char *slash = strrchr(copy, '/');
    const char *name = slash != NULL ? slash + 1 : copy;
    if (slash != NULL)
        *slash = '\0';
    autofree char *parent = realpath(slash == NULL ? "." : slash == copy ? "/" : copy, NULL);
    return parent == NULL ? NULL : join(parent, name);
}

char *path_resolve(const char *path)
{
    char *whole = realpath(path, NULL);
    if (whole == NULL)
        whole = resolve_parent(path);
    for (int i = 0; whole != NULL && i < N_LINKS_MAX; i++) {
        char link[PATH_MAX];
        const ssize_t n = readlink(whole, link, sizeof(link) - 1);
        if (n < 0)
            return whole;
        link[n] = '\0';
        autofree char *directory = path_directory(whole);
        autofree char *target = link[0] == '/'      ? strdup(link)
                                : directory == NULL ? NULL
                                                    : join(directory, link);
        free(whole);
        whole = target == NULL ? NULL : resolve_parent(target);
    }
    if (whole != NULL)
        errno = ELOOP;
    free(whole);
    return NULL;
}

/* A link that another user has put into a directory where everybody may put files: neither the
 * user's nor that of the directory's owner. */
static bool is_planted(const char *path, const struct stat *link)
{
    struct stat st;
    autofree char *copy = strdup(path);
    char *slash = copy == NULL ? NULL : strrchr(copy, '/');
    if (slash != NULL)
        slash[1] = '\0';
    return stat(slash != NULL ? copy : ".", &st) == 0 && (st.st_mode & S_ISVTX) != 0 &&
           (st.st_mode & S_IWOTH) != 0 && link->st_uid != geteuid() && link->st_uid != st.st_uid;
}

/* Returns the path with the link in its first n bytes replaced by what it says. */
static char *replace_link(const char *path, size_t n)
{
    char link[PATH_MAX], *made;
    autofree char *front = strndup(path, n);
    const ssize_t n_link = front == NULL ? -1 : readlink(front, link, sizeof(link) - 1);
    if (n_link < 0)
        return NULL;
    link[n_link] = '\0';
    char *slash = strrchr(front, '/');
    if (slash != NULL)
        slash[1] = '\0';
    return asprintf(&made, "%s%s%s", link[0] == '/' || slash == NULL ? "" : front, link, path + n) <
                   0
               ? NULL
               : made;
}

/* Finds the first link of the path. *ret_n is where it ends, 0: there is none. */
static int find_link(const char *path, size_t *ret_n)
{
    for (size_t n = strspn(path, "/"); path[n] != '\0'; n += strspn(path + n, "/")) {
        struct stat st;
        n += strcspn(path + n, "/");
        autofree char *front = strndup(path, n);
        if (front == NULL)
            return -ENOMEM;
        if (lstat(front, &st) < 0)
            break;
        if (S_ISLNK(st.st_mode)) {
            *ret_n = n;
            return is_planted(front, &st) ? -EACCES : 0;
        }
    }
    *ret_n = 0;
    return 0;
}

int path_check_links(const char *path)
{
    autofree char *whole = strdup(path);
    for (int i = 0; whole != NULL && i < N_LINKS_MAX; i++) {
        size_t n;
        const int code = find_link(whole, &n);
        if (code < 0 || n == 0)
            return code;
        char *next = replace_link(whole, n);
        free(whole);
        whole = next;
    }
    return whole == NULL ? -ENOMEM : -ELOOP;
}

char *path_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

const char *path_name(const char *path)
{
    return strrchr(path, '/') + 1;
}

/* ---- places ---- */

static bool is_descriptor(const char *path)
{
    int fd, n_read = 0;
    return sscanf(path, "/dev/fd/%d%n", &fd, &n_read) == 1 && path[n_read] == '\0';
}

/* The file behind an inherited descriptor has a path too, while it is not removed. */
static char *path_of(const char *opened, enum place_link link)
{
    struct stat st;
    if (is_descriptor(opened))
        return realpath(opened, NULL);
    const bool is_directory = stat(opened, &st) == 0 && S_ISDIR(st.st_mode);
    return link == PLACE_FOLLOW_LINK || is_directory ? path_resolve(opened)
                                                     : resolve_parent(opened);
}

const char *path_opened(const char *typed)
{
    return strcmp(typed, "-") == 0 ? "/dev/fd/0" : typed;
}

int place_find(struct place *place, const char *typed, enum place_link link)
{
    const char *opened = path_opened(typed);
    const bool is_url = url_is(opened);
    *place = (struct place){.path = is_url ? NULL : path_of(opened, link), .directory = -1};
    const int code = is_url ? -ENOENT : place->path == NULL ? -errno : 0;
    place->opened = strdup(code < 0 || is_descriptor(opened) ? opened : place->path);
    if (place->opened == NULL || code < 0)
        return code < 0 ? code : -ENOMEM;
    autofree char *directory = path_directory(place->path);
    if (directory == NULL)
        return -ENOMEM;
    place->is_there = stat(place->opened, &place->st) == 0;
    place->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return 0;
}

void place_done(struct place *place)
{
    if (place->opened != NULL && place->directory >= 0)
        close(place->directory);
    free(place->path);
    free(place->opened);
    *place = (struct place){.directory = -1};
}

bool place_is_same(const struct place *a, const struct place *b)
{
    return a->is_there && b->is_there && a->st.st_dev == b->st.st_dev &&
           a->st.st_ino == b->st.st_ino;
}

bool place_has_moved(const struct place *place)
{
    struct stat then, now;
    autofree char *directory = place->path == NULL ? NULL : path_directory(place->path);
    return directory != NULL && place->directory >= 0 && fstat(place->directory, &then) == 0 &&
           stat(directory, &now) == 0 && (then.st_dev != now.st_dev || then.st_ino != now.st_ino);
}

/* ---- staging directories ---- */

static const char stage_suffix[] = ".weightfs";

enum { N_SUFFIX = sizeof(stage_suffix) - 1 };

char *place_stage_path(const char *output, const char *directory)
{
    char name[NAME_MAX + 1];
    autofree char *own = directory == NULL ? path_directory(output) : NULL;
    const char *chosen = directory == NULL ? own : directory;
    snprintf(name, sizeof(name), ".%.*s%s", NAME_MAX - 1 - N_SUFFIX, path_name(output),
             stage_suffix);
    return chosen == NULL ? NULL : join(chosen, name);
}

/* Returns the path of the output beside a staging directory, malloc'ed; NULL: the name is cut, or
 * out of memory. */
static char *output_path(const char *stage)
{
    const char *name = path_name(stage);
    const size_t n = strlen(name);
    if (!place_is_stage_name(name) || n >= NAME_MAX)
        return NULL;
    autofree char *directory = path_directory(stage);
    autofree char *own = strndup(name + 1, n - 1 - N_SUFFIX);
    return directory == NULL || own == NULL ? NULL : join(directory, own);
}

bool place_is_stage_name(const char *name)
{
    const size_t n = strlen(name);
    return n > N_SUFFIX + 1 && name[0] == '.' && strcmp(name + n - N_SUFFIX, stage_suffix) == 0;
}

/* ---- an earlier mount ---- */

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
        found->output = found->stage != NULL ? output_path(found->stage) : NULL;
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

/* Leaves a file that another save writes. */
static void remove_own(int directory, const char *name)
{
    struct stat st;
    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        st.st_uid == geteuid())
        (void)wfs_output_remove_temporary(directory, name, NULL);
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
