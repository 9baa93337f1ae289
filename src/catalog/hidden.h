/* SPDX-License-Identifier: MIT */
/*
 * Bytes of storages that no tensor shows. Formats whose tensors are views of storages say which
 * storages a file has; what the tensors show is taken away from them.
 */
#ifndef WFS_HIDDEN_H
#define WFS_HIDDEN_H

#include "catalog/catalog.h"

/* A storage of a file. */
struct hidden_storage {
    const struct source *source;
    uint64_t offset, n_bytes;
    const char *name; /* in the file; borrowed, n_name bytes */
    size_t n_name;
    const char *key; /* of the first tensor that shows a part of it; NULL: none does */
    bool is_shown;   /* whole, by one tensor */
    bool is_named;   /* an object of the file refers to it */
};

struct hidden_range {
    uint64_t start, end; /* in the source */
    size_t storage;
};

/* A search in progress; the storages are the caller's, the ranges malloc'ed. */
struct hidden_search {
    struct hidden_storage *storages;
    size_t n_storages;
    struct hidden_range *ranges; /* what is shown of storages that no single tensor shows */
    size_t n_ranges, n_room;
};

/* Begins a search. Sorts the storages, and joins those that overlap. */
void hidden_begin(struct hidden_search *search, struct hidden_storage *storages, size_t n);

/* Takes away what the tensor shows. -ENOMEM. */
int hidden_show(struct hidden_search *search, const struct wfs_tensor *tensor);

/* Adds what is left to the catalog. -ENOMEM. */
int hidden_end(struct hidden_search *search, struct wfs_catalog *catalog);

void hidden_done(struct hidden_search *search);

#endif
