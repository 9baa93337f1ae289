/* SPDX-License-Identifier: MIT */
#include "cli/survey.h"

#include "cli/values.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void slice_done(struct slice *slice)
{
    free(slice->ranges);
}

/* Reads an optional integer. Returns false if something else follows. */
static bool take_integer(const char **at, int64_t *ret, bool *ret_has)
{
    char *end;
    *ret_has = **at == '-' || (**at >= '0' && **at <= '9');
    if (!*ret_has)
        return **at == ':' || **at == ',' || **at == '\0';
    errno = 0;
    *ret = strtoll(*at, &end, 10);
    const bool is_good = end != *at && end[-1] != '-' && errno == 0;
    *at = end;
    return is_good && (**at == ':' || **at == ',' || **at == '\0');
}

/* Returns an index that may count from the end as one from 0 to n. */
static uint64_t clip(int64_t index, uint64_t n)
{
    if (index >= 0)
        return (uint64_t)index < n ? (uint64_t)index : n;
    const uint64_t from_end = 0 - (uint64_t)index;
    return from_end <= n ? n - from_end : 0;
}

/* Parses one part for a dimension of n. Returns what is wrong, or NULL. */
static const char *take_range(const char **at, uint64_t n, struct slice_range *ret)
{
    enum { START, STOP, STEP, N_PARTS };
    int64_t parts[N_PARTS] = {[STEP] = 1};
    bool has[N_PARTS] = {false};
    unsigned n_parts = 0;
    bool is_good;
    *ret = (struct slice_range){.step = 1, .n = n};
    do {
        *at += n_parts > 0;
        is_good = take_integer(at, &parts[n_parts], &has[n_parts]);
        n_parts++;
    } while (is_good && **at == ':' && n_parts < N_PARTS);
    if (!is_good || **at == ':' || (n_parts == 1 && !has[START]))
        return "an index, or START:STOP:STEP, is expected";
    const int64_t start = parts[START];
    if (n_parts == 1) {
        *ret = (struct slice_range){.start = clip(start, n), .step = 1, .n = 1, .is_index = true};
        const bool exists = start >= 0 ? (uint64_t)start < n : 0 - (uint64_t)start <= n;
        return exists ? NULL : "the index is out of range";
    }
    if (parts[STEP] < 1)
        return "a step must be at least 1";
    const uint64_t end = has[STOP] ? clip(parts[STOP], n) : n;
    ret->start = has[START] ? clip(start, n) : 0;
    ret->step = (uint64_t)parts[STEP];
    ret->n = end > ret->start ? (end - ret->start - 1) / ret->step + 1 : 0;
    return NULL;
}

static enum exit_code refuse(const struct wfs_tensor *tensor, const char *text, const char *path,
                             const char *why)
{
    return print_error(EXIT_NO_MATCH, path, "--slice '%s' of tensor '%s': %s", wfs_quote(text).text,
                       wfs_quote(tensor->key).text, why);
}

enum exit_code slice_parse(struct slice *slice, const struct wfs_tensor *tensor, const char *text,
                           const char *path)
{
    const struct wfs_shape *shape = &tensor->shape;
    const char *at = text;
    uint32_t i = 0;
    *slice = (struct slice){.tensor = tensor};
    if (tensor->dtype == WFS_OPAQUE)
        return refuse(tensor, text, path, "its elements are not known");
    slice->ranges = calloc(shape->rank + 1u, sizeof(*slice->ranges));
    if (slice->ranges == NULL)
        return print_memory(path);
    for (; i < shape->rank; i++) {
        slice->ranges[i] = (struct slice_range){.step = 1, .n = shape->dims[i]};
        if (*at == '\0' && i > 0)
            continue;
        const char *problem = take_range(&at, shape->dims[i], &slice->ranges[i]);
        if (problem != NULL)
            return refuse(tensor, text, path, problem);
        at += *at == ',';
        if (*at == '\0' && at > text && at[-1] == ',')
            return refuse(tensor, text, path, "nothing follows the last comma");
    }
    if (*at != '\0') {
        char why[96];
        snprintf(why, sizeof(why), "it has %s", wfs_count(shape->rank, "dimension").text);
        return refuse(tensor, text, path, why);
    }
    slice->n_elems = 1;
    for (i = 0; i < shape->rank; i++)
        slice->n_elems *= slice->ranges[i].n;
    return EXIT_DONE;
}

/* Returns the place in the tensor of element n of the slice, both in the order of rows. */
static uint64_t place_of(const struct slice *slice, uint64_t n)
{
    const struct wfs_shape *shape = &slice->tensor->shape;
    uint64_t place = 0, stride = 1;
    for (uint32_t i = shape->rank; i-- > 0;) {
        const struct slice_range *range = &slice->ranges[i];
        place += (range->start + n % range->n * range->step) * stride;
        n /= range->n;
        stride *= shape->dims[i];
    }
    return place;
}

/* Returns the elements of the last one or two dimensions of the result. */
static uint64_t n_inner(const struct slice *slice, unsigned n_dims)
{
    uint64_t n = 1;
    for (uint32_t i = slice->tensor->shape.rank; i-- > 0 && n_dims > 0;) {
        n *= slice->ranges[i].n;
        n_dims -= slice->ranges[i].is_index ? 0 : 1;
    }
    return n;
}

/* Prints the indices that all elements of a matrix have: "[0, 3, :, :]". */
static void print_heading(const struct slice *slice, uint64_t n)
{
    const struct wfs_shape *shape = &slice->tensor->shape;
    uint64_t n_left = slice->n_elems;
    uint32_t n_open = 0;
    for (uint32_t i = 0; i < shape->rank; i++)
        n_open += !slice->ranges[i].is_index;
    for (uint32_t i = 0; i < shape->rank; i++) {
        const struct slice_range *range = &slice->ranges[i];
        n_left /= range->n;
        const uint64_t index = range->start + n / n_left % range->n * range->step;
        const bool is_open = !range->is_index && n_open <= 2;
        n_open -= !range->is_index;
        fputs(i > 0 ? ", " : "[", stdout);
        if (is_open)
            putchar(':');
        else
            printf("%" PRIu64, index);
    }
    puts("]:");
}

/* ---- heat maps ---- */

enum { N_SHADES = 5, N_ROWS_MAX = 24, N_LOOKS = 8 };

/* A matrix of a slice, from an element on, in cells of which each is a character. */
struct heat {
    const struct slice *slice;
    uint64_t first, n_rows, n_cols; /* elements */
    uint64_t n_down, n_across;      /* cells */
    double *cells;                  /* means; not finite where an element is not */
    double min, max;                /* of the finite cells */
};

static int read_number(const struct slice *slice, uint64_t n, double *ret)
{
    char text[VALUES_TEXT_MAX];
    const int code = values_format(slice->tensor, place_of(slice, n), false, text);
    if (code == 0)
        *ret = strcmp(text, "true") == 0 ? 1 : strtod(text, NULL);
    return code;
}

/* Returns where look i of n_looks at n things from begin on is: spread evenly, with both ends. */
static uint64_t spread(uint64_t begin, uint64_t n, uint64_t i, uint64_t n_looks)
{
    return begin + (n_looks > 1 ? (n - 1) * i / (n_looks - 1) : 0);
}

static int look_at_cell(const struct heat *heat, uint64_t row, uint64_t col, double *ret)
{
    const uint64_t top = heat->n_rows * row / heat->n_down,
                   n_rows = heat->n_rows * (row + 1) / heat->n_down - top,
                   left = heat->n_cols * col / heat->n_across,
                   n_cols = heat->n_cols * (col + 1) / heat->n_across - left;
    const uint64_t n_down = n_rows < N_LOOKS ? n_rows : N_LOOKS,
                   n_across = n_cols < N_LOOKS ? n_cols : N_LOOKS;
    double sum = 0;
    for (uint64_t i = 0; i < n_down * n_across; i++) {
        const uint64_t at = spread(top, n_rows, i / n_across, n_down) * heat->n_cols +
                            spread(left, n_cols, i % n_across, n_across);
        double number = 0;
        const int code = read_number(heat->slice, heat->first + at, &number);
        if (code < 0)
            return code;
        sum += number;
    }
    *ret = sum / (double)(n_down * n_across);
    return 0;
}

static int look_at_all(struct heat *heat)
{
    int code = 0;
    heat->min = INFINITY;
    heat->max = -INFINITY;
    for (uint64_t i = 0; i < heat->n_down * heat->n_across && code == 0; i++) {
        double *cell = &heat->cells[i];
        code = look_at_cell(heat, i / heat->n_across, i % heat->n_across, cell);
        if (code == 0 && isfinite(*cell)) {
            heat->min = fmin(heat->min, *cell);
            heat->max = fmax(heat->max, *cell);
        }
    }
    return code;
}

static void draw_rows(const struct heat *heat)
{
    static const char *const shades[N_SHADES] = {"·", "░", "▒", "▓", "█"};
    for (uint64_t i = 0; i < heat->n_down * heat->n_across; i++) {
        const double cell = heat->cells[i], range = heat->max - heat->min;
        const double share = range > 0 ? (cell - heat->min) / range : 0.5;
        if (i % heat->n_across == 0)
            fputs("  ", stdout);
        fputs(isfinite(cell) ? shades[(int)fmin(share * N_SHADES, N_SHADES - 1)] : "×", stdout);
        if ((i + 1) % heat->n_across == 0)
            putchar('\n');
    }
}

static void print_legend(const struct heat *heat)
{
    const uint64_t n_high = (heat->n_rows - 1) / heat->n_down + 1,
                   n_wide = (heat->n_cols - 1) / heat->n_across + 1;
    if (heat->min <= heat->max)
        printf("  · %.4g to █ %.4g", heat->min, heat->max);
    else
        fputs("  no finite element", stdout);
    if (n_high * n_wide > 1)
        fputs(", means of ", stdout);
    if (n_high > N_LOOKS || n_wide > N_LOOKS)
        printf("up to %d x %d of ", N_LOOKS, N_LOOKS);
    if (n_high * n_wide > 1)
        printf("%" PRIu64 " x %" PRIu64, n_high, n_wide);
    puts("; × is not finite");
}

static bool is_number(const struct wfs_tensor *tensor)
{
    const enum wfs_kind kind = wfs_dtype_kind(tensor->dtype);
    return kind != WFS_KIND_COMPLEX && kind != WFS_KIND_BITS;
}

/* Draws the matrix of the slice that begins with element first. */
static int draw(const struct slice *slice, uint64_t first, size_t n_screen)
{
    const uint64_t n_cols = n_inner(slice, 1), n_rows = n_inner(slice, 2) / n_cols;
    const uint64_t n_across = n_screen > 4 ? n_screen - 4 : 1;
    struct heat heat = {.slice = slice,
                        .first = first,
                        .n_rows = n_rows,
                        .n_cols = n_cols,
                        .n_down = n_rows < N_ROWS_MAX ? n_rows : N_ROWS_MAX,
                        .n_across = n_cols < n_across ? n_cols : n_across};
    autofree double *cells = calloc(heat.n_down * heat.n_across, sizeof(*cells));
    heat.cells = cells;
    const int code = cells == NULL ? -ENOMEM : look_at_all(&heat);
    if (code == 0) {
        draw_rows(&heat);
        print_legend(&heat);
    }
    return code;
}

/* ---- printing ---- */

int slice_print(const struct slice *slice, size_t n_screen)
{
    enum { N_NUMBER = 13 }; /* columns */
    char text[VALUES_TEXT_MAX];
    const uint64_t n_row = n_inner(slice, 1), n_matrix = n_inner(slice, 2);
    const bool is_drawn = n_screen > 0 && n_row > 1 && n_matrix > n_row && is_number(slice->tensor);
    const bool has_room = !is_drawn || n_row <= (n_screen - 1) / N_NUMBER;
    for (uint64_t i = 0; i < slice->n_elems && !ferror(stdout); i += has_room ? 1 : n_matrix) {
        if (n_matrix < slice->n_elems && i % n_matrix == 0)
            print_heading(slice, i);
        const int drawn = is_drawn && i % n_matrix == 0 ? draw(slice, i, n_screen) : 0;
        if (drawn < 0)
            return drawn;
        if (!has_room)
            continue;
        const int code = values_format(slice->tensor, place_of(slice, i), false, text);
        if (code < 0)
            return code;
        printf("%s %12s%s", i % n_row == 0 ? " " : "", text, (i + 1) % n_row == 0 ? "\n" : "");
    }
    return 0;
}

int slice_put_json(const struct slice *slice, struct json_out *out)
{
    char text[VALUES_TEXT_MAX];
    json_out_open_array(out, "slice_shape");
    for (uint32_t i = 0; i < slice->tensor->shape.rank; i++) {
        if (!slice->ranges[i].is_index)
            json_out_u64(out, NULL, slice->ranges[i].n);
    }
    json_out_close(out);
    json_out_open_array(out, "values");
    int code = 0;
    for (uint64_t i = 0; i < slice->n_elems && code == 0 && !ferror(stdout); i++) {
        code = values_format(slice->tensor, place_of(slice, i), true, text);
        if (code == 0)
            json_out_raw(out, NULL, text);
    }
    json_out_close(out);
    return code;
}
