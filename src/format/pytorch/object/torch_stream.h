/* SPDX-License-Identifier: MIT */
/*
 * The legacy stream, which PyTorch wrote before 1.6: five pickles, then the storages.
 */
#ifndef WFS_TORCH_STREAM_H
#define WFS_TORCH_STREAM_H

#include "format/pytorch/object/torch.h"

struct torch_stream_storage {
    const char *key; /* in the arena of the graph */
    size_t n_key;
    const struct torch_global *class; /* of the first id that names it */
    uint64_t n_declared;              /* bytes */
    uint64_t offset, n_bytes;         /* in the source */
    bool is_listed;
    const char *trouble;
};

struct torch_stream {
    const struct source *source;
    struct torch_stream_storage *storages;
    uint32_t n_storages;
    size_t n_room;
    struct map map; /* of storages, by key */
};

/* Returns whether the value is the magic number, the first pickle of a stream. */
bool torch_stream_is_magic(const struct graph *graph, uint32_t id);

/*
 * Reads all of the stream except the bytes of its storages; *offset moves after it. The object is
 * *ret_root. -EBADMSG, -EOPNOTSUPP, -E2BIG, -EIO, -ENOMEM.
 */
int torch_stream_read(struct torch *torch, const struct source *source, uint64_t *offset,
                      uint64_t end, struct torch_stream *stream, uint32_t *ret_root);

/* For struct torch, whose container is the stream. */
int torch_stream_find(struct torch *torch, const struct torch_storage_id *id,
                      struct torch_storage *ret);

void torch_stream_done(struct torch_stream *stream);

#endif
