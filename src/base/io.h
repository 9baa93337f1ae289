/* SPDX-License-Identifier: MIT */
/*
 * Whole transfers on plain descriptors.
 */
#ifndef WFS_IO_H
#define WFS_IO_H

#include <stddef.h>

/* write(2) until all is written: 0 or a negative errno. */
int io_write(int fd, const void *bytes, size_t n_bytes);

#endif
