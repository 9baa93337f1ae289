/* SPDX-License-Identifier: MIT */
/*
 * The stream that PyTorch wrote before it wrote zips: five pickles, then the storages.
 */
#ifndef WFS_LEGACY_H
#define WFS_LEGACY_H

#include "format/pytorch/object/torch.h"

struct legacy_storage {
    const char *key; /* in the arena of the graph */
    size_t n_key;
    const struct torch_global *class; /* of the first id that names it */
    uint64_t n_declared;              /* bytes */
    uint64_t offset, n_bytes;         /* in the source */
    bool is_listed;
    const char *trouble;
};

struct legacy {
    const struct source *source;
    struct legacy_storage *storages;
    uint32_t n_storages, n_room;
    struct map map; /* of storages, by key */
};

/* Is this the number that the first pickle of a stream is? */
bool legacy_is_magic(const struct graph *graph, uint32_t id);

/*
 * Reads all of the stream but the bytes of its storages; *offset moves behind it. The object is
 * *ret_root. -EBADMSG, -EOPNOTSUPP, -E2BIG, -EIO, -ENOMEM.
 */
int legacy_read(struct torch *torch, const struct source *source, uint64_t *offset, uint64_t end,
                struct legacy *legacy, uint32_t *ret_root);

/* For struct torch, whose container is the legacy. */
int legacy_find(struct torch *torch, const struct torch_storage_id *id, struct torch_storage *ret);

void legacy_done(struct legacy *legacy);

#endif
