/* SPDX-License-Identifier: MIT */
/*
 * The CBOR of a new file: keys in the order of Burn's structs, maps sorted by the bytes of their
 * keys, what is empty left out.
 */
#include "format/burnpack/burnpack_metadata.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "format/burnpack/burnpack_dtype.h"

int burnpack_metadata_param_id(const struct wfs_tensor *tensor, const char *text, uint64_t *ret,
                               struct wfs_error *err)
{
    uint64_t id = 0;
    bool is_number = *text != '\0';
    for (const char *at = text; is_number && *at != '\0'; at++)
        is_number = *at >= '0' && *at <= '9' && checked_mul(id, (uint64_t)10, &id) &&
                    checked_add(id, (uint64_t)(*at - '0'), &id);
    if (!is_number)
        return wfs_fail(err, EINVAL,
                        "tensor '%s': its param_id '%s' is not an integer from 0 to 2^64-1",
                        wfs_quote(tensor->key).text, wfs_quote(text).text);
    *ret = id;
    return 0;
}

static int put_tensor(struct strbuf *out, const struct burnpack_plan *plan,
                      const struct wfs_tensor *tensor)
{
    const char *param_id = wfs_tensor_attr(tensor, "param_id");
    const uint64_t start = plan->starts[tensor - plan->catalog->tensors];
    cborout_string(out, tensor->key);
    cborout_map(out, param_id != NULL ? 4 : 3);
    cborout_string(out, "dtype");
    burnpack_dtype_put(out, tensor);
    cborout_string(out, "shape");
    cborout_array(out, tensor->shape.rank);
    for (uint32_t i = 0; i < tensor->shape.rank; i++)
        cborout_uint(out, tensor->shape.dims[i]);
    cborout_string(out, "data_offsets");
    cborout_array(out, 2);
    cborout_uint(out, start);
    cborout_uint(out, start + tensor->n_bytes);
    if (param_id == NULL)
        return 0;
    uint64_t id = 0;
    const int code = burnpack_metadata_param_id(tensor, param_id, &id, plan->err);
    if (code < 0)
        return code;
    cborout_string(out, "param_id");
    cborout_uint(out, id);
    return 0;
}

static int put_scalar(struct strbuf *out, const struct burnpack_plan *plan,
                      const struct catalog_value *scalar)
{
    const struct value *value = graph_at(&plan->catalog->graph, scalar->id);
    const bool is_unsigned = value->form == FORM_UNSIGNED;
    cborout_string(out, scalar->name);
    cborout_map(out, 1);
    if (value->kind == VALUE_INT) {
        cborout_string(out, is_unsigned ? "UInt" : "Int");
        cborout_int(out, value->integer);
    } else if (value->kind == VALUE_BIG && is_unsigned) {
        cborout_string(out, "UInt");
        cborout_uint(out, load_le64(value->text));
    } else if (value->kind == VALUE_FLOAT) {
        cborout_string(out, "Float");
        cborout_real(out, value->real);
    } else if (value->kind == VALUE_BOOL) {
        cborout_string(out, "Bool");
        cborout_bool(out, value->integer != 0);
    } else {
        return wfs_fail(plan->err, EINVAL,
                        "'%s' is not a number, which a scalar of a Burnpack must be",
                        wfs_quote(scalar->name).text);
    }
    return 0;
}

int burnpack_metadata_write(const struct burnpack_plan *plan, struct strbuf *out)
{
    int code = 0;
    cborout_map(out, 1U + (plan->n_meta > 0) + (plan->n_scalars > 0));
    cborout_string(out, "tensors");
    cborout_map(out, plan->catalog->n_tensors);
    for (size_t i = 0; code == 0 && i < plan->catalog->n_tensors; i++)
        code = put_tensor(out, plan, plan->by_key[i]);
    if (plan->n_meta > 0) {
        cborout_string(out, "metadata");
        cborout_map(out, plan->n_meta);
    }
    for (size_t i = 0; i < plan->n_meta; i++) {
        cborout_string(out, plan->meta[i].name);
        cborout_text(out, plan->meta[i].value, plan->meta[i].n_bytes);
    }
    if (plan->n_scalars > 0) {
        cborout_string(out, "scalars");
        cborout_map(out, plan->n_scalars);
    }
    for (size_t i = 0; code == 0 && i < plan->n_scalars; i++)
        code = put_scalar(out, plan, &plan->scalars[i]);
    return code < 0 || !out->has_failed ? code : wfs_fail_memory(plan->err);
}
