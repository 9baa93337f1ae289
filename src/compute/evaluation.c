/* SPDX-License-Identifier: MIT */
/*
 * What one step needs to know of the whole tensor (norms, an angle) is found once, by a survey of
 * all rows, and kept.
 */
#include "compute/patch.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/cast.h"
#include "tensor/tensor.h"

/* ---- what is known of the whole tensor ---- */

/* Calls take with each piece of a row, from left to right. Has a work of its own, since the caller
 * is in the middle of a patch. */
struct survey {
    struct work work;
    const struct compute_step *step;
    double *values;
};

static int survey_init(struct survey *survey, struct work *work, const struct compute_step *step)
{
    *survey = (struct survey){.step = step};
    survey->values = malloc(PATCH_ELEMS * sizeof(*survey->values));
    const int code = work_init(&survey->work, work->io, work->computation, PATCH_ELEMS);
    return survey->values == NULL ? -ENOMEM : code;
}

static void survey_done(struct survey *survey)
{
    work_done(&survey->work);
    free(survey->values);
}

/* The next piece of a row. */
static struct patch piece_of(const struct computation *c, uint64_t row, uint64_t col)
{
    const uint64_t n = c->n_cols - col;
    return (struct patch){row, col, 1, n < PATCH_ELEMS ? (size_t)n : PATCH_ELEMS};
}

/* base + scale * term */
static int survey_piece(struct survey *survey, const struct patch *patch)
{
    int code = factors_read_base(&survey->work, patch, survey->values);
    code =
        code < 0 ? code : factors_find_term(&survey->work, survey->step, patch, survey->work.term);
    if (code == 0)
        kernel_add(survey->values, survey->step->scale, survey->work.term, patch->n_cols);
    return code;
}

/* The norm of one row. */
static int find_row_norm(struct survey *survey, uint64_t row, double *ret)
{
    const struct computation *c = survey->work.computation;
    double sum = 0;
    for (uint64_t col = 0; col < c->n_cols;) {
        const struct patch patch = piece_of(c, row, col);
        const int code = survey_piece(survey, &patch);
        if (code < 0)
            return code;
        for (size_t i = 0; i < patch.n_cols; i++)
            sum = sum + survey->values[i] * survey->values[i];
        col += patch.n_cols;
    }
    *ret = sqrt(sum);
    return 0;
}

static int find_row_norms(struct work *work, const struct compute_step *step,
                          struct findings_of_step *found, const struct patch *patch)
{
    struct survey survey;
    int code = survey_init(&survey, work, step);
    for (size_t i = 0; code == 0 && i < patch->n_rows; i++) {
        double norm;
        if (!(atomic_load(&found->norms[patch->row + i]) < 0))
            continue;
        code = find_row_norm(&survey, patch->row + i, &norm);
        if (code == 0)
            atomic_store(&found->norms[patch->row + i], norm);
    }
    survey_done(&survey);
    return code;
}

/* The same values, also when two find them at a time. */
static int find_column_norms(struct work *work, const struct compute_step *step,
                             struct findings_of_step *found)
{
    const struct computation *c = work->computation;
    const uint64_t n_each = c->n_cols / found->n_norms;
    struct survey survey;
    autofree double *sums = calloc((size_t)c->n_cols + 1, sizeof(*sums));
    int code = survey_init(&survey, work, step);
    code = sums == NULL ? -ENOMEM : code;
    for (uint64_t row = 0; code == 0 && row < c->n_rows; row++) {
        for (uint64_t col = 0; code == 0 && col < c->n_cols;) {
            const struct patch patch = piece_of(c, row, col);
            code = survey_piece(&survey, &patch);
            if (code == 0)
                kernel_add_squares(sums + col, survey.values, patch.n_cols);
            col += patch.n_cols;
        }
    }
    for (uint64_t i = 0; code == 0 && i < found->n_norms; i++) {
        double sum = 0;
        for (uint64_t k = 0; k < n_each; k++)
            sum = sum + sums[i * n_each + k];
        atomic_store(&found->norms[i], sqrt(sum));
    }
    survey_done(&survey);
    return code;
}

/* As find_column_norms. The angle between the base and A. */
static int find_weights(struct work *work, const struct compute_step *step,
                        struct findings_of_step *found)
{
    const struct computation *c = work->computation;
    struct survey survey;
    int code = survey_init(&survey, work, step);
    double base = 0, other = 0, dot = 0;
    for (uint64_t row = 0; code == 0 && row < c->n_rows * c->n_batches; row++) {
        for (uint64_t col = 0; code == 0 && col < c->n_cols;) {
            const struct patch patch = piece_of(c, row, col);
            code = factors_read_base(&survey.work, &patch, survey.values);
            code = code < 0 ? code
                            : factors_read_matrix(&survey.work, step, &step->a, &patch,
                                                  survey.work.term);
            for (size_t i = 0; code == 0 && i < patch.n_cols; i++) {
                base = base + survey.values[i] * survey.values[i];
                other = other + survey.work.term[i] * survey.work.term[i];
                dot = dot + survey.values[i] * survey.work.term[i];
            }
            col += patch.n_cols;
        }
    }
    survey_done(&survey);
    base = sqrt(base) > 1e-8 ? sqrt(base) : 1;
    other = sqrt(other) > 1e-8 ? sqrt(other) : 1;
    const double cosine = fmax(-1, fmin(1, dot / base / other)), t = step->scale;
    const double angle = acos(cosine);
    const bool is_straight = !(fabs(cosine) <= 0.9995);
    found->weights[0] = is_straight ? 1 - t : sin((1 - t) * angle) / sin(angle);
    found->weights[1] = is_straight ? t : sin(t * angle) / sin(angle);
    return code;
}

static int
find_once(struct work *work, const struct compute_step *step, struct findings_of_step *found,
          int (*find)(struct work *, const struct compute_step *, struct findings_of_step *))
{
    if (atomic_load(&found->is_known))
        return 0;
    const int turn = reader_lock_take(&work->computation->lock, work->io, false);
    if (turn == -EINTR)
        return turn;
    const int code = atomic_load(&found->is_known) ? 0 : find(work, step, found);
    if (code == 0)
        atomic_store(&found->is_known, true);
    if (turn == 0)
        reader_lock_release(&work->computation->lock);
    return code;
}

/* ---- steps ---- */

/* v * (1 + mix * (vector / norm - 1)) */
static int normalise(struct work *work, const struct compute_step *step, const struct patch *patch,
                     double *v)
{
    struct findings_of_step *found = &work->computation->found[step - work->computation->steps];
    const uint64_t n_each = step->is_by_column ? work->computation->n_cols / found->n_norms : 0;
    const double *vector = NULL;
    int code = step->is_by_column ? find_once(work, step, found, find_column_norms)
                                  : find_row_norms(work, step, found, patch);
    code = code < 0 ? code : factors_take_vector(work, step, &vector);
    for (size_t i = 0; code == 0 && i < patch->n_rows; i++) {
        for (size_t j = 0; j < patch->n_cols; j++) {
            const uint64_t at = step->is_by_column ? (patch->col + j) / n_each : patch->row + i;
            const double factor =
                vector[at] / atomic_load_explicit(&found->norms[at], memory_order_relaxed);
            v[i * patch->n_cols + j] *= 1 + step->mix * (factor - 1);
        }
    }
    shelf_give_back(vector);
    return code;
}

static int add_term(struct work *work, const struct compute_step *step, const struct patch *patch,
                    double *v)
{
    const int code = factors_find_term(work, step, patch, work->term);
    if (code < 0)
        return code;
    kernel_add(v, step->scale, work->term, patch->n_rows * patch->n_cols);
    return step_has(&step->vector) ? normalise(work, step, patch, v) : 0;
}

static int move_towards(struct work *work, const struct compute_step *step,
                        const struct patch *patch, double *v)
{
    const int code = factors_read_matrix(work, step, &step->a, patch, work->term);
    if (code == 0)
        kernel_towards(v, step->scale, work->term, work->base, patch->n_rows * patch->n_cols);
    return code;
}

static int multiply_vector(struct work *work, const struct compute_step *step,
                           const struct patch *patch, double *v)
{
    const uint64_t n_each =
        step->is_by_column ? work->computation->n_cols / tensor_dim(&step->vector, 0) : 0;
    const double *vector = NULL;
    const int code = factors_take_vector(work, step, &vector);
    for (size_t i = 0; code == 0 && i < patch->n_rows; i++) {
        if (!step->is_by_column)
            kernel_scale(v + i * patch->n_cols, vector[patch->row + i], patch->n_cols);
        for (size_t j = 0; j < patch->n_cols && step->is_by_column; j++)
            v[i * patch->n_cols + j] *= vector[(patch->col + j) / n_each];
    }
    shelf_give_back(vector);
    return code;
}

/* Rows of A in place of those of the patch. */
static int replace_rows(struct work *work, const struct compute_step *step,
                        const struct patch *patch, double *v)
{
    for (size_t k = 0; k < step->n_rows; k++) {
        if (step->rows[k] < patch->row || step->rows[k] >= patch->row + patch->n_rows)
            continue;
        const int code = factors_decode(
            work->io, &step->a.left, k * work->computation->n_cols + patch->col, patch->n_cols,
            v + (size_t)(step->rows[k] - patch->row) * patch->n_cols, work->bytes);
        if (code < 0)
            return code;
    }
    return 0;
}

static void round_single(const struct compute_step *step, double *v, size_t n)
{
    if (step->is_single)
        kernel_round(v, n);
}

static int look_up(struct work *work, const struct compute_step *step, const struct patch *patch,
                   double *v)
{
    const double n = (double)tensor_dim(&step->vector, 0);
    const double *table = NULL;
    const int code = factors_take_vector(work, step, &table);
    for (size_t i = 0; i < patch->n_rows * patch->n_cols && code == 0; i++)
        v[i] = v[i] >= 0 && v[i] < n ? table[(size_t)v[i]] : NAN;
    shelf_give_back(table);
    return code;
}

static void raise_powers(double *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        v[i] = exp2(v[i] - 127);
}

/* One row of the patch, with the elements of a row of the grid from its first block on. v: in
 * single precision where the computation is. */
static void do_grid_row(const struct compute_step *step, const struct patch *patch,
                        const double *grid, void *v, bool is_single)
{
    const uint64_t n_block = step->n_block_cols, first = patch->col / n_block;
    double *values = v;
    for (size_t j = 0; j < patch->n_cols;) {
        const uint64_t block = (patch->col + j) / n_block, end = (block + 1) * n_block - patch->col;
        const size_t n_end = end < patch->n_cols ? (size_t)end : patch->n_cols;
        const double g = grid[block - first];
        if (is_single)
            kernel_scale_single((float *)v + j, (float)g, n_end - j);
        else if (step->operation == COMPUTE_TIMES)
            kernel_scale(values + j, g, n_end - j);
        else
            for (size_t k = j; k < n_end; k++)
                values[k] =
                    step->operation == COMPUTE_BY ? values[k] / g : values[k] + step->scale * g;
        j = n_end;
    }
}

static int do_grid(struct work *work, const struct compute_step *step, const struct patch *patch,
                   void *v)
{
    const bool is_single = work->computation->is_single;
    const size_t n_row = patch->n_cols * (is_single ? sizeof(float) : sizeof(double));
    const uint64_t n_grid = tensor_dim(&step->a.left, 1), first = patch->col / step->n_block_cols;
    const uint64_t last = (patch->col + patch->n_cols - 1) / step->n_block_cols;
    const double *numbers = NULL;
    uint64_t known = UINT64_MAX;
    int code = step_has(&step->vector) ? factors_take_vector(work, step, &numbers) : 0;
    for (size_t i = 0; i < patch->n_rows && code == 0; i++) {
        double row = (double)((patch->row + i) / step->n_block_rows);
        if (numbers != NULL)
            row = numbers[patch->row + i];
        if (!(row >= 0 && row < (double)tensor_dim(&step->a.left, 0)) || last >= n_grid) {
            code = -EIO; /* of a vector; the shapes were checked */
            break;
        }
        if ((uint64_t)row != known)
            code = factors_decode(work->io, &step->a.left, (uint64_t)row * n_grid + first,
                                  (size_t)(last - first) + 1, work->other, work->bytes);
        known = (uint64_t)row;
        if (code == 0)
            do_grid_row(step, patch, work->other, (char *)v + i * n_row, is_single);
    }
    shelf_give_back(numbers);
    if (!is_single)
        round_single(step, v, patch->n_rows * patch->n_cols);
    return code;
}

static int mix_arc(struct work *work, const struct compute_step *step, const struct patch *patch,
                   double *v)
{
    struct findings_of_step *found = &work->computation->found[step - work->computation->steps];
    int code = find_once(work, step, found, find_weights);
    code = code < 0 ? code : factors_read_matrix(work, step, &step->a, patch, work->term);
    if (code == 0) {
        kernel_scale(v, found->weights[0], patch->n_rows * patch->n_cols);
        kernel_add(v, found->weights[1], work->term, patch->n_rows * patch->n_cols);
    }
    return code;
}

/* ---- rotations ---- */

/* I + 2Q + 2Q^2 ... + Q^(n_terms - 1); power and next are scratch. */
static void sum_series(const double *q, size_t n, unsigned n_terms, double *power, double *next,
                       double *to)
{
    memset(to, 0, n * n * sizeof(*to));
    for (size_t i = 0; i < n; i++)
        to[i * n + i] = 1;
    memcpy(power, to, n * n * sizeof(*to));
    for (unsigned term = 1; term < n_terms; term++) {
        kernel_multiply(power, n, n, q, n, n, next, n);
        memcpy(power, next, n * n * sizeof(*to));
        kernel_add(to, term == n_terms - 1 ? 1 : 2, power, n * n);
    }
}

/*
 * (I - Q) (I + Q)^-1 = X with X (I + Q) = I - Q, by elimination in the transposed system. I + Q has
 * an inverse whatever Q, and so has every leading part of it.
 */
static void solve_cayley(const double *q, size_t n, double *matrix, double *to)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            matrix[i * n + j] = (i == j) + q[j * n + i];
            to[i * n + j] = (i == j) - q[j * n + i];
        }
    }
    for (size_t k = 0; k < n; k++) {
        for (size_t i = 0; i < n; i++) {
            if (i == k)
                continue;
            const double factor = matrix[i * n + k] / matrix[k * n + k];
            kernel_add(matrix + i * n, -factor, matrix + k * n, n);
            kernel_add(to + i * n, -factor, to + k * n, n);
        }
    }
    for (size_t i = 0; i < n; i++)
        kernel_scale(to + i * n, 1 / matrix[i * n + i], n);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            const double kept = to[i * n + j];
            to[i * n + j] = to[j * n + i];
            to[j * n + i] = kept;
        }
    }
}

struct rotating {
    const struct wfs_io *io;
    const struct compute_step *step;
};

static int fill_rotations(void *ctx, double *to)
{
    const struct rotating *r = ctx;
    const struct compute_step *step = r->step;
    const size_t n = (size_t)step->n_block, n_upper = n * (n - 1) / 2;
    const uint64_t n_blocks = tensor_dim(&step->a.left, 1);
    autofree char *bytes = malloc(DECODE_BYTES);
    autofree double *q = calloc(n * n, sizeof(*q)),
                    *room = calloc(2 * n * n + n_upper + 1, sizeof(*q));
    if (bytes == NULL || q == NULL || room == NULL)
        return -ENOMEM;
    double *upper = room + 2 * n * n;
    for (uint64_t b = 0; b < n_blocks; b++) {
        const int code = factors_decode(r->io, &step->a.left, b * n_upper, n_upper, upper, bytes);
        if (code < 0)
            return code;
        for (size_t i = 0, k = 0; i < n; i++) {
            for (size_t j = i + 1; j < n; j++, k++) {
                q[i * n + j] = upper[k];
                q[j * n + i] = -upper[k];
            }
        }
        if (step->n_terms > 0)
            sum_series(q, n, step->n_terms, room, room + n * n, to + b * n * n);
        else
            solve_cayley(q, n, room, to + b * n * n);
    }
    return 0;
}

static int rotate(struct work *work, const struct compute_step *step, const struct patch *patch,
                  double *v)
{
    const size_t n = (size_t)step->n_block;
    const uint64_t n_blocks = tensor_dim(&step->a.left, 1);
    const struct shelf_key key = factors_key_of_rotations(work->computation, step);
    const double *rotations = NULL;
    struct rotating rotating = {work->io, step};
    const int code = shelf_take(work->io, &key, (size_t)(n_blocks * n * n), fill_rotations,
                                &rotating, &rotations);
    for (size_t i = 0; code == 0 && i < patch->n_rows; i++) {
        double *row = v + i * patch->n_cols;
        memcpy(work->term, row, patch->n_cols * sizeof(*row));
        for (size_t j = 0; j < patch->n_cols; j++) {
            const uint64_t block = (patch->col + j) / n;
            const double *r =
                rotations + ((n_blocks > 1 ? block : 0) * n + (patch->col + j) % n) * n;
            const double *from = work->term + j / n * n;
            double sum = 0;
            for (size_t k = 0; k < n; k++)
                sum = sum + from[k] * r[k];
            row[j] = sum;
        }
    }
    shelf_give_back(rotations);
    return code;
}

static int do_step(struct work *work, const struct compute_step *step, const struct patch *patch,
                   double *v)
{
    switch (step->kind) {
    case COMPUTE_SCALE:
        kernel_scale(v, step->scale, patch->n_rows * patch->n_cols);
        round_single(step, v, patch->n_rows * patch->n_cols);
        return 0;
    case COMPUTE_SHIFT:
        for (size_t i = 0; i < patch->n_rows * patch->n_cols; i++)
            v[i] = v[i] + step->scale;
        round_single(step, v, patch->n_rows * patch->n_cols);
        return 0;
    case COMPUTE_LOOK_UP:
        return look_up(work, step, patch, v);
    case COMPUTE_POWER:
        raise_powers(v, patch->n_rows * patch->n_cols);
        return 0;
    case COMPUTE_GRID:
        return do_grid(work, step, patch, v);
    case COMPUTE_TOWARDS:
        return move_towards(work, step, patch, v);
    case COMPUTE_MULTIPLY:
        return multiply_vector(work, step, patch, v);
    case COMPUTE_ROTATE:
        return rotate(work, step, patch, v);
    case COMPUTE_ROWS:
        return replace_rows(work, step, patch, v);
    case COMPUTE_SLERP:
        return mix_arc(work, step, patch, v);
    default:
        return add_term(work, step, patch, v);
    }
}

int evaluate(struct work *work, const struct patch *patch, double *out)
{
    const struct computation *c = work->computation;
    int code = factors_read_base(work, patch, out);
    if (code == 0 && c->needs_base)
        memcpy(work->base, out, patch->n_rows * patch->n_cols * sizeof(*out));
    for (size_t i = 0; code == 0 && i < c->n_steps; i++)
        code = do_step(work, &c->steps[i], patch, out);
    return code;
}

int evaluate_single(struct work *work, const struct patch *patch, float *out)
{
    const struct computation *c = work->computation;
    int code = factors_read_base_single(work, patch, out);
    for (size_t i = 0; code == 0 && i < c->n_steps; i++)
        code = do_grid(work, &c->steps[i], patch, out);
    return code;
}

static bool is_exact_in_single(const struct wfs_tensor *tensor)
{
    const enum wfs_dtype dtype = (enum wfs_dtype)tensor->dtype;
    const enum wfs_kind kind = wfs_dtype_kind(dtype);
    return wfs_dtype_bits(dtype) <= (kind == WFS_KIND_FLOAT ? 32 : 16) &&
           cast_is_possible(dtype, WFS_F32);
}

bool evaluation_can_be_single(const struct computation *c)
{
    bool is_single = c->n_steps > 0 && is_exact_in_single(&c->base);
    for (size_t i = 0; i < c->n_steps && is_single; i++) {
        const struct compute_step *step = &c->steps[i];
        is_single = step->kind == COMPUTE_GRID && step->operation == COMPUTE_TIMES &&
                    step->is_single && is_exact_in_single(&step->a.left);
    }
    return is_single;
}
