/* SPDX-License-Identifier: MIT */
#include "format/set/shard_strays.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <string.h>

#include "format/core/format.h"
#include "format/set/kept_index.h"
#include "format/set/shard_files.h"

enum { MAX_TOLD = 5 };

int shard_tell_strays(const struct format_table *table, const char *path,
                      const struct shard_index *index, struct wfs_catalog *catalog)
{
    cleanup(shard_names_done) struct shard_names names = {0};
    cleanup(kept_indexes_done) struct kept_indexes kept = {0};
    autofree char *folder = shard_folder(path);
    bool is_read = false; /* the other indexes, which matter only if there is such a file */
    size_t n_told = 0;
    if (folder == NULL)
        return -ENOMEM;
    if (shard_names_list(&names, folder, table->names_checkpoint) < 0)
        return 0; /* strays cannot be found in a directory that cannot be listed */
    for (size_t i = 0; i < names.n_names && n_told < MAX_TOLD; i++) {
        if (shard_index_has_file(index, names.names[i]))
            continue;
        if (!is_read &&
            kept_indexes_read(&kept, NULL, folder, path + strlen(folder), NULL) == -ENOMEM)
            return -ENOMEM;
        is_read = true;
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
