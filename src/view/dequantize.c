/* SPDX-License-Identifier: MIT */
/*
 * Codes and their companions as the values that they stand for. Nothing in a file states the form:
 * the names, dtypes and shapes of the tensors that belong together decide. Each form is one
 * function, which returns 1 when it is that one. The formulas are those of the libraries that write
 * the form, with their roundings to F32.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "compute/compute.h"
#include "tensor/tensor.h"
#include "view/pass.h"

struct dequantizing {
    struct pass *pass;
    struct wfs_catalog *catalog;
    struct catalog_keys keys;
    bool *is_used; /* malloc'ed, by tensor: it is a companion that was applied */
    size_t n_done;
};

/* A weight whose values are put together. */
struct weight {
    struct dequantizing *d;
    const struct wfs_tensor *codes;
    const char *stem; /* of its companions: the key without what the form adds */
    struct source *made;
    const struct wfs_tensor *used[8]; /* companions */
    size_t n_used;
};

static bool is_float8(const struct wfs_tensor *tensor)
{
    return wfs_dtype_kind((enum wfs_dtype)tensor->dtype) == WFS_KIND_FLOAT &&
           wfs_dtype_bits((enum wfs_dtype)tensor->dtype) == 8 && tensor->dtype != WFS_F8_E8M0;
}

/* Returns the tensor whose key is the stem with an ending; NULL: there is none that can be read. */
static const struct wfs_tensor *beside(const struct weight *w, const char *ending)
{
    char key[4096];
    if (snprintf(key, sizeof(key), "%s%s", w->stem, ending) >= (int)sizeof(key))
        return NULL;
    const uint32_t i = catalog_keys_find(&w->d->keys, key);
    const struct wfs_tensor *found = i == TEXT_INDEX_NONE ? NULL : &w->d->catalog->tensors[i];
    return found == NULL || wfs_tensor_trouble(found) != NULL || found->stored.source == NULL
               ? NULL
               : found;
}

/* The same for one that is applied, and leaves the view. */
static const struct wfs_tensor *take(struct weight *w, const char *ending)
{
    const struct wfs_tensor *found = beside(w, ending);
    if (found != NULL && w->n_used < sizeof(w->used) / sizeof(*w->used))
        w->used[w->n_used++] = found;
    return found;
}

static int fail(const struct weight *w, const char *why)
{
    return wfs_fail(w->d->pass->err, EINVAL, "dequantize: '%s': %s", wfs_quote(w->codes->key).text,
                    why);
}

/* ---- parts of a formula ---- */

static int adopt(const struct weight *w, struct source *made)
{
    return catalog_adopt_made(w->d->catalog, made) < 0 ? wfs_fail_memory(w->d->pass->err) : 0;
}

static uint64_t *new_dims(const struct weight *w, uint64_t n_rows, uint64_t n_cols)
{
    uint64_t *dims = arena_calloc(&w->d->catalog->arena, 2, sizeof(*dims));
    if (dims != NULL) {
        dims[0] = n_rows;
        dims[1] = n_cols;
    }
    return dims;
}

/* Shows a dense tensor as a matrix. */
static int as_matrix(const struct weight *w, const struct wfs_tensor *tensor, uint64_t n_rows,
                     uint64_t n_cols, struct wfs_tensor *ret)
{
    *ret = *tensor;
    ret->shape = (struct wfs_shape){2, new_dims(w, n_rows, n_cols)};
    if (ret->shape.dims == NULL)
        return wfs_fail_memory(w->d->pass->err);
    return tensor->stored.strides == NULL || wfs_tensor_is_plain(tensor)
               ? 0
               : fail(w, "its parts are not stored row by row");
}

/* Begins the computation with numbers: the shape says what is a row. */
static int begin(struct weight *w, const struct wfs_tensor *numbers)
{
    if (compute_new(numbers, false, &w->made) < 0)
        return wfs_fail_memory(w->d->pass->err);
    return adopt(w, w->made);
}

/* Unpacks codes, as a matrix of U8. Returns 1; 0 where the tensor does not have all of them. */
static int unpack(const struct weight *w, const struct wfs_tensor *tensor, enum packing packing,
                  unsigned n_bits, uint64_t n_rows, uint64_t n_cols, struct wfs_tensor *ret)
{
    struct source *codes;
    const struct packed packed = {*tensor, packing, n_bits, n_rows, n_cols};
    const int code = unpack_new(&packed, &codes);
    if (code == -EINVAL)
        return 0;
    if (code < 0 || adopt(w, codes) < 0)
        return wfs_fail_memory(w->d->pass->err);
    *ret = (struct wfs_tensor){.key = tensor->key,
                               .shape = {2, new_dims(w, n_rows, n_cols)},
                               .n_bytes = n_rows * n_cols,
                               .dtype = WFS_U8};
    ret->stored = (struct wfs_stored){.source = codes, .dtype = WFS_U8};
    return ret->shape.dims == NULL ? wfs_fail_memory(w->d->pass->err) : 1;
}

static int add(const struct weight *w, const struct compute_step *step, const char *text)
{
    return compute_add(w->made, step, text) < 0 ? wfs_fail_memory(w->d->pass->err) : 0;
}

static int shift(const struct weight *w, double by)
{
    const struct compute_step step = {.kind = COMPUTE_SHIFT, .scale = by};
    return add(w, &step, NULL);
}

/* The values of the four bits E2M1. */
static int look_up_fp4(const struct weight *w)
{
    static const float values[16] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                     -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
    struct compute_step step = {.kind = COMPUTE_LOOK_UP};
    struct source *table;
    uint64_t *dims = new_dims(w, 16, 1);
    if (dims == NULL || source_new_memory("E2M1", values, sizeof(values), &table) < 0 ||
        adopt(w, table) < 0)
        return wfs_fail_memory(w->d->pass->err);
    step.vector = (struct wfs_tensor){
        .key = "E2M1", .shape = {1, dims}, .n_bytes = sizeof(values), .dtype = WFS_F32};
    step.vector.stored = (struct wfs_stored){.source = table, .dtype = WFS_F32};
    return add(w, &step, NULL);
}

/* Shows what is computed as it is, for another formula. */
static void show_doubles(struct wfs_tensor *tensor, struct source *made)
{
    compute_show(tensor, made);
    tensor->dtype = WFS_F64;
    tensor->n_bytes = tensor_elems(tensor) * sizeof(double);
}

/* Scales of one byte that are powers of two, in U8. */
static int powers(const struct weight *w, struct wfs_tensor *scales)
{
    struct source *made;
    const struct compute_step step = {.kind = COMPUTE_POWER};
    if (scales->dtype != WFS_U8)
        return 0;
    if (compute_new(scales, false, &made) < 0 || adopt(w, made) < 0 ||
        compute_add(made, &step, NULL) < 0)
        return wfs_fail_memory(w->d->pass->err);
    show_doubles(scales, made);
    return 0;
}

/* A grid of n_rows x n_cols over what is computed, which has the size of `whole`. */
struct grid {
    struct wfs_tensor tensor;
    uint64_t n_block_rows, n_block_cols;
};

static int add_grid(const struct weight *w, const struct grid *grid,
                    enum compute_operation operation, double scale, const char *text)
{
    const struct compute_step step = {.kind = COMPUTE_GRID,
                                      .scale = scale,
                                      .operation = operation,
                                      .a.left = grid->tensor,
                                      .n_block_rows = grid->n_block_rows,
                                      .n_block_cols = grid->n_block_cols,
                                      .is_single = operation != COMPUTE_PLUS};
    return add(w, &step, text);
}

/* Finds the side of the blocks: a common size whose last block may be short, or an even division.
 */
static uint64_t find_block(uint64_t n, uint64_t n_blocks)
{
    static const uint64_t common[] = {128, 64, 32, 256, 16};
    if (n_blocks == 1)
        return n == 0 ? 1 : n;
    for (size_t i = 0; i < sizeof(common) / sizeof(*common); i++) {
        if (n_blocks > 0 && (n + common[i] - 1) / common[i] == n_blocks)
            return common[i];
    }
    return n_blocks > 0 && n % n_blocks == 0 ? n / n_blocks : 0;
}

/* Finds how the scales lie over [n_rows, n_cols]: for all, for each row, for blocks. Returns 1, or
 * 0 where they do not. */
static int find_grid(const struct weight *w, const struct wfs_tensor *scales, uint64_t n_rows,
                     uint64_t n_cols, struct grid *ret)
{
    const bool is_one = tensor_elems(scales) == 1;
    const uint64_t rows = is_one ? 1 : tensor_dim(scales, 0),
                   cols = is_one ? 1 : tensor_dim(scales, 1);
    ret->n_block_rows = rows == n_rows ? 1 : find_block(n_rows, rows);
    ret->n_block_cols = cols == n_cols ? 1 : find_block(n_cols, cols);
    if (ret->n_block_rows == 0 || ret->n_block_cols == 0 || rows * cols != tensor_elems(scales) ||
        scales->shape.rank > 2)
        return 0;
    int code = as_matrix(w, scales, rows, cols, &ret->tensor);
    code = code < 0 ? code : powers(w, &ret->tensor);
    return code < 0 ? code : 1;
}

/* Puts the result in the place of the codes. dims: rank 2, or 3 with the last two swapped. */
static int finish(struct weight *w, const char *key, const uint64_t *dims, uint32_t rank,
                  bool is_swapped)
{
    struct wfs_catalog *catalog = w->d->catalog;
    struct wfs_tensor *tensor = &catalog->tensors[w->codes - catalog->tensors];
    uint64_t *own = arena_calloc(&catalog->arena, 2 * (size_t)rank, sizeof(*own));
    if (own == NULL || key == NULL)
        return wfs_fail_memory(w->d->pass->err);
    const struct wfs_shape shape = {rank, own};
    memcpy(own, dims, rank * sizeof(*own));
    compute_show(tensor, w->made);
    if (is_swapped) {
        uint64_t *strides = own + rank, step = 1;
        for (uint32_t i = rank; i-- > 0;) {
            strides[i] = step;
            step *= own[i];
        }
        const uint64_t n = own[rank - 1], n_step = strides[rank - 1];
        own[rank - 1] = own[rank - 2];
        strides[rank - 1] = strides[rank - 2];
        own[rank - 2] = n;
        strides[rank - 2] = n_step;
        tensor->stored.strides = strides;
    }
    if (strcmp(tensor->key, key) != 0) {
        tensor->origin = wfs_tensor_origin(tensor);
        tensor->key = key;
    }
    tensor->shape = shape;
    tensor->dtype = WFS_BF16;
    tensor->attrs = NULL;
    tensor->changes = "dequantize";
    for (size_t i = 0; i < w->n_used; i++)
        w->d->is_used[w->used[i] - catalog->tensors] = true;
    w->d->n_done++;
    return wfs_shape_bytes(&tensor->shape, WFS_BF16, &tensor->n_bytes) < 0
               ? fail(w, "it is too large")
               : 1;
}

/* What is for activations goes, too. */
static void take_activations(struct weight *w)
{
    static const char *const names[] = {"input_scale", "scale_input", "input_global_scale",
                                        "comfy_quant"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        take(w, names[i]);
}

/* ---- the forms ---- */

/* F8, or integers of 8 bits, times scales: `weight_scale_inv`, `weight_scale`, `scale_weight`. */
static int read_scaled(struct weight *w)
{
    static const char *const names[] = {"weight_scale_inv", "weight_scale", "scale_weight"};
    const struct wfs_tensor *scales = NULL, *zeros = beside(w, "weight_zero_point");
    const struct wfs_tensor *codes = w->codes;
    struct grid grid, zero;
    struct wfs_tensor numbers = *codes;
    uint64_t n_cols = tensor_dim(codes, 1);
    if (codes->shape.rank != 2 || (!is_float8(codes) && codes->dtype != WFS_I8))
        return 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && scales == NULL; i++)
        scales = take(w, names[i]);
    if (scales == NULL)
        return 0;
    /* Two values of E2M1 in a byte. */
    const bool is_fp4 = codes->dtype == WFS_I8 && scales->dtype == WFS_F8_E8M0 &&
                        tensor_dim(scales, 1) * 32 == n_cols * 2;
    n_cols *= is_fp4 ? 2 : 1;
    int code = find_grid(w, scales, tensor_dim(codes, 0), n_cols, &grid);
    if (code <= 0)
        return code;
    if (is_fp4)
        code = unpack(w, codes, PACKING_LOW_FIRST, 4, tensor_dim(codes, 0), n_cols, &numbers);
    code = code <= 0 ? code : begin(w, &numbers);
    if (code == 0 && is_fp4)
        code = look_up_fp4(w);
    if (code == 0 && zeros != NULL) {
        zeros = take(w, "weight_zero_point");
        if (find_grid(w, zeros, tensor_dim(codes, 0), n_cols, &zero) <= 0)
            return fail(w, "its zero points do not fit");
        code = add_grid(w, &zero, COMPUTE_PLUS, -1, NULL);
    }
    code = code < 0 ? code : add_grid(w, &grid, COMPUTE_TIMES, 0, "times its scales");
    take_activations(w);
    const uint64_t dims[] = {tensor_dim(codes, 0), n_cols};
    return code < 0 ? code : finish(w, codes->key, dims, 2, false);
}

/* bitsandbytes, 8 bits: times SCB of the row, divided by 127 as the library does it. */
static int read_scb(struct weight *w)
{
    const struct wfs_tensor *scales = take(w, "SCB");
    struct grid grid;
    const struct compute_step constant = {
        .kind = COMPUTE_SCALE, .scale = (double)7.874015718698502e-3F, .is_single = true};
    if (scales == NULL || w->codes->dtype != WFS_I8 || w->codes->shape.rank != 2 ||
        tensor_elems(scales) != tensor_dim(w->codes, 0))
        return 0;
    take(w, "weight_format");
    int code = find_grid(w, scales, tensor_dim(w->codes, 0), tensor_dim(w->codes, 1), &grid);
    if (code <= 0)
        return code;
    code = begin(w, w->codes);
    code = code < 0 ? code : add_grid(w, &grid, COMPUTE_TIMES, 0, "times SCB / 127");
    code = code < 0 ? code : add(w, &constant, NULL);
    return code < 0 ? code : finish(w, w->codes->key, w->codes->shape.dims, 2, false);
}

/* Two values of E2M1 in a byte, with scales of 16 (F8) or 32 (powers of two) of them. */
static int read_fp4(struct weight *w)
{
    const struct wfs_tensor *scales = take(w, "weight_scale");
    const struct wfs_tensor *divisor = take(w, "weight_global_scale");
    const struct wfs_tensor *factor = divisor != NULL ? NULL : take(w, "weight_scale_2");
    const struct wfs_tensor *codes = w->codes;
    struct wfs_tensor numbers;
    struct grid grid;
    const uint64_t n_rows = tensor_dim(codes, 0), n_cols = tensor_dim(codes, 1) * 2;
    if (scales == NULL || codes->dtype != WFS_U8 || codes->shape.rank != 2 ||
        tensor_dim(scales, 0) != n_rows || scales->shape.rank != 2)
        return 0;
    const bool has_both = divisor != NULL || factor != NULL;
    if (has_both ? scales->dtype != WFS_F8_E4M3 || tensor_dim(scales, 1) * 16 != n_cols
                 : (scales->dtype != WFS_U8 && scales->dtype != WFS_F8_E8M0) ||
                       tensor_dim(scales, 1) * 32 != n_cols)
        return 0;
    int code = find_grid(w, scales, n_rows, n_cols, &grid);
    if (code > 0 && has_both) { /* the scales are scaled first */
        struct weight inner = *w;
        struct grid one;
        code =
            find_grid(w, divisor != NULL ? divisor : factor, n_rows, tensor_dim(scales, 1), &one);
        code = code <= 0 ? code : begin(&inner, &grid.tensor);
        code = code < 0
                   ? code
                   : add_grid(&inner, &one, divisor != NULL ? COMPUTE_BY : COMPUTE_TIMES, 0, NULL);
        if (code < 0)
            return code;
        show_doubles(&grid.tensor, inner.made);
        code = 1;
    }
    code = code <= 0 ? code : unpack(w, codes, PACKING_LOW_FIRST, 4, n_rows, n_cols, &numbers);
    code = code <= 0 ? code : begin(w, &numbers);
    code = code < 0 ? code : look_up_fp4(w);
    code = code < 0 ? code : add_grid(w, &grid, COMPUTE_TIMES, 0, "E2M1 times its scales");
    take_activations(w);
    const uint64_t dims[] = {n_rows, n_cols};
    const char *key = arena_print(&w->d->catalog->arena, "%sweight", w->stem);
    return code < 0 ? code : finish(w, key, dims, 2, false);
}

/* Integers of a few bits along the rows of words, with `weight_shape`. */
static int read_packed(struct weight *w)
{
    const struct wfs_tensor *scales = take(w, "weight_scale"), *shape = take(w, "weight_shape");
    const struct wfs_tensor *zeros = take(w, "weight_zero_point"), *codes = w->codes;
    struct wfs_tensor numbers, unpacked;
    struct grid grid, zero = {.n_block_rows = 1};
    int64_t dims_said[2];
    uint64_t dims[2];
    unsigned n_bits = 0;
    if (scales == NULL || shape == NULL || codes->dtype != WFS_I32 || codes->shape.rank != 2 ||
        shape->dtype != WFS_I64 || tensor_elems(shape) != 2)
        return 0;
    if (wfs_tensor_read(shape, 0, dims_said, sizeof(dims_said)) != (ssize_t)sizeof(dims_said))
        return fail(w, "its weight_shape cannot be read");
    for (size_t i = 0; i < 2; i++)
        dims[i] = load_le64(&dims_said[i]);
    for (unsigned n = 1; n <= 8 && dims[1] <= UINT64_MAX / 8; n++) {
        if ((dims[1] * n + 31) / 32 == tensor_dim(codes, 1) && (n_bits == 0 || n == 4 || n == 8))
            n_bits = n;
    }
    if (n_bits == 0 || dims[0] != tensor_dim(codes, 0))
        return 0;
    int code = find_grid(w, scales, dims[0], dims[1], &grid);
    code = code <= 0 ? code : unpack(w, codes, PACKING_ROWS, n_bits, dims[0], dims[1], &numbers);
    code = code <= 0 ? code : begin(w, &numbers);
    if (code == 0 && zeros != NULL) { /* both are shifted by the same */
        code = unpack(w, zeros, PACKING_COLUMNS, n_bits, dims[0], tensor_dim(zeros, 1), &unpacked);
        if (code == 0)
            return fail(w, "its zero points do not fit");
        zero.tensor = unpacked;
        zero.n_block_cols = grid.n_block_cols;
        code = code < 0 ? code : add_grid(w, &zero, COMPUTE_PLUS, -1, NULL);
    } else if (code == 0) {
        code = shift(w, -(double)(1u << (n_bits - 1)));
    }
    code = code < 0 ? code : add_grid(w, &grid, COMPUTE_TIMES, 0, "integers times their scales");
    take_activations(w);
    const char *key = arena_print(&w->d->catalog->arena, "%sweight", w->stem);
    return code < 0 ? code : finish(w, key, dims, 2, false);
}

/* GPTQ and AWQ: [in, out], in words along the inputs, or along the outputs. */
static int read_groups(struct weight *w)
{
    const struct wfs_tensor *codes = w->codes, *scales = take(w, "scales"),
                            *zeros = take(w, "qzeros");
    const struct wfs_tensor *order = take(w, "g_idx");
    struct wfs_tensor numbers, points;
    if (scales == NULL || zeros == NULL || codes->dtype != WFS_I32 || zeros->dtype != WFS_I32 ||
        codes->shape.rank != 2 || scales->shape.rank != 2 || zeros->shape.rank != 2)
        return 0;
    const uint64_t n_groups = tensor_dim(scales, 0), n_out = tensor_dim(scales, 1);
    const bool is_awq = tensor_dim(codes, 1) != n_out;
    const uint64_t n_bits = n_out == 0 ? 0 : tensor_dim(zeros, 1) * 32 / n_out;
    if (n_bits == 0 || n_bits > 8 || n_groups == 0 || (is_awq && n_bits != 4))
        return 0;
    const uint64_t n_in = is_awq ? tensor_dim(codes, 0) : tensor_dim(codes, 0) * 32 / n_bits;
    struct compute_step grid = {
        .kind = COMPUTE_GRID, .n_block_rows = find_block(n_in, n_groups), .n_block_cols = 1};
    if (order != NULL && tensor_elems(order) != n_in)
        return 0;
    if (order != NULL)
        grid.vector = *order;
    int code = unpack(w, codes, is_awq ? PACKING_AWQ : PACKING_COLUMNS, (unsigned)n_bits, n_in,
                      n_out, &numbers);
    code = code <= 0 ? code
                     : unpack(w, zeros, is_awq ? PACKING_AWQ : PACKING_ROWS, (unsigned)n_bits,
                              n_groups, n_out, &points);
    if (code <= 0 || grid.n_block_rows == 0)
        return code;
    code = begin(w, &numbers);
    grid.a.left = points;
    grid.operation = COMPUTE_PLUS;
    grid.scale = -1;
    code = code < 0 ? code : add(w, &grid, NULL);
    if (code == 0 && !is_awq && !w->d->pass->view->has_gptq_v2)
        code = shift(w, -1);
    grid.a.left = *scales;
    grid.operation = COMPUTE_TIMES;
    grid.is_single = true;
    code = code < 0 ? code : add(w, &grid, "integers times their scales");
    const uint64_t dims[] = {n_in, n_out};
    const char *key = arena_print(&w->d->catalog->arena, "%sweight", w->stem);
    return code < 0 ? code : finish(w, key, dims, 2, true);
}

/* gpt-oss: values of E2M1 with powers of two, [experts, out, in / 32, 16]; shown as [experts, in,
 * out]. */
static int read_blocks(struct weight *w)
{
    const struct wfs_tensor *codes = w->codes, *scales = take(w, "_scales");
    struct wfs_tensor numbers;
    struct grid grid = {.n_block_rows = 1, .n_block_cols = 32};
    if (scales == NULL || codes->dtype != WFS_U8 || codes->shape.rank != 4 ||
        tensor_dim(codes, 3) != 16 || scales->shape.rank != 3 ||
        memcmp(codes->shape.dims, scales->shape.dims, 24) != 0)
        return 0;
    const uint64_t dims[] = {tensor_dim(codes, 0), tensor_dim(codes, 1), tensor_dim(codes, 2) * 32};
    const uint64_t n_rows = dims[0] * dims[1];
    int code = as_matrix(w, scales, n_rows, tensor_dim(codes, 2), &grid.tensor);
    code = code < 0 ? code : powers(w, &grid.tensor);
    code = code < 0 ? code : unpack(w, codes, PACKING_LOW_FIRST, 4, n_rows, dims[2], &numbers);
    code = code <= 0 ? code : begin(w, &numbers);
    code = code < 0 ? code : look_up_fp4(w);
    const struct compute_step step = {
        .kind = COMPUTE_GRID, .a.left = grid.tensor, .n_block_rows = 1, .n_block_cols = 32};
    code = code < 0 ? code : add(w, &step, "E2M1 times its scales");
    return code < 0 ? code
                    : finish(w, arena_print(&w->d->catalog->arena, "%s", w->stem), dims, 3, true);
}

/* What the state of bitsandbytes says. */
struct state {
    uint64_t n_block, n_nested, dims[2];
    double offset;
};

static int read_state(const struct weight *w, const struct wfs_tensor *tensor, struct state *ret)
{
    enum { MOST_BYTES = 65536 };
    if (tensor->n_bytes > MOST_BYTES)
        return fail(w, "its quant_state is too large");
    autofree char *text = calloc(1, (size_t)tensor->n_bytes + 1);
    if (text == NULL)
        return wfs_fail_memory(w->d->pass->err);
    if (wfs_tensor_read(tensor, 0, text, (size_t)tensor->n_bytes) != (ssize_t)tensor->n_bytes)
        return fail(w, "its quant_state cannot be read");
    errno = 0;
    json_t *json = json_loadb(text, (size_t)tensor->n_bytes, JSON_REJECT_DUPLICATES, NULL);
    if (json == NULL && errno == ENOMEM)
        return wfs_fail_memory(w->d->pass->err);
    const json_t *shape = json_object_get(json, "shape");
    const json_int_t n_block = json_integer_value(json_object_get(json, "blocksize"));
    const json_int_t n_nested = json_integer_value(json_object_get(json, "nested_blocksize"));
    const json_int_t rows = json_integer_value(json_array_get(shape, 0));
    const json_int_t cols = json_integer_value(json_array_get(shape, 1));
    const bool is_right = json_array_size(shape) == 2 && n_block > 0 && rows >= 0 && cols >= 0;
    *ret = (struct state){.n_block = (uint64_t)n_block,
                          .n_nested = n_nested > 0 ? (uint64_t)n_nested : 0,
                          .dims = {(uint64_t)rows, (uint64_t)cols},
                          .offset = json_number_value(json_object_get(json, "nested_offset"))};
    json_decref(json);
    return is_right ? 0 : fail(w, "its quant_state is not that of a matrix");
}

static int look_up(const struct weight *w, const struct wfs_tensor *table)
{
    struct compute_step step = {.kind = COMPUTE_LOOK_UP, .vector = *table};
    return table->shape.rank != 1 ? fail(w, "its table is not a list") : add(w, &step, NULL);
}

/* bitsandbytes, 4 bits: a table, times absmax of blocks of the flat weight; absmax may be codes
 * itself. */
static int read_bnb(struct weight *w)
{
    const struct wfs_tensor *absmax = take(w, "weight.absmax"), *map = take(w, "weight.quant_map");
    const struct wfs_tensor *nested = take(w, "weight.nested_absmax");
    const struct wfs_tensor *nested_map = take(w, "weight.nested_quant_map");
    const struct wfs_tensor *text = take(w, "weight.quant_state.bitsandbytes__nf4");
    struct wfs_tensor numbers;
    struct grid grid = {.n_block_rows = 1};
    struct state state;
    uint64_t n;
    if (text == NULL)
        text = take(w, "weight.quant_state.bitsandbytes__fp4");
    if (absmax == NULL || map == NULL || text == NULL || w->codes->dtype != WFS_U8)
        return 0;
    int code = read_state(w, text, &state);
    if (code < 0)
        return code;
    if (!checked_mul(state.dims[0], state.dims[1], &n) ||
        tensor_elems(absmax) != n / state.n_block + (n % state.n_block != 0))
        return fail(w, "its absmax does not fit");
    grid.n_block_cols = state.n_block;
    code = as_matrix(w, absmax, 1, tensor_elems(absmax), &grid.tensor);
    if (code == 0 && nested != NULL && nested_map != NULL && state.n_nested > 0) {
        struct weight inner = *w;
        struct grid outer = {.n_block_rows = 1, .n_block_cols = state.n_nested};
        const struct compute_step offset = {
            .kind = COMPUTE_SHIFT, .scale = (double)(float)state.offset, .is_single = true};
        code = as_matrix(w, nested, 1, tensor_elems(nested), &outer.tensor);
        code = code < 0 ? code : begin(&inner, &grid.tensor);
        code = code < 0 ? code : look_up(&inner, nested_map);
        code = code < 0 ? code : add_grid(&inner, &outer, COMPUTE_TIMES, 0, NULL);
        code = code < 0 ? code : add(&inner, &offset, NULL);
        if (code < 0)
            return code;
        show_doubles(&grid.tensor, inner.made);
    }
    code = code < 0 ? code : unpack(w, w->codes, PACKING_HIGH_FIRST, 4, 1, n, &numbers);
    if (code <= 0)
        return code < 0 ? code : fail(w, "it has fewer codes than its shape");
    code = begin(w, &numbers);
    code = code < 0 ? code : look_up(w, map);
    code = code < 0 ? code : add_grid(w, &grid, COMPUTE_TIMES, 0, "its table, times absmax");
    return code < 0 ? code : finish(w, w->codes->key, state.dims, 2, false);
}

/* ---- all ---- */

/* How keys of codes end, and what is tried then, in order. */
static const struct form {
    const char *ending;
    int (*read)(struct weight *w);
} forms[] = {
    {"weight", read_bnb},     {"weight", read_scb},        {"weight", read_scaled},
    {"weight", read_fp4},     {"weight_packed", read_fp4}, {"weight_packed", read_packed},
    {"qweight", read_groups}, {"_blocks", read_blocks},
};

static int read_tensor(struct dequantizing *d, size_t i)
{
    const struct wfs_tensor *tensor = &d->catalog->tensors[i];
    const size_t n = strlen(tensor->key);
    int code = 0;
    if (wfs_tensor_trouble(tensor) != NULL || tensor->stored.source == NULL)
        return 0;
    for (size_t k = 0; k < sizeof(forms) / sizeof(*forms) && code == 0; k++) {
        const size_t n_end = strlen(forms[k].ending);
        if (n < n_end || strcmp(tensor->key + n - n_end, forms[k].ending) != 0)
            continue;
        struct weight w = {.d = d, .codes = tensor};
        w.stem = arena_copy(&d->catalog->arena, tensor->key, n - n_end);
        code = w.stem == NULL ? wfs_fail_memory(d->pass->err) : forms[k].read(&w);
    }
    return code < 0 ? code : 0;
}

/* Companions that were applied leave the catalog. */
static void drop_used(const struct dequantizing *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->catalog->n_tensors; i++) {
        if (!d->is_used[i])
            d->catalog->tensors[n++] = d->catalog->tensors[i];
    }
    d->catalog->n_tensors = n;
}

static void dequantizing_done(struct dequantizing *d)
{
    catalog_keys_done(&d->keys);
    free(d->is_used);
}

int dequantize_apply(struct pass *pass)
{
    cleanup(dequantizing_done) struct dequantizing d = {.pass = pass, .catalog = pass->catalog};
    const struct rule *first = rule_next(pass->view->rules, RULE_DEQUANTIZE);
    int code = 0;
    if (first == NULL)
        return 0;
    d.is_used = calloc(pass->catalog->n_tensors + 1, sizeof(*d.is_used));
    if (d.is_used == NULL || catalog_keys_add(&d.keys, pass->catalog, 0) < 0)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < pass->catalog->n_tensors && code >= 0; i++) {
        const char *key = pass->catalog->tensors[i].key;
        bool is_taken = false;
        for_rules(rule, pass->view, RULE_DEQUANTIZE)
        {
            code = code < 0 || is_taken ? code : rule_takes(rule, key, pass->err);
            is_taken = is_taken || code > 0;
        }
        if (code >= 0 && is_taken && !d.is_used[i])
            code = read_tensor(&d, i);
    }
    if (code < 0)
        return code;
    if (d.n_done == 0)
        return wfs_fail(pass->err, EINVAL,
                        "dequantize: no tensor has scales of a form that is known; see "
                        "docs/arithmetic.md");
    drop_used(&d);
    char text[200];
    snprintf(text, sizeof(text), "%s dequantized; quantization_config has to leave config.json",
             wfs_count(d.n_done, "tensor").text);
    report_add(pass->report, REPORT_NOTICES, "dequantize", text);
    return 0;
}
