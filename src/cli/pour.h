/* SPDX-License-Identifier: MIT */
/*
 * A tensor poured into standard output.
 */
#ifndef WFS_POUR_H
#define WFS_POUR_H

#include "program/exit.h"

#include <stddef.h>

#include <weightfs/tensor.h>

/* Writes the bytes to standard output; what fails is printed, a reader who has gone away aside. */
enum exit_code pour_bytes(const char *bytes, size_t n_bytes);

/* All of the tensor, in bounded memory. path is that of the checkpoint, for messages. */
enum exit_code pour_tensor(const struct wfs_tensor *tensor, const char *path);

#endif
