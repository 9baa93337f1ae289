/* SPDX-License-Identifier: MIT */
/*
 * Storages, the bytes that tensors are views of: the ids by which a pickle names them, byte
 * strings, and the legacy stream, which PyTorch wrote before 1.6 and which can be in a byte string.
 * Where other containers keep the bytes, they say themselves.
 */
#ifndef WFS_TORCH_STORAGE_H
#define WFS_TORCH_STORAGE_H

#include "base/text_index.h"
#include "format/pytorch/object/torch.h"

void torch_cache_done(struct torch *torch);

/* Finds the range of a source that holds the bytes. Returns 1; 0 when the value is not a byte
 * string; -ENOMEM. */
int torch_bytes_of(struct torch *torch, uint32_t id, struct value_bytes *ret);

/* Returns whether this persistent value names a storage, well described or not. */
bool torch_is_storage(const struct graph *graph, uint32_t id);

/* Takes the id of a persistent value apart. Returns false and sets *ret_trouble (in the arena of
 * the catalog) when it does not describe a storage that can be read. */
bool torch_storage_id_parse(struct torch *torch, uint32_t id, struct torch_storage_id *ret,
                            const char **ret_trouble);

/* Returns the size of an element of a storage class; packed elements are counted in bytes. */
uint64_t torch_storage_item(const struct torch_global *class);

/* Compares the declared size with the one in the file, and cuts the view out of the whole. */
void torch_storage_fit(struct torch *torch, const struct torch_storage_id *id,
                       struct torch_storage *ret);

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
    struct torch_stream_storage *storages; /* by the numbers of their keys */
    struct text_index keys;
    size_t n_room;
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

/* Finds the storage that a value stands for. Returns 1, perhaps with a trouble; 0 when the value is
 * not a storage; a negative error. */
int torch_storage_of(struct torch *torch, uint32_t id, struct torch_storage *ret);

/* Lists in the catalog where the bytes of all storages are, for a writer of the same graph. -EIO,
 * -ENOMEM. */
int torch_storage_list(struct torch *torch);

/* Finds the storage that a value stands for among those of the catalog. NULL: it is not a storage,
 * or has no bytes. */
const struct catalog_storage *torch_storage_at(const struct wfs_catalog *catalog, uint32_t id);

#endif
