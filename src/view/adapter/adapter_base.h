/* SPDX-License-Identifier: MIT */
/*
 * The base that adapters are added to, and what is asked for of one of them.
 */
#ifndef WFS_ADAPTER_BASE_H
#define WFS_ADAPTER_BASE_H

#include <weightfs/error.h>
#include "catalog/catalog.h"
#include "compute/compute.h"
#include "view/regex/regex.h"

/* The tensors of a base while adapters are added to it. */
struct adapter_base {
    struct wfs_catalog *catalog;
    struct catalog_keys keys;
    struct source **computed;   /* by tensor; NULL: not yet; owned by the catalog */
    size_t n_computed, n_keyed; /* tensors that there is room for, or whose keys are known */
    const char *embedding;      /* key of the one embedding, which a head may be tied to; or NULL */
};

/* What is asked for. */
struct adapter_request {
    const char *path; /* as typed, for messages */
    double weight;
    const struct regex *regex; /* keys of the base that it is for; NULL: all */
    bool is_negated;
    const char *part; /* component of a file that is for several; NULL: the one that fits */
    double alpha;     /* where file and configuration have none; NAN: not said */
    /* Renames a module of the file. Returns 0, or a negative errno. */
    int (*rename)(void *ctx, const char *name, struct arena *arena, const char **ret,
                  struct wfs_error *err);
    /* Adds a notice, or a line that is for the report only. */
    int (*warn)(void *ctx, const char *about, const char *text);
    int (*note)(void *ctx, const char *about, const char *text);
    void *ctx;
};

/* Returns the key of the one tensor whose name is that of an embedding of tokens; NULL: there is
 * none, or several. */
const char *adapter_find_embedding(const struct wfs_catalog *catalog);

/* Returns whether the key is that of a head, which may be tied to the embedding. */
bool adapter_is_head(const char *key);

int adapter_base_init(struct adapter_base *base, struct wfs_catalog *catalog);
void adapter_base_done(struct adapter_base *base);

/*
 * Adds a step to the computation of a tensor, which is new for the first one; then the tensor shows
 * it. text describes the step, change is appended to what `changes` says, and lives as long as the
 * catalog; NULL: neither is said. -ENOMEM.
 */
int adapter_base_add(struct adapter_base *base, size_t i, bool is_batch,
                     const struct compute_step *step, const char *text, const char *change);

/* Makes room for the tensors that the catalog has now. -ENOMEM. */
int adapter_base_grow(struct adapter_base *base);

/*
 * Adapters: what the files of peft, diffusers, kohya, LyCORIS and MLX add to a checkpoint, as
 * computations. The names, shapes, scales and formulas are those of these libraries;
 * docs/arithmetic.md has each of them. Whatever of a file would not be used is an error that names
 * it.
 */

/*
 * Adds the adapter in `file`, whose tensors must live as long as the catalog of the base. config is
 * the text of its adapter_config.json, NULL: it has none. -EINVAL for what does not fit,
 * -EOPNOTSUPP for a method that cannot be merged, -EBADMSG for a configuration that cannot be read,
 * -E2BIG, -ENOMEM, -EIO.
 */
int adapter_add(struct adapter_base *base, const struct adapter_request *request,
                const struct wfs_catalog *file, const char *config, struct wfs_error *err);

#endif
