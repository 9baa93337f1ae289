/* SPDX-License-Identifier: MIT */
/*
 * How the steps of a load fail.
 */
#include "format/burnpack/burnpack_load.h"

#include <errno.h>
#include <inttypes.h>

#include "format/core/nul_key.h"

int burnpack_load_fail_memory(const struct burnpack_load *load)
{
    return catalog_fail_memory(load->catalog, load->err);
}

int burnpack_load_fail_cbor(const struct burnpack_load *load, const struct burnpack_draft *draft)
{
    const struct cbor_in *in = &load->in;
    const uint64_t at = BURNPACK_HEADER + (uint64_t)cborin_offset(in);
    if (in->is_out_of_memory)
        return wfs_fail_memory(load->err);
    if (in->is_too_deep)
        return wfs_fail(load->err, E2BIG,
                        "metadata: nested deeper than %s at byte %" PRIu64 " (limit cbor_depth)",
                        wfs_count(in->depth_max, "level").text, at);
    if (draft == NULL)
        return wfs_fail(load->err, EBADMSG, "metadata: %s at byte %" PRIu64, in->error, at);
    return wfs_fail(load->err, EBADMSG, "metadata: tensor '%s': %s at byte %" PRIu64,
                    wfs_quote_n(draft->key.bytes, draft->key.n_bytes).text, in->error, at);
}

int burnpack_load_fail(struct burnpack_load *load, const struct burnpack_draft *draft,
                       const char *error)
{
    cborin_fail(&load->in, error);
    return burnpack_load_fail_cbor(load, draft);
}

int burnpack_escape(const struct burnpack_load *load, struct cbor_span *name, const char *what)
{
    const int code = nul_key_escape(load->context->force || load->context->escapes_nul,
                                    &load->catalog->arena, &name->bytes, &name->n_bytes);
    if (code == -EOPNOTSUPP)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "the %s '%s' contains a NUL, which no file name can" NUL_KEY_HINT, what,
                        burnpack_quote(name).text);
    return code < 0 ? burnpack_load_fail_memory(load) : code;
}
