/* SPDX-License-Identifier: MIT */
/*
 * A range of bytes is cut into patches: whole rows, as many as are worth to be done together, or a
 * part of one row.
 */
#include "compute/compute.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "compute/patch.h"
#include "tensor/tensor.h"

enum { MOST_BYTES = 256 << 20 }; /* of the decoded factors of a step */

static void free_computation(void *ctx)
{
    struct computation *c = ctx;
    if (c == NULL)
        return;
    shelf_forget(c->id);
    for (size_t i = 0; i < c->n_steps; i++)
        free(c->found[i].norms);
    free(c->steps);
    free(c->found);
    free(c->text);
    reader_lock_done(&c->lock);
    free(c);
}

/* Returns the patch at an element, with at most n of them. */
static struct patch cut_patch(const struct computation *c, uint64_t elem, uint64_t n)
{
    const uint64_t row = elem / c->n_cols, col = elem % c->n_cols;
    if (col != 0 || n < c->n_cols || c->n_cols > PATCH_ELEMS) {
        const uint64_t n_left = c->n_cols - col, n_most = n < PATCH_ELEMS ? n : PATCH_ELEMS;
        return (struct patch){row, col, 1, (size_t)(n_left < n_most ? n_left : n_most)};
    }
    uint64_t n_rows = n / c->n_cols;
    const uint64_t n_fit = PATCH_ELEMS / c->n_cols, n_batch = c->n_rows - row % c->n_rows;
    n_rows = n_rows < n_fit ? n_rows : n_fit;
    return (struct patch){row, 0, (size_t)(n_rows < n_batch ? n_rows : n_batch), (size_t)c->n_cols};
}

/* Returns the patch that is computed for one: of whole blocks of columns. */
static struct patch widen(const struct computation *c, const struct patch *patch)
{
    struct patch wide = *patch;
    if (patch->n_rows == 1) {
        const uint64_t end = patch->col + patch->n_cols;
        wide.col = patch->col / c->n_align * c->n_align;
        wide.n_cols = (size_t)((end + c->n_align - 1) / c->n_align * c->n_align - wide.col);
    }
    return wide;
}

static size_t bytes_of_elem(const struct computation *c)
{
    return c->is_single ? sizeof(float) : sizeof(double);
}

/* Computes n elements from number elem on. */
static int compute_elems(const struct wfs_io *io, struct computation *c, uint64_t elem, size_t n,
                         void *out)
{
    struct work work;
    char *to = out;
    const size_t n_most = (n < PATCH_ELEMS ? n : PATCH_ELEMS) + 2 * (size_t)c->n_align;
    double *wide = c->n_align > 1 ? malloc(n_most * sizeof(*wide)) : NULL;
    int code = work_init(&work, io, c, n_most);
    code = c->n_align > 1 && wide == NULL ? -ENOMEM : code;
    while (n > 0 && code == 0) {
        const struct patch patch = cut_patch(c, elem, n), computed = widen(c, &patch);
        const size_t n_now = patch.n_rows * patch.n_cols;
        code = c->is_single ? evaluate_single(&work, &computed, (float *)(void *)to)
                            : evaluate(&work, &computed, wide != NULL ? wide : (void *)to);
        if (wide != NULL && code == 0)
            memcpy(to, wide + (patch.col - computed.col), n_now * sizeof(*wide));
        elem += n_now;
        to += n_now * bytes_of_elem(c);
        n -= n_now;
    }
    work_done(&work);
    free(wide);
    return code;
}

/* Elements that the range begins or ends inside of are computed apart. */
static int read_computation(const struct source *source, const struct wfs_io *io, uint64_t offset,
                            void *buf, size_t n_bytes)
{
    struct computation *c = source->ctx;
    const size_t n_elem = bytes_of_elem(c);
    char *to = buf;
    while (n_bytes > 0) {
        const size_t skip = offset % n_elem;
        double one;
        int code;
        size_t n = n_bytes;
        if (skip == 0 && n_bytes >= n_elem && (uintptr_t)to % n_elem == 0) {
            n = n_bytes / n_elem * n_elem;
            code = compute_elems(io, c, offset / n_elem, n / n_elem, to);
        } else {
            n = n_elem - skip < n_bytes ? n_elem - skip : n_bytes;
            code = compute_elems(io, c, offset / n_elem, 1, &one);
            memcpy(to, (char *)&one + skip, n);
        }
        if (code < 0)
            return code;
        offset += n;
        to += n;
        n_bytes -= n;
    }
    return 0;
}

enum { N_OF_STEP = 11 };

/* Lists the tensors of a step; some may not be there. */
static void list_tensors(const struct compute_step *step, const struct wfs_tensor **ret)
{
    const struct wfs_tensor *const tensors[N_OF_STEP] = {
        &step->a.left,       &step->a.right,     &step->a.core,  &step->a.rank_scale,
        &step->a.row_scale,  &step->b.left,      &step->b.right, &step->b.core,
        &step->b.rank_scale, &step->b.row_scale, &step->vector};
    memcpy(ret, tensors, sizeof(tensors));
}

/* Calls visit with every tensor that the result is made of, until one returns something. */
static const void *visit_tensors(const struct computation *c,
                                 const void *(*visit)(const struct wfs_tensor *))
{
    const void *found = visit(&c->base);
    for (size_t i = 0; i < c->n_steps; i++) {
        const struct wfs_tensor *tensors[N_OF_STEP];
        list_tensors(&c->steps[i], tensors);
        for (size_t k = 0; k < N_OF_STEP && found == NULL; k++) {
            if (step_has(tensors[k]))
                found = visit(tensors[k]);
        }
    }
    return found;
}

static const void *changed(const struct wfs_tensor *tensor)
{
    return wfs_tensor_check_source(tensor) < 0 ? tensor : NULL;
}

static const void *trouble_of(const struct wfs_tensor *tensor)
{
    return wfs_tensor_trouble(tensor);
}

static int check_computation(const struct source *source, uint64_t offset)
{
    (void)offset;
    return visit_tensors(source->ctx, changed) != NULL ? -EIO : 0;
}

static const char *trouble_of_computation(const struct source *source, uint64_t offset)
{
    (void)offset;
    return visit_tensors(source->ctx, trouble_of);
}

static const char *describe_computation(const struct source *source)
{
    return ((const struct computation *)source->ctx)->text;
}

static const struct source_kind computation_kind = {.read = read_computation,
                                                    .done = free_computation,
                                                    .check = check_computation,
                                                    .trouble = trouble_of_computation,
                                                    .describe = describe_computation};

static bool is_computation(const struct source *source)
{
    return source != NULL && source->kind == &computation_kind;
}

bool compute_is_batch(const struct source *source)
{
    return ((const struct computation *)source->ctx)->is_batch;
}

/* Sees the base as matrices. One of fewer than two dimensions is a row. */
static void divide(struct computation *c, bool is_batch, uint64_t n_elems)
{
    const struct wfs_shape *shape = &c->base.shape;
    c->is_batch = is_batch;
    c->n_batches = is_batch ? shape->dims[0] : 1;
    c->n_rows = shape->rank < 2 ? 1 : shape->dims[is_batch];
    const uint64_t n_rows = c->n_batches * c->n_rows; /* at most n_elems, where that is not 0 */
    c->n_cols = n_rows == 0 ? 0 : n_elems / n_rows;
    c->n_align = 1;
}

/* Returns the tensor as the base of a computation. */
static struct wfs_tensor base_of(const struct wfs_tensor *tensor)
{
    struct wfs_tensor base = *tensor;
    if (is_computation(base.stored.source)) {
        base.dtype = WFS_F64;
        base.n_bytes = tensor_elems(tensor) * sizeof(double);
    }
    return base;
}

int compute_new(const struct wfs_tensor *base, bool is_batch, struct source **out)
{
    static atomic_uint_fast64_t n_made;
    uint64_t n_elems;
    struct computation *c = calloc(1, sizeof(*c));
    if (c == NULL || wfs_shape_count(&base->shape, &n_elems) < 0 || n_elems > UINT64_MAX / 8) {
        free(c);
        return -ENOMEM;
    }
    c->base = base_of(base);
    c->id = atomic_fetch_add(&n_made, 1) + 1;
    reader_lock_init(&c->lock);
    divide(c, is_batch, n_elems);
    const char *path = base->stored.source == NULL ? "" : base->stored.source->path;
    if (source_new(&computation_kind, path, c, n_elems * sizeof(double), out) < 0)
        return -ENOMEM;
    if (base->stored.source != NULL)
        (*out)->origin =
            base->stored.source->origin != NULL ? base->stored.source->origin : base->stored.source;
    return 0;
}

/* Makes room for what is found out about the whole tensor. */
static int find_room(struct computation *c, const struct compute_step *step,
                     struct findings_of_step *found)
{
    *found = (struct findings_of_step){0};
    if (!step_has(&step->vector) || (step->kind != COMPUTE_ADD && step->kind != COMPUTE_PRODUCT &&
                                     step->kind != COMPUTE_KRONECKER))
        return 0;
    found->n_norms = (size_t)(step->is_by_column ? step->vector.shape.dims[0] : c->n_rows);
    found->norms = calloc(found->n_norms + 1, sizeof(*found->norms));
    for (size_t i = 0; found->norms != NULL && i < found->n_norms; i++)
        atomic_init(&found->norms[i], -1);
    return found->norms == NULL ? -ENOMEM : 0;
}

int compute_add(struct source *source, const struct compute_step *step, const char *text)
{
    struct computation *c = source->ctx;
    char *before = c->text, *now = NULL;
    if (array_reserve(&c->steps, sizeof(*c->steps), c->n_steps, 1, &c->n_room) < 0 ||
        array_reserve(&c->found, sizeof(*c->found), c->n_steps, 1, &c->n_found_room) < 0 ||
        find_room(c, step, &c->found[c->n_steps]) < 0)
        return -ENOMEM;
    c->steps[c->n_steps++] = *step;
    c->needs_base = c->needs_base || step->kind == COMPUTE_TOWARDS;
    if (step->kind == COMPUTE_ROTATE)
        c->n_align = step->n_block;
    if (text == NULL)
        return 0;
    now = malloc((before == NULL ? strlen("base ") : strlen(before) + 2) + strlen(text) + 1);
    if (now == NULL)
        return -ENOMEM;
    strcpy(now, before == NULL ? "base " : before);
    strcat(now, before == NULL ? "" : "; ");
    c->text = strcat(now, text);
    free(before);
    return 0;
}

void compute_show(struct wfs_tensor *tensor, struct source *source)
{
    struct computation *c = source->ctx;
    c->is_single = evaluation_can_be_single(c);
    tensor->stored = (struct wfs_stored){
        .source = source, .dtype = c->is_single ? WFS_F32 : WFS_F64, .is_unrounded = true};
}

/* Adds the bytes of an array. */
static bool add_bytes(uint64_t n_rows, uint64_t n_cols, uint64_t *sum)
{
    uint64_t n;
    return checked_mul(n_rows, n_cols, &n) && checked_mul(n, sizeof(double), &n) &&
           checked_add(*sum, n, sum);
}

/* Adds what is decoded of a matrix. */
static bool add_matrix(const struct compute_matrix *m, bool is_whole, uint64_t *sum)
{
    const uint64_t *left = m->left.shape.dims, *right = m->right.shape.dims,
                   *core = m->core.shape.dims;
    if (!step_has(&m->left))
        return true;
    if (!step_has(&m->right))
        return !is_whole || add_bytes(left[1], left[2], sum);
    uint64_t n_cols = right[2], n_core;
    if (step_has(&m->core) &&
        (!checked_mul(n_cols, core[2], &n_cols) || !checked_mul(core[0], core[1], &n_core) ||
         !add_bytes(n_core, core[2], sum)))
        return false;
    return add_bytes(left[2], factors_row_step(n_cols), sum) &&
           (!is_whole || add_bytes(left[1], n_cols, sum));
}

int compute_check(const struct compute_step *step, struct wfs_error *err)
{
    uint64_t sum = 0;
    const bool is_whole = step->kind == COMPUTE_KRONECKER;
    if (step->kind == COMPUTE_ROWS)
        return 0;
    uint64_t n_rows = 0;
    const bool is_countable =
        step->kind == COMPUTE_ROTATE
            ? checked_mul(step->a.left.shape.dims[1], step->n_block, &n_rows) &&
                  add_bytes(n_rows, step->n_block, &sum)
            : add_matrix(&step->a, is_whole, &sum) && add_matrix(&step->b, is_whole, &sum);
    if (!is_countable || sum > MOST_BYTES)
        return wfs_fail(err, E2BIG, "its factors take more than %s of memory",
                        wfs_count(MOST_BYTES, "byte").text);
    return 0;
}

/* ---- ties ---- */

/* Some adapters have the factors of a tied tensor under each of its names. *n_left is how many
 * bytes of each may still be read. */
static bool have_same_content(const struct wfs_tensor *a, const struct wfs_tensor *b,
                              uint64_t *n_left)
{
    uint64_t one, two;
    if (tied_are_same(a, b))
        return true;
    if (a->dtype != b->dtype || !wfs_shape_is_equal(&a->shape, &b->shape) || a->n_bytes > *n_left)
        return false;
    *n_left -= a->n_bytes;
    return wfs_tensor_digest(a, &one) == 0 && wfs_tensor_digest(b, &two) == 0 && one == two;
}

static bool are_same_steps(const struct compute_step *a, const struct compute_step *b,
                           uint64_t *n_left)
{
    const struct wfs_tensor *of_a[N_OF_STEP], *of_b[N_OF_STEP];
    bool is_same = a->kind == b->kind && a->scale == b->scale && a->mix == b->mix &&
                   a->is_by_column == b->is_by_column && a->n_block == b->n_block &&
                   a->n_terms == b->n_terms && a->rows == b->rows && a->n_rows == b->n_rows &&
                   a->operation == b->operation && a->n_block_rows == b->n_block_rows &&
                   a->n_block_cols == b->n_block_cols && a->is_single == b->is_single;
    list_tensors(a, of_a);
    list_tensors(b, of_b);
    for (size_t i = 0; i < N_OF_STEP && is_same; i++)
        is_same =
            step_has(of_a[i]) ? have_same_content(of_a[i], of_b[i], n_left) : !step_has(of_b[i]);
    return is_same;
}

static bool are_same_computations(const struct source *one, const struct source *two,
                                  uint64_t *n_left)
{
    const struct computation *a = one->ctx, *b = two->ctx;
    bool is_same = is_computation(one) && is_computation(two) && a->is_batch == b->is_batch &&
                   a->n_steps == b->n_steps && tied_are_same(&a->base, &b->base);
    for (size_t i = 0; is_same && i < a->n_steps; i++)
        is_same = are_same_steps(&a->steps[i], &b->steps[i], n_left);
    return is_same;
}

struct twin {
    const struct wfs_tensor *tensors, *tensor;
    struct source *const *computed;
    uint64_t *n_left; /* bytes that may be compared */
};

static bool is_twin(const void *ctx, uint32_t id)
{
    const struct twin *twin = ctx;
    const struct wfs_tensor *a = &twin->tensors[id], *b = twin->tensor;
    return a->dtype == b->dtype && wfs_shape_is_equal(&a->shape, &b->shape) &&
           tied_are_stored_alike(a, b) && a->stored.is_unrounded == b->stored.is_unrounded &&
           (are_same_computations(a->stored.source, b->stored.source, twin->n_left) ||
            join_is_same(a->stored.source, b->stored.source));
}

/* Returns what it is made of, of which ties are found; NULL: it is stored. */
static const struct wfs_tensor *made_of(const struct wfs_tensor *tensor)
{
    const struct source *source = tensor->stored.source;
    return is_computation(source) ? &((const struct computation *)source->ctx)->base
                                  : join_first(source);
}

/* Returns whether it is a new computation of the tensor of the twin. */
static bool is_made_of(const void *ctx, uint32_t id)
{
    const struct twin *twin = ctx;
    const struct wfs_tensor *made = &twin->tensors[id];
    return twin->computed[id] != NULL && twin->computed[id] == made->stored.source &&
           tied_are_same(made_of(made), twin->tensor);
}

int compute_tie(struct wfs_tensor *tensors, size_t n, struct source *const *computed, bool follows,
                struct compute_untied *ret)
{
    struct map map = {0};
    uint64_t n_left = MOST_BYTES;
    int code = 0;
    for (size_t i = 0; i < n && code == 0; i++) {
        const struct wfs_tensor *first = made_of(&tensors[i]);
        const struct twin twin = {tensors, &tensors[i], computed, &n_left};
        const struct twin base = {tensors, first, computed, NULL};
        uint32_t id;
        if (first == NULL)
            continue;
        const uint64_t hash = tied_hash(first);
        if (map_find(&map, hash, is_twin, &twin, &id)) {
            tensors[i].stored = tensors[id].stored;
            continue;
        }
        if (computed != NULL && computed[i] != NULL &&
            map_find(&map, hash, is_made_of, &base, &id) && ret->n++ == 0)
            *ret = (struct compute_untied){1, id, i};
        code = map_add(&map, hash, (uint32_t)i);
    }
    for (size_t i = 0; i < n && code == 0 && follows; i++) {
        const struct wfs_tensor base = base_of(&tensors[i]);
        const struct twin twin = {tensors, &base, computed, NULL};
        uint32_t id;
        if (computed[i] == NULL && map_find(&map, tied_hash(&base), is_made_of, &twin, &id)) {
            tensors[i].stored = tensors[id].stored;
            tensors[i].changes = tensors[id].changes;
        }
    }
    map_done(&map);
    return code;
}
