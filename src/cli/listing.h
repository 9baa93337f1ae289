/* SPDX-License-Identifier: MIT */
/*
 * Tensors of a checkpoint, a row for each: as a table, or as JSON. Verbs that list differ in what
 * they select.
 */
#ifndef WFS_LISTING_H
#define WFS_LISTING_H

#include "cli/args.h"
#include "cli/key_tree.h"

#include <weightfs/catalog.h>

struct listing {
    const struct wfs_catalog *catalog;
    struct key_tree tensors; /* the selected ones, in file order */
    bool is_long;            /* also where the bytes are */
};

/*
 * Prepares a listing of the tensors of the catalog that are marked; false when out of memory. The
 * array of tensors belongs to it.
 */
bool listing_init(struct listing *listing, const struct wfs_catalog *catalog, const bool *marks,
                  const struct args *args);
void listing_done(struct listing *listing);

#define auto_listing cleanup(listing_done)

/* Puts the tensors in order: that of --sort, else of keys on a terminal and of the file elsewhere.
 */
enum exit_code listing_sort(struct listing *listing, const struct args *args);

/* Prints JSON with --json, else a table. -ENOMEM. */
int listing_print(const struct listing *listing, const struct args *args);

#endif
