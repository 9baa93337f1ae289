/* SPDX-License-Identifier: MIT */
/*
 * Names in pickles that do harm, or may do, when Python loads the file.
 */
#ifndef WFS_TORCH_DANGERS_H
#define WFS_TORCH_DANGERS_H

#include "format/pytorch/object/torch.h"

/* Returns whether the name of a global is on the list. */
bool torch_is_harmless(const struct graph *graph, uint32_t global);

/* The names that were found; a zeroed struct has none. */
struct torch_dangers {
    struct map map;
    uint64_t *hashes; /* of the names, malloc'ed */
    uint64_t wanted;
    uint32_t n_names;
    size_t n_room;
    uint64_t n_dangers, n_unknown; /* of n_names: known to be harmful; not known to be harmless */
};

/* Adds a finding for each new name among the values, up to a bound; without a place for the names,
 * for none. These remember in the reader that memory ran out. */
void torch_dangers_add(struct torch *torch);

/* Adds a finding for a name that is not harmless as it is used here. */
void torch_dangers_note(struct torch *torch, const struct value_global *global);

/* Does the same for all values, and adds findings about names beyond the bound. */
void torch_dangers_report(struct torch *torch);

void torch_dangers_done(struct torch_dangers *found);

#endif
