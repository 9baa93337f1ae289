/* SPDX-License-Identifier: MIT */
/*
 * Inside of the PyTorch writer. A plan is a graph of values, copied where it changes, and records:
 * the storages whose bytes become data/0, data/1 ... in the order in which the pickle names them.
 */
#ifndef WFS_PYTORCH_WRITE_H
#define WFS_PYTORCH_WRITE_H

#include "base/hash.h"
#include "pickle/pickle_write.h"
#include "format/pytorch/object/torch.h"

struct torch_record {
    const struct wfs_tensor *content; /* its bytes, as they will be */
    uint32_t class;                   /* value: the storage class */
    uint32_t location;                /* value: the text "cpu", or what the file says */
    uint64_t n_units;                 /* elements, or bytes of an untyped one */
    uint32_t crc;
    bool has_crc;
    uint32_t number; /* 1 + its key in the pickle; 0: not named yet */
    const char *key; /* instead, where the pickle stays as it is; NULL: number is it */
    uint32_t n_key;
    /* Of a storage that was loaded: */
    uint32_t n_uses;                 /* how often the graph names it */
    uint64_t n_shown;                /* bytes of tensors that stay what they are */
    const struct wfs_tensor *wanted; /* instead of the content */
    uint32_t n_wanting;              /* users that want just this */
};

/* How the writer spells an element type. */
struct torch_spelling {
    const char *class; /* of its storage; NULL: untyped, and the tensor says its dtype */
    const char *dtype;
    uint8_t n_per_unit; /* elements that torch counts as one */
};

struct torch_plan {
    const struct wfs_catalog *catalog;
    struct wfs_layout *layout;
    struct wfs_error *err;
    const char *folder; /* of all records in the zip */
    struct graph graph;
    uint8_t *owned; /* in the arena of the layout, as graph_own wants it */
    uint32_t n_owned;
    bool is_changed; /* the graph is not what was loaded */
    uint32_t root;
    struct torch_record *records; /* malloc'ed */
    uint32_t n_records, n_record_room;
    struct map by_range; /* records, by the bytes that they are */
    uint32_t
        *of_storages; /* in the arena: 1 + the record of each storage of the catalog; 0: none yet */
    uint32_t *order;  /* malloc'ed: records as the pickle names them */
    uint32_t n_order;
    /* Values that all tensors share: made when needed, numbered in the memo in that order. */
    uint32_t storage, cpu, ordered_dict, builders[2], classes[WFS_N_DTYPES], dtypes[WFS_N_DTYPES];
    uint32_t untyped;
    uint32_t first[3 + 2 + 2 * WFS_N_DTYPES + 1], n_first;
};

/* A tensor of the new pickle: a view of a record. */
struct torch_view {
    uint32_t record;               /* from 0 */
    uint64_t offset;               /* elements */
    const uint64_t *strides;       /* NULL: dense */
    uint32_t requires_grad, hooks; /* values; 0: False, none */
};

/* ---- torch_spell.c: values that say what a tensor is ---- */

/* NULL when PyTorch has no such type. */
const struct torch_spelling *torch_spelling_of(enum wfs_dtype dtype);

/* A shared value, by the text or name of it, made and numbered at its first use. 0: no memory. */
uint32_t torch_plan_text(struct torch_plan *plan, uint32_t *slot, const char *text);
uint32_t torch_plan_global(struct torch_plan *plan, uint32_t *slot, const char *module,
                           const char *name);

/* The call that makes a tensor (of this dtype and shape) out of a view; 0: no memory. */
uint32_t torch_plan_call(struct torch_plan *plan, const struct wfs_tensor *tensor,
                         const struct torch_view *view);

/* An empty OrderedDict. */
uint32_t torch_plan_dict(struct torch_plan *plan);

/* ---- torch_record.c ---- */

/* A value of the graph, to be changed. NULL: no memory. */
struct value *torch_plan_own(struct torch_plan *plan, uint32_t id);

/* The storage that a value stands for; NULL: it is none, or its bytes are not there. */
const struct catalog_storage *torch_plan_storage(const struct torch_plan *plan, uint32_t id);

/* Its record; valid until the next one is made. NULL: no memory. */
struct torch_record *torch_record_of(struct torch_plan *plan,
                                     const struct catalog_storage *storage);

/*
 * The view that shows the tensor: of a record that has its bytes already, or of a new one. class is
 * a value, or 0 for the usual one. -ENOMEM.
 */
int torch_plan_view(struct torch_plan *plan, const struct wfs_tensor *tensor, uint32_t class,
                    struct torch_view *ret);

/* Is the tensor another order of the elements of one range, and nothing else? */
bool torch_is_permuted(const struct wfs_tensor *tensor);
int torch_check_tensor(const struct wfs_tensor *tensor, struct wfs_error *err);

/* ---- torch_emit.c ---- */

/* The pickle and the zip around it. */
int torch_emit(struct torch_plan *plan);

/* ---- pytorch_plan.c ---- */

int pytorch_plan(const struct wfs_catalog *catalog, struct wfs_layout *layout,
                 struct wfs_error *err);
int pytorch_plan_in(const char *folder, const struct wfs_catalog *catalog,
                    struct wfs_layout *layout, struct wfs_error *err);

#endif
