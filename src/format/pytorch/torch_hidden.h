/* SPDX-License-Identifier: MIT */
/*
 * Storages, and parts of them, that no listed tensor shows.
 */
#ifndef WFS_TORCH_HIDDEN_H
#define WFS_TORCH_HIDDEN_H

#include "format/pytorch/torch_records.h"

/* Searches the storages that the pickle names. -ENOMEM. */
int torch_hidden_find(struct torch *torch);

/* Searches all records in the folders of storages, whether a pickle names them or not. -ENOMEM, and
 * errors that are not about one record. */
int torch_hidden_find_records(struct torch *torch, const struct torch_records *records);

#endif
