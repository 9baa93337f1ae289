/* SPDX-License-Identifier: MIT */
/*
 * The material of the evidence: the modules of a checkpoint (a group is a key without its last
 * segment, and the leaves directly in it) and statistics over all of them.
 */
#ifndef WFS_EVIDENCE_FILE_H
#define WFS_EVIDENCE_FILE_H

#include <weightfs/tensor.h>
#include <weightfs/traits.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/text_index.h"
#include "view/evidence/verdict.h"

/* What the words in the last segment of the path of a module indicate about its type. */
enum word_kind {
    WORD_NORM = 1 << 0,
    WORD_SCALE = 1 << 1,
    WORD_ACT = 1 << 2,
    WORD_TABLE = 1 << 3,
    WORD_OF = 1 << 4, /* what tables hold */
    WORD_LINEAR = 1 << 5,
    WORD_TIME = 1 << 6,
    WORD_HEAD = 1 << 7,
    WORD_PERHAPS_HEAD = 1 << 8,
    WORD_GENERIC = 1 << 9, /* indicates nothing */
    WORD_PATCH = 1 << 10,
    WORD_TO = 1 << 11,
    WORD_GATE = 1 << 12,
    WORD_BIAS = 1 << 13,
    WORD_ACT_ITSELF = 1 << 14,
    WORD_VECTOR = 1 << 15,
};

struct words {
    uint32_t kinds;      /* of all words together */
    uint32_t last_kinds; /* of the last word */
    size_t n_words;
    bool all_generic;
};

/* How many groups voted for each layout, and the layout of the first vote. */
struct votes {
    uint32_t n[2]; /* by enum layout */
    uint8_t first;
};

struct group {
    const char *name; /* not ended: n_name bytes */
    size_t n_name;
    uint32_t parent, folded_parent, label; /* interned */
    struct words words;
    bool is_numbered; /* its name ends in a digit */
    bool is_shared, is_part, is_output_head;
    bool has_running_mean, has_running_var;
    bool has_extra, has_companion;
    /* NULL: it has no such leaf */
    const struct wfs_tensor *weight, *bias, *gamma, *beta;
};

struct width {
    uint64_t n;
    uint32_t label;
};

struct evidence_file {
    struct text_index names, labels, parents, folded;
    struct group *groups; /* one for each of names */
    uint32_t *group_of;   /* of each tensor */
    size_t n_tensors;
    struct votes votes;
    struct votes *by_label, *by_folded;
    bool *is_odd;           /* by label */
    uint32_t *n_matrices;   /* by parent: matrices that are a PART */
    uint32_t *n_neighbours; /* by parent: matrices that are a PART or have a LINEAR word */
    struct width *widths;   /* sorted; each label once for a size */
    size_t n_widths;
    uint64_t *vocab; /* sorted rows of tables of words */
    size_t n_vocab;
    bool has_no_norm; /* its LayerNorms are not norms */
    enum layout layout;
    bool is_sure;
    struct arena arena; /* of texts in the tables */
};

/* Reads the tensors, which must outlive it. -ENOMEM. */
int evidence_file_init(struct evidence_file *file, const struct wfs_tensor *tensors,
                       size_t n_tensors, enum wfs_convention convention, enum layout to,
                       struct wfs_error *err);
void evidence_file_done(struct evidence_file *file);

/* Returns the number of labels with a matrix or vector that has a dimension of n. */
size_t evidence_width(const struct evidence_file *file, uint64_t n);

/* Returns true if n is the number of rows of a table of words. */
bool evidence_is_vocab(const struct evidence_file *file, uint64_t n);

/* Returns the layout that its matrix and bias imply; -1: none. */
int group_vote(const struct group *group);

static inline bool group_has(const struct group *group, uint32_t kinds)
{
    return (group->words.kinds & kinds) != 0;
}

static inline bool group_is_norm(const struct group *group)
{
    return group_has(group, WORD_NORM);
}

static inline bool group_is_table(const struct group *group)
{
    return group_has(group, WORD_TABLE) || group->is_shared;
}

#endif
