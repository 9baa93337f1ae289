/* SPDX-License-Identifier: MIT */
/*
 * Which maps of a record are tensors and parameters.
 *
 *   parameter           {"id": text, "param": tensor}
 *   tensor, since 0.14  {"bytes": bytes, "shape": [integer...], "dtype": dtype}
 *   tensor, up to 0.13  {"value": [number...], "shape": [integer...]}
 *
 * Struct fields can have any name, also `id`, `param`, `bytes` or `shape`: what a map is depends on
 * the kinds of its values too. The reader asks for what it has read, the writer for what it would
 * write.
 */
#ifndef WFS_RECORD_MAP_H
#define WFS_RECORD_MAP_H

#include "value/value.h"

/* The kinds of the fields that decide, each enum value_kind + 1; 0: there is no such field. */
struct record_map {
    uint32_t n; /* fields in all */
    uint8_t id, param, bytes, value, shape, dtype;
};

/* Returns the kind as a field has it. */
uint8_t record_kind_of(enum value_kind kind);

/* Returns the kind of a value as a field has it. A text in place of bytes is a text. */
uint8_t record_kind(const struct graph *graph, uint32_t id);

/* Returns the kind of a field of a map, 0: it has no such field. */
typedef uint8_t record_find_kind(const void *ctx, uint32_t map, const char *name);

/* Asks for the fields of a map that has n. */
struct record_map record_map_make(uint32_t n, record_find_kind *find, const void *ctx, uint32_t id);

/* Returns what a value that is a map has; nothing for others. */
struct record_map record_map_of(const struct graph *graph, uint32_t id);

/* What is written for a tensor, and for a parameter. */
struct record_map record_map_of_tensor(void);
struct record_map record_map_of_parameter(void);

/* Returns whether it is the map of a tensor's bytes. Bytes are written for tensors only; a list of
 * integers and a text can be in their place, and then shape and dtype must look like those of a
 * tensor. */
bool record_map_has_bytes(const struct record_map *map);

/* Returns whether it is a tensor, with bytes or a list of numbers. */
bool record_map_is_tensor(const struct record_map *map);

/* Returns whether it is a parameter, perhaps a damaged one, whose field `param` is that map. */
bool record_map_is_parameter(const struct record_map *map, const struct record_map *param);

/* Returns whether the value is a tensor or a parameter. */
bool record_is_tensor(const struct graph *graph, uint32_t id);

#endif
