/* SPDX-License-Identifier: MIT */
/*
 * The entries of a safetensors header, seen together.
 */
#ifndef WFS_SAFETENSORS_ENTRIES_H
#define WFS_SAFETENSORS_ENTRIES_H

#include "format/safetensors/safetensors_load.h"

/* Sorts the entries by their place in the data and compares them with each other and the file. */
int safetensors_entries_check(struct safetensors_load *load);

/* Fills the catalog with the checked entries. */
int safetensors_entries_fill(struct safetensors_load *load);

#endif
