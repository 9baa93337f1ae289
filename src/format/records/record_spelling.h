/* SPDX-License-Identifier: MIT */
/*
 * Values and dtypes as MessagePack.
 */
#ifndef WFS_RECORD_SPELLING_H
#define WFS_RECORD_SPELLING_H

#include "format/records/mpk_out.h"
#include "tensor/catalog.h"

/*
 * Writes a value of the graph. Without a message: -EINVAL for one that a record cannot hold,
 * -EEXIST for one in which the reader would find a tensor; -ENOMEM, errors as source_read.
 */
int record_spell_value(struct strbuf *out, const struct graph *graph, uint32_t id);

/* Writes a quantization scheme that is given as JSON. Returns false when it is not an object. */
bool record_spell_scheme(struct strbuf *out, const char *json);

#endif
