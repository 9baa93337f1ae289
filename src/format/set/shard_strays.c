/* SPDX-License-Identifier: MIT */
#include "format/set/shard_strays.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <string.h>

#include "format/core/format.h"
#include "format/set/kept_index.h"
#include "format/set/shard_files.h"

enum { MAX_TOLD = 5 };

/* Keeps the names of files that the index does not have. */
static void keep_strays(struct shard_names *names, const struct shard_index *index)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < names->n_names; i++) {
        if (shard_index_has_file(index, names->names[i]))
            free(names->names[i]);
        else
            names->names[n_kept++] = names->names[i];
    }
    names->n_names = n_kept;
}

int shard_tell_strays(const struct format_table *table, const char *path,
                      const struct shard_index *index, struct wfs_catalog *catalog)
{
    cleanup(shard_names_done) struct shard_names names = {0};
    cleanup(kept_indexes_done) struct kept_indexes kept = {0};
    autofree char *folder = shard_folder(path);
    size_t n_told = 0;
    if (folder == NULL)
        return -ENOMEM;
    if (shard_names_list(&names, folder, table->names_checkpoint) < 0)
        return 0; /* strays cannot be found in a directory that cannot be listed */
    keep_strays(&names, index);
    if (names.n_names > 0 &&
        kept_indexes_read(&kept, NULL, folder, path + strlen(folder), NULL) == -ENOMEM)
        return -ENOMEM;
    for (size_t i = 0; i < names.n_names && n_told < MAX_TOLD; i++) {
        if (kept_indexes_need(&kept, names.names[i]))
            continue;
        n_told++;
        if (catalog_add_finding(catalog, WFS_FINDING_SET_STRAY_FILE,
                                "the file '%s' beside the index is not in it",
                                wfs_quote(names.names[i]).text) < 0)
            return -ENOMEM;
    }
    return 0;
}
