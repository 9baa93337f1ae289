/* SPDX-License-Identifier: MIT */
/*
 * The inside of the room: an adapter file as modules, each with the factors that belong to it.
 */
#ifndef WFS_ADAPTER_PARTS_H
#define WFS_ADAPTER_PARTS_H

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "catalog/catalog.h"
#include "view/adapter/adapter_base.h"

/* Whose names and rules. */
enum adapter_form { FORM_PEFT, FORM_DIFFUSERS, FORM_KOHYA, FORM_MLX };

/* The factors that a module can have. Where libraries have different names for one thing it has
 * one: A is [rank, in...] and B [out, rank...], whatever the file calls them. */
enum leaf {
    LEAF_A,
    LEAF_B,
    LEAF_EMBEDDING_A, /* [rank, rows] */
    LEAF_EMBEDDING_B, /* [columns, rank] */
    LEAF_MLX_A,       /* transposed */
    LEAF_MLX_B,
    LEAF_MLX_M,
    LEAF_E, /* of AdaLoRA: [rank, 1] */
    LEAF_B_BIAS,
    LEAF_MAGNITUDE,
    LEAF_MID,
    LEAF_ALPHA,
    LEAF_SCALAR,
    LEAF_DORA_SCALE,
    LEAF_HADA_W1A,
    LEAF_HADA_W1B,
    LEAF_HADA_W2A,
    LEAF_HADA_W2B,
    LEAF_HADA_T1,
    LEAF_HADA_T2,
    LEAF_LOKR_W1,
    LEAF_LOKR_W1A,
    LEAF_LOKR_W1B,
    LEAF_LOKR_W2,
    LEAF_LOKR_W2A,
    LEAF_LOKR_W2B,
    LEAF_LOKR_T2,
    LEAF_IA3,
    LEAF_OFT,
    LEAF_VERA_B,
    LEAF_VERA_D,
    LEAF_DIFF,
    LEAF_DIFF_B,
    LEAF_TOKENS,     /* rows */
    LEAF_BASE,       /* a copy of the weight that the rest is added to */
    LEAF_WHOLE,      /* the weight itself */
    LEAF_WHOLE_BIAS, /* the bias itself */
    N_LEAVES
};

struct module {
    const char *name;  /* as the base has it, after renames: without prefix of the library */
    const char *typed; /* as the file has it */
    const char *component;
    const struct wfs_tensor *leaves[N_LEAVES]; /* NULL: it has none */
    uint64_t used;                             /* leaves that were looked at, as bits */
};

/* Returns whether the name, or the end of it after a dot, is this one. */
static inline bool module_is_named(const struct module *module, const char *name)
{
    const size_t n = strlen(module->name), n_end = strlen(name);
    return n >= n_end && strcmp(module->name + n - n_end, name) == 0 &&
           (n == n_end || module->name[n - n_end - 1] == '.');
}

struct pattern {
    const char *key; /* of the json */
    struct regex *regex;
    double value;
};

/* What adapter_config.json says. Numbers that it does not have are NAN. */
struct adapter_config {
    json_t *json; /* NULL: there is none */
    enum adapter_form form;
    const char *method; /* peft_type or fine_tune_type; static or of json */
    double rank, alpha, scale;
    bool has_rslora, has_dora, is_fan_in, has_tied_weights;
    struct pattern *ranks, *alphas; /* malloc'ed */
    size_t n_ranks, n_alphas;
};

struct adapter {
    const struct adapter_request *request;
    struct adapter_base *base;
    const struct wfs_catalog *file;
    const char *name; /* of the file, for messages: the last part of its path */
    struct adapter_config config;
    struct module *modules; /* malloc'ed */
    size_t n_modules, n_room;
    struct text_index names;                  /* of the modules, as the file has them */
    const struct wfs_tensor *vera_a, *vera_b; /* of all modules */
    size_t n_pairs;                           /* that were applied */
    double least_rank, most_rank, least_scale, most_scale;
    const char *formula, *text, *change; /* of the last step; those of most are the same */
    struct wfs_error *err;
};

/* Reads the text, or finds out the form by the keys where there is none. */
int adapter_config_read(struct adapter *adapter, const char *text);
/* Reads the configuration that newer versions of diffusers have in the metadata of the file, for a
 * component. -EBADMSG, -EOPNOTSUPP. */
int adapter_config_take_metadata(struct adapter *adapter, const char *component);
void adapter_config_done(struct adapter_config *config);

/* Returns rank and alpha of a module, by the patterns of the configuration. -E2BIG of a regex. */
int adapter_config_find(const struct adapter *adapter, const char *module, double *ret_rank,
                        double *ret_alpha);

/* Sorts the tensors of the file into modules. -EINVAL for one whose name is not known. */
int adapter_parts_read(struct adapter *adapter);
void adapter_parts_done(struct adapter *adapter);

/* Finds the names that the base has for the modules: as they are, or with another prefix. */
int adapter_names_find(struct adapter *adapter);

/* Returns the number of the tensor of the base that has the key, or TEXT_INDEX_NONE. */
static inline uint32_t adapter_find(const struct adapter *adapter, const char *key)
{
    return catalog_keys_find(&adapter->base->keys, key);
}

/* Returns the key of the embedding that the head is tied to, for the key of a head that the base
 * does not have; else NULL. */
const char *adapter_find_tied(const struct adapter *adapter, const char *key);

/* The tensors that the product of one module is for. */
struct slices {
    uint64_t n_experts; /* 0: not of experts, but n tensors: FRONTS[i] NUMBER BACKS[i].weight */
    size_t n;
    uint64_t number;
    const char *fronts[4], *backs[4];
    const char *front, *block; /* FRONT BLOCK.EXPERT.BACKS[i].weight: gate, up and down */
    size_t n_front;
};

enum { SLICE_KEY = 4096 };

/* Finds those of the base that a module of that name is for, where it is for several. */
bool adapter_slices_find(const struct adapter *adapter, const char *name, struct slices *ret);

/* Takes the copy of the weight that the factors of a module were trained on, if it has one. */
int adapter_terms_take_copy(struct adapter *adapter, struct module *module);

/* Adds what a module means to its tensors. */
int adapter_terms_add(struct adapter *adapter, struct module *module);

/* Fails with a sentence that names the file and the tensor of it. */
int adapter_fail(const struct adapter *adapter, int code, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds a notice about the file. */
int adapter_warn(const struct adapter *adapter, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
