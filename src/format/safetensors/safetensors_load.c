/* SPDX-License-Identifier: MIT */
/*
 * What the steps of a load call: failures and room.
 */
#include "format/safetensors/safetensors_load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

void safetensors_load_done(struct safetensors_load *load)
{
    map_done(&load->keys);
    map_done(&load->meta_names);
    free(load->dims);
    free(load->meta);
    free(load->entries);
    free(load->header);
}

int safetensors_load_fail_json(struct safetensors_load *load, const char *error)
{
    struct json *json = &load->json;
    json_fail(json, error);
    const uint64_t at = SAFETENSORS_PREFIX + (uint64_t)json_offset(json);
    if (load->tensor.bytes == NULL)
        return wfs_fail(load->err, EBADMSG,
                        "InvalidHeaderDeserialization: invalid JSON in header: %s at byte %" PRIu64,
                        json->error, at);
    return wfs_fail(load->err, EBADMSG,
                    "InvalidHeaderDeserialization: invalid JSON in header: tensor '%s': %s at byte "
                    "%" PRIu64,
                    safetensors_quote(&load->tensor).text, json->error, at);
}
