/* SPDX-License-Identifier: MIT */
/*
 * The catalog: everything that a checkpoint holds, whatever its file format. An ordered list of
 * tensors, the text metadata of the whole, the open files that the bytes lie in, and what the
 * loader found odd.
 */
#ifndef WFS_CATALOG_H
#define WFS_CATALOG_H

#include <weightfs/output.h>
#include <weightfs/finding.h>
#include <weightfs/tensor.h>
#include <weightfs/traits.h>

struct wfs_catalog;

#pragma GCC visibility push(default)

void wfs_catalog_free(struct wfs_catalog *catalog);

/* For a variable that owns a catalog, which is freed when its scope ends. */
#define auto_catalog __attribute__((__cleanup__(wfs_catalog_cleanup)))

static inline void wfs_catalog_cleanup(struct wfs_catalog **catalog)
{
    wfs_catalog_free(*catalog);
}

/* The format that it was loaded from. */
const struct wfs_format *wfs_catalog_format(const struct wfs_catalog *catalog);

/* What is noted of a file of a tree: its path, and that of another one where it takes two. */
struct wfs_note {
    const char *path, *other;
    const struct wfs_note *next;
};

/* Returns the files that have the dtype and shape of another one; NULL: none. */
const struct wfs_note *wfs_catalog_described(const struct wfs_catalog *catalog);

/* What the tensors are packed in: one format can have several containers. NULL: nothing. */
const struct wfs_container *wfs_catalog_container(const struct wfs_catalog *catalog);

size_t wfs_catalog_n_tensors(const struct wfs_catalog *catalog);

/* In file order; borrowed. */
const struct wfs_tensor *wfs_catalog_tensor(const struct wfs_catalog *catalog, size_t i);

/* Finds a tensor by key, NULL: none has it. Linear in the number of tensors: for one-off look-ups.
 */
const struct wfs_tensor *wfs_catalog_find(const struct wfs_catalog *catalog, const char *key);

/*
 * What belongs to a tensor by its name: codes of quantized weights have their scales, zero points
 * and tables in tensors of their own, such as `w.weight_scale_inv` of `w.weight`. Nothing here
 * applies them.
 */
struct wfs_companion {
    uint32_t scale; /* 1 + position of the tensor with its scales; 0: it has none */
    uint32_t base;  /* 1 + position of the codes that it is a companion of; 0: it is none */
};

/* Finds them for all tensors; *ret is malloc'ed, in the order of the tensors. -ENOMEM. */
int wfs_catalog_companions(const struct wfs_catalog *catalog, struct wfs_companion **ret);

/* Finds the key of the tensor with the scales of one of the catalog; NULL: it has none. Linear in
 * the number of tensors. -ENOMEM. */
int wfs_catalog_scale_of(const struct wfs_catalog *catalog, const struct wfs_tensor *tensor,
                         const char **ret);

/* Returns the text metadata of the whole, in file order; NULL when it has none or an empty map. */
const struct wfs_text *wfs_catalog_meta(const struct wfs_catalog *catalog);

/* Worst first. */
size_t wfs_catalog_n_findings(const struct wfs_catalog *catalog);
const struct wfs_finding *wfs_catalog_finding(const struct wfs_catalog *catalog, size_t i);

/* Bytes of one storage that no tensor shows: PyTorch's tensors are views of storages. */
struct wfs_hidden {
    const char *storage; /* its name in the file */
    const char *key;     /* of a tensor that shows other bytes of the storage; NULL: none does */
    uint64_t n_bytes;
    bool is_named; /* an object of the file refers to the storage */
};

/* As the files were loaded: options of views do not matter. */
size_t wfs_catalog_n_hidden(const struct wfs_catalog *catalog);
const struct wfs_hidden *wfs_catalog_hidden(const struct wfs_catalog *catalog, size_t i);

/* Computes a hash of the bytes and of their places in the storage, to be compared with others of
 * the same process. -EIO, -ENOMEM. */
int wfs_catalog_hidden_digest(const struct wfs_catalog *catalog, size_t i, uint64_t *ret);

/* The files that the bytes lie in. */
size_t wfs_catalog_n_sources(const struct wfs_catalog *catalog);
const char *wfs_catalog_source_path(const struct wfs_catalog *catalog, size_t i);
uint64_t wfs_catalog_source_bytes(const struct wfs_catalog *catalog, size_t i);
/* Returns how many of them have been fetched. *ret is true for a source on the network, false for a
 * file. */
uint64_t wfs_catalog_source_cached(const struct wfs_catalog *catalog, size_t i, bool *ret);
/* Returns the identity when it was opened; zeros: it is not a file. */
struct wfs_identity wfs_catalog_source_identity(const struct wfs_catalog *catalog, size_t i);
/* Returns why the last read of one on the network failed, or NULL. */
const char *wfs_catalog_source_trouble(const struct wfs_catalog *catalog, size_t i);

/* Returns what all files grant that the catalog was loaded from, indexes and overlays among them,
 * as they are now. */
struct wfs_access wfs_catalog_access(const struct wfs_catalog *catalog);

/* Returns the position of the tensor's file among the sources, or -1 when it lies in none. */
int wfs_catalog_source_of(const struct wfs_catalog *catalog, const struct wfs_tensor *tensor);

/*
 * Computes XXH3 (64 bits) of the whole description: keys, types, shapes, where and how the elements
 * lie, texts and values, in order. The same for the same file at every load. -ENOMEM, -EIO.
 */
int wfs_catalog_digest(const struct wfs_catalog *catalog, uint64_t *ret_digest);

/* Returns -EIO when a source is no longer what it was when it was opened; *ret_i is its position.
 */
int wfs_catalog_check_sources(const struct wfs_catalog *catalog, size_t *ret_i);

/* Returns whether one of the sources is the file that st describes. */
bool wfs_catalog_reads(const struct wfs_catalog *catalog, const struct stat *st);

/*
 * Checks that the backup of a file at path does not replace a source, unless that has the path as
 * well. -EEXIST.
 */
int wfs_catalog_check_backup(const struct wfs_catalog *catalog, const char *path,
                             const struct wfs_backup *backup, struct wfs_error *err);

#pragma GCC visibility pop

#endif
