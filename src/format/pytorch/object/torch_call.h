/* SPDX-License-Identifier: MIT */
/*
 * What calls of a pickle call, and with what: arguments and states, and the names that have a
 * meaning here: functions that make tensors, storage classes, dtypes. Every other name stays
 * opaque.
 */
#ifndef WFS_TORCH_CALL_H
#define WFS_TORCH_CALL_H

#include "value/value.h"

/* Returns the i-th item of a tuple or list; 0 when it is neither or has fewer items. */
uint32_t torch_arg(const struct graph *graph, uint32_t args, uint32_t i);
uint32_t torch_n_args(const struct graph *graph, uint32_t args);

/* Returns whether it is the name of the encoding that makes bytes of a text in old protocols. */
bool torch_is_latin1(const struct graph *graph, uint32_t codec);

/* Reads an integer or a bool; false when the value is neither, or the integer has over 64 bits. */
bool torch_integer(const struct graph *graph, uint32_t id, int64_t *ret);

/* Returns the last state that a call got from BUILD; 0: none. */
uint32_t torch_state(const struct graph *graph, const struct value *call);

/* The meaning of a name. */
enum torch_what {
    WHAT_UNKNOWN,
    WHAT_REBUILD_TENSOR, /* the arguments of the others: see torch_builder.c */
    WHAT_REBUILD_TENSOR_V2,
    WHAT_REBUILD_TENSOR_V3,
    WHAT_REBUILD_PARAMETER,
    WHAT_REBUILD_PARAMETER_STATE,
    WHAT_REBUILD_QTENSOR,
    WHAT_REBUILD_SPARSE,
    WHAT_REBUILD_NESTED,
    WHAT_REBUILD_NJT,
    WHAT_REBUILD_META,
    WHAT_REBUILD_FROM_ARRAY,
    WHAT_REBUILD_FROM_TENSOR,
    WHAT_REBUILD_WRAPPER,
    WHAT_REBUILD_TYPE,
    WHAT_PARAMETER,
    WHAT_TENSOR_CLASS, /* of old: FloatTensor */
    WHAT_LOAD_FROM_BYTES,
    WHAT_NP_RECONSTRUCT,
    WHAT_NP_FROMBUFFER,
    WHAT_LAST_TENSOR = WHAT_NP_FROMBUFFER,
    WHAT_STORAGE, /* a class, with the dtype of its elements */
    WHAT_UNTYPED_STORAGE,
    WHAT_DTYPE,
    WHAT_SIZE,
    WHAT_LAYOUT,
    WHAT_ORDERED_DICT,
    WHAT_DICT,
    WHAT_COUNTER,
    WHAT_DEFAULT_DICT,
    WHAT_FROZEN_DICT, /* its items cannot be set afterwards */
    WHAT_DEQUE,
    WHAT_RECONSTRUCTOR, /* of subclasses, up to protocol 1 */
    WHAT_PARTIAL,
    WHAT_ENCODE, /* text to bytes */
    WHAT_BYTES,
    WHAT_BYTEARRAY,
    WHAT_SEQUENCE, /* list, tuple, set of one argument; also TorchScript's typed lists, modules */
    WHAT_NP_DTYPE,
    WHAT_NP_DTYPE_CLASS,
    WHAT_NP_SCALAR,
    WHAT_QSCHEME,
};

struct torch_global {
    const char *module, *name;
    uint8_t n_module, n_name;
    uint8_t what;  /* enum torch_what */
    uint8_t dtype; /* enum wfs_dtype, where what has one */
};

/* Returns the module, by the name that it has in Python 3. */
const char *torch_module(const struct value_global *global);

/* Returns the class that a persistent id of an old file stands for: ('module', class, file, source
 * text) in streams, (class, file, source text) in tars. Returns other values as they are. */
uint32_t torch_class_of(const struct graph *graph, uint32_t id);

/* Returns the meaning of a global, or of the class that a persistent id of an old file stands for;
 * NULL when it has none. */
const struct torch_global *torch_global_of(const struct graph *graph, uint32_t id);

/* Returns what a call calls; WHAT_UNKNOWN for a value that is not a call. */
enum torch_what torch_what_of(const struct graph *graph, const struct value *value);

/* Returns the tuple or list, or the one in torch.Size(tuple); 0 for other values. */
uint32_t torch_tuple(const struct graph *graph, uint32_t id);

#endif
