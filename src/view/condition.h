/* SPDX-License-Identifier: MIT */
/*
 * Conditions on tensors, one at a time.
 */
#ifndef WFS_CONDITION_H
#define WFS_CONDITION_H

#include <weightfs/view.h>

bool condition_uses_class(const struct wfs_condition *condition);

/* Returns 1 if the tensor fits, else 0; -E2BIG of a regex. class_name is that of its verdict. */
int condition_test(const struct wfs_condition *condition, const struct wfs_tensor *tensor,
                   const char *class_name, struct wfs_error *err);

#endif
