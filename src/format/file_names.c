/* SPDX-License-Identifier: MIT */
/*
 * The meaning of the paths of sources and outputs, as far as names alone show it.
 */
#include "format/registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <weightfs/cleanup.h>
#include <weightfs/hub.h>

#include "format/core/folder.h"
#include "format/set/shard_files.h"

static bool is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool has_slash(const char *path)
{
    return path[0] != '\0' && path[strlen(path) - 1] == '/';
}

char *wfs_source_file(const char *path, bool shards)
{
    cleanup(folder_names_done) struct folder_names names = {0};
    autofree char *folder = NULL;
    char *file = NULL;
    const char *like = NULL;
    uint64_t n_wanted;
    autofree char *snapshot = hub_snapshot(path, "main");
    path = snapshot != NULL ? snapshot : path;
    if (is_directory(path)) {
        if (asprintf(&folder, "%s%s", path, has_slash(path) ? "" : "/") < 0)
            folder = NULL;
    } else if (shards && shard_is_name(&registry_table, path)) {
        folder = folder_of(path);
        like = folder == NULL ? NULL : path + strlen(folder);
    } else {
        return strdup(path);
    }
    if (folder == NULL || (like == NULL && dcp_is_described(folder)) ||
        shard_names_find(&names, &n_wanted, &registry_table, folder, like, NULL) < 0 ||
        n_wanted > 0 || asprintf(&file, "%s%s", folder, names.names[0]) < 0)
        return NULL;
    return file;
}

const char *wfs_folder_file(size_t i)
{
    const struct wfs_format *format;
    for (size_t j = 0; (format = wfs_format_at(j)) != NULL; j++) {
        if (format->is_directory && i-- == 0)
            return format->set_name;
    }
    return folder_layout_file(i);
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* That of "NAME.EXTENSION" and of "NAME.EXTENSION.index.json". */
static const struct wfs_format *format_of_name(const char *path)
{
    const size_t n = strlen(path) - (shard_is_index(path) ? strlen(".index.json") : 0);
    autofree char *front = strndup(path, n);
    return front == NULL ? NULL : wfs_format_by_path(front);
}

/* A checkpoint that is a directory: the file that describes it. */
static int describes_directory(const char *path, const struct wfs_format *format, char **ret)
{
    if (strcmp(name_of(path), format->set_name) == 0)
        return (*ret = strdup(path)) == NULL ? -ENOMEM : 1;
    return asprintf(ret, "%s%s%s", path, has_slash(path) ? "" : "/", format->set_name) < 0 ? -ENOMEM
                                                                                           : 1;
}

/* The name of the source's index where it has one of that format, else what is usual. */
static int in_directory(const char *path, const char *source, const struct wfs_format **format,
                        char **ret)
{
    autofree char *file = wfs_source_file(source, false);
    if (file != NULL && pipeline_is_index(file)) {
        *format = *format == NULL ? &format_safetensors : *format;
        return asprintf(ret, "%s%s" PIPELINE_INDEX, path, has_slash(path) ? "" : "/") < 0 ? -ENOMEM
                                                                                          : 1;
    }
    const struct wfs_format *own = file == NULL ? NULL : format_of_name(file);
    *format = *format == NULL ? own : *format;
    if (*format == NULL)
        return (*ret = strdup(path)) == NULL ? -ENOMEM : 1;
    const bool is_same = file != NULL && own == *format && shard_is_index(file);
    const int n =
        asprintf(ret, "%s%s%s%s", path, has_slash(path) ? "" : "/",
                 is_same ? name_of(file) : (*format)->set_name, is_same ? "" : ".index.json");
    return n < 0 ? -ENOMEM : 1;
}

int wfs_output_index(const char *path, const char *source, const struct wfs_format **format,
                     char **ret)
{
    if (*format != NULL && (*format)->is_directory)
        return describes_directory(path, *format, ret);
    if (has_slash(path) || is_directory(path))
        return in_directory(path, source, format, ret);
    if (pipeline_is_index(path) && *format == NULL)
        *format = &format_safetensors;
    if (!shard_is_index(path) && !pipeline_is_index(path))
        return 0;
    *format = *format == NULL ? format_of_name(path) : *format;
    return (*ret = strdup(path)) == NULL ? -ENOMEM : 1;
}

bool wfs_output_is_directory(const char *path, const struct wfs_format *format)
{
    return has_slash(path) ||
           (format != NULL && format->is_directory && strcmp(name_of(path), format->set_name) != 0);
}
