/* SPDX-License-Identifier: MIT */
/*
 * Messages about parts.
 */
#include "format/dcp/dcp_opening.h"

#include <errno.h>
#include <string.h>

int dcp_opening_fail(const struct dcp_opening *o, int code, const char *what, struct wfs_error *err)
{
    autostrbuf struct strbuf at = {.n_max = 120};
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    dcp_print_numbers(&at, o->box, o->tensor->rank);
    return wfs_fail(err, -code, "its chunk at %s in '%s': %s", at.bytes != NULL ? at.bytes : "?",
                    wfs_quote(o->file_name).text, what);
}

static int fail_shape(const struct dcp_opening *o, const uint64_t *dims, uint32_t rank,
                      struct wfs_error *err)
{
    autostrbuf struct strbuf text = {.n_max = 240};
    strbuf_puts(&text, "the stored shape is ");
    dcp_print_numbers(&text, (const int64_t *)dims, rank);
    strbuf_puts(&text, ", not ");
    dcp_print_numbers(&text, o->box + o->tensor->rank, o->tensor->rank);
    return dcp_opening_fail(o, -EBADMSG,
                            text.bytes != NULL ? text.bytes : "the stored shape is another", err);
}

static int fail_dtype(const struct dcp_opening *o, enum wfs_dtype dtype, struct wfs_error *err)
{
    autostrbuf struct strbuf text = {0};
    strbuf_printf(&text, "the stored dtype is %s, not %s", wfs_dtype_name(dtype),
                  wfs_dtype_name((enum wfs_dtype)o->tensor->dtype));
    return dcp_opening_fail(o, -EBADMSG,
                            text.bytes != NULL ? text.bytes : "the stored dtype is another", err);
}

static bool is_shape(const struct dcp_opening *o, const uint64_t *dims, uint32_t rank)
{
    return rank == o->tensor->rank &&
           (rank == 0 || memcmp(dims, o->box + rank, rank * sizeof(*dims)) == 0);
}

int dcp_opening_compare(const struct dcp_opening *o, enum wfs_dtype dtype, const uint64_t *dims,
                        uint32_t rank, struct wfs_error *err)
{
    if (dtype != (enum wfs_dtype)o->tensor->dtype)
        return fail_dtype(o, dtype, err);
    return is_shape(o, dims, rank) ? 0 : fail_shape(o, dims, rank, err);
}
