/* SPDX-License-Identifier: MIT */
/*
 * The pickle room: it knows every opcode of Python's pickle protocols 0 to 5, and turns a stream of
 * them into a graph of values and back. Nothing is executed: a call is kept as a call. What a name
 * or a call means is left to the formats.
 *
 * This header reads one pickle.
 */
#ifndef WFS_PICKLE_H
#define WFS_PICKLE_H

#include "pickle/pickle_job.h"
#include <weightfs/error.h>

struct pickle_budget pickle_budget_of(const struct limits *limits);

/* Reads the pickle, and adds its values to the graph. -EBADMSG, -E2BIG, -EOPNOTSUPP, -EIO,
 * -ENOMEM. */
int pickle_load(struct pickle_job *job, uint32_t *ret_root, struct wfs_error *err);

/* Returns whether the first bytes of a file of n_bytes look like a pickle. */
bool pickle_probe(const void *head, size_t n_head, uint64_t n_bytes);

#endif
