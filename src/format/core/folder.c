/* SPDX-License-Identifier: MIT */
/*
 * Lists of names in folders.
 */
#include "format/core/folder.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 100000, MAX_TOLD = 5 };

char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strndup(path, slash == NULL ? 0 : (size_t)(slash + 1 - path));
}

static int compare_names(const void *a, const void *b)
{
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

static void close_folder(DIR **folder)
{
    if (*folder != NULL)
        closedir(*folder);
}

int folder_names_add(struct folder_names *names, const char *name)
{
    const char *copy = arena_copy(&names->arena, name, strlen(name));
    if (copy == NULL ||
        array_reserve(&names->names, sizeof(*names->names), names->n, 1, &names->n_room) < 0)
        return -ENOMEM;
    names->names[names->n++] = copy;
    return 0;
}

int folder_names_list(struct folder_names *names, const char *folder, size_t n_most,
                      bool (*is_wanted)(const char *name))
{
    cleanup(close_folder) DIR *open = opendir(folder[0] == '\0' ? "." : folder);
    if (open == NULL)
        return -errno;
    for (const struct dirent *entry; names->n < n_most && (entry = readdir(open)) != NULL;) {
        if (is_wanted != NULL && (entry->d_name[0] == '.' || !is_wanted(entry->d_name)))
            continue;
        if (is_wanted != NULL && names->n == MAX_NAMES)
            return -E2BIG;
        if (folder_names_add(names, entry->d_name) < 0)
            return -ENOMEM;
    }
    if (names->n > 0)
        qsort(names->names, names->n, sizeof(*names->names), compare_names);
    return 0;
}

bool folder_names_has(const struct folder_names *names, const char *name)
{
    return names->n > 0 &&
           bsearch(&name, names->names, names->n, sizeof(*names->names), compare_names) != NULL;
}

const char *folder_names_print(const struct folder_names *names, char text[FOLDER_LIST])
{
    size_t n = 0;
    const size_t n_told = names->n > MAX_TOLD ? MAX_TOLD - 1 : names->n;
    text[0] = '\0';
    for (size_t i = 0; i < n_told; i++)
        n += (size_t)snprintf(text + n, FOLDER_LIST - n, "%s'%s'", i > 0 ? ", " : "",
                              wfs_quote(names->names[i]).text);
    if (n_told < names->n)
        snprintf(text + n, FOLDER_LIST - n, " and %zu more, the last one '%s'", names->n - n_told,
                 wfs_quote(names->names[names->n - 1]).text);
    return text;
}

void folder_names_done(struct folder_names *names)
{
    arena_done(&names->arena);
    free(names->names);
    *names = (struct folder_names){0};
}

int folder_tell_rest(struct wfs_catalog *catalog, const struct folder_names *rest)
{
    char text[FOLDER_LIST];
    return rest->n == 0 ? 0
                        : catalog_add_finding(catalog, WFS_INFO,
                                              "the directory has more, which was not read: %s",
                                              folder_names_print(rest, text));
}
