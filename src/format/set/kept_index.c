/* SPDX-License-Identifier: MIT */
/*
 * A backup has the name of the index and more behind it. Other indexes are called NAME.index.json;
 * what follows that says that they are backups, too.
 */
#include "format/set/kept_index.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_name_of_backup(const char *file, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(file, name, n) == 0 && file[n] != '\0';
}

static int add(struct kept_indexes *kept, const struct directory_functions *kind, const char *path,
               bool is_backup, struct wfs_error *err)
{
    struct kept_index item = {.is_backup = is_backup};
    if (array_reserve(&kept->items, sizeof(*kept->items), kept->n, 1, &kept->n_room) < 0)
        return wfs_fail_memory(err);
    const int code = shard_present_list(&item.files, kind, path, err);
    if (code > 0)
        kept->items[kept->n++] = item;
    kept->is_unsure = kept->is_unsure || code < 0;
    return code == -ENOMEM ? code : 0;
}

static int read_all(struct kept_indexes *kept, const struct directory_functions *kind,
                    const char *folder, const char *name, DIR *open, struct wfs_error *err)
{
    int code = 0;
    for (const struct dirent *file; code == 0 && (file = readdir(open)) != NULL;) {
        const bool is_backup = is_name_of_backup(file->d_name, name);
        const bool is_other = kind == NULL && file->d_name[0] != '.' &&
                              strstr(file->d_name, ".index.json") != NULL &&
                              strcmp(file->d_name, name) != 0;
        autofree char *path = NULL;
        if (!is_backup && !is_other)
            continue;
        if (asprintf(&path, "%s%s", folder, file->d_name) < 0) {
            path = NULL;
            return wfs_fail_memory(err);
        }
        code = add(kept, kind, path, is_backup, err);
    }
    return code;
}

int kept_indexes_read(struct kept_indexes *kept, const struct directory_functions *kind,
                      const char *folder, const char *name, struct wfs_error *err)
{
    DIR *open = opendir(*folder == '\0' ? "." : folder);
    if (open == NULL)
        return wfs_fail(err, errno, "cannot list the directory: %s", strerror(errno));
    const int code = read_all(kept, kind, folder, name, open, err);
    closedir(open);
    return code;
}

bool kept_indexes_need(const struct kept_indexes *kept, const char *file)
{
    for (size_t i = 0; i < kept->n; i++) {
        if (shard_index_has_file(&kept->items[i].files, file))
            return true;
    }
    return kept->is_unsure;
}

void kept_indexes_done(struct kept_indexes *kept)
{
    for (size_t i = 0; i < kept->n; i++)
        shard_index_done(&kept->items[i].files);
    free(kept->items);
    *kept = (struct kept_indexes){0};
}
