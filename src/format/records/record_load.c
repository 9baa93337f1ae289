/* SPDX-License-Identifier: MIT */
/*
 * How the steps of a load fail.
 */
#include "format/records/record_load.h"

#include <errno.h>
#include <inttypes.h>

#include "format/records/record_value.h"

int record_fail_memory(const struct record_load *load)
{
    return catalog_fail_memory(load->catalog, load->err);
}

const char *record_where(const struct record_load *load)
{
    if (load->has_other_sum)
        return " of the decompressed record (whose checksum differs)";
    return load->is_gzip ? " of the decompressed record" : "";
}

int record_fail_short(const struct record_load *load, uint64_t offset)
{
    return wfs_fail(load->err, EBADMSG,
                    "truncated: what begins at byte %" PRIu64
                    "%s is not complete, the end is after %s",
                    offset, record_where(load), wfs_count(load->bytes->n_bytes, "byte").text);
}

int record_fail_read(const struct record_load *load, int code)
{
    if (code == -ENOMEM)
        return record_fail_memory(load);
    return wfs_fail(load->err, -code, "cannot read the record");
}

int record_settle(struct record_load *load, uint32_t id)
{
    const uint64_t limit = load->context->limits.values;
    const int code = value_settle(load->graph, load->decoded, id, limit);
    if (code == -E2BIG)
        return wfs_fail(load->err, E2BIG, "it has more than %s (limit values)",
                        wfs_count(limit, "value").text);
    return code < 0 ? record_fail_read(load, code) : 0;
}
