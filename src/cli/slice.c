/* SPDX-License-Identifier: MIT */
/*
 * Ranges are clipped as Python clips them; an index must exist.
 */
#include "cli/slice.h"

#include "cli/values.h"
#include "program/print.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parsing ---- */

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
    int64_t start = 0, stop = 0, step = 1;
    bool has_start, has_stop = false, has_step = false;
    *ret = (struct slice_range){.step = 1, .n = n};
    if (!take_integer(at, &start, &has_start))
        return "an index, or START:STOP:STEP, is expected";
    if (**at != ':') {
        if (!has_start)
            return "an index, or START:STOP:STEP, is expected";
        ret->is_index = true;
        ret->start = clip(start, n);
        ret->n = 1;
        const bool exists = start >= 0 ? (uint64_t)start < n : 0 - (uint64_t)start <= n;
        return exists ? NULL : "the index is out of range";
    }
    ++*at;
    if (!take_integer(at, &stop, &has_stop))
        return "an index, or START:STOP:STEP, is expected";
    if (**at == ':') {
        ++*at;
        if (!take_integer(at, &step, &has_step) || **at == ':')
            return "an index, or START:STOP:STEP, is expected";
    }
    if (step < 1)
        return "a step must be at least 1";
    ret->start = has_start ? clip(start, n) : 0;
    const uint64_t end = has_stop ? clip(stop, n) : n;
    ret->step = (uint64_t)step;
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
        return print_error(EXIT_UNSUPPORTED, path, "out of memory");
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

void slice_done(struct slice *slice)
{
    free(slice->ranges);
    slice->ranges = NULL;
}

/* ---- elements ---- */

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

int slice_print(const struct slice *slice)
{
    char text[VALUES_TEXT_MAX];
    const uint64_t n_row = n_inner(slice, 1), n_matrix = n_inner(slice, 2);
    for (uint64_t i = 0; i < slice->n_elems && !ferror(stdout); i++) {
        if (n_matrix < slice->n_elems && i % n_matrix == 0)
            print_heading(slice, i);
        const int code = values_format(slice->tensor, place_of(slice, i), false, text);
        if (code < 0)
            return code;
        printf("%s %12s%s", i % n_row == 0 ? " " : "", text, (i + 1) % n_row == 0 ? "\n" : "");
    }
    return 0;
}

int slice_put_json(const struct slice *slice, struct jsonout *out)
{
    char text[VALUES_TEXT_MAX];
    jsonout_open_array(out, "slice_shape");
    for (uint32_t i = 0; i < slice->tensor->shape.rank; i++) {
        if (!slice->ranges[i].is_index)
            jsonout_u64(out, NULL, slice->ranges[i].n);
    }
    jsonout_close_array(out);
    jsonout_open_array(out, "values");
    int code = 0;
    for (uint64_t i = 0; i < slice->n_elems && code == 0 && !ferror(stdout); i++) {
        code = values_format(slice->tensor, place_of(slice, i), true, text);
        if (code == 0)
            jsonout_raw(out, NULL, text);
    }
    jsonout_close_array(out);
    return code;
}
