/* SPDX-License-Identifier: MIT */
/*
 * Rules in a JSON file: an array of objects with options as members: {"remap": "A=>B"}. A pair may
 * be an array of two texts, {"remap": ["A", "B"]}, and an option without a value is true.
 */
#ifndef WFS_RULES_FILE_H
#define WFS_RULES_FILE_H

#include <weightfs/error.h>

/* Takes one option, "NAME=VALUE" or "NAME". Returns as wfs_view_add. */
typedef int (*rules_file_add)(void *ctx, const char *text, struct wfs_error *err);

/* Gives each option of the file to add. -EINVAL names the file, and the rule that is wrong. */
int rules_file_read(const char *path, rules_file_add add, void *ctx, struct wfs_error *err);

#endif
