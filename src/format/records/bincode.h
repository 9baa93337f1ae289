/* SPDX-License-Identifier: MIT */
/*
 * Records of Burn's binary recorders. They have neither names nor types, so that only the program
 * that wrote one can read it; what they say about themselves is enough to name them.
 */
#ifndef WFS_BINCODE_H
#define WFS_BINCODE_H

#include <weightfs/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns whether the head is that of such a record. */
bool bincode_probe(const uint8_t *head, size_t n_head);

/* Refuses it by the name of its recorder, version and settings. -EOPNOTSUPP. */
int bincode_refuse(const uint8_t *head, size_t n_head, struct wfs_error *err);

#endif
