/* SPDX-License-Identifier: MIT */
/*
 * The other way of split: tensors whose keys differ in one piece become one, with their rows one
 * after the other.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text_index.h"
#include "compute/compute.h"
#include "view/pass.h"

struct fusing {
    struct pass *pass;
    const struct rule *rule; /* parts[0] is for the whole, parts[1] and so on are of the parts */
    struct text_index keys;
    struct item **items; /* malloc'ed, by key */
};

static void fusing_done(struct fusing *fusing)
{
    text_index_done(&fusing->keys);
    free(fusing->items);
}

static int read_keys(struct fusing *f)
{
    f->items = calloc(f->pass->report->n_items + 1, sizeof(struct item *));
    if (f->items == NULL)
        return wfs_fail_memory(f->pass->err);
    for_items(item, f->pass)
    {
        uint32_t id;
        if (text_index_add(&f->keys, item->tensor.key, strlen(item->tensor.key), &id) < 0)
            return wfs_fail_memory(f->pass->err);
        f->items[id] = f->items[id] == NULL ? item : f->items[id];
    }
    return 0;
}

/* Returns the key with another piece at n_front, in the arena; NULL when out of memory. */
static const char *put_piece(const struct fusing *f, const char *key, size_t n_front,
                             const char *piece)
{
    return arena_print(&f->pass->catalog->arena, "%.*s%s%s", (int)n_front, key, piece,
                       key + n_front + strlen(f->rule->parts[1]));
}

/* Finds the parts that go with the first one. Returns 1; 0: it is alone; or an error. */
static int find_parts(const struct fusing *f, size_t n_front, struct item **parts)
{
    const char *key = parts[0]->tensor.key, *missing = NULL;
    uint32_t n_found = 0;
    for (uint32_t i = 2; i < f->rule->n_parts; i++) {
        const char *other = put_piece(f, key, n_front, f->rule->parts[i]);
        if (other == NULL)
            return wfs_fail_memory(f->pass->err);
        const uint32_t id = text_index_find(&f->keys, other, strlen(other));
        missing = id == TEXT_INDEX_NONE ? other : missing;
        parts[i - 1] = id == TEXT_INDEX_NONE ? NULL : f->items[id];
        n_found += id != TEXT_INDEX_NONE;
    }
    if (missing == NULL || n_found == 0)
        return missing == NULL;
    return wfs_fail(f->pass->err, EINVAL, "fuse: '%s' is not there, which goes with '%s'",
                    wfs_quote(missing).text, wfs_quote(key).text);
}

/* Checks that a part fits the first one, and counts its rows. */
static int count_rows(const struct fusing *f, const struct item *one, const struct item *part,
                      uint64_t *sum)
{
    const struct wfs_tensor *a = &one->tensor, *b = &part->tensor;
    char first[200], other[200];
    bool fits = a->dtype == b->dtype && a->shape.rank == b->shape.rank && a->shape.rank > 0 &&
                !item_is_rigid(part);
    for (uint32_t i = 1; i < a->shape.rank && fits; i++)
        fits = a->shape.dims[i] == b->shape.dims[i];
    if (fits && checked_add(*sum, b->shape.dims[0], sum))
        return 0;
    wfs_shape_format(&a->shape, first, sizeof(first));
    wfs_shape_format(&b->shape, other, sizeof(other));
    return wfs_fail(f->pass->err, EINVAL,
                    "fuse: the rows of '%s' (%s %s) and '%s' (%s %s) cannot be "
                    "those of one tensor",
                    wfs_quote(a->key).text, wfs_dtype_name((enum wfs_dtype)a->dtype), first,
                    wfs_quote(b->key).text, wfs_dtype_name((enum wfs_dtype)b->dtype), other);
}

/* Makes the first part the whole, under its key, and empties the others. */
static int make_whole(const struct fusing *f, size_t n_front, struct item **parts)
{
    struct wfs_catalog *catalog = f->pass->catalog;
    struct wfs_tensor *whole = &parts[0]->tensor, tensors[RULE_MAX_PARTS];
    const uint32_t n = f->rule->n_parts - 1;
    const char *key = put_piece(f, whole->key, n_front, f->rule->parts[0]);
    uint64_t *dims = arena_calloc(&catalog->arena, whole->shape.rank + 1, sizeof(*dims));
    struct source *made;
    uint64_t n_rows = 0;
    bool is_unrounded = false; /* a part is computed: it is rounded once, after what follows */
    int code = key == NULL || dims == NULL ? wfs_fail_memory(f->pass->err) : 0;
    for (uint32_t i = 0; i < n && code == 0; i++) {
        code = count_rows(f, parts[0], parts[i], &n_rows);
        tensors[i] = parts[i]->tensor;
        is_unrounded = is_unrounded || tensors[i].stored.is_unrounded;
        if (whole->trouble == NULL)
            whole->trouble = tensors[i].trouble;
    }
    for (uint32_t i = 0; i < n && code == 0 && is_unrounded; i++) {
        tensors[i].dtype = WFS_F64;
        code = wfs_shape_bytes(&tensors[i].shape, WFS_F64, &tensors[i].n_bytes) < 0
                   ? wfs_fail(f->pass->err, E2BIG, "fuse: '%s' is too large", wfs_quote(key).text)
                   : 0;
    }
    if (code < 0)
        return code;
    if (join_new(tensors, n, 1, &made) < 0 || catalog_adopt_made(catalog, made) < 0)
        return wfs_fail_memory(f->pass->err);
    memcpy(dims, whole->shape.dims, whole->shape.rank * sizeof(*dims));
    dims[0] = n_rows;
    whole->shape.dims = dims;
    if (wfs_shape_bytes(&whole->shape, (enum wfs_dtype)whole->dtype, &whole->n_bytes) < 0)
        return wfs_fail(f->pass->err, E2BIG, "fuse: '%s' is too large", wfs_quote(key).text);
    whole->stored = (struct wfs_stored){
        .source = made, .dtype = tensors[0].dtype, .is_unrounded = is_unrounded};
    for (uint32_t i = 1; i < n; i++)
        parts[i]->drop = DROP_FUSED;
    pass_rename(f->pass, parts[0], key, "fuse");
    pass_note(f->pass, parts[0], "rows of %s", wfs_count(n, "tensor").text);
    pass_use(f->pass, f->rule);
    return 0;
}

static int fuse(struct pass *pass, const struct rule *rule)
{
    cleanup(fusing_done) struct fusing f = {.pass = pass, .rule = rule};
    const char *piece = rule->parts[1];
    int code = read_keys(&f);
    for_items(item, pass)
    {
        struct item *parts[RULE_MAX_PARTS] = {item};
        const char *key = item->tensor.key;
        for (const char *at = key; code == 0 && (at = strstr(at, piece)) != NULL; at++) {
            const size_t n_front = (size_t)(at - key);
            if (n_front > 0 && at[-1] != '.')
                continue;
            code = find_parts(&f, n_front, parts);
            if (code > 0)
                code = make_whole(&f, n_front, parts);
            if (item->tensor.key != key)
                break;
        }
        if (code < 0)
            return code;
    }
    return 0;
}

int pass_fuse(struct pass *pass)
{
    int code = 0;
    for_rules(rule, pass->view, RULE_FUSE)
    {
        code = code < 0 ? code : fuse(pass, rule);
    }
    return code;
}
