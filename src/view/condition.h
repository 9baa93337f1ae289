/* SPDX-License-Identifier: MIT */
/*
 * Conditions on tensors: `rank == 2 && dtype == F32 && !(key =~ norm)`.
 */
#ifndef WFS_CONDITION_H
#define WFS_CONDITION_H

#include <weightfs/tensor.h>

struct condition;

/*
 * Parses a condition. The fields are key, leaf, dtype and class (texts), rank and bytes (numbers),
 * and shape (a list such as [2,3], where * is any number). Texts and shapes compare with == and !=,
 * and as a regex with =~ and !~; numbers with == != < <= > >=. Comparisons are combined with && ||
 * ! and parentheses. A value is a word, a number, or anything between quotes. -EINVAL says what is
 * expected where.
 */
int condition_new(const char *text, struct condition **out, struct wfs_error *err);
void condition_free(struct condition *condition);

bool condition_uses_class(const struct condition *condition);

/* Returns 1 if the tensor fits, else 0; -E2BIG of a regex. class_name is that of its verdict. */
int condition_test(const struct condition *condition, const struct wfs_tensor *tensor,
                   const char *class_name, struct wfs_error *err);

#endif
