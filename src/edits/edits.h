/* SPDX-License-Identifier: MIT */
/*
 * The list of edits: of a checkpoint, by hand, of two checkpoints, or of a tree. The room src/edits
 * knows catalogs and edits of them, and the list as JSON in a patch file; it leaves trees, files on
 * disk and options to others.
 */
#ifndef WFS_EDITS_EDITS_H
#define WFS_EDITS_EDITS_H

#include <weightfs/patch.h>
#include "base/arena.h"
#include "base/hash.h"
#include "base/text_index.h"
#include "catalog/catalog.h"
#include "tensor/tensor.h"

enum {
    PATCH_EDITS_MAX = 1000000,  /* edits of each kind: as many as a checkpoint has tensors */
    PATCH_VALUE_MAX = 64 << 20, /* bytes of the JSON text of a value, as in a mount */
    PATCH_RANK_MAX = 16384,     /* as the loaders take */
};

/* What an edit changes, as it was when the patch was made. */
struct patch_was {
    bool is_known, has_digest;
    uint8_t dtype;
    struct wfs_shape shape;
    uint64_t digest; /* of the bytes as shown, or of the JSON text of a value */
    /* What the digest is taken of when the patch is written, a tensor or a value; NULL: nothing. */
    const struct wfs_tensor *tensor;
    const struct wfs_catalog *values;
    size_t value;
};

/* Why an edit cannot be made, and the errno of that. */
struct patch_problem {
    int code;
    const char *reason; /* NULL: it can */
};

/* Of a tensor or a value. Texts are in the arena of the contents, or live longer than the patch. */
struct patch_edit {
    const char *from;  /* NULL: it is new */
    const char *to;    /* NULL: it is removed */
    const char *place; /* the tensor or value whose place in the output it takes */
    uint32_t content;  /* 1 + the position of the new content; 0: it stays as it was */
    bool is_copy;      /* what it is made of stays, too */
    bool has_place;    /* and place is NULL: it comes after all others */
    bool is_place_of_value, has_dtype, has_shape;
    uint8_t dtype;
    struct wfs_shape shape;
    const char *texts[TENSOR_N_TEXTS]; /* NULL: not set */
    struct patch_was was;
    const char *path; /* of the file that a new value is in, for messages; NULL: none */
    struct patch_problem problem;
};

struct patch_edits {
    struct patch_edit *items; /* malloc'ed */
    size_t n_items, n_room;
};

/* Of a text of the metadata. */
struct patch_meta {
    const char *name;
    const char *value, *was; /* NULL: there is none */
    size_t n_value, n_was;
};

enum { PATCH_TENSORS, PATCH_VALUES, PATCH_N_KINDS };

struct wfs_patch {
    struct patch_edits edits[PATCH_N_KINDS];
    struct patch_meta *metas; /* malloc'ed, in the order in which they are applied */
    size_t n_metas, n_meta_room;
    struct wfs_catalog *contents; /* the new contents as tensors; values as bytes */
    struct wfs_access access;
    struct patch_requests *requests; /* by which edits are asked for one by one; NULL: none were */
};

/* Adds a zeroed edit; NULL when out of memory. */
struct patch_edit *patch_add(struct wfs_patch *patch, unsigned kind);
struct patch_meta *patch_add_meta(struct wfs_patch *patch);

/* Adds a copy of the tensor to the contents, which borrows its source and arrays. -ENOMEM. */
int patch_add_content(struct wfs_patch *patch, const struct wfs_tensor *tensor, uint32_t *ret);

/* Adds n_bytes of a source, which is adopted, also on failure. -ENOMEM. */
int patch_add_bytes(struct wfs_patch *patch, struct source *source, uint32_t *ret);

/* Notes dtype and shape of a tensor that is changed, and that its digest is to be taken, unless
 * that would take too long. */
void patch_note_was(struct patch_edit *edit, const struct wfs_tensor *tensor);

/*
 * Fills an empty catalog with what the checkpoint becomes by edits that were made of it, and whose
 * names do not collide: nothing is compared. It borrows from the contents of the patch. visit gets
 * a line for each value that cannot be edited, which is left out; NULL: that is an error.
 */
int patch_apply_own(const struct wfs_patch *patch, const struct wfs_catalog *to,
                    void (*visit)(void *ctx, const char *line), void *ctx, struct wfs_catalog *made,
                    struct wfs_error *err);

/* Parses "2, 3", with spaces or without; nothing for a scalar. -EINVAL, -ENOMEM. */
int patch_parse_shape(const char *text, size_t n_bytes, struct arena *arena, struct wfs_shape *ret);

/* Returns the digest of a value's text. -ENOMEM. */
int patch_digest_value(const struct wfs_catalog *catalog, size_t i, uint64_t *ret);

/* The keys of a catalog, tensors or values, by name. */
struct patch_keys {
    const struct wfs_catalog *catalog;
    bool is_value;
    struct map map;
    size_t n;
};

const char *patch_key(const struct patch_keys *keys, size_t i);
int patch_keys_init(struct patch_keys *keys, const struct wfs_catalog *catalog, bool is_value);

/* Returns the position, or SIZE_MAX. */
size_t patch_keys_find(const struct patch_keys *keys, const char *key);
void patch_keys_done(struct patch_keys *keys);

struct meta_index {
    const struct wfs_text *list;
    struct text_index names;
    const struct wfs_text **texts; /* by number of the name, malloc'ed */
};

/* -ENOMEM; meta_index_done is due in any case. */
int meta_index_init(struct meta_index *index, const struct wfs_text *list);
void meta_index_done(struct meta_index *index);

/* NULL: the list does not have it. */
const struct wfs_text *meta_index_find(const struct meta_index *index, const char *name);

/* What was asked for, and what there is to edit, by name: there may be very many of both. */
struct patch_requests {
    const struct wfs_catalog *of;
    struct patch_keys keys[PATCH_N_KINDS];
    struct meta_index metas;
    /* The edits by the keys that they make, and by those that they take away. */
    struct patch_named {
        struct text_index keys;
        uint32_t *edits; /* of each key; malloc'ed */
        size_t n_room;
    } made[PATCH_N_KINDS], taken[PATCH_N_KINDS];
    struct text_index edited_metas;
};

/* Adds edits of metadata: those that lead from one list to the other, with its order or just its
 * texts. -ENOMEM. */
int patch_compare_meta(struct wfs_patch *patch, const struct wfs_text *from,
                       const struct wfs_text *to, bool takes_order);

#endif
