/* SPDX-License-Identifier: MIT */
/*
 * The room of the writer of distributed checkpoints: it knows how a checkpoint is taken apart into
 * tensors and values, which items its files have, and how .metadata describes them. Items are
 * written by the room of PyTorch's writer.
 *
 * The plan of a checkpoint of one rank: the leaves of a nested state dict, as PyTorch flattens it,
 * and the files that they are in.
 */
#ifndef WFS_DCP_PLAN_H
#define WFS_DCP_PLAN_H

#include "base/text_index.h"
#include "format/core/directory.h"
#include "format/pytorch/writer/torch_plan.h"

/* A part of a path: the key of a dict, or the index of a list. */
struct dcp_step {
    const char *text; /* NULL: an index */
    uint32_t n_text;
    uint32_t index;
};

struct dcp_leaf {
    const char *key; /* the parts of the path, joined with dots */
    size_t n_key;
    const struct dcp_step *path;
    uint32_t n_path;
    const struct wfs_tensor *tensor; /* NULL: a value */
    uint32_t id;                     /* value: in the graph of the plan */
    bool is_edited;                  /* it is a value that was edited, or a part of one */
    uint32_t file;                   /* number of the layout that has the item */
    struct torch_item item;          /* where in it */
};

/* A zeroed one is empty. Texts and paths are in the arena of the first layout. */
struct dcp_leaves {
    struct dcp_leaf *leaves; /* malloc'ed */
    size_t n, n_room;
    struct text_index names; /* of the keys, in the same order */
    const char **empty;      /* malloc'ed: the names of empty dicts, which have no leaf */
    size_t n_empty, n_empty_room;
    uint32_t dict; /* of the root; 0: it is empty */
};

/*
 * Finds all leaves of the graph of a plan, whose tensors are noted. -EOPNOTSUPP, -EINVAL, -E2BIG:
 * err names what a distributed checkpoint cannot hold; -ENOMEM. dcp_leaves_done is due.
 */
int dcp_leaves_find(const struct torch_plan *plan, struct dcp_leaves *leaves);
void dcp_leaves_done(struct dcp_leaves *leaves);

/* Returns whether an item of the root is one of the file beside the checkpoint. */
bool dcp_companion_has(const struct wfs_catalog *catalog, uint32_t key, uint32_t value);

/* Returns a hash of the values of that file, and of the items of a dict, the root, that are its. */
uint64_t dcp_companion_hash(const struct catalog_companion *companion, const struct graph *graph,
                            uint32_t dict);

/* Makes the dict that has to be in the file now; *ret is 0 where it stays as it was, or there is
 * none. -ENOMEM. */
int dcp_companion_change(struct torch_plan *plan, uint32_t dict, uint32_t *ret);

/* For struct directory_functions. Names are "__0_7.distcp"; describe writes .metadata. */
int dcp_plan_make(struct directory *directory, uint64_t max_bytes, struct wfs_error *err);
void dcp_plan_done(struct directory *directory);
const char *dcp_plan_name(struct arena *arena, uint64_t number);
bool dcp_plan_is_name(const char *name);
int dcp_plan_describe(const struct directory *directory, const char *const *names,
                      struct arena *arena, const char **ret, size_t *ret_n, struct wfs_error *err);

/* Returns the leaves of a plan, with their places. */
const struct dcp_leaves *dcp_plan_leaves(const struct directory *directory);

/* Returns whether DCP can hold the dtype of the tensor. */
bool dcp_plan_stores(const struct wfs_tensor *tensor);

#endif
