/* SPDX-License-Identifier: MIT */
/*
 * Names in pickles that do no harm when Python imports and calls them, whatever the arguments: they
 * make plain data, tensors, arrays, or modules of PyTorch. All code that a pickle can run is
 * reached by names, so a pickle with no other ones is harmless.
 */
#ifndef WFS_TORCH_HARMLESS_H
#define WFS_TORCH_HARMLESS_H

#include "value/value.h"

/* Returns whether the name of a global is on the list. */
bool torch_is_harmless(const struct graph *graph, uint32_t global);

#endif
