/* SPDX-License-Identifier: MIT */
/*
 * Keys that share leading components stand together once they are sorted, so the end of a run is
 * found by bisection.
 */
#include "program/key_tree.h"

#include "program/terminal.h"

#include <weightfs/array.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- keys ---- */

/*
 * A dot sorts before all else, so that a key is directly followed by those that it is a prefix of.
 */
static int rank_of(char c)
{
    return c == '\0' ? 0 : c == '.' ? 1 : (unsigned char)c + 1;
}

/* Runs of digits are compared by length, then as text: the order of numbers. */
int order_of_keys(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    size_t i = 0;
    while (a[i] == b[i] && a[i] != '\0')
        i++;
    const size_t n_a = strspn(a + i, digits), n_b = strspn(b + i, digits);
    const bool is_in_number = (i > 0 && a[i - 1] >= '0' && a[i - 1] <= '9') || (n_a > 0 && n_b > 0);
    if (is_in_number && n_a != n_b)
        return n_a < n_b ? -1 : 1;
    return rank_of(a[i]) - rank_of(b[i]);
}

/* ---- runs ---- */

static int by_key(const void *a, const void *b)
{
    const struct wfs_tensor *const *x = a, *const *y = b;
    return order_of_keys((*x)->key, (*y)->key);
}

void key_tree_sort(struct key_tree *tree)
{
    qsort(tree->tensors, tree->n_tensors, sizeof(*tree->tensors), by_key);
}

size_t key_tree_component(const char *key, size_t n_prefix)
{
    return strcspn(key + n_prefix, ".");
}

size_t key_tree_end(const struct key_tree *tree, size_t i, size_t end, size_t n_prefix)
{
    const char *name = tree->tensors[i]->key + n_prefix;
    const size_t n_name = key_tree_component(tree->tensors[i]->key, n_prefix);
    size_t low = i + 1;
    while (low < end) {
        const size_t middle = low + (end - low) / 2;
        const char *other = tree->tensors[middle]->key + n_prefix;
        if (strncmp(name, other, n_name) == 0 && (other[n_name] == '.' || other[n_name] == '\0'))
            low = middle + 1;
        else
            end = middle;
    }
    return low;
}

/* Returns the bytes of the longest run of whole components, dots included, that every key of [i,
 * end) begins with. */
static size_t common_prefix(const struct key_tree *tree, size_t i, size_t end)
{
    const char *first = tree->tensors[i]->key;
    const char *last = tree->tensors[end - 1]->key;
    size_t n_prefix = 0;
    for (size_t j = 0; first[j] != '\0' && first[j] == last[j]; j++) {
        if (first[j] == '.')
            n_prefix = j + 1;
    }
    return n_prefix;
}

/* A sum that is too large is UINT64_MAX. */
static void add(uint64_t *sum, uint64_t n)
{
    if (__builtin_add_overflow(*sum, n, sum))
        *sum = UINT64_MAX;
}

uint64_t key_tree_n_bytes(const struct key_tree *tree, size_t i, size_t end)
{
    uint64_t n_bytes = 0;
    for (; i < end; i++)
        add(&n_bytes, tree->tensors[i]->n_bytes);
    return n_bytes;
}

uint64_t key_tree_n_elems(const struct key_tree *tree, size_t i, size_t end)
{
    uint64_t n_elems = 0;
    for (; i < end; i++) {
        uint64_t n = 0;
        (void)wfs_shape_count(&tree->tensors[i]->shape, &n);
        add(&n_elems, n);
    }
    return n_elems;
}

/* ---- equal runs ---- */

/* Reads the component at n_prefix as a number, spelled as numbers are printed. */
static bool number_at(const char *key, size_t n_prefix, uint64_t *ret)
{
    enum { N_DIGITS = 18 };
    const char *digit = key + n_prefix;
    const size_t n = key_tree_component(key, n_prefix);
    if (n == 0 || n > N_DIGITS || (n > 1 && *digit == '0'))
        return false;
    *ret = 0;
    for (size_t i = 0; i < n; i++, digit++) {
        if (*digit < '0' || *digit > '9')
            return false;
        *ret = *ret * 10 + (uint64_t)(*digit - '0');
    }
    return true;
}

/* Returns true for n tensors from a and from b on that differ in the component at n_prefix only. */
static bool is_equal(const struct key_tree *tree, size_t a, size_t b, size_t n, size_t n_prefix)
{
    for (size_t i = 0; i < n; i++) {
        const struct wfs_tensor *x = tree->tensors[a + i], *y = tree->tensors[b + i];
        if (x->dtype != y->dtype || !wfs_shape_is_equal(&x->shape, &y->shape) ||
            strcmp(x->key + n_prefix + key_tree_component(x->key, n_prefix),
                   y->key + n_prefix + key_tree_component(y->key, n_prefix)) != 0)
            return false;
    }
    return true;
}

/* Returns the end of the entry at i: of a tensor, or of a directory. */
static size_t end_of_entry(const struct key_tree *tree, size_t i, size_t end, size_t n_prefix)
{
    const char *key = tree->tensors[i]->key;
    const bool is_tensor = key[n_prefix + key_tree_component(key, n_prefix)] == '\0';
    return is_tensor ? i + 1 : key_tree_end(tree, i, end, n_prefix);
}

/* Returns the first entry of [i, end) with those after it that are equal but for the next number.
 */
static struct key_run equals_at(const struct key_tree *tree, size_t i, size_t end, size_t n_prefix)
{
    uint64_t number, next;
    struct key_run run = {.start = i, .n_copies = 1, .n_number = n_prefix};
    run.end = run.end_one = end_of_entry(tree, i, end, n_prefix);
    if (!number_at(tree->tensors[i]->key, n_prefix, &number))
        return run;
    while (run.end < end && number_at(tree->tensors[run.end]->key, n_prefix, &next) &&
           next == number + run.n_copies) {
        const size_t end_next = end_of_entry(tree, run.end, end, n_prefix);
        if (end_next - run.end != run.end_one - i ||
            !is_equal(tree, i, run.end, run.end_one - i, n_prefix))
            break;
        run.end = end_next;
        run.n_copies++;
    }
    return run;
}

struct key_run key_tree_run(const struct key_tree *tree, size_t i, size_t end, size_t n_prefix,
                            bool folds_equals)
{
    struct key_run run = {.start = i, .n_copies = 1};
    if (folds_equals)
        run = equals_at(tree, i, end, n_prefix);
    else
        run.end = run.end_one = end_of_entry(tree, i, end, n_prefix);
    run.n_prefix = run.end_one - i > 1 ? common_prefix(tree, i, run.end_one) : n_prefix;
    if (run.n_copies > 1 || !folds_equals || run.end - i < 2)
        return run;
    /* All that is in a directory may be equal. */
    struct key_run inner = equals_at(tree, i, run.end, run.n_prefix);
    if (inner.n_copies < 2 || inner.end != run.end)
        return run;
    inner.n_prefix = inner.end_one - i > 1 ? common_prefix(tree, i, inner.end_one) : run.n_prefix;
    return inner;
}

void key_tree_name(const struct key_tree *tree, const struct key_run *run, size_t n_prefix,
                   struct strbuf *out)
{
    const char *key = tree->tensors[run->start]->key;
    const size_t n_end = run->end_one - run->start > 1 ? run->n_prefix - 1 : strlen(key);
    size_t n_begin = n_prefix;
    uint64_t number;
    if (run->n_copies > 1 && number_at(key, run->n_number, &number)) {
        strbuf_escape(out, key + n_prefix, run->n_number - n_prefix);
        strbuf_printf(out, "{%" PRIu64 "..%" PRIu64 "}", number, number + run->n_copies - 1);
        n_begin = run->n_number + key_tree_component(key, run->n_number);
    } else if (n_end == n_begin) {
        strbuf_puts(out, "%");
    }
    strbuf_escape(out, key + n_begin, n_end - n_begin);
}

/* ---- modules ---- */

/* Adds what is in a directory: tensors [i, end), which share n_prefix bytes. */
static int add_entries(struct modules *modules, size_t i, size_t end, size_t n_prefix)
{
    while (i < end) {
        const struct key_run run =
            key_tree_run(modules->tree, i, end, n_prefix, modules->folds_equals);
        if (array_reserve(&modules->items, sizeof(*modules->items), modules->n_items, 1,
                          &modules->n_room) < 0)
            return -ENOMEM;
        modules->items[modules->n_items++] =
            (struct module){run, key_tree_n_bytes(modules->tree, run.start, run.end)};
        i = run.end;
    }
    return 0;
}

/* Replaces a directory that has more than half of the bytes by its entries. Returns whether there
 * was one, and few enough of them. */
static int expand(struct modules *modules, uint64_t n_all)
{
    for (size_t i = 0; i < modules->n_items && modules->n_items < modules->n_most; i++) {
        const struct module module = modules->items[i];
        const size_t n_before = modules->n_items;
        if (module.n_bytes <= n_all / 2 || module.run.n_copies > 1 ||
            module.run.end - module.run.start < 2)
            continue;
        const int code =
            add_entries(modules, module.run.start, module.run.end, module.run.n_prefix);
        if (code < 0)
            return code;
        if (modules->n_items - 1 > modules->n_most) {
            modules->n_items = n_before;
            return 0;
        }
        modules->items[i] = modules->items[--modules->n_items];
        return 1;
    }
    return 0;
}

int modules_find(struct modules *modules)
{
    const uint64_t n_all = key_tree_n_bytes(modules->tree, 0, modules->tree->n_tensors);
    int code = add_entries(modules, 0, modules->tree->n_tensors, 0);
    if (code < 0)
        return code;
    do {
        code = expand(modules, n_all);
    } while (code > 0);
    return code;
}

void modules_done(struct modules *modules)
{
    free(modules->items);
}
