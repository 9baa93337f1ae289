/* SPDX-License-Identifier: MIT */
/*
 * The material of the evidence is the modules of a checkpoint (a group is a key without its last
 * segment, and the leaves directly in it) and statistics over all of them. One pass over the
 * tensors makes groups, two over the groups describe and count them; then the first row of the
 * evidence table that fits decides class, certainty and reason.
 */
#include "view/evidence/verdict.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/search.h"
#include "base/text_index.h"
#include "view/regex/regex.h"

/* ---- groups ---- */

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
    const struct evidence_question *question;
    enum layout layout;
    bool is_sure;
    struct arena arena; /* of all of these and their texts */
    struct regex *part, *companion;
};

static bool group_has(const struct group *group, uint32_t kinds)
{
    return (group->words.kinds & kinds) != 0;
}

static bool group_is_norm(const struct group *group)
{
    return group_has(group, WORD_NORM);
}

static bool group_is_table(const struct group *group)
{
    return group_has(group, WORD_TABLE) || group->is_shared;
}

/* Names that are the whole last segment of a matrix in a block of several. */
static const char part_pattern[] =
    "\\A(?:(to_)?(q|k|v|o|qk|kv|qkv|query|key|value|query_key|query_key_value|queries|keys|values"
    "|out|gate)|(w|W)_?(q|k|v|o|r|i|qkv|kv|in|out|up|down)(_?[a-z0-9]{1,2})?|w[0-9]"
    "|(in|up|down|input|output)(_[0-9])?|receptance)\\z";

/* Leaves that come with a quantized weight. */
static const char companion_pattern[] =
    "\\A(?:(weight_|input_)?(scale|scales|scale_inv|zero|zeros|zero_point|absmax|shape|format)"
    "|SCB|CB)\\z";

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_number(const char *segment, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(segment[i]))
            return false;
    }
    return n > 0;
}

/* Finds the last segment of the first *end bytes that is not a number. Returns false when there is
 * none. */
static bool find_named(const char *name, size_t *start, size_t *end)
{
    for (;; *end = *start - 1) {
        *start = *end;
        while (*start > 0 && name[*start - 1] != '.')
            (*start)--;
        if (!is_number(name + *start, *end - *start))
            return true;
        if (*start == 0)
            return false;
    }
}

/* Numbers the text with each of its numbers as one '#'. */
static int intern_folded(struct arena *arena, struct text_index *intern, const char *text, size_t n,
                         uint32_t *ret)
{
    char *folded = arena_chars(arena, n + 1);
    size_t n_folded = 0;
    if (folded == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(text[i]))
            folded[n_folded++] = text[i];
        else if (i == 0 || !is_digit(text[i - 1]))
            folded[n_folded++] = '#';
    }
    return text_index_add(intern, folded, n_folded, ret);
}

/* Reads the words of the last segment that is not a number, and of those before it while all words
 * are generic. */
static void read_words(struct group *group)
{
    size_t start = 1, end = group->n_name;
    group->words.all_generic = true;
    while (group->words.all_generic && start > 0 && find_named(group->name, &start, &end)) {
        words_prepend(&group->words, group->name + start, end - start);
        end = start - 1;
    }
}

static int describe(struct evidence_file *file, struct group *group, struct wfs_error *err)
{
    size_t start, end = group->n_name;
    if (!find_named(group->name, &start, &end))
        start = end = 0;
    const size_t n_last = end - start;
    char *last = arena_copy(&file->arena, group->name + start, n_last);
    /* The parent precedes the name; where all segments are numbers, it is empty. */
    const size_t n_parent = start > 0 ? start - 1 : 0;
    if (last == NULL || text_index_add(&file->parents, group->name, n_parent, &group->parent) < 0 ||
        intern_folded(&file->arena, &file->folded, group->name, n_parent, &group->folded_parent) <
            0 ||
        intern_folded(&file->arena, &file->labels, last, n_last, &group->label) < 0)
        return wfs_fail_memory(err);
    read_words(group);
    group->is_numbered = group->n_name > 0 && is_digit(group->name[group->n_name - 1]);
    group->is_shared = strcmp(last, "shared") == 0;
    group->is_output_head = strstr(last, "lm_head") != NULL || strcmp(last, "embed_out") == 0;
    const int is_part = regex_search(file->part, last, err);
    group->is_part = is_part > 0;
    return is_part < 0 ? is_part : 0;
}

/* Adds a leaf to its group. */
static int add_leaf(const struct evidence_file *file, struct group *group,
                    const struct wfs_tensor *tensor, struct wfs_error *err)
{
    const char *leaf = key_leaf(tensor->key);
    if (strcmp(leaf, "weight") == 0)
        group->weight = tensor;
    else if (strcmp(leaf, "bias") == 0)
        group->bias = tensor;
    else if (strcmp(leaf, "gamma") == 0)
        group->gamma = tensor;
    else if (strcmp(leaf, "beta") == 0)
        group->beta = tensor;
    else if (strcmp(leaf, "running_mean") == 0)
        group->has_running_mean = true;
    else if (strcmp(leaf, "running_var") == 0)
        group->has_running_var = true;
    else if (strcmp(leaf, "num_batches_tracked") != 0) {
        const int code = regex_search(file->companion, leaf, err);
        group->has_extra = true;
        group->has_companion = group->has_companion || code > 0;
        return code < 0 ? code : 0;
    }
    return 0;
}

static int make_groups(struct evidence_file *file, const struct wfs_tensor *tensors,
                       struct wfs_error *err)
{
    file->group_of = arena_calloc(&file->arena, file->n_tensors + 1, sizeof(*file->group_of));
    if (file->group_of == NULL)
        return wfs_fail_memory(err);
    for (size_t i = 0; i < file->n_tensors; i++) {
        const char *key = tensors[i].key, *leaf = key_leaf(key);
        const size_t n_name = leaf == key ? 0 : (size_t)(leaf - key) - 1;
        if (text_index_add(&file->names, key, n_name, &file->group_of[i]) < 0)
            return wfs_fail_memory(err);
        file->has_no_norm = file->has_no_norm || strstr(key, "bottleneck.input.LayerNorm.") != NULL;
    }
    file->groups = arena_calloc(&file->arena, file->names.n_texts + 1, sizeof(*file->groups));
    if (file->groups == NULL)
        return wfs_fail_memory(err);
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < file->names.n_texts; i++) {
        file->groups[i].name = file->names.texts[i].bytes;
        file->groups[i].n_name = file->names.texts[i].n_bytes;
        code = describe(file, &file->groups[i], err);
    }
    for (size_t i = 0; code == 0 && i < file->n_tensors; i++)
        code = add_leaf(file, &file->groups[file->group_of[i]], &tensors[i], err);
    return code;
}

/* ---- statistics ---- */

/* Returns the layout that its matrix and bias imply; -1: none. */
static int group_vote(const struct group *group)
{
    const struct wfs_tensor *w = group->weight, *b = group->bias;
    if (w == NULL || b == NULL || w->shape.rank != 2 || b->shape.rank != 1 ||
        w->shape.dims[0] == w->shape.dims[1])
        return -1;
    if (b->shape.dims[0] == w->shape.dims[0])
        return LAYOUT_TORCH;
    return b->shape.dims[0] == w->shape.dims[1] ? LAYOUT_BURN : -1;
}

static void count_vote(struct votes *votes, int layout)
{
    if (votes->n[0] == 0 && votes->n[1] == 0)
        votes->first = (uint8_t)layout;
    votes->n[layout]++;
}

/* How many groups have the parameters of a norm as each library names them. */
struct norms {
    size_t n_gammas, n_weights;
    size_t n_pairs; /* with nothing but a weight and a bias of one length */
};

static bool is_shape(const struct wfs_tensor *tensor, uint32_t rank, const uint64_t *dims)
{
    return tensor != NULL && tensor->shape.rank == rank &&
           (rank == 0 || memcmp(tensor->shape.dims, dims, rank * sizeof(*dims)) == 0);
}

/* In a file of Burn's, norms are known by more than their names, as these decide on everything. */
static void count_norm(const struct evidence_file *file, const struct group *group,
                       struct norms *norms)
{
    const struct wfs_tensor *w = group->weight, *gamma = group->gamma;
    const bool is_burn = file->question->convention == WFS_CONVENTION_BURN;
    const bool is_norm =
        group_is_norm(group) || (is_burn && group->has_running_mean && group->has_running_var);
    const bool is_gamma = gamma != NULL && gamma->shape.rank == 1;
    norms->n_gammas += is_gamma && (is_norm || (is_burn && group->beta != NULL));
    if (w != NULL && w->shape.rank == 1) {
        norms->n_weights += is_norm;
        norms->n_pairs += is_shape(group->bias, 1, w->shape.dims);
    }
}

static void count_group(struct evidence_file *file, const struct group *group)
{
    const struct wfs_tensor *w = group->weight;
    const int vote = group_vote(group);
    const uint32_t rank = w == NULL ? 0 : w->shape.rank;
    const bool is_gamma = group->gamma != NULL && group->gamma->shape.rank == 1;
    if (vote >= 0) {
        count_vote(&file->votes, vote);
        count_vote(&file->by_label[group->label], vote);
        count_vote(&file->by_folded[group->folded_parent], vote);
    }
    for (uint32_t i = 0; i < rank && rank <= 2; i++)
        file->widths[file->n_widths++] = (struct width){w->shape.dims[i], group->label};
    if (group->has_extra && (rank == 1 || is_gamma))
        file->is_odd[group->label] = true;
    if (rank == 2) {
        file->n_matrices[group->parent] += group->is_part;
        file->n_neighbours[group->parent] += group->is_part || group_has(group, WORD_LINEAR);
        if (group_is_table(group) && group_has(group, WORD_OF) && group->bias == NULL &&
            w->shape.dims[0] >= 1000)
            file->vocab[file->n_vocab++] = w->shape.dims[0];
    }
}

static int compare_widths(const void *a, const void *b)
{
    const struct width *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    return x->label < y->label ? -1 : x->label > y->label;
}

static int compare_sizes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Burn saves what it was given by a store without an adapter, with PyTorch's names and layout. */
static void find_layout_of_burn(struct evidence_file *file, const struct norms *norms)
{
    const bool is_voted = file->votes.n[LAYOUT_TORCH] + file->votes.n[LAYOUT_BURN] > 0;
    const bool is_torch_named = norms->n_gammas == 0 && norms->n_weights + norms->n_pairs > 0;
    const bool is_torch = is_voted ? file->votes.n[LAYOUT_BURN] == 0 : is_torch_named;
    file->layout = is_torch ? LAYOUT_TORCH : LAYOUT_BURN;
    file->is_sure = is_voted || norms->n_gammas + norms->n_weights > 0;
}

static void find_layout(struct evidence_file *file, const struct norms *norms)
{
    const struct evidence_question *question = file->question;
    const uint32_t torch = file->votes.n[LAYOUT_TORCH], burn = file->votes.n[LAYOUT_BURN];
    const bool is_torch_named = norms->n_weights > 0 && norms->n_gammas == 0;
    file->is_sure = true;
    if (question->stated != WFS_CONVENTION_ANY) {
        file->layout = question->stated == WFS_CONVENTION_TORCH ? LAYOUT_TORCH : LAYOUT_BURN;
    } else if (question->convention == WFS_CONVENTION_TORCH) {
        file->layout = LAYOUT_TORCH;
    } else if (question->convention == WFS_CONVENTION_BURN) {
        find_layout_of_burn(file, norms);
    } else if (is_torch_named && (torch > 0 || burn == 0)) {
        file->layout = LAYOUT_TORCH;
    } else if (torch != burn && !is_torch_named) {
        file->layout = torch > burn ? LAYOUT_TORCH : LAYOUT_BURN;
    } else {
        file->layout = question->to == LAYOUT_BURN ? LAYOUT_TORCH : LAYOUT_BURN;
        file->is_sure = false;
    }
}

static int count(struct evidence_file *file, struct wfs_error *err)
{
    const size_t n = file->names.n_texts, n_labels = file->labels.n_texts + (size_t)1,
                 n_parents = file->parents.n_texts + (size_t)1;
    struct arena *arena = &file->arena;
    file->by_label = arena_calloc(arena, n_labels, sizeof(struct votes));
    file->by_folded = arena_calloc(arena, file->folded.n_texts + 1, sizeof(struct votes));
    file->is_odd = arena_calloc(arena, n_labels, sizeof(bool));
    file->n_matrices = arena_calloc(arena, n_parents, sizeof(uint32_t));
    file->n_neighbours = arena_calloc(arena, n_parents, sizeof(uint32_t));
    file->widths = arena_calloc(arena, 2 * n + 1, sizeof(struct width));
    file->vocab = arena_calloc(arena, n + 1, sizeof(uint64_t));
    if (file->by_label == NULL || file->by_folded == NULL || file->is_odd == NULL ||
        file->n_matrices == NULL || file->n_neighbours == NULL || file->widths == NULL ||
        file->vocab == NULL)
        return wfs_fail_memory(err);
    struct norms norms = {0};
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        count_group(file, &file->groups[i]);
        count_norm(file, &file->groups[i], &norms);
    }
    qsort(file->vocab, file->n_vocab, sizeof(uint64_t), compare_sizes);
    qsort(file->widths, file->n_widths, sizeof(struct width), compare_widths);
    for (size_t i = 0; i < file->n_widths; i++) {
        if (i == 0 || compare_widths(&file->widths[i], &file->widths[n_kept - 1]) != 0)
            file->widths[n_kept++] = file->widths[i];
    }
    file->n_widths = n_kept;
    find_layout(file, &norms);
    return 0;
}

/* Returns the number of widths up to n. */
static size_t count_widths(const struct evidence_file *file, uint64_t n)
{
    return search_starts(file->widths, file->n_widths, sizeof(struct width),
                         offsetof(struct width, n), n);
}

/* Returns the number of labels with a matrix or vector that has a dimension of n. */
static size_t evidence_width(const struct evidence_file *file, uint64_t n)
{
    return count_widths(file, n) - (n == 0 ? 0 : count_widths(file, n - 1));
}

/* Returns true if n is the number of rows of a table of words. */
static bool evidence_is_vocab(const struct evidence_file *file, uint64_t n)
{
    return bsearch(&n, file->vocab, file->n_vocab, sizeof(n), compare_sizes) != NULL;
}

/* Reads the tensors, which must outlive it. -ENOMEM. evidence_file_done is due in any case. */
static int evidence_file_init(struct evidence_file *file, const struct wfs_tensor *tensors,
                              size_t n_tensors, const struct evidence_question *question,
                              struct wfs_error *err)
{
    *file = (struct evidence_file){.n_tensors = n_tensors, .question = question};
    int code = regex_new(part_pattern, &file->part, err);
    code = code < 0 ? code : regex_new(companion_pattern, &file->companion, err);
    code = code < 0 ? code : make_groups(file, tensors, err);
    return code < 0 ? code : count(file, err);
}

static void evidence_file_done(struct evidence_file *file)
{
    text_index_done(&file->names);
    text_index_done(&file->labels);
    text_index_done(&file->parents);
    text_index_done(&file->folded);
    regex_free(file->part);
    regex_free(file->companion);
    arena_done(&file->arena);
}

/* ---- rows ---- */

/* What a row says. A linear has the layout of the file unless the row knows better. */
struct finding {
    enum class class_;
    enum certainty certainty;
    const char *row;
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

static struct finding unknown(const char *row)
{
    return (struct finding){CLASS_UNKNOWN, UNDECIDED, row, LAYOUT_TORCH};
}

static struct finding found(enum class class_, bool is_certain, const char *row)
{
    return (struct finding){class_, is_certain ? CERTAIN : LIKELY, row, LAYOUT_TORCH};
}

static struct finding linear(const struct matrix *m, bool is_certain, const char *row)
{
    return (struct finding){CLASS_LINEAR, is_certain ? CERTAIN : LIKELY, row, m->file->layout};
}

/* A square weight has the layout of its namesakes, else of its neighbours, else of the file. */
static struct finding square(const struct matrix *m)
{
    const struct evidence_file *file = m->file;
    const struct group *group = m->group;
    const struct votes *votes = &file->by_label[group->label];
    if (votes->n[0] + votes->n[1] == 0 && file->parents.texts[group->parent].n_bytes > 0)
        votes = &file->by_folded[group->folded_parent];
    struct finding finding = {CLASS_LINEAR, CERTAIN, "6 square matrix and bias", file->layout};
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
        return (struct finding){CLASS_LINEAR, CERTAIN, "5 matrix and bias", (enum layout)vote};
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

/* The name of a table. */
static struct finding table_name(const struct matrix *m)
{
    const struct group *group = m->group;
    if (group_has(group, WORD_PATCH)) {
        const bool is_linear = m->is_turned && m->file->layout == LAYOUT_TORCH &&
                               (!m->is_tall || evidence_width(m->file, m->rows) >= 4);
        return is_linear ? linear(m, false, "11 patches") : unknown("11 patches");
    }
    if (group_has(group, WORD_OF) || group->is_shared)
        return found(CLASS_EMBEDDING, !m->is_turned, "12 table name");
    if (m->is_turned || group->is_numbered || group_has(group, WORD_TO))
        return unknown("13 doubtful table");
    return found(CLASS_EMBEDDING, false, "13 perhaps a table");
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
        return linear(m, file->is_sure, "15 part of a block");
    if (file->by_label[group->label].n[file->layout] > 0)
        return linear(m, false, "16 namesake with bias");
    if (file->parents.texts[group->parent].n_bytes > 0 && n_beside > 0)
        return linear(m, false, "17 beside linears");
    if (m->is_tall && m->columns > 1 && file->layout == LAYOUT_TORCH) {
        const bool is_wide = m->is_turned && evidence_width(file, m->rows) >= 4;
        return is_wide ? linear(m, false, "18 tall") : found(CLASS_EMBEDDING, false, "18 tall");
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
        return rows > columns ? found(CLASS_EMBEDDING, false, "14 position bias")
                              : linear(&m, false, "14 position bias");
    }
    return by_neighbours(&m);
}

static struct finding vector(const struct group *group, const struct evidence_file *file)
{
    const uint64_t n = group->weight->shape.dims[0];
    const bool is_norm = group_is_norm(group), is_scale = group_has(group, WORD_SCALE);
    if (group->has_running_mean && group->has_running_var)
        return found(CLASS_BATCH_NORM, true, "1 running statistics");
    if (is_scale && is_norm)
        return unknown("20 scale and norm name");
    if (is_scale || (group_has(group, WORD_ACT) && !is_norm))
        return group_has(group, WORD_ACT_ITSELF) && n > 1 ? unknown("20 act")
                                                          : found(CLASS_OTHER, false, "20 scale");
    if (is_norm) {
        const bool is_vector =
            group_has(group, WORD_VECTOR) ||
            memmem(group->name, group->n_name, "timestep", strlen("timestep")) != NULL;
        const bool is_odd = group->has_extra || file->is_odd[group->label] || file->has_no_norm ||
                            (group->bias == NULL && is_vector);
        return is_odd ? unknown("21 odd norm") : found(CLASS_NORM, true, "21 norm name");
    }
    if (is_shape(group->bias, 1, &n))
        return found(CLASS_NORM, false, "22 two vectors of one length");
    if (group->bias == NULL && n == 1)
        return found(CLASS_PRELU, false, "23 one element");
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
        return found(CLASS_OTHER, true, "25 no weight");
    if (file->is_odd[group->label] || has_dim_one(&group->gamma->shape, 1) ||
        !(group_is_norm(group) || group->beta != NULL))
        return unknown("2 gamma");
    return found(CLASS_NORM, group_is_norm(group), "2 gamma");
}

static bool is_float(uint8_t dtype, uint32_t n_bits_least, uint32_t n_bits_most)
{
    const uint32_t n_bits = wfs_dtype_bits((enum wfs_dtype)dtype);
    return wfs_dtype_kind((enum wfs_dtype)dtype) == WFS_KIND_FLOAT && n_bits >= n_bits_least &&
           n_bits <= n_bits_most;
}

static struct finding classify(const struct group *group, const struct evidence_file *file)
{
    const struct wfs_tensor *w = group->weight;
    if (w == NULL)
        return without_weight(group, file);
    /* Leaves below the weight itself are companions, too: "GROUP.weight.absmax". */
    const bool has_leaves = group->n_name > 0 && text_index_find(&file->names, w->key,
                                                                 strlen(w->key)) != TEXT_INDEX_NONE;
    if (!is_float(w->dtype, 16, 64) &&
        (!is_float(w->dtype, 8, 8) || group->has_companion || has_leaves))
        return found(CLASS_QUANTIZED, true, "3 integers or companions");
    if (w->shape.rank == 1)
        return vector(group, file);
    if (is_shape(group->bias, w->shape.rank, w->shape.dims))
        return has_dim_one(&w->shape, 0) ? unknown("4 scale")
                                         : found(CLASS_NORM, false, "4 norm of several dimensions");
    if (w->shape.rank != 2)
        return found(CLASS_CONVOLUTION, true, "4 rank 3 or more");
    return matrix(group, file);
}

static bool is_leaf(const char *key, const char *a, const char *b)
{
    const char *leaf = key_leaf(key);
    return strcmp(leaf, a) == 0 || strcmp(leaf, b) == 0;
}

static struct verdict judge(const struct evidence_file *file, const struct finding *finding,
                            const char *key, enum layout to)
{
    enum action action = ACTION_NONE;
    struct verdict verdict = {
        .certainty = (uint8_t)finding->certainty,
        .class_ = (uint8_t)finding->class_,
        .row = finding->row,
    };
    const bool is_renamed =
        to == LAYOUT_BURN ? is_leaf(key, "weight", "bias") : is_leaf(key, "gamma", "beta");
    if (file->is_sure && file->layout == to) {
        verdict.certainty = CERTAIN;
        verdict.row = "0 nothing to do";
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
                    const struct evidence_question *question, struct verdict *ret,
                    enum layout *ret_layout, struct wfs_error *err)
{
    cleanup(evidence_file_done) struct evidence_file file;
    const int code = evidence_file_init(&file, tensors, n_tensors, question, err);
    if (code < 0)
        return code;
    for (size_t i = 0; i < n_tensors && ret != NULL; i++) {
        const struct finding finding = classify(&file.groups[file.group_of[i]], &file);
        ret[i] = judge(&file, &finding, tensors[i].key, question->to);
    }
    *ret_layout = file.layout;
    return 0;
}
