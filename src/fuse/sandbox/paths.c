/* SPDX-License-Identifier: MIT */
/*
 * realpath(3) refuses what is not there; then the parent is resolved instead, and a link that leads
 * nowhere is followed by hand.
 */
#include "fuse/sandbox/paths.h"

#include <weightfs/cleanup.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>

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

char *path_resolve_parent(const char *path)
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
        whole = path_resolve_parent(path);
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
        whole = target == NULL ? NULL : path_resolve_parent(target);
    }
    if (whole != NULL)
        errno = ELOOP;
    free(whole);
    return NULL;
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
