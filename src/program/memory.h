/* SPDX-License-Identifier: MIT */
/*
 * The memory that a process takes at most, whatever a file makes it do.
 */
#ifndef WFS_MEMORY_H
#define WFS_MEMORY_H

#include <stddef.h>

/*
 * Limits the address space of the process to what the loaders may take for an index, and room for
 * buffers and stacks. limits: "NAME=NUMBER", as the user gave them. A lower limit that the process
 * has already stays.
 */
void memory_limit(const char *const *limits, size_t n_limits);

#endif
