/* SPDX-License-Identifier: MIT */
/*
 * The Burnpack format: recognising a file, its header, and the steps of loading one.
 */
#include "format/burnpack/burnpack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/burnpack/burnpack_file.h"
#include "format/burnpack/burnpack_extent.h"
#include "format/burnpack/burnpack_fields.h"
#include "format/burnpack/burnpack_layout.h"
#include "format/burnpack/burnpack_pairs.h"

static const uint8_t magic[4] = {'N', 'R', 'U', 'B'};

static bool probe(const uint8_t *head, size_t n_head, uint64_t n_bytes)
{
    return n_head >= sizeof(magic) && memcmp(head, magic, sizeof(magic)) == 0;
}

static bool foresee(const uint8_t *head, size_t n_head, uint64_t n_bytes, uint64_t *ret_offset,
                    uint64_t *ret_n_bytes)
{
    *ret_offset = 0;
    *ret_n_bytes = n_head < BURNPACK_HEADER ? 0 : BURNPACK_HEADER + (uint64_t)load_le32(head + 6);
    return true;
}

static int check_magic(const struct burnpack_load *load, const uint8_t *header)
{
    if (memcmp(header, magic, sizeof(magic)) == 0)
        return 0;
    return wfs_fail(load->err, EMEDIUMTYPE,
                    "is not a Burnpack: it begins with %02x %02x %02x %02x, not with 4e 52 55 42%s",
                    header[0], header[1], header[2], header[3],
                    memcmp(header, "BURN", sizeof(magic)) == 0 ? " (the bytes are swapped)" : "");
}

static int check_length(const struct burnpack_load *load)
{
    const uint64_t limit = load->context->limits.cbor, n_bytes = load->source->n_bytes;
    if (load->n_cbor > limit)
        return wfs_fail(load->err, E2BIG,
                        "its metadata has %s, the limit is %" PRIu64 " (limit cbor)",
                        wfs_count(load->n_cbor, "byte").text, limit);
    if (load->n_cbor > n_bytes - BURNPACK_HEADER)
        return wfs_fail(load->err, EBADMSG,
                        "truncated: its metadata ends at byte %" PRIu64 ", the file has %" PRIu64,
                        BURNPACK_HEADER + load->n_cbor, n_bytes);
    return 0;
}

static int read_header(struct burnpack_load *load)
{
    uint8_t header[BURNPACK_HEADER] = {0};
    const uint64_t n_bytes = load->source->n_bytes;
    const size_t n_header = n_bytes < sizeof(header) ? (size_t)n_bytes : sizeof(header);
    if (source_read(load->source, 0, header, n_header) < 0)
        return wfs_fail(load->err, EIO, "cannot read its header");
    int code = check_magic(load, header);
    if (code < 0)
        return code;
    if (n_header < sizeof(header))
        return wfs_fail(load->err, EBADMSG, "truncated: the file has %s, its header takes %d",
                        wfs_count(n_bytes, "byte").text, BURNPACK_HEADER);
    const unsigned version = load_le16(header + 4);
    if (version > BURNPACK_VERSION)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "is a Burnpack of version %u, versions up to %d are known", version,
                        BURNPACK_VERSION);
    load->n_cbor = load_le32(header + 6);
    return check_length(load);
}

static int read_cbor(struct burnpack_load *load)
{
    load->cbor = malloc(load->n_cbor > 0 ? (size_t)load->n_cbor : 1);
    if (load->cbor == NULL)
        return wfs_fail_memory(load->err);
    if (source_read(load->source, BURNPACK_HEADER, load->cbor, (size_t)load->n_cbor) < 0)
        return wfs_fail(load->err, EIO, "cannot read its metadata of %s",
                        wfs_count(load->n_cbor, "byte").text);
    cborin_init(&load->in, load->cbor, (size_t)load->n_cbor, load->context->limits.cbor_depth);
    return 0;
}

static int run(struct burnpack_load *load)
{
    int code = read_header(load);
    if (code == 0)
        code = read_cbor(load);
    if (code == 0)
        code = burnpack_fields_parse(load);
    if (code == 0)
        code = burnpack_pairs_fill(load);
    if (code == 0)
        code = burnpack_extent_check(load);
    if (code < 0)
        return code;
    return tally_report(&load->tally, load->catalog) < 0 ? burnpack_load_fail_memory(load) : 0;
}

static int load_file(struct source *source, const struct load_context *context,
                     struct wfs_catalog *catalog, struct wfs_error *err)
{
    struct burnpack_load load = {
        .source = source, .context = context, .catalog = catalog, .err = err};
    catalog->container = WFS_CONTAINER_BURNPACK;
    catalog->graph.arena = &catalog->arena;
    const int code = run(&load);
    cborin_done(&load.in);
    free(load.meta.items);
    free(load.scalars.items);
    free(load.dims);
    free(load.cbor);
    return code;
}

static const char *const extensions[] = {".bpk", NULL};

static const struct format_functions functions = {
    .probe = probe,
    .foresee = foresee,
    .load = load_file,
    .stores = burnpack_layout_stores,
    .check = burnpack_layout_check,
    .plan = burnpack_layout_plan,
};

const struct wfs_format format_burnpack = {
    .id = WFS_FORMAT_BURNPACK,
    .name = "burnpack",
    .title = "Burnpack",
    .extensions = extensions,
    .set_name = "model.bpk",
    .convention = WFS_CONVENTION_BURN,
    .values = WFS_VALUES_NUMBERS,
    .state_names = WFS_STATE_NAMES_FLAT,
    .needs_utf8 = true,
    .keeps_metadata = true,
    .keeps_param_ids = true,
    .functions = &functions,
};
