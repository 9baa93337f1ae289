/* SPDX-License-Identifier: MIT */
/*
 * The rows of the evidence table: class, certainty and reason. The first row that fits decides.
 */
#include <errno.h>
#include <string.h>

#include "view/evidence/evidence_file.h"

/* What a row says. A linear has the layout of the file unless the row knows better. */
struct finding {
    enum class class_;
    enum certainty certainty;
    enum row row;
    enum layout layout;
};

/* A weight of rank 2, with what several rows need. */
struct matrix {
    const struct group *group;
    const struct evidence_file *file;
    uint64_t rows, columns, n_out, n_in;
    bool is_linear, is_table, is_tall;
    bool is_turned; /* more labels have the size of its rows than that of its columns */
};

static struct finding unknown(enum row row)
{
    return (struct finding){CLASS_UNKNOWN, UNDECIDED, row, LAYOUT_TORCH};
}

static struct finding found(enum class class_, bool is_certain, enum row row)
{
    return (struct finding){class_, is_certain ? CERTAIN : LIKELY, row, LAYOUT_TORCH};
}

static struct finding linear(const struct matrix *m, bool is_certain, enum row row)
{
    return (struct finding){CLASS_LINEAR, is_certain ? CERTAIN : LIKELY, row, m->file->layout};
}

static bool is_shape(const struct wfs_tensor *tensor, uint32_t rank, const uint64_t *dims)
{
    return tensor != NULL && tensor->shape.rank == rank &&
           (rank == 0 || memcmp(tensor->shape.dims, dims, rank * sizeof(*dims)) == 0);
}

/* A square weight has the layout of its namesakes, else of its neighbours, else of the file. */
static struct finding square(const struct matrix *m)
{
    const struct evidence_file *file = m->file;
    const struct group *group = m->group;
    const struct votes *votes = &file->by_label[group->label];
    if (votes->n[0] + votes->n[1] == 0 && file->parents.texts[group->parent].n_bytes > 0)
        votes = &file->by_folded[group->folded_parent];
    struct finding finding = {CLASS_LINEAR, CERTAIN, ROW_SQUARE_AND_BIAS, file->layout};
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
        return (struct finding){CLASS_LINEAR, CERTAIN, ROW_MATRIX_AND_BIAS, (enum layout)vote};
    if (m->rows == m->columns && is_shape(m->group->bias, 1, &m->rows))
        return square(m);
    return unknown(ROW_ODD_BIAS);
}

static struct finding linear_name(const struct matrix *m, bool is_head)
{
    const bool is_gate = (m->group->words.last_kinds & WORD_GATE) != 0;
    if (m->n_in == 1 || group_has(m->group, WORD_TIME) ||
        (is_gate && evidence_width(m->file, m->n_out) > evidence_width(m->file, m->n_in)))
        return unknown(ROW_LINEAR_NAME_ODD_SHAPE);
    return linear(m, m->file->is_sure && !(m->n_out == 1 && !is_head), ROW_LINEAR_NAME);
}

/* The name of a table. */
static struct finding table_name(const struct matrix *m)
{
    const struct group *group = m->group;
    if (group_has(group, WORD_PATCH)) {
        const bool is_linear = m->is_turned && m->file->layout == LAYOUT_TORCH &&
                               (!m->is_tall || evidence_width(m->file, m->rows) >= 4);
        return is_linear ? linear(m, false, ROW_PATCHES) : unknown(ROW_PATCHES);
    }
    if (group_has(group, WORD_OF) || group->is_shared)
        return found(CLASS_EMBEDDING, !m->is_turned, ROW_TABLE_NAME);
    if (m->is_turned || group->is_numbered || group_has(group, WORD_TO))
        return unknown(ROW_DOUBTFUL_TABLE);
    return found(CLASS_EMBEDDING, false, ROW_PERHAPS_A_TABLE);
}

/* The name indicates nothing: its neighbours decide. */
static struct finding by_neighbours(const struct matrix *m)
{
    const struct group *group = m->group;
    const struct evidence_file *file = m->file;
    const bool is_linear = group_has(group, WORD_LINEAR);
    const uint32_t n_parts = file->n_matrices[group->parent] - group->is_part;
    const uint32_t n_beside = file->n_neighbours[group->parent] - (group->is_part || is_linear);
    if (group->is_part && !m->is_tall && n_parts > 0)
        return linear(m, file->is_sure, ROW_PART_OF_A_BLOCK);
    if (file->by_label[group->label].n[file->layout] > 0)
        return linear(m, false, ROW_NAMESAKE_WITH_BIAS);
    if (file->parents.texts[group->parent].n_bytes > 0 && n_beside > 0)
        return linear(m, false, ROW_BESIDE_LINEARS);
    if (m->is_tall && m->columns > 1 && file->layout == LAYOUT_TORCH) {
        const bool is_wide = m->is_turned && evidence_width(file, m->rows) >= 4;
        return is_wide ? linear(m, false, ROW_TALL) : found(CLASS_EMBEDDING, false, ROW_TALL);
    }
    return unknown(ROW_NO_EVIDENCE);
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
        return linear(&m, file->is_sure, ROW_OUTPUT_HEAD);
    if ((m.is_linear || is_head) && !m.is_table)
        return linear_name(&m, is_head);
    if (m.is_linear)
        return linear(&m, false, ROW_LINEAR_AND_TABLE_NAME);
    if (group_has(group, WORD_PERHAPS_HEAD) && !m.is_table && m.n_out >= m.n_in && m.n_in > 1)
        return linear(&m, file->is_sure && evidence_is_vocab(file, m.n_out), ROW_PERHAPS_A_HEAD);
    if (m.is_table)
        return table_name(&m);
    if (group->words.last_kinds & WORD_BIAS) {
        if (!is_torch)
            return unknown(ROW_POSITION_BIAS);
        return rows > columns ? found(CLASS_EMBEDDING, false, ROW_POSITION_BIAS)
                              : linear(&m, false, ROW_POSITION_BIAS);
    }
    return by_neighbours(&m);
}

static struct finding vector(const struct group *group, const struct evidence_file *file)
{
    const uint64_t n = group->weight->shape.dims[0];
    const bool is_norm = group_is_norm(group), is_scale = group_has(group, WORD_SCALE);
    if (group->has_running_mean && group->has_running_var)
        return found(CLASS_BATCH_NORM, true, ROW_RUNNING_STATISTICS);
    if (is_scale && is_norm)
        return unknown(ROW_SCALE_AND_NORM_NAME);
    if (is_scale || (group_has(group, WORD_ACT) && !is_norm))
        return group_has(group, WORD_ACT_ITSELF) && n > 1 ? unknown(ROW_ACTIVATION)
                                                          : found(CLASS_OTHER, false, ROW_SCALE);
    if (is_norm) {
        const bool is_vector =
            group_has(group, WORD_VECTOR) ||
            memmem(group->name, group->n_name, "timestep", strlen("timestep")) != NULL;
        const bool is_odd = group->has_extra || file->is_odd[group->label] || file->has_no_norm ||
                            (group->bias == NULL && is_vector);
        return is_odd ? unknown(ROW_ODD_NORM) : found(CLASS_NORM, true, ROW_NORM_NAME);
    }
    if (is_shape(group->bias, 1, &n))
        return found(CLASS_NORM, false, ROW_TWO_VECTORS);
    if (group->bias == NULL && n == 1)
        return found(CLASS_PRELU, false, ROW_ONE_ELEMENT);
    return unknown(ROW_VECTOR);
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
        return found(CLASS_OTHER, true, ROW_NO_WEIGHT);
    if (file->is_odd[group->label] || has_dim_one(&group->gamma->shape, 1) ||
        !(group_is_norm(group) || group->beta != NULL))
        return unknown(ROW_GAMMA);
    return found(CLASS_NORM, group_is_norm(group), ROW_GAMMA);
}

static bool is_float(uint8_t dtype, uint32_t n_bits_least, uint32_t n_bits_most)
{
    const uint32_t n_bits = wfs_dtype_bits((enum wfs_dtype)dtype);
    return wfs_dtype_kind((enum wfs_dtype)dtype) == WFS_KIND_FLOAT && n_bits >= n_bits_least &&
           n_bits <= n_bits_most;
}

/* Returns true if there are leaves below the weight itself: "GROUP.weight.absmax". */
static bool has_keys_below(const struct group *group, const struct evidence_file *file)
{
    char name[4096];
    static const char leaf[] = ".weight";
    if (group->n_name + sizeof(leaf) > sizeof(name))
        return false;
    memcpy(name, group->name, group->n_name);
    memcpy(name + group->n_name, leaf, sizeof(leaf));
    return text_index_find(&file->names, name, group->n_name + sizeof(leaf) - 1) != TEXT_INDEX_NONE;
}

static struct finding classify(const struct group *group, const struct evidence_file *file)
{
    const struct wfs_tensor *w = group->weight;
    if (w == NULL)
        return without_weight(group, file);
    if (!is_float(w->dtype, 16, 64) &&
        (!is_float(w->dtype, 8, 8) || group->has_companion || has_keys_below(group, file)))
        return found(CLASS_QUANTIZED, true, ROW_QUANTIZED);
    if (w->shape.rank == 1)
        return vector(group, file);
    if (is_shape(group->bias, w->shape.rank, w->shape.dims))
        return has_dim_one(&w->shape, 0) ? unknown(ROW_WIDE_SCALE)
                                         : found(CLASS_NORM, false, ROW_WIDE_NORM);
    if (w->shape.rank != 2)
        return found(CLASS_CONVOLUTION, true, ROW_HIGH_RANK);
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
        .class_ = (uint8_t)finding->class_,
        .row = (uint8_t)finding->row,
    };
    const bool is_renamed =
        to == LAYOUT_BURN ? is_leaf(key, "weight", "bias") : is_leaf(key, "gamma", "beta");
    if (file->is_sure && file->layout == to) {
        verdict.certainty = CERTAIN;
        verdict.row = ROW_SAME_LAYOUT;
    } else if (finding->class_ == CLASS_LINEAR) {
        action = finding->layout != to ? ACTION_TRANSPOSE : ACTION_NONE;
    } else if (finding->class_ == CLASS_NORM || finding->class_ == CLASS_BATCH_NORM) {
        action = ACTION_RENAME;
    }
    const bool is_hit = action == ACTION_TRANSPOSE ? is_leaf(key, "weight", "weight") : is_renamed;
    if (!is_leaf(key, "weight", "bias") && !is_renamed)
        verdict.certainty = CERTAIN;
    verdict.action = (uint8_t)(is_hit ? action : ACTION_NONE);
    return verdict;
}

int evidence_decide(const struct wfs_tensor *tensors, size_t n_tensors,
                    enum wfs_convention convention, enum layout to, struct verdict *ret,
                    enum layout *ret_layout, struct wfs_error *err)
{
    struct evidence_file file;
    const int code = evidence_file_init(&file, tensors, n_tensors, convention, to, err);
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
