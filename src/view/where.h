/* SPDX-License-Identifier: MIT */
/*
 * Conditions on tensors: `rank == 2 && dtype == F32 && !(key =~ norm)`.
 */
#ifndef WFS_WHERE_H
#define WFS_WHERE_H

#include <weightfs/tensor.h>

struct where;

/*
 * Fields: key, leaf, dtype, class (texts), rank, bytes (numbers), shape (as [2,3], * is any
 * number). Texts compare with == != and, as a regex, =~ !~; numbers with == != < <= > >= too. && ||
 * ! and parentheses. A value is a word, a number, or anything between quotes. -EINVAL says where it
 * is wrong.
 */
int where_new(const char *text, struct where **out, struct wfs_error *err);
void where_free(struct where *where);

bool where_uses_class(const struct where *where);

/* 1: the tensor fits, 0: not; -E2BIG of a regex. class_name is that of evidence. */
int where_test(const struct where *where, const struct wfs_tensor *tensor, const char *class_name,
               struct wfs_error *err);

#endif
