/* SPDX-License-Identifier: MIT */
/*
 * The room of the PyTorch writer: it knows how a catalog becomes the graph of a new checkpoint, and
 * which records its zip has. The graph of a loaded checkpoint is changed as little as possible;
 * opcodes are chosen in the room below (pickle), and the bytes of records are copied by whoever
 * emits the layout.
 *
 * This header is the plan that all parts of a writer share: a graph of values, copied where it
 * changes, and records, the storages that become data/0, data/1 ... in the order in which the
 * pickle names them.
 */
#ifndef WFS_TORCH_PLAN_H
#define WFS_TORCH_PLAN_H

#include "base/hash.h"
#include "format/core/layout.h"
#include "pickle/pickle_output.h"

struct torch_record {
    const struct wfs_tensor *content; /* its bytes at the end */
    uint32_t class;                   /* value: the storage class */
    uint32_t location;                /* value: the text "cpu", or the location in the file */
    uint64_t n_units;                 /* elements, or bytes of an untyped one */
    uint32_t crc;
    bool has_crc;
    uint32_t number; /* 1 + its key in the pickle; 0: none yet */
    const char *key; /* the loaded key, in a pickle that is copied; NULL: number counts */
    uint32_t n_key;
    /* Of a loaded storage: */
    uint32_t n_uses;                 /* how often the graph names it */
    uint64_t n_shown;                /* bytes of unchanged tensors */
    const struct wfs_tensor *wanted; /* new content that its users need; NULL: none */
    uint32_t n_wanting;              /* users that need this content */
    bool is_held;                    /* another tensor shows the bytes that were loaded */
};

struct torch_plan {
    const struct wfs_catalog *catalog;
    struct wfs_layout *layout;
    struct wfs_error *err;
    const char *folder; /* of all records in the zip */
    struct graph graph;
    uint8_t *owned; /* in the arena of the layout: flags for graph_own */
    uint32_t n_owned;
    bool is_changed; /* the graph differs from the loaded one */
    uint32_t root;
    struct torch_record *records; /* malloc'ed */
    uint32_t n_records;
    size_t n_record_room;
    struct map by_range; /* records, by the bytes that they are */
    uint32_t
        *of_storages; /* in the arena: by storage of the catalog, 1 + its record; 0: none yet */
    uint32_t *order;  /* malloc'ed: records in the order in which the pickle names them */
    uint32_t n_order;
    /* Values that all tensors share, created at first use, and numbered in the memo in that
     * order. */
    uint32_t storage, cpu, ordered_dict, builders[2], classes[WFS_N_DTYPES], dtypes[WFS_N_DTYPES];
    uint32_t untyped;
    bool wants_tensors; /* set by the caller: the next two are filled */
    uint32_t *tensors;  /* malloc'ed: by value, 1 + the tensor of the catalog that it is; 0: none */
    uint32_t n_tensors; /* values that this is known of */
    uint32_t first[3 + 2 + 2 * WFS_N_DTYPES + 1], n_first;
};

/* Creates an empty OrderedDict. Returns 0 without memory. */
uint32_t torch_plan_dict(struct torch_plan *plan);

/* Returns a value of the graph, to be changed. NULL without memory. */
struct value *torch_plan_own(struct torch_plan *plan, uint32_t id);

/* Makes a value of the graph a copy of another one, which was made for that; 0: there was no memory
 * for it. -ENOMEM. */
int torch_plan_become(struct torch_plan *plan, uint32_t id, uint32_t made);

/* Finds the storage that a value stands for. NULL: it is not a storage, or has no bytes. */
const struct catalog_storage *torch_plan_storage(const struct torch_plan *plan, uint32_t id);

/* ---- the spelling of tensors ---- */

/* The spelling of an element type. */
struct torch_spelling {
    const char *class; /* of its storage; NULL: untyped, the tensor declares the dtype */
    const char *dtype;
    uint8_t n_per_unit; /* elements that PyTorch counts as one */
};

/* Returns NULL when PyTorch has no such type. */
const struct torch_spelling *torch_spelling_of(enum wfs_dtype dtype);

/* Fills rank dims and rank strides of a dense tensor, as PyTorch counts them: packed elements in
 * pairs. */
void torch_spelling_shape(const struct wfs_tensor *tensor, uint64_t *dims, uint64_t *strides);

/* ---- records: the storages that tensors are views of ---- */

/* Returns the record of a loaded storage, valid until the next one is made. NULL without memory. */
struct torch_record *torch_record_of(struct torch_plan *plan,
                                     const struct catalog_storage *storage);

/* Creates the call that makes the tensor from a storage: a record that has its bytes already, or a
 * new one. class is a value, whose storages have elements of that dtype or are untyped, or 0 for
 * the usual one. Returns 0 without memory. */
uint32_t torch_record_call(struct torch_plan *plan, const struct wfs_tensor *tensor,
                           uint32_t class);

/* The same for that storage itself. */
uint32_t torch_record_storage(struct torch_plan *plan, const struct wfs_tensor *tensor,
                              uint32_t class);

/* Creates a tensor of a range of a source, with one dimension; it lives as long as the layout. NULL
 * without memory. */
const struct wfs_tensor *torch_record_range(struct torch_plan *plan, const char *key,
                                            const struct wfs_stored *stored, uint64_t n_bytes);

/* Returns another record that has the bytes of the tensor already; NULL: none. */
const struct torch_record *torch_record_twin(const struct torch_plan *plan,
                                             const struct torch_record *record,
                                             const struct wfs_tensor *tensor);

/* Gives a record the bytes of the tensor, so that later tensors with the same bytes find it.
 * -ENOMEM. */
int torch_record_fill(struct torch_plan *plan, struct torch_record *record,
                      const struct wfs_tensor *tensor);

/* Returns whether PyTorch has the dtype of the tensor. */
bool torch_record_stores(const struct wfs_tensor *tensor);

/* Checks what only PyTorch demands of a tensor. -EOPNOTSUPP. */
int torch_record_check(const struct wfs_tensor *tensor, struct wfs_error *err);

/*
 * The layout of a new checkpoint: a zip with its pickle and its records; and items: such zips, one
 * after another in one file, each with a tensor or value.
 */

/* Writes the pickle of the plan's root, and lays everything out. -EIO, -E2BIG, -EFBIG, -ENOMEM. */
int torch_layout_make(struct torch_plan *plan);

/* Where an item is in the file. */
struct torch_item {
    uint64_t offset, n_bytes;
};

/* Adds an item with a tensor at the end of a layout. The dtype is one that PyTorch has. -EFBIG,
 * -ENOMEM. */
int torch_item_tensor(struct wfs_layout *layout, const struct wfs_tensor *tensor,
                      struct torch_item *ret, struct wfs_error *err);

/* Adds an item with a value of the graph of the plan at the end of its layout. The writer is
 * zeroed at first, the same for all values, and pickle_writer_done is due. Errors as those of a
 * plan. */
int torch_item_value(struct torch_plan *plan, struct pickle_writer *writer, uint32_t id,
                     struct torch_item *ret);

#endif
