/* SPDX-License-Identifier: MIT */
/*
 * The ids of persistent objects that protocol 0 writes as Python prints a tuple: ('storage', <class
 * 'torch.FloatStorage'>, '0', 'cpu', 4). PyTorch cannot read them back.
 */
#ifndef WFS_PICKLE_PERSID_H
#define WFS_PICKLE_PERSID_H

#include "base/limits.h"
#include "value/value.h"

/* Creates the tuple that the text shows; *ret is 0 when it shows none. -ENOMEM. */
int persid_parse(struct graph *graph, const struct limits *limits, const char *text, size_t n,
                 uint32_t *ret);

#endif
