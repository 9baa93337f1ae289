/* SPDX-License-Identifier: MIT */
/*
 * A patch: edits of a checkpoint as a thing of its own, which is made by hand, of a tree, or of two
 * checkpoints, and applied to the same or another one. All edits refer to the checkpoint as it was:
 * their order does not matter. A patch is kept as a safetensors file: its tensors are new contents,
 * and a text in its metadata lists the edits (docs/formats/patch.md).
 */
#ifndef WFS_PATCH_H
#define WFS_PATCH_H

#include <weightfs/catalog.h>

/* The name of the patch that a mount makes of its edits. */
#define WFS_PATCH_NAME "edits.safetensors"

/* The text in the metadata of a patch file that lists the edits. */
#define WFS_PATCH_TEXT "weightfs.patch"

struct wfs_patch;

#pragma GCC visibility push(default)

int wfs_patch_new(struct wfs_patch **out);
void wfs_patch_free(struct wfs_patch *patch);

/* For a variable that owns a patch. */
#define auto_patch __attribute__((__cleanup__(wfs_patch_cleanup)))

static inline void wfs_patch_cleanup(struct wfs_patch **patch)
{
    wfs_patch_free(*patch);
}

/* How many edits there are, by kind. */
struct wfs_patch_counts {
    uint64_t n_renamed, n_removed, n_added, n_replaced, n_described; /* tensors */
    uint64_t n_values, n_metadata;
};
void wfs_patch_count(const struct wfs_patch *patch, struct wfs_patch_counts *ret);
uint64_t wfs_patch_n_edits(const struct wfs_patch *patch);

/* Returns the keys that tensors get by edits, or whose tensors are changed: malloc'ed, in order.
 * NULL: no memory. */
const char **wfs_patch_keys(const struct wfs_patch *patch, size_t *ret_n);

/* A tensor that gets another key and stays what it is. */
struct wfs_patch_rename {
    const char *from, *to;
};

/* Returns those of the patch: malloc'ed, by `from`. NULL: no memory. */
struct wfs_patch_rename *wfs_patch_renames(const struct wfs_patch *patch, size_t *ret_n);

/*
 * Calls visit with a line for each edit, in which names are quoted: "'a' -> 'b': renamed". Stops
 * when it does not return 0, and returns that. -ENOMEM.
 */
int wfs_patch_each(const struct wfs_patch *patch, int (*visit)(void *ctx, const char *line),
                   void *ctx);

/* ---- edits one by one, of the checkpoint `of` ---- */

/* Each fails with -ENOKEY for a key that the checkpoint lacks, -EEXIST for one that was edited in a
 * way that excludes this edit, -EINVAL for a wrong value, -ENOMEM. Texts are copied. */

/* Removes the tensor and the value with the key, which may be removed already. 1; 0: there is
 * neither. */
int wfs_patch_remove(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                     struct wfs_error *err);

/*
 * Adds a tensor, or replaces the content, dtype and shape of one that exists, by those of a .npy
 * file, which is read when the result is. The errno of open; -EBADMSG, -EOPNOTSUPP for its header.
 */
int wfs_patch_add_npy(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                      const char *path, struct wfs_error *err);
int wfs_patch_replace_npy(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                          const char *path, struct wfs_error *err);

/* Gives a tensor, and with it its place in the output, another key. Other edits may name it by
 * either key. */
int wfs_patch_rename(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                     const char *new_key, struct wfs_error *err);

/* Adds a tensor, or replaces the content, dtype and shape of one that exists, by those of another
 * tensor, whose source and strides are borrowed. */
int wfs_patch_put(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                  const struct wfs_tensor *content, struct wfs_error *err);

/* Sets "dtype", "shape" or "param_id" of a tensor that exists or was added. */
int wfs_patch_set(struct wfs_patch *patch, const struct wfs_catalog *of, const char *key,
                  const char *name, const char *value, struct wfs_error *err);

/* Sets a value, or adds it, by its JSON text. */
int wfs_patch_set_value(struct wfs_patch *patch, const struct wfs_catalog *of, const char *name,
                        const char *json, struct wfs_error *err);

/* Sets a text of the metadata; value NULL removes it. */
int wfs_patch_set_metadata(struct wfs_patch *patch, const struct wfs_catalog *of, const char *name,
                           const char *value, struct wfs_error *err);

/* ---- whole patches ---- */

/* Makes the edits that lead from one checkpoint to another, both of which must live longer. Reads
 * both. -EIO; -EFBIG where wfs_workload_check refuses, before anything is read, unless it allows
 * large work. */
int wfs_patch_compare(const struct wfs_catalog *from, const struct wfs_catalog *to,
                      bool allows_large, struct wfs_patch **out, struct wfs_error *err);

/*
 * Makes the catalog of a patch file, to be saved as safetensors; it borrows from the patch, and
 * from what that was made of. With digests, those tensors are read that get another content: -EIO;
 * without, the file has the same size.
 */
int wfs_patch_file(const struct wfs_patch *patch, bool has_digests, struct wfs_catalog **out,
                   struct wfs_error *err);

/* Reads the patch out of a loaded patch file, which must live longer. -EMEDIUMTYPE: it is not one;
 * -EBADMSG, -E2BIG. */
int wfs_patch_parse(const struct wfs_catalog *file, struct wfs_patch **out, struct wfs_error *err);

struct wfs_patch_options {
    bool is_forced; /* edits that do not fit are left out; else they are an error */
    /* Called with a line for each edit that does not fit, in which names are quoted. */
    void (*refuse)(void *ctx, const char *line);
    void *ctx;
};

/*
 * Makes the catalog that the checkpoint becomes: what a tree with the same edits has as its
 * snapshot. It borrows from the checkpoint and the patch. Content that an edit replaces is read, to
 * compare it. -EINVAL: edits do not fit; -EIO, -ENOMEM. ret_n_refused is how many.
 */
int wfs_patch_apply(const struct wfs_patch *patch, const struct wfs_catalog *to,
                    const struct wfs_patch_options *options, uint64_t *ret_n_refused,
                    struct wfs_catalog **out, struct wfs_error *err);

/* Returns what the files grant that the patch was made of by hand: .npy files. */
struct wfs_access wfs_patch_access(const struct wfs_patch *patch);

#pragma GCC visibility pop

#endif
