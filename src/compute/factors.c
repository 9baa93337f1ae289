/* SPDX-License-Identifier: MIT */
/*
 * Right factors are decoded once for the tensor, left ones for the rows of a patch. Columns of a
 * product are done in strips that fit into the nearest cache with all rows of the right factor.
 */
#include "compute/patch.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor.h"

enum {
    STRIP = 256, /* columns */
};

int work_init(struct work *work, const struct wfs_io *io, struct computation *computation,
              size_t n_elems)
{
    const size_t n_bytes = n_elems * sizeof(double);
    *work = (struct work){.io = io, .computation = computation, .n_elems = n_elems};
    work->base = malloc(n_bytes);
    work->term = malloc(n_bytes);
    work->other = malloc(n_bytes);
    work->bytes = malloc(DECODE_BYTES);
    return work->base == NULL || work->term == NULL || work->other == NULL || work->bytes == NULL
               ? -ENOMEM
               : 0;
}

void work_done(struct work *work)
{
    free(work->base);
    free(work->term);
    free(work->other);
    free(work->left);
    free(work->bytes);
}

/* Reads n elements from number `first` on. bytes: DECODE_BYTES of scratch. */
int factors_decode(const struct wfs_io *io, const struct wfs_tensor *tensor, uint64_t first,
                   size_t n, double *out, char *bytes)
{
    const size_t n_elem = wfs_dtype_bits((enum wfs_dtype)tensor->dtype) / 8;
    while (n > 0) {
        const size_t n_now = n < DECODE_BYTES / n_elem ? n : DECODE_BYTES / n_elem;
        const ssize_t n_read =
            wfs_tensor_read_for(io, tensor, first * n_elem, bytes, n_now * n_elem);
        if (n_read < 0)
            return (int)n_read;
        if ((size_t)n_read < n_now * n_elem)
            return -EIO;
        const int code = wfs_dtype_decode((enum wfs_dtype)tensor->dtype, bytes, n_now, out);
        if (code < 0)
            return code;
        first += n_now;
        out += n_now;
        n -= n_now;
    }
    return 0;
}

/* Where the patch begins in the whole, in elements. */
static uint64_t start_of(const struct computation *c, const struct patch *patch)
{
    return patch->row * c->n_cols + patch->col;
}

int factors_read_base(struct work *work, const struct patch *patch, double *out)
{
    return factors_decode(work->io, &work->computation->base, start_of(work->computation, patch),
                          patch->n_rows * patch->n_cols, out, work->bytes);
}

int factors_read_base_single(struct work *work, const struct patch *patch, float *out)
{
    struct wfs_tensor base = work->computation->base;
    const size_t n_bytes = patch->n_rows * patch->n_cols * sizeof(*out);
    base.n_bytes = base.n_bytes / (wfs_dtype_bits((enum wfs_dtype)base.dtype) / 8) * sizeof(*out);
    base.dtype = WFS_F32;
    const ssize_t n_read = wfs_tensor_read_for(
        work->io, &base, start_of(work->computation, patch) * sizeof(*out), out, n_bytes);
    return n_read < 0 ? (int)n_read : (size_t)n_read < n_bytes ? -EIO : 0;
}

/* ---- factors on the shelf ---- */

uint64_t factors_row_step(uint64_t n_cols)
{
    return n_cols > 0 && n_cols % (2 * STRIP) == 0 ? n_cols + STRIP : n_cols;
}

struct filling {
    const struct wfs_io *io;
    const struct wfs_tensor *tensor, *core, *rank_scale;
    uint64_t batch, n_rows, n_cols; /* of the result */
    const struct compute_matrix *matrix;
};

/* to[a][c][k] = sum over b of core[a][b][k] * from[b][c] */
static void multiply_core(const struct filling *f, const double *core, const double *from,
                          double *to)
{
    const uint64_t n_inner = tensor_dim(f->core, 1), n_last = tensor_dim(f->core, 2),
                   n = f->n_cols / n_last;
    for (uint64_t a = 0; a < f->n_rows; a++) {
        for (uint64_t c = 0; c < n; c++) {
            for (uint64_t k = 0; k < n_last; k++) {
                double sum = 0;
                for (uint64_t b = 0; b < n_inner; b++)
                    sum = sum + core[(a * n_inner + b) * n_last + k] * from[b * n + c];
                to[(a * n + c) * n_last + k] = sum;
            }
        }
    }
}

static int fill_core(const struct filling *f, double *to, char *bytes)
{
    const uint64_t n_core =
        tensor_dim(f->core, 0) * tensor_dim(f->core, 1) * tensor_dim(f->core, 2);
    const uint64_t n_from = tensor_dim(f->tensor, 1) * tensor_dim(f->tensor, 2);
    autofree double *core = calloc(n_core + n_from, sizeof(*core));
    if (core == NULL)
        return -ENOMEM;
    int code = factors_decode(f->io, f->core, 0, n_core, core, bytes);
    code = code < 0 ? code : factors_decode(f->io, f->tensor, 0, n_from, core + n_core, bytes);
    if (code == 0)
        multiply_core(f, core, core + n_core, to);
    return code;
}

static int fill_right(void *ctx, double *to)
{
    const struct filling *f = ctx;
    const size_t n = (size_t)(f->n_rows * f->n_cols);
    autofree char *bytes = malloc(DECODE_BYTES);
    autofree double *scales = calloc(f->n_rows + 1, sizeof(*scales));
    if (bytes == NULL || scales == NULL)
        return -ENOMEM;
    int code = step_has(f->core) ? fill_core(f, to, bytes)
                                 : factors_decode(f->io, f->tensor, f->batch * n, n, to, bytes);
    if (code < 0 || !step_has(f->rank_scale))
        return code;
    code = factors_decode(f->io, f->rank_scale, 0, (size_t)f->n_rows, scales, bytes);
    for (uint64_t k = 0; code == 0 && k < f->n_rows; k++)
        kernel_scale(to + k * f->n_cols, scales[k], (size_t)f->n_cols);
    return code;
}

/* The same with its rows apart. */
static int fill_apart(void *ctx, double *to)
{
    const struct filling *f = ctx;
    const uint64_t n_step = factors_row_step(f->n_cols);
    const int code = fill_right(ctx, to);
    for (uint64_t k = f->n_rows; code == 0 && n_step > f->n_cols && k-- > 1;)
        memmove(to + k * n_step, to + k * f->n_cols, (size_t)f->n_cols * sizeof(*to));
    return code;
}

/* Numbers of arrays of a step. */
enum { PART_A, PART_B, PART_ROTATIONS, PART_VECTOR, PART_ROW_SCALE, N_PARTS };

static struct shelf_key key_of(const struct computation *c, const struct compute_step *step,
                               unsigned part, uint64_t batch)
{
    return (struct shelf_key){c->id, (uint64_t)(step - c->steps), batch * N_PARTS + part};
}

static int take_right(struct work *work, const struct compute_step *step,
                      const struct compute_matrix *m, uint64_t batch, const double **ret)
{
    struct filling f = {.io = work->io,
                        .tensor = &m->right,
                        .core = &m->core,
                        .rank_scale = &m->rank_scale,
                        .batch = batch,
                        .n_rows = tensor_dim(&m->left, 2)};
    f.n_cols = step_has(&m->core) ? tensor_dim(&m->right, 2) * tensor_dim(&m->core, 2)
                                  : tensor_dim(&m->right, 2);
    const struct shelf_key key =
        key_of(work->computation, step, m == &step->a ? PART_A : PART_B, batch);
    return shelf_take(work->io, &key, (size_t)(f.n_rows * factors_row_step(f.n_cols)), fill_apart,
                      &f, ret);
}

static int fill_vector(void *ctx, double *to)
{
    const struct filling *f = ctx;
    autofree char *bytes = malloc(DECODE_BYTES);
    return bytes == NULL
               ? -ENOMEM
               : factors_decode(f->io, f->tensor, 0, (size_t)tensor_dim(f->tensor, 0), to, bytes);
}

static int take_vector(struct work *work, const struct compute_step *step, unsigned part,
                       const struct wfs_tensor *tensor, const double **ret)
{
    const struct shelf_key key = key_of(work->computation, step, part, 0);
    struct filling f = {.io = work->io, .tensor = tensor};
    return shelf_take(work->io, &key, (size_t)tensor_dim(tensor, 0), fill_vector, &f, ret);
}

/* ---- products ---- */

static int read_left(struct work *work, const struct compute_matrix *m, uint64_t row, size_t n_rows)
{
    const size_t n = n_rows * (size_t)tensor_dim(&m->left, 2);
    if (n > work->n_left) {
        free(work->left);
        work->n_left = 0;
        work->left = malloc(n * sizeof(*work->left));
        if (work->left == NULL)
            return -ENOMEM;
        work->n_left = n;
    }
    return factors_decode(work->io, &m->left, row * tensor_dim(&m->left, 2), n, work->left,
                          work->bytes);
}

static int scale_rows(struct work *work, const struct compute_step *step,
                      const struct compute_matrix *m, const struct patch *patch, double *to)
{
    const double *scales = NULL;
    const int code = take_vector(work, step, PART_ROW_SCALE, &m->row_scale, &scales);
    for (size_t i = 0; code == 0 && i < patch->n_rows; i++)
        kernel_scale(to + i * patch->n_cols, scales[patch->row + i], patch->n_cols);
    shelf_give_back(scales);
    return code;
}

static int multiply(struct work *work, const struct compute_step *step,
                    const struct compute_matrix *m, const struct patch *patch, double *to)
{
    const size_t n_rank = (size_t)tensor_dim(&m->left, 2);
    const size_t n_step = (size_t)factors_row_step(work->computation->n_cols);
    const double *right = NULL;
    int code = read_left(work, m, patch->row, patch->n_rows);
    if (code == 0)
        code = take_right(work, step, m, patch->row / work->computation->n_rows, &right);
    for (size_t col = 0; code == 0 && col < patch->n_cols; col += STRIP) {
        const size_t n = patch->n_cols - col < STRIP ? patch->n_cols - col : STRIP;
        kernel_multiply(work->left, patch->n_rows, n_rank, right + patch->col + col, n_step, n,
                        to + col, patch->n_cols);
    }
    shelf_give_back(right);
    if (code == 0 && step_has(&m->row_scale))
        code = scale_rows(work, step, m, patch, to);
    return code;
}

/* Computes what the patch has of the matrix. */
int factors_read_matrix(struct work *work, const struct compute_step *step,
                        const struct compute_matrix *m, const struct patch *patch, double *to)
{
    if (step_has(&m->right))
        return multiply(work, step, m, patch, to);
    return factors_decode(work->io, &m->left, start_of(work->computation, patch),
                          patch->n_rows * patch->n_cols, to, work->bytes);
}

/* A whole small matrix: of a Kronecker product. */
static int fill_whole(void *ctx, double *to)
{
    const struct filling *f = ctx;
    const struct compute_matrix *m = f->matrix;
    const uint64_t n_rows = tensor_dim(&m->left, 1), n_rank = tensor_dim(&m->left, 2);
    autofree char *bytes = malloc(DECODE_BYTES);
    if (bytes == NULL)
        return -ENOMEM;
    if (!step_has(&m->right))
        return factors_decode(f->io, &m->left, 0, (size_t)(n_rows * n_rank), to, bytes);
    struct filling right_of = {.io = f->io,
                               .tensor = &m->right,
                               .core = &m->core,
                               .rank_scale = &m->rank_scale,
                               .n_rows = n_rank};
    right_of.n_cols = step_has(&m->core) ? tensor_dim(&m->right, 2) * tensor_dim(&m->core, 2)
                                         : tensor_dim(&m->right, 2);
    autofree double *left = calloc(n_rows * n_rank + n_rank * right_of.n_cols, sizeof(*left));
    if (left == NULL)
        return -ENOMEM;
    double *right = left + n_rows * n_rank;
    int code = factors_decode(f->io, &m->left, 0, (size_t)(n_rows * n_rank), left, bytes);
    code = code < 0 ? code : fill_right(&right_of, right);
    if (code == 0)
        kernel_multiply(left, (size_t)n_rows, (size_t)n_rank, right, (size_t)right_of.n_cols,
                        (size_t)right_of.n_cols, to, (size_t)right_of.n_cols);
    return code;
}

static uint64_t cols_of(const struct compute_matrix *m)
{
    if (!step_has(&m->right))
        return tensor_dim(&m->left, 2);
    return tensor_dim(&m->right, 2) * (step_has(&m->core) ? tensor_dim(&m->core, 2) : 1);
}

static int take_whole(struct work *work, const struct compute_step *step,
                      const struct compute_matrix *m, const double **ret)
{
    const struct shelf_key key =
        key_of(work->computation, step, m == &step->a ? PART_A : PART_B, 0);
    struct filling f = {.io = work->io, .matrix = m};
    return shelf_take(work->io, &key, (size_t)(tensor_dim(&m->left, 1) * cols_of(m)), fill_whole,
                      &f, ret);
}

static int multiply_kronecker(struct work *work, const struct compute_step *step,
                              const struct patch *patch, double *to)
{
    const uint64_t n_rows = tensor_dim(&step->b.left, 1), n_cols = cols_of(&step->b);
    const uint64_t n_outer = cols_of(&step->a);
    const double *a = NULL, *b = NULL;
    int code = take_whole(work, step, &step->a, &a);
    code = code < 0 ? code : take_whole(work, step, &step->b, &b);
    for (size_t i = 0; code == 0 && i < patch->n_rows; i++) {
        const uint64_t row = patch->row + i;
        const double *a_row = a + row / n_rows * n_outer, *b_row = b + row % n_rows * n_cols;
        for (size_t j = 0; j < patch->n_cols; j++) {
            const uint64_t col = patch->col + j;
            to[i * patch->n_cols + j] = a_row[col / n_cols] * b_row[col % n_cols];
        }
    }
    shelf_give_back(a);
    shelf_give_back(b);
    return code;
}

/* Computes what a step adds, without its scale. */
int factors_find_term(struct work *work, const struct compute_step *step, const struct patch *patch,
                      double *to)
{
    if (step->kind == COMPUTE_KRONECKER)
        return multiply_kronecker(work, step, patch, to);
    int code = factors_read_matrix(work, step, &step->a, patch, to);
    if (code < 0 || step->kind != COMPUTE_PRODUCT)
        return code;
    code = factors_read_matrix(work, step, &step->b, patch, work->other);
    if (code == 0)
        kernel_product(to, work->other, patch->n_rows * patch->n_cols);
    return code;
}

int factors_take_vector(struct work *work, const struct compute_step *step, const double **ret)
{
    return take_vector(work, step, PART_VECTOR, &step->vector, ret);
}

struct shelf_key factors_key_of_rotations(const struct computation *c,
                                          const struct compute_step *step)
{
    return key_of(c, step, PART_ROTATIONS, 0);
}
