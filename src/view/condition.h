/* SPDX-License-Identifier: MIT */
/*
 * Conditions on tensors: `rank == 2 && dtype == F32 && !(key =~ norm)`.
 */
#ifndef WFS_CONDITION_H
#define WFS_CONDITION_H

#include <weightfs/tensor.h>

struct condition;

/*
 * Fields: key, leaf, dtype, class (texts), rank, bytes (numbers), shape (as [2,3], * is any
 * number). Texts compare with == != and, as a regex, =~ !~; numbers with == != < <= > >= too. && ||
 * ! and parentheses. A value is a word, a number, or anything between quotes. -EINVAL says where it
 * is wrong.
 */
int condition_new(const char *text, struct condition **out, struct wfs_error *err);
void condition_free(struct condition *condition);

bool condition_uses_class(const struct condition *condition);

/* 1: the tensor fits, 0: not; -E2BIG of a regex. class_name is that of evidence. */
int condition_test(const struct condition *condition, const struct wfs_tensor *tensor,
                   const char *class_name, struct wfs_error *err);

#endif
