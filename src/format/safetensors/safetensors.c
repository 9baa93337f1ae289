/* SPDX-License-Identifier: MIT */
/*
 * The safetensors format: recognising a file, and the steps of loading one. The order of the checks
 * is that of the reference, so that a file with two faults gets the same verdict.
 */
#include "format/safetensors/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "format/safetensors/safetensors_file.h"
#include "format/safetensors/safetensors_entries.h"
#include "format/safetensors/safetensors_header.h"
#include "format/safetensors/safetensors_layout.h"

#include "base/utf8.h"

enum { N_HUB_HEADER = 25000000 };

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t skip_space(const uint8_t *head, size_t i, size_t n_head)
{
    while (i < n_head && is_space(head[i]))
        i++;
    return i;
}

/* The format has no magic number: an object begins at byte 8, after a length that is not text. */
static bool probe(const uint8_t *head, size_t n_head, uint64_t n_bytes)
{
    bool is_text = true;
    for (size_t i = 0; i < SAFETENSORS_PREFIX && i < n_head; i++)
        is_text = is_text && (is_space(head[i]) || (head[i] >= 0x20 && head[i] < 0x7f));
    size_t i = skip_space(head, SAFETENSORS_PREFIX, n_head);
    if (is_text || i >= n_head || head[i] != '{')
        return false;
    i = skip_space(head, i + 1, n_head);
    return i >= n_head || head[i] == '"' || head[i] == '}';
}

static bool foresee(const uint8_t *head, size_t n_head, uint64_t n_bytes, uint64_t *ret_offset,
                    uint64_t *ret_n_bytes)
{
    const uint64_t n_header = n_head < SAFETENSORS_PREFIX ? 0 : load_le64(head);
    *ret_offset = 0;
    return !__builtin_add_overflow(SAFETENSORS_PREFIX, n_header, ret_n_bytes);
}

static int check_length(const struct safetensors_load *load, uint64_t n_header)
{
    enum { LARGEST = INT32_MAX }; /* entries keep offsets in 32 bits */
    const uint64_t n_bytes = load->source->n_bytes, n_rest = n_bytes - SAFETENSORS_PREFIX;
    uint64_t limit = load->context->limits.header;
    limit = limit < LARGEST ? limit : LARGEST;
    if (n_header > limit) {
        if (n_header > n_rest)
            return wfs_fail(
                load->err, EBADMSG,
                "HeaderTooLarge: truncated: the header should have %s, the file has %" PRIu64,
                wfs_count(n_header, "byte").text, n_bytes);
        return wfs_fail(load->err, E2BIG,
                        "HeaderTooLarge: the header has %s, the limit is %" PRIu64
                        " (limit header)",
                        wfs_count(n_header, "byte").text, limit);
    }
    if (n_header > n_rest)
        return wfs_fail(load->err, EBADMSG,
                        "InvalidHeaderLength: truncated: the header ends at byte %" PRIu64
                        ", the file has %" PRIu64,
                        SAFETENSORS_PREFIX + n_header, n_bytes);
    return 0;
}

static int read_header(struct safetensors_load *load)
{
    uint8_t prefix[SAFETENSORS_PREFIX];
    if (load->source->n_bytes < sizeof(prefix))
        return wfs_fail(load->err, EBADMSG,
                        "HeaderTooSmall: truncated: the file has %s, expected at least 8",
                        wfs_count(load->source->n_bytes, "byte").text);
    if (source_read(load->source, 0, prefix, sizeof(prefix)) < 0)
        return wfs_fail(load->err, EIO, "cannot read the length of its header");
    const int code = check_length(load, load->n_header = load_le64(prefix));
    if (code < 0)
        return code;
    load->header = malloc(load->n_header > 0 ? (size_t)load->n_header : 1);
    if (load->header == NULL)
        return wfs_fail_memory(load->err);
    if (source_read(load->source, sizeof(prefix), load->header, (size_t)load->n_header) < 0)
        return wfs_fail(load->err, EIO, "cannot read its header of %s",
                        wfs_count(load->n_header, "byte").text);
    const size_t n_valid = utf8_valid(load->header, (size_t)load->n_header);
    if (n_valid < load->n_header)
        return wfs_fail(load->err, EBADMSG,
                        "InvalidHeader: invalid UTF-8 in header at byte %" PRIu64,
                        SAFETENSORS_PREFIX + (uint64_t)n_valid);
    return 0;
}

static void note_header(struct safetensors_load *load)
{
    struct arena *arena = &load->catalog->arena;
    const uint64_t n_header = load->n_header;
    if (n_header > 0 && load->header[0] != '{' && tally_count(&load->tally, WFS_FINDING_ST_LEADING))
        tally_describe(&load->tally, arena, WFS_FINDING_ST_LEADING,
                       "the header begins with white space, which some readers refuse");
    if (n_header % 8 != 0 && tally_count(&load->tally, WFS_FINDING_ST_DATA_START))
        tally_describe(&load->tally, arena, WFS_FINDING_ST_DATA_START,
                       "the data begins at byte %" PRIu64 ", which is not a multiple of 8",
                       SAFETENSORS_PREFIX + n_header);
    if (n_header > N_HUB_HEADER && tally_count(&load->tally, WFS_FINDING_ST_HEADER_SIZE))
        tally_describe(&load->tally, arena, WFS_FINDING_ST_HEADER_SIZE,
                       "the header has %s, model hubs show files of up to %d",
                       wfs_count(n_header, "byte").text, N_HUB_HEADER);
}

static int run(struct safetensors_load *load)
{
    int code = read_header(load);
    if (code < 0)
        return code;
    note_header(load);
    code = safetensors_header_parse(load);
    if (code == 0)
        code = safetensors_entries_check(load);
    if (code == 0)
        code = safetensors_entries_fill(load);
    if (code < 0)
        return code;
    return tally_report(&load->tally, load->catalog) < 0
               ? catalog_fail_memory(load->catalog, load->err)
               : 0;
}

static int load_file(struct source *source, const struct load_context *context,
                     struct wfs_catalog *catalog, struct wfs_error *err)
{
    struct safetensors_load load = {
        .source = source, .context = context, .catalog = catalog, .err = err};
    catalog->container = WFS_CONTAINER_SAFETENSORS;
    const int code = run(&load);
    safetensors_load_done(&load);
    return code;
}

static const char *const extensions[] = {".safetensors", NULL};

static const struct format_functions functions = {
    .probe = probe,
    .foresee = foresee,
    .load = load_file,
    .stores = safetensors_layout_stores,
    .plan = safetensors_layout_plan,
};

const struct wfs_format format_safetensors = {
    .id = WFS_FORMAT_SAFETENSORS,
    .name = "safetensors",
    .title = "safetensors",
    .extensions = extensions,
    .set_name = "model.safetensors",
    .reserved_key = SAFETENSORS_METADATA,
    .needs_utf8 = true,
    .keeps_metadata = true,
    .functions = &functions,
};
