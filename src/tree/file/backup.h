/* SPDX-License-Identifier: MIT */
/*
 * Backup copies that editors and tools leave beside the file they replace: `w~`, `w.~1~`, `w.bak`,
 * `w.orig`, `w.rej`, `w.swp` and `#w#` beside `w`. They are scratch files.
 */
#ifndef WFS_TREE_BACKUP_H
#define WFS_TREE_BACKUP_H

#include "tree/node/node.h"

/* Returns true when the name is that of a backup copy of some other name. */
bool backup_is_name(const char *name);

/*
 * Returns true when the file is a backup copy of a file in the same directory. A tensor or value
 * that was loaded with such a name is not. key is the one of the file, or NULL.
 */
bool backup_is_one(const struct wfs_tree *tree, uint32_t id, const char *key, bool is_value);

#endif
