/* SPDX-License-Identifier: MIT */
/*
 * The search goes by open directories, so that no name is looked up twice.
 */
#include "cli/leftovers.h"

#include "program/place.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/error.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_DEPTH = 32, N_NAMES = 1000000 };

static int add(struct leftovers *leftovers, char *path)
{
    if (array_reserve(&leftovers->paths, sizeof(*leftovers->paths), leftovers->n_paths, 1,
                      &leftovers->n_room) < 0) {
        free(path);
        return -ENOMEM;
    }
    leftovers->paths[leftovers->n_paths++] = path;
    return 0;
}

static void cut(struct leftovers *leftovers, const char *path)
{
    if (!leftovers->is_cut)
        snprintf(leftovers->cut_at, sizeof(leftovers->cut_at), "%s", path);
    leftovers->is_cut = true;
}

static int search(struct leftovers *leftovers, int fd, const char *path, dev_t device,
                  unsigned depth);

/* Looks at a directory, and takes the path over. */
static int look(struct leftovers *leftovers, int dir_fd, const char *name, char *path, dev_t device,
                unsigned depth)
{
    struct stat st;
    if (place_is_stage_name(name))
        return add(leftovers, path);
    const int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int code = 0;
    if (fd < 0 || depth == 0)
        cut(leftovers, path);
    else if (fstat(fd, &st) == 0 && st.st_dev == device)
        code = search(leftovers, dup(fd), path, device, depth - 1);
    if (fd >= 0)
        close(fd);
    free(path);
    return code;
}

/* Takes the descriptor over. */
static int search(struct leftovers *leftovers, int fd, const char *path, dev_t device,
                  unsigned depth)
{
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int code = 0;
    if (dir == NULL) {
        cut(leftovers, path);
        if (fd >= 0)
            close(fd);
        return 0;
    }
    for (const struct dirent *found; code == 0 && (found = readdir(dir)) != NULL;) {
        struct stat st;
        char *below;
        if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0)
            continue;
        if (leftovers->n_seen++ >= N_NAMES) {
            cut(leftovers, path);
            break;
        }
        if ((found->d_type != DT_DIR && found->d_type != DT_UNKNOWN) ||
            fstatat(dirfd(dir), found->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0 ||
            !S_ISDIR(st.st_mode) || st.st_dev != device)
            continue;
        code = asprintf(&below, "%s/%s", path, found->d_name) < 0
                   ? -ENOMEM
                   : look(leftovers, dirfd(dir), found->d_name, below, device, depth);
    }
    closedir(dir);
    return code;
}

static int compare(const void *a, const void *b)
{
    const char *const *one = a, *const *other = b;
    return strcmp(*one, *other);
}

int leftovers_find(const char *path, struct leftovers *ret)
{
    struct stat st;
    autofree char *whole = realpath(path, NULL);
    if (whole == NULL || stat(whole, &st) < 0 || !S_ISDIR(st.st_mode) ||
        place_is_stage_name(path_name(whole)))
        return 0;
    const size_t n_whole = strcmp(whole, "/") == 0 ? 0 : strlen(whole);
    const int code = search(ret, open(whole, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                            strcmp(whole, "/") == 0 ? "" : whole, st.st_dev, N_DEPTH);
    for (size_t i = 0; i < ret->n_paths; i++)
        ret->is_below |= strchr(ret->paths[i] + n_whole + 1, '/') != NULL;
    if (ret->n_paths > 1)
        qsort(ret->paths, ret->n_paths, sizeof(*ret->paths), compare);
    return code;
}

void leftovers_done(struct leftovers *leftovers)
{
    for (size_t i = 0; i < leftovers->n_paths; i++)
        free(leftovers->paths[i]);
    free(leftovers->paths);
    *leftovers = (struct leftovers){0};
}
