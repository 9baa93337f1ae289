/* SPDX-License-Identifier: MIT */
/*
 * Tensors that an order leaves equal are ordered by key.
 */
#include "cli/order.h"

#include "program/print.h"

#include <stdlib.h>
#include <string.h>

enum exit_code order_parse(const struct args *args, enum order *ret)
{
    static const char *const names[] = {[ORDER_NONE] = "none",
                                        [ORDER_KEY] = "key",
                                        [ORDER_NAME] = "name",
                                        [ORDER_SIZE] = "size",
                                        [ORDER_DTYPE] = "dtype"};
    const char *text = args_value(args, "sort");
    for (size_t i = 0; text != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum order)i;
            return EXIT_DONE;
        }
    }
    return text == NULL ? EXIT_DONE
                        : print_error(EXIT_USAGE, NULL,
                                      "--sort must be key, name, size, dtype or none, not '%s'",
                                      wfs_quote(text).text);
}

/* ---- keys ---- */

/*
 * A dot sorts before all else, so that a key is directly followed by those that it is a prefix of.
 */
static int rank_of(char c)
{
    return c == '\0' ? 0 : c == '.' ? 1 : (unsigned char)c + 1;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Runs of digits are compared by length, then as text: the order of numbers. */
int order_of_keys(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    size_t i = 0;
    while (a[i] == b[i] && a[i] != '\0')
        i++;
    const size_t n_a = strspn(a + i, digits), n_b = strspn(b + i, digits);
    const bool is_in_number = (i > 0 && is_digit(a[i - 1])) || (n_a > 0 && n_b > 0);
    if (is_in_number && n_a != n_b)
        return n_a < n_b ? -1 : 1;
    return rank_of(a[i]) - rank_of(b[i]);
}

/* ---- orders ---- */

static int by_key(const void *a, const void *b)
{
    const struct wfs_tensor *const *x = a, *const *y = b;
    return order_of_keys((*x)->key, (*y)->key);
}

static const char *last_component(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot != NULL ? dot + 1 : key;
}

static int by_name(const void *a, const void *b)
{
    const struct wfs_tensor *const *x = a, *const *y = b;
    const int order = order_of_keys(last_component((*x)->key), last_component((*y)->key));
    return order != 0 ? order : by_key(a, b);
}

static int by_size(const void *a, const void *b)
{
    const struct wfs_tensor *const *x = a, *const *y = b;
    if ((*x)->n_bytes != (*y)->n_bytes)
        return (*x)->n_bytes > (*y)->n_bytes ? -1 : 1;
    return by_key(a, b);
}

static int by_dtype(const void *a, const void *b)
{
    const struct wfs_tensor *const *x = a, *const *y = b;
    const int order = strcmp(wfs_dtype_name((enum wfs_dtype)(*x)->dtype),
                             wfs_dtype_name((enum wfs_dtype)(*y)->dtype));
    return order != 0 ? order : by_key(a, b);
}

void order_sort(const struct wfs_tensor **tensors, size_t n_tensors, enum order order)
{
    static int (*const compare[])(const void *, const void *) = {[ORDER_KEY] = by_key,
                                                                 [ORDER_NAME] = by_name,
                                                                 [ORDER_SIZE] = by_size,
                                                                 [ORDER_DTYPE] = by_dtype};
    if (compare[order] != NULL)
        qsort(tensors, n_tensors, sizeof(*tensors), compare[order]);
}
