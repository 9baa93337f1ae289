/* SPDX-License-Identifier: MIT */
/*
 * The classes of PyTorch whose objects describe a distributed checkpoint, known by their names.
 */
#ifndef WFS_DCP_CLASSES_H
#define WFS_DCP_CLASSES_H

#include "value/value.h"

enum dcp_class {
    DCP_OTHER = 1, /* not one of these */
    DCP_METADATA,
    DCP_TENSOR,
    DCP_BYTES,
    DCP_CHUNK,
    DCP_PROPERTIES,
    DCP_INDEX,
    DCP_STORAGE,
    DCP_PADDLE, /* anything of PaddlePaddle's distributed checkpoints */
    DCP_SIZE,
    DCP_RECONSTRUCTOR, /* the function by which protocols 0 and 1 spell a new object */
};

/* Returns the class of a value that is an object, DCP_OTHER for other values. */
enum dcp_class dcp_class_of(struct graph *graph, uint32_t id);

/* Returns the class that a global names, DCP_OTHER for other values. */
enum dcp_class dcp_class_named(struct graph *graph, uint32_t id);

/* Returns the last state that an object got, 0: none. */
uint32_t dcp_state_of(const struct graph *graph, uint32_t id);

/* Returns what the state of an object has by that name; 0: nothing. */
uint32_t dcp_field(const struct graph *graph, uint32_t id, const char *name);

#endif
