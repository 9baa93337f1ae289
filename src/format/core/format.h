/* SPDX-License-Identifier: MIT */
/*
 * What every format is built on. This room knows how a format is described to the rest (its traits
 * and a few functions), how a planned file is laid out and saved, and what loaders and savers
 * share: findings, unique names, the checks of a tensor before it is written. It knows no single
 * format; which ones exist is left to the registry above it.
 */
#ifndef WFS_FORMAT_FORMAT_H
#define WFS_FORMAT_FORMAT_H

#include "base/limits.h"
#include "base/source.h"
#include "catalog/catalog.h"

struct format_table;
struct wfs_remote;
struct wfs_layout;

/* Takes the tensors of a file in the order of the listing; each lives as long as the call. A
 * negative errno ends the loading; the reason is in the error of the load then. */
struct load_taker {
    int (*take)(void *ctx, const struct wfs_tensor *tensor);
    void *ctx;
};

struct load_context {
    struct limits limits;
    struct wfs_remote *remote;        /* what fetches URLs; NULL: they are refused */
    const struct format_table *table; /* for sets only */
    bool force;
    bool escapes_nul;  /* keys with a NUL are shown escaped, whatever force is */
    bool shards;       /* one shard stands for all */
    bool ranks;        /* a directory stands for the file of rank 0 in it */
    bool is_component; /* of a pipeline, in which there is no other */
    bool has_epoch;    /* of a training run; false: the newest one */
    uint64_t epoch;
    /* Not NULL: a loader that can gives it the tensors in place of the catalog, and needs no memory
     * for them. */
    const struct load_taker *taker;
};

/* A saver plans the complete layout first; then any range of the file can be produced. */
struct format_functions {
    /*
     * Returns whether the content is of this format. head has the first n_head bytes (at most
     * FORMAT_HEAD) of a file of n_bytes.
     */
    bool (*probe)(const uint8_t *head, size_t n_head, uint64_t n_bytes);
    /*
     * Finds the range that load will read besides the head, as far as the head shows: it is fetched
     * before. Returns false when nothing is known. NULL: nothing ever is.
     */
    bool (*foresee)(const uint8_t *head, size_t n_head, uint64_t n_bytes, uint64_t *ret_offset,
                    uint64_t *ret_n_bytes);
    /* Fills an empty catalog, which owns the source already. */
    int (*load)(struct source *source, const struct load_context *context,
                struct wfs_catalog *catalog, struct wfs_error *err);
    /*
     * Reads what has a checksum but is not read by load, in bounded memory, and adds what is wrong
     * to the findings of the catalog. NULL: the format has no checksums.
     */
    int (*verify)(const struct source *source, struct wfs_catalog *catalog, struct wfs_error *err);
    /* Returns whether there is a dtype for the tensor; shape and size are not looked at. */
    bool (*stores)(const struct wfs_tensor *tensor);
    /* Checks what only this format demands of a tensor that it has a dtype for. NULL: nothing. */
    int (*check)(const struct wfs_tensor *tensor, struct wfs_error *err);
    /*
     * Removes from a catalog of this format, before it is laid out, what can run code when another
     * program loads the output, and calls `report` for each name of such a thing; not 0 gives up.
     * NULL: the format has nothing like that. -ENOMEM.
     */
    int (*purge)(struct wfs_catalog *catalog,
                 int (*report)(void *ctx, const char *module, const char *name), void *ctx);
    /*
     * Makes values and metadata of a catalog what a file of the format can hold, whichever format
     * they are from. NULL: there is nothing to do. -EINVAL names what cannot be stored.
     */
    int (*settle)(struct wfs_catalog *catalog, struct wfs_error *err);
    /*
     * Returns whether a value describes one file of several, as notes.part and output.part do. The
     * other values of the first file are those of the whole, and the names of all differ in their
     * numbers only. NULL where sets have no values.
     */
    bool (*describes_part)(const char *value);
    /* Lays the catalog out. NULL: the format is only read, and so may be the two above, or a
     * checkpoint is a directory. */
    int (*plan)(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                struct wfs_error *err);
    const struct directory_functions *directory; /* NULL: a checkpoint is not one */
};

enum { FORMAT_HEAD = 4096 }; /* bytes */

/*
 * What rooms below the registry need of the table of formats; they are given it.
 */
struct format_table {
    /* Loads a file of any format. Takes the source: the catalog owns it, or it is freed. */
    int (*load)(struct source *source, const struct load_context *context, struct wfs_catalog **out,
                struct wfs_error *err);
    /* Loads what is at a path or a URL, as wfs_load. */
    int (*load_path)(const char *path, const struct load_context *context, struct wfs_catalog **out,
                     struct wfs_error *err);
    /* Begins to fetch what load will read of a source on the network. */
    void (*foresee)(const struct source *source);
    /* Returns whether a path ends like a file of some format. */
    bool (*names_checkpoint)(const char *path);
    /* Returns what a format does whose directories are described by a file of that name; NULL: it
     * describes none. */
    const struct directory_functions *(*directory_of)(const char *path);
};

/* Opens what a path or a URL names, as source_open does. */
int format_open(const struct load_context *context, const char *path, struct source **out,
                struct wfs_error *err);

/* Returns whether the path ends with one of the format's extensions, in any case of letters. */
bool format_has_name(const struct wfs_format *format, const char *path);

/*
 * Loads a file of a known format. Takes the source, as format_table.load does. Errors as the
 * format's loader has them.
 */
int format_load(const struct wfs_format *format, struct source *source,
                const struct load_context *context, struct wfs_catalog **out,
                struct wfs_error *err);

#endif
