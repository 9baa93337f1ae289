/* SPDX-License-Identifier: MIT */
/*
 * The table of rows: which class, how sure, and why. The first row that fits decides.
 */
#include "view/evidence/evidence.h"

#include <errno.h>
#include <string.h>

#include "view/evidence/evidence_file.h"

/* What a row says. A linear is in the layout of the file unless the row knows better. */
struct finding {
    enum {
        OTHER,
        LINEAR,
        NORM,
        BATCH_NORM,
        BURN_NORM,
        EMBEDDING,
        CONVOLUTION,
        QUANTIZED,
        PRELU,
        UNKNOWN_CLASS
    } kind;
    enum certainty certainty;
    const char *row;
    enum layout layout;
};

static const char *const class_names[] = {
    [OTHER] = "other",           [LINEAR] = "linear",       [NORM] = "norm",
    [BATCH_NORM] = "batchnorm",  [BURN_NORM] = "norm",      [EMBEDDING] = "embedding",
    [CONVOLUTION] = "conv",      [QUANTIZED] = "quantized", [PRELU] = "prelu",
    [UNKNOWN_CLASS] = "unknown",
};

/* A weight of rank 2, with what is looked at several times. */
struct matrix {
    const struct group *group;
    const struct evidence_file *file;
    uint64_t rows, columns, n_out, n_in;
    bool is_linear, is_table, is_tall;
    bool is_turned; /* more kinds of group have the size of its rows than that of its columns */
};

static struct finding unknown(const char *row)
{
    return (struct finding){UNKNOWN_CLASS, UNDECIDED, row, LAYOUT_TORCH};
}

static struct finding found(int kind, bool is_certain, const char *row)
{
    return (struct finding){kind, is_certain ? CERTAIN : LIKELY, row, LAYOUT_TORCH};
}

static struct finding linear(const struct matrix *m, bool is_certain, const char *row)
{
    return (struct finding){LINEAR, is_certain ? CERTAIN : LIKELY, row, m->file->layout};
}

static bool is_shape(const struct wfs_tensor *tensor, uint32_t rank, const uint64_t *dims)
{
    return tensor != NULL && tensor->shape.rank == rank &&
           (rank == 0 || memcmp(tensor->shape.dims, dims, rank * sizeof(*dims)) == 0);
}

/* Of a square weight: as its namesakes, else its neighbours, else the file. */
static struct finding square(const struct matrix *m)
{
    const struct evidence_file *file = m->file;
    const struct group *group = m->group;
    const struct votes *votes = &file->by_label[group->label];
    if (votes->n[0] + votes->n[1] == 0 && file->parents.texts[group->parent].n_bytes > 0)
        votes = &file->by_folded[group->folded_parent];
    struct finding finding = {LINEAR, CERTAIN, "6 square matrix and bias", file->layout};
    if (votes->n[0] + votes->n[1] > 0) {
        const bool is_tie = votes->n[0] == votes->n[1];
        finding.layout = is_tie                      ? (enum layout)votes->first
                         : votes->n[0] > votes->n[1] ? LAYOUT_TORCH
                                                     : LAYOUT_BURN;
        finding.certainty = votes->n[0] == 0 || votes->n[1] == 0 ? CERTAIN : LIKELY;
    } else if (!file->is_sure || file->votes.n[1 - file->layout] > 0) {
        finding.certainty = LIKELY;
    }
    return finding;
}

static struct finding matrix_with_bias(const struct matrix *m)
{
    const int vote = group_vote(m->group);
    if (vote >= 0)
        return (struct finding){LINEAR, CERTAIN, "5 matrix and bias", (enum layout)vote};
    if (m->rows == m->columns && is_shape(m->group->bias, 1, &m->rows))
        return square(m);
    return unknown("7 matrix and odd bias");
}

static struct finding linear_name(const struct matrix *m, bool is_head)
{
    const bool is_gate = (m->group->words.last_kinds & WORD_GATE) != 0;
    if (m->n_in == 1 || group_has(m->group, WORD_TIME) ||
        (is_gate && evidence_width(m->file, m->n_out) > evidence_width(m->file, m->n_in)))
        return unknown("9 linear name, odd shape");
    return linear(m, m->file->is_sure && !(m->n_out == 1 && !is_head), "9 linear name");
}

/* A table's name, of whatever. */
static struct finding table_name(const struct matrix *m)
{
    const struct group *group = m->group;
    if (group_has(group, WORD_PATCH)) {
        const bool is_linear = m->is_turned && m->file->layout == LAYOUT_TORCH &&
                               (!m->is_tall || evidence_width(m->file, m->rows) >= 4);
        return is_linear ? linear(m, false, "11 patches") : unknown("11 patches");
    }
    if (group_has(group, WORD_OF) || group->is_shared)
        return found(EMBEDDING, !m->is_turned, "12 table name");
    if (m->is_turned || group->is_numbered || group_has(group, WORD_TO))
        return unknown("13 doubtful table");
    return found(EMBEDDING, false, "13 perhaps a table");
}

/* Nothing in the name: what is beside it. */
static struct finding by_neighbours(const struct matrix *m)
{
    const struct group *group = m->group;
    const struct evidence_file *file = m->file;
    const bool is_linear = group_has(group, WORD_LINEAR);
    const uint32_t n_parts = file->n_matrices[group->parent] - group->is_part;
    const uint32_t n_beside = file->n_neighbours[group->parent] - (group->is_part || is_linear);
    if (group->is_part && !m->is_tall && n_parts > 0)
        return linear(m, file->is_sure, "15 part of a block");
    if (file->by_label[group->label].n[file->layout] > 0)
        return linear(m, false, "16 namesake with bias");
    if (file->parents.texts[group->parent].n_bytes > 0 && n_beside > 0)
        return linear(m, false, "17 beside linears");
    if (m->is_tall && m->columns > 1 && file->layout == LAYOUT_TORCH) {
        const bool is_wide = m->is_turned && evidence_width(file, m->rows) >= 4;
        return is_wide ? linear(m, false, "18 tall") : found(EMBEDDING, false, "18 tall");
    }
    return unknown("19 nothing");
}

static struct finding matrix(const struct group *group, const struct evidence_file *file)
{
    const uint64_t rows = group->weight->shape.dims[0], columns = group->weight->shape.dims[1];
    const bool is_torch = file->layout == LAYOUT_TORCH;
    const struct matrix m = {
        .group = group,
        .file = file,
        .rows = rows,
        .columns = columns,
        .n_out = is_torch ? rows : columns,
        .n_in = is_torch ? columns : rows,
        .is_linear = group_has(group, WORD_LINEAR),
        .is_table = group_is_table(group),
        .is_tall = rows >= 1000 && rows / 8 >= columns,
        .is_turned = evidence_width(file, rows) > evidence_width(file, columns),
    };
    const bool is_head = group_has(group, WORD_HEAD);
    if (group->bias != NULL)
        return matrix_with_bias(&m);
    if (group->is_output_head)
        return linear(&m, file->is_sure, "8 output head");
    if ((m.is_linear || is_head) && !m.is_table)
        return linear_name(&m, is_head);
    if (m.is_linear)
        return linear(&m, false, "10 linear and table name");
    if (group_has(group, WORD_PERHAPS_HEAD) && !m.is_table && m.n_out >= m.n_in && m.n_in > 1)
        return linear(&m, file->is_sure && evidence_is_vocab(file, m.n_out), "10 perhaps a head");
    if (m.is_table)
        return table_name(&m);
    if (group->words.last_kinds & WORD_BIAS) {
        if (!is_torch)
            return unknown("14 position bias");
        return rows > columns ? found(EMBEDDING, false, "14 position bias")
                              : linear(&m, false, "14 position bias");
    }
    return by_neighbours(&m);
}

static struct finding vector(const struct group *group, const struct evidence_file *file)
{
    const uint64_t n = group->weight->shape.dims[0];
    const bool is_norm = group_is_norm(group), is_scale = group_has(group, WORD_SCALE);
    if (group->has_running_mean && group->has_running_var)
        return found(BATCH_NORM, true, "1 running statistics");
    if (is_scale && is_norm)
        return unknown("20 scale and norm name");
    if (is_scale || (group_has(group, WORD_ACT) && !is_norm))
        return group_has(group, WORD_ACT_ITSELF) && n > 1 ? unknown("20 act")
                                                          : found(OTHER, false, "20 scale");
    if (is_norm) {
        const bool is_vector =
            group_has(group, WORD_VECTOR) ||
            memmem(group->name, group->n_name, "timestep", strlen("timestep")) != NULL;
        const bool is_odd = group->has_extra || file->is_odd[group->label] || file->has_no_norm ||
                            (group->bias == NULL && is_vector);
        return is_odd ? unknown("21 odd norm") : found(NORM, true, "21 norm name");
    }
    if (is_shape(group->bias, 1, &n))
        return found(NORM, false, "22 two vectors of one length");
    if (group->bias == NULL && n == 1)
        return found(PRELU, false, "23 one element");
    return unknown("24 vector");
}

static bool has_dim_one(const struct wfs_shape *shape, uint32_t from)
{
    for (uint32_t i = from; i < shape->rank; i++) {
        if (shape->dims[i] == 1)
            return true;
    }
    return false;
}

static struct finding without_weight(const struct group *group, const struct evidence_file *file)
{
    if (group->gamma == NULL)
        return found(OTHER, true, "25 no weight");
    if (file->is_odd[group->label] || has_dim_one(&group->gamma->shape, 1) ||
        !(group_is_norm(group) || group->beta != NULL))
        return unknown("2 gamma");
    return found(BURN_NORM, group_is_norm(group), "2 gamma");
}

static bool is_plain_float(uint8_t dtype)
{
    return dtype == WFS_F64 || dtype == WFS_F32 || dtype == WFS_F16 || dtype == WFS_BF16 ||
           dtype == WFS_FLEX32;
}

static bool is_f8(uint8_t dtype)
{
    return strncmp(wfs_dtype_name((enum wfs_dtype)dtype), "F8", 2) == 0;
}

/* Leaves below the weight itself: "GROUP.weight.absmax". */
static bool has_keys_below(const struct group *group, const struct evidence_file *file)
{
    char name[4096];
    static const char leaf[] = ".weight";
    if (group->n_name + sizeof(leaf) > sizeof(name))
        return false;
    memcpy(name, group->name, group->n_name);
    memcpy(name + group->n_name, leaf, sizeof(leaf));
    return intern_find(&file->names, name, group->n_name + sizeof(leaf) - 1) != UINT32_MAX;
}

static struct finding classify(const struct group *group, const struct evidence_file *file)
{
    const struct wfs_tensor *w = group->weight;
    if (w == NULL)
        return without_weight(group, file);
    if (!is_plain_float(w->dtype) &&
        (!is_f8(w->dtype) || group->has_companion || has_keys_below(group, file)))
        return found(QUANTIZED, true, "3 integers or companions");
    if (w->shape.rank == 1)
        return vector(group, file);
    if (is_shape(group->bias, w->shape.rank, w->shape.dims))
        return has_dim_one(&w->shape, 0) ? unknown("4 scale")
                                         : found(NORM, false, "4 norm of several dimensions");
    if (w->shape.rank != 2)
        return found(CONVOLUTION, true, "4 rank 3 or more");
    return matrix(group, file);
}

static bool is_leaf(const char *key, const char *a, const char *b)
{
    const char *dot = strrchr(key, '.');
    const char *leaf = dot == NULL ? key : dot + 1;
    return strcmp(leaf, a) == 0 || strcmp(leaf, b) == 0;
}

static struct verdict judge(const struct evidence_file *file, const struct finding *finding,
                            const char *key, enum layout to)
{
    enum action action = ACTION_NONE;
    struct verdict verdict = {
        .certainty = (uint8_t)finding->certainty,
        .class_name = class_names[finding->kind],
        .row = finding->row,
    };
    const bool is_renamed =
        to == LAYOUT_BURN ? is_leaf(key, "weight", "bias") : is_leaf(key, "gamma", "beta");
    if (file->is_sure && file->layout == to) {
        verdict.certainty = CERTAIN;
        verdict.row = "0 nothing to do";
    } else if (finding->kind == LINEAR) {
        action = finding->layout != to ? ACTION_TRANSPOSE : ACTION_NONE;
    } else if (finding->kind == NORM || finding->kind == BATCH_NORM || finding->kind == BURN_NORM) {
        action = ACTION_RENAME;
    }
    const bool is_hit = action == ACTION_TRANSPOSE ? is_leaf(key, "weight", "weight") : is_renamed;
    if (!is_leaf(key, "weight", "bias") && !is_renamed)
        verdict.certainty = CERTAIN;
    verdict.action = (uint8_t)(is_hit ? action : ACTION_NONE);
    return verdict;
}

int evidence_decide(const struct wfs_tensor *tensors, size_t n_tensors, enum container container,
                    enum layout to, struct verdict *ret, enum layout *ret_layout,
                    struct wfs_error *err)
{
    struct evidence_file file;
    const int code = evidence_file_init(&file, tensors, n_tensors, container, to, err);
    if (code < 0)
        return code;
    for (size_t i = 0; i < n_tensors; i++) {
        const struct finding finding = classify(&file.groups[file.group_of[i]], &file);
        ret[i] = judge(&file, &finding, tensors[i].key, to);
    }
    *ret_layout = file.layout;
    evidence_file_done(&file);
    return 0;
}
