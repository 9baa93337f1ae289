/* SPDX-License-Identifier: MIT */
/*
 * The room of PyTorch's objects: it knows which calls of a pickle make tensors, how storages are
 * named, and what every tensor and value is called. Containers (format/pytorch) open the file, give
 * it a pickle and say where the bytes of a storage lie; bytes of a pickle become a graph in the
 * room below (pickle). This header is the state that all parts of a reader share.
 */
#ifndef WFS_TORCH_H
#define WFS_TORCH_H

#include <errno.h>

#include "format/core/format.h"
#include "format/core/keys.h"
#include "pickle/pickle.h"

struct torch_dangers;
struct torch_global;
struct torch_tensor;

/* A tensor as it lies in its storage, where the catalog has a copy of it. */
struct torch_gathered {
    struct wfs_tensor tensor;
    const struct torch_gathered *next;
};

/* The bytes that tensors are views of. */
struct torch_storage {
    const struct source *source;
    uint64_t offset, n_bytes;
    enum wfs_dtype dtype; /* of its class; U8 when it has none */
    bool is_big_endian;
    bool is_absent; /* saved without bytes, on purpose */
    bool has_crc;   /* crc is the checksum of exactly these bytes */
    uint32_t crc;
    const char *trouble; /* why it cannot be used; NULL: it can */
};

/* ('storage', class, key, location, number of elements[, view]), taken apart. */
struct torch_storage_id {
    const char *key; /* as text */
    size_t n_key;
    char number[24]; /* where key points when it was an integer */
    uint32_t value;  /* the persistent value */
    const struct torch_global *class;
    uint32_t n_items;                 /* of the tuple */
    bool is_meta;                     /* declares that it has no bytes */
    uint64_t n_bytes;                 /* as declared */
    uint64_t view_offset, view_bytes; /* in the storage; view_bytes UINT64_MAX: all of it */
};

/* A result that is computed once for a value, however often it is used: decoded bytes, or a storage
 * in a stream of its own. */
struct torch_cache_entry {
    uint32_t id;
    bool is_good; /* false: the value has no such result */
    union {
        struct value_bytes bytes;
        struct torch_storage storage;
    };
};

struct torch_cache {
    struct map map; /* of the entries */
    uint32_t wanted;
    struct torch_cache_entry *entries;
    uint32_t n_entries;
    size_t n_room;
};

struct torch {
    struct wfs_catalog *catalog;
    struct graph *graph; /* the catalog's */
    const struct limits *limits;
    struct wfs_error *err;
    struct source *source;
    struct pickle_budget budget;
    unsigned notes;  /* enum pickle_note of all pickles */
    bool has_failed; /* memory ran out: looked at where the loader ends */
    bool is_forced, escapes_nul;
    bool is_big_endian;
    unsigned depth; /* of streams within streams */
    /* Finds the bytes of a storage; sets trouble when they are missing. Negative only for errors
     * that stop the loading. */
    int (*find)(struct torch *torch, const struct torch_storage_id *id, struct torch_storage *ret);
    const void *container;
    /* Recognises and reads a persistent value that is a tensor by itself; NULL in containers
     * without such values. find_tensor returns as torch_builder_read. */
    bool (*is_tensor)(const struct torch *torch, uint32_t id);
    int (*find_tensor)(struct torch *torch, uint32_t id, struct torch_tensor *ret);
    struct torch_cache cache;
    const struct torch_gathered *gathered;
    struct torch_dangers *dangers; /* of all pickles */
    uint64_t *scratch;             /* dims and strides of the current tensor */
    uint32_t n_scratch;
    struct names names, value_names; /* in use */
    uint64_t n_names;                /* bytes of them so far */
    uint32_t n_searched;             /* values that were searched for modules */
    uint64_t n_long, n_mixed;        /* storages longer than declared, or used with two dtypes */
    uint64_t n_mixed_empty;          /* of n_mixed: those without bytes */
};

/* Reads the pickle in a range; *offset moves to the first byte after it. As pickle_load. */
int torch_read_pickle(struct torch *torch, const struct source *source, uint64_t *offset,
                      uint64_t end, uint32_t *ret_root);

/* Gets the source of bytes that are made of other sources, creating it at first use. -ENOMEM. */
int torch_derived(struct torch *torch, struct source **ret);

/* Returns whether an error is about one thing in the file, so that others can still be read. */
static inline bool torch_is_trouble(int code)
{
    return code == -EBADMSG || code == -EOPNOTSUPP || code == -E2BIG;
}

/* Fails with the error that reading a thing gave. */
int torch_fail_read(struct torch *torch, int code, const char *what);

/* Fails with the error that adding to the derived source gave. */
int torch_fail_derived(struct wfs_error *err, int code);

/* Returns a text in the catalog's arena. Never NULL: without memory it is a static text, and
 * has_failed is set. */
const char *torch_print(struct torch *torch, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns whether a tensor is in the value, or the value is one. False for 0. */
static inline bool torch_has_tensor(const struct graph *graph, uint32_t id)
{
    return id != 0 && (graph_at(graph, id)->marks & MARK_TENSOR) != 0;
}

#endif
