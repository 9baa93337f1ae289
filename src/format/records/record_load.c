/* SPDX-License-Identifier: MIT */
/*
 * What the steps of a load share: how they fail, and lists of numbers that become values.
 */
#include "format/records/record_load.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

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

int record_fail_values(const struct record_load *load)
{
    return wfs_fail(load->err, E2BIG, "it has more than %s (limit values)",
                    wfs_count(load->context->limits.values, "value").text);
}

/* Reads the numbers of a list as values. */
static int fill(const struct record_load *load, uint32_t list, uint32_t *ids, uint64_t n)
{
    struct list_reader reader;
    int code = record_source_read(load->decoded, list, &reader);
    for (uint64_t i = 0; i < n && code == 0; i++) {
        struct token token;
        code = list_reader_next(&reader, &token);
        ids[i] = code < 0 ? 0 : value_of_token(load->graph, &token);
        if (code == 0 && ids[i] == 0)
            code = -ENOMEM;
    }
    list_reader_done(&reader);
    return code < 0 ? record_fail_read(load, code) : 0;
}

static int settle_list(const struct record_load *load, uint32_t id)
{
    struct graph *graph = load->graph;
    const uint32_t number = graph_at(graph, id)->id;
    const uint64_t n = record_source_list(load->decoded, number)->n;
    const uint64_t n_max = load->context->limits.values;
    if (n > UINT32_MAX || n > n_max || graph->n_values > n_max - n)
        return record_fail_values(load);
    autofree uint32_t *ids = calloc((size_t)n + 1, sizeof(*ids));
    if (ids == NULL)
        return record_fail_memory(load);
    const int code = fill(load, number, ids, n);
    if (code < 0)
        return code;
    const uint32_t list = value_new_items(graph, VALUE_LIST, ids, (uint32_t)n);
    if (list == 0)
        return record_fail_memory(load);
    *graph_at(graph, id) = *graph_at(graph, list);
    return 0;
}

int record_settle(const struct record_load *load, uint32_t id)
{
    const struct value *value = graph_at(load->graph, id);
    int code = 0;
    if (value->kind == VALUE_PERSISTENT)
        return settle_list(load, id);
    for (uint32_t i = 0; value_has_items(value) && i < value->n && code == 0; i++)
        code = record_settle(load, value_items(value)[i]);
    return code;
}
