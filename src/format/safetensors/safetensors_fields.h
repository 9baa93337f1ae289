/* SPDX-License-Identifier: MIT */
/*
 * One entry of a safetensors header.
 */
#ifndef WFS_SAFETENSORS_FIELDS_H
#define WFS_SAFETENSORS_FIELDS_H

#include "format/safetensors/safetensors_load.h"

/* Takes the value of a tensor's key, an object or an array, into entry. */
int safetensors_fields_take(struct safetensors_load *load, struct safetensors_entry *entry);

#endif
