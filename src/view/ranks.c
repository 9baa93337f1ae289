/* SPDX-License-Identifier: MIT */
/*
 * Ranks of model parallelism: checkpoints of the same keys, of which each has a part of some
 * tensors and a copy of others. Their names have a number. They become one before anything else
 * looks at the tensors. Copies are compared: a part that was taken for one would be lost without a
 * word.
 */
#include <weightfs/cleanup.h>
#include <weightfs/url.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "compute/compute.h"
#include "remote/remote_source.h"
#include "tensor/tensor.h"
#include "view/pass.h"

enum { MOST_RANKS = 1024 };

struct ranks {
    struct pass *pass;
    const char *url;          /* beside which the other ranks are; NULL: they are files */
    const char *front, *back; /* of the path, or of the name in the URL, around the number */
    int n_digits;
    size_t n;
    const struct wfs_catalog **catalogs; /* malloc'ed; that of rank 0 is the source */
    struct catalog_keys *keys;           /* malloc'ed */
    const struct wfs_tensor **parts;     /* malloc'ed: of the tensor that is being joined */
    size_t n_joined, n_equal;
};

static void ranks_done(struct ranks *ranks)
{
    for (size_t i = 0; ranks->keys != NULL && i < ranks->n; i++)
        catalog_keys_done(&ranks->keys[i]);
    free(ranks->catalogs);
    free(ranks->keys);
    free(ranks->parts);
}

/* ---- files ---- */

/* Finds the path or the URL of a rank, in the arena. */
static int find_path(const struct ranks *ranks, size_t i, const char **ret)
{
    struct arena *arena = &ranks->pass->catalog->arena;
    autofree char *url = NULL;
    *ret = arena_print(arena, "%s%0*zu%s", ranks->front, ranks->n_digits, i, ranks->back);
    const int code = *ret == NULL || ranks->url == NULL
                         ? 0
                         : url_sibling(ranks->url, *ret, &url, ranks->pass->err);
    if (code == 0 && url != NULL)
        *ret = arena_copy(arena, url, strlen(url));
    return code == 0 && *ret == NULL ? wfs_fail_memory(ranks->pass->err) : code;
}

/* Finds the number in the path of the source, or in the last name of its URL, which is of rank 0.
 */
static int find_number(struct ranks *ranks, const char *path)
{
    static const char *const marks[] = {"consolidated.", "mp_rank_", "model_part-"};
    struct arena *arena = &ranks->pass->catalog->arena;
    const char *number = NULL;
    for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
        for (const char *at = path; (at = strstr(at, marks[i])) != NULL; at++)
            number = at + strlen(marks[i]) > number ? at + strlen(marks[i]) : number;
    }
    const size_t n = number == NULL ? 0 : strspn(number, "0123456789");
    if ((n == 0 || n > 4) && ranks->url != NULL)
        return wfs_fail(ranks->pass->err, EINVAL,
                        "join: '%s' has no rank in its name, as 'consolidated.00.*' has; a "
                        "folder for each rank has to be downloaded first",
                        wfs_quote(path).text);
    if (n == 0 || n > 4)
        return wfs_fail(ranks->pass->err, EINVAL,
                        "join: '%s' has no rank in its name, as 'consolidated.00.*', "
                        "mp_rank_00/NAME and NAME-model_part-0.pt have",
                        wfs_quote(path).text);
    if (strspn(number, "0") < n)
        return wfs_fail(ranks->pass->err, EINVAL,
                        "join: '%s' is not rank 0, whose file has to be named",
                        wfs_quote(path).text);
    ranks->n_digits = (int)n;
    ranks->front = arena_copy(arena, path, (size_t)(number - path));
    ranks->back = arena_copy(arena, number + n, strlen(number + n));
    return ranks->front == NULL || ranks->back == NULL ? wfs_fail_memory(ranks->pass->err) : 0;
}

/* Returns whether a rank is there: 1, 0, or an error. */
static int exists(const struct ranks *ranks, const char *path, struct wfs_remote *remote)
{
    struct wfs_error inner = {0};
    struct source *source = NULL;
    if (ranks->url == NULL)
        return access(path, F_OK) == 0;
    const int code = remote_source_open(remote, path, &source, &inner);
    source_free(source);
    return code == 0              ? 1
           : inner.code == ENOENT ? 0
                                  : wfs_fail(ranks->pass->err, -code, "join: '%s': %s",
                                             wfs_quote(path).text, inner.text);
}

/* Counts the ranks, which have all numbers from 0 on. A server is not asked far beyond the last. */
static int count(struct ranks *ranks, struct wfs_remote *remote)
{
    const char *path;
    ranks->n = 1;
    for (size_t i = 1; i < MOST_RANKS && (ranks->url == NULL || i < ranks->n + 2); i++) {
        int code = find_path(ranks, i, &path);
        code = code < 0 ? code : exists(ranks, path, remote);
        if (code < 0)
            return code;
        if (code == 0)
            continue;
        if (i > ranks->n)
            return wfs_fail(ranks->pass->err, ENOENT,
                            "join: there is no rank %zu beside '%s', which is rank %zu", ranks->n,
                            wfs_quote(path).text, i);
        ranks->n++;
    }
    return 0;
}

static int load(struct ranks *ranks, const struct wfs_view_loader *loader)
{
    struct pass *pass = ranks->pass;
    ranks->catalogs = calloc(ranks->n, sizeof(*ranks->catalogs));
    ranks->keys = calloc(ranks->n, sizeof(*ranks->keys));
    ranks->parts = calloc(ranks->n, sizeof(*ranks->parts));
    if (ranks->catalogs == NULL || ranks->keys == NULL || ranks->parts == NULL)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < ranks->n; i++) {
        struct wfs_catalog *catalog = pass->catalog;
        const char *path;
        int code = find_path(ranks, i, &path);
        if (code == 0 && i > 0)
            code = loader->load(loader->ctx, path, &catalog, pass->err);
        if (code < 0)
            return code;
        ranks->catalogs[i] = catalog;
        if ((i > 0 && catalog_adopt_part(pass->catalog, catalog) < 0) ||
            catalog_keys_add(&ranks->keys[i], catalog, 0) < 0)
            return wfs_fail_memory(pass->err);
    }
    return 0;
}

/* ---- one tensor ---- */

/* Fails with what is wrong between two ranks. */
static int __attribute__((format(printf, 5, 6)))
fail(const struct ranks *ranks, const char *key, size_t one, size_t two, const char *format, ...)
{
    char text[WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    return wfs_fail(ranks->pass->err, EINVAL, "join: '%s' of ranks %zu and %zu: %s",
                    wfs_quote(key).text, one, two, text);
}

/*
 * How Meta's Llama cuts its tensors. That of the embedding is the one thing that changed: the
 * first two generations cut its columns, which are as many as the norm has elements, later ones its
 * rows.
 */
static void cut_llama(const struct ranks *ranks, const char *key, struct rule_join *ret)
{
    static const struct {
        const char *name;
        uint32_t dim;
    } cuts[] = {{"attention.wq.weight", 0},    {"attention.wk.weight", 0},
                {"attention.wv.weight", 0},    {"attention.wo.weight", 1},
                {"feed_forward.w1.weight", 0}, {"feed_forward.w2.weight", 1},
                {"feed_forward.w3.weight", 0}, {"output.weight", 0}};
    const uint32_t norm = catalog_keys_find(&ranks->keys[0], "norm.weight");
    for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++) {
        const size_t n = strlen(key), n_name = strlen(cuts[i].name);
        if (n >= n_name && strcmp(key + n - n_name, cuts[i].name) == 0 &&
            (n == n_name || key[n - n_name - 1] == '.'))
            *ret = (struct rule_join){JOIN_DIM, cuts[i].dim, 1};
    }
    if (strcmp(key, "tok_embeddings.weight") == 0)
        *ret = (struct rule_join){JOIN_DIM,
                                  norm == TEXT_INDEX_NONE ||
                                      tensor_dim(ranks->parts[0], 1) !=
                                          tensor_dim(&ranks->catalogs[0]->tensors[norm], 0),
                                  1};
}

/* Finds how the tensor was cut: the first rule that takes its key. */
static int find_cut(const struct ranks *ranks, const char *key, struct rule_join *ret)
{
    *ret = (struct rule_join){.way = JOIN_COPY};
    for_rules(rule, ranks->pass->view, RULE_JOIN)
    {
        const int code = rule_takes(rule, key, ranks->pass->err);
        if (code == 0)
            continue;
        if (code < 0)
            return code;
        *ret = rule->join;
        if (rule->join.way == JOIN_PRESET) {
            ret->way = JOIN_COPY;
            cut_llama(ranks, key, ret);
        }
        pass_use(ranks->pass, rule);
        if (rule->join.way != JOIN_PRESET || ret->way != JOIN_COPY)
            return 0;
    }
    return 0;
}

static int compare(struct ranks *ranks, const char *key)
{
    uint64_t first = 0, digest;
    for (size_t i = 0; i < ranks->n; i++) {
        const struct wfs_tensor *part = ranks->parts[i];
        const bool is_alike = part->dtype == ranks->parts[0]->dtype &&
                              wfs_shape_is_equal(&part->shape, &ranks->parts[0]->shape);
        if (is_alike && wfs_tensor_digest(part, &digest) < 0)
            return fail(ranks, key, 0, i, "cannot be read");
        first = i == 0 ? digest : first;
        if (!is_alike || digest != first)
            return fail(ranks, key, 0, i,
                        "they differ; join=REGEX:DIM joins parts, join=REGEX:first takes that of "
                        "rank 0");
    }
    ranks->n_equal++;
    return 0;
}

/* Checks that the parts differ in the dimension only. *ret_n: how many it has in all. */
static int check_parts(const struct ranks *ranks, const char *key, const struct rule_join *cut,
                       uint64_t *ret_n)
{
    const struct wfs_tensor *first = ranks->parts[0];
    const unsigned n_bits = wfs_dtype_bits((enum wfs_dtype)first->dtype);
    *ret_n = 0;
    for (size_t i = 0; i < ranks->n; i++) {
        const struct wfs_tensor *part = ranks->parts[i];
        bool is_fitting = part->dtype == first->dtype && part->shape.rank == first->shape.rank &&
                          cut->dim < part->shape.rank && n_bits % 8 == 0 && n_bits > 0 &&
                          part->shape.dims[cut->dim] % cut->n_pieces == 0;
        for (uint32_t k = 0; k < first->shape.rank && is_fitting; k++)
            is_fitting = k == cut->dim || part->shape.dims[k] == first->shape.dims[k];
        if (is_fitting && checked_add(*ret_n, part->shape.dims[cut->dim], ret_n))
            continue;
        char one[200], two[200];
        wfs_shape_format(&first->shape, one, sizeof(one));
        wfs_shape_format(&part->shape, two, sizeof(two));
        return fail(ranks, key, 0, i,
                    "%s %s and %s %s cannot be joined along dimension %" PRIu32 "%s",
                    wfs_dtype_name((enum wfs_dtype)first->dtype), one,
                    wfs_dtype_name((enum wfs_dtype)part->dtype), two, cut->dim,
                    cut->n_pieces > 1 ? " in pieces" : "");
    }
    return 0;
}

/* Makes the tensor of the source the whole. */
static int join_parts(struct ranks *ranks, struct wfs_tensor *tensor, const struct rule_join *cut)
{
    struct wfs_catalog *catalog = ranks->pass->catalog;
    uint64_t n, n_outer = cut->n_pieces, *dims;
    struct source *made = NULL;
    int code = check_parts(ranks, tensor->key, cut, &n);
    if (code < 0)
        return code;
    for (uint32_t i = 0; i < cut->dim; i++)
        n_outer *= tensor->shape.dims[i];
    autofree struct wfs_tensor *parts = calloc(ranks->n, sizeof(*parts));
    dims = arena_calloc(&catalog->arena, tensor->shape.rank, sizeof(*dims));
    if (parts == NULL || dims == NULL)
        return wfs_fail_memory(ranks->pass->err);
    for (size_t i = 0; i < ranks->n; i++) {
        parts[i] = *ranks->parts[i];
        tensor->trouble = tensor->trouble != NULL ? tensor->trouble : parts[i].trouble;
    }
    memcpy(dims, tensor->shape.dims, tensor->shape.rank * sizeof(*dims));
    dims[cut->dim] = n;
    tensor->shape.dims = dims;
    if (wfs_shape_bytes(&tensor->shape, (enum wfs_dtype)tensor->dtype, &tensor->n_bytes) < 0)
        return fail(ranks, tensor->key, 0, ranks->n - 1, "the whole is too large");
    if (join_new(parts, ranks->n, n_outer, &made) < 0 || catalog_adopt_made(catalog, made) < 0)
        return wfs_fail_memory(ranks->pass->err);
    tensor->stored = (struct wfs_stored){.source = made, .dtype = tensor->dtype};
    tensor->changes = arena_print(&catalog->arena, "join of %s along dimension %" PRIu32,
                                  wfs_count(ranks->n, "rank").text, cut->dim);
    ranks->n_joined++;
    return tensor->changes == NULL ? wfs_fail_memory(ranks->pass->err) : 0;
}

/* Finds the tensors of that key. Returns 1; 0: one rank has it alone, and may; or an error. */
static int find_parts(struct ranks *ranks, const char *key)
{
    size_t n = 0, has = 0, lacks = 0;
    for (size_t i = 0; i < ranks->n; i++) {
        const uint32_t at = catalog_keys_find(&ranks->keys[i], key);
        ranks->parts[i] = at == TEXT_INDEX_NONE ? NULL : &ranks->catalogs[i]->tensors[at];
        n += ranks->parts[i] != NULL;
        *(ranks->parts[i] != NULL ? &has : &lacks) = i;
    }
    if (n == ranks->n)
        return 1;
    if (n == 1 && ranks->pass->view->is_partial)
        return 0;
    return fail(ranks, key, has, lacks, "rank %zu does not have it%s", lacks,
                n == 1 ? "; `partial` shows what one rank has alone" : "");
}

static int join_tensor(struct ranks *ranks, struct wfs_tensor *tensor)
{
    struct rule_join cut = {.way = JOIN_FIRST};
    int code = find_parts(ranks, tensor->key);
    code = code <= 0 ? code : find_cut(ranks, tensor->key, &cut);
    if (code < 0 || cut.way == JOIN_FIRST)
        return code;
    return cut.way == JOIN_DIM ? join_parts(ranks, tensor, &cut) : compare(ranks, tensor->key);
}

/* Keys that the source does not have are of one rank. */
static int add_rest(struct ranks *ranks)
{
    struct wfs_catalog *catalog = ranks->pass->catalog;
    for (size_t i = 1; i < ranks->n; i++) {
        for (size_t k = 0; k < ranks->catalogs[i]->n_tensors; k++) {
            const struct wfs_tensor *tensor = &ranks->catalogs[i]->tensors[k];
            if (catalog_keys_find(&ranks->keys[0], tensor->key) != TEXT_INDEX_NONE)
                continue;
            const int code = find_parts(ranks, tensor->key);
            if (code < 0)
                return code;
            struct wfs_tensor *added = catalog_add(catalog);
            if (added == NULL)
                return wfs_fail_memory(ranks->pass->err);
            *added = *tensor;
            added->place = 0;
        }
    }
    return 0;
}

int ranks_join(struct pass *pass, const struct wfs_view_loader *loader)
{
    cleanup(ranks_done) struct ranks ranks = {.pass = pass};
    const struct rule *first = rule_next(pass->view->rules, RULE_JOIN);
    const struct source *source =
        pass->catalog->sources.n == 0 ? NULL : pass->catalog->sources.list[0];
    if (first == NULL)
        return 0;
    ranks.url = source == NULL ? NULL : remote_source_url(source);
    autofree char *name = ranks.url == NULL ? NULL : url_name(ranks.url);
    if (ranks.url != NULL && name == NULL)
        return wfs_fail_memory(pass->err);
    int code = find_number(&ranks, name != NULL ? name : source == NULL ? "" : source->path);
    code = code < 0 ? code : count(&ranks, loader->remote);
    code = code < 0 ? code : load(&ranks, loader);
    const size_t n = pass->catalog->n_tensors;
    for (size_t i = 0; i < n && code >= 0; i++)
        code = join_tensor(&ranks, &pass->catalog->tensors[i]);
    code = code < 0 ? code : add_rest(&ranks);
    if (code < 0)
        return code;
    if (compute_tie(pass->catalog->tensors, pass->catalog->n_tensors) < 0)
        return wfs_fail_memory(pass->err);
    char text[WFS_ERROR_TEXT_MAX];
    const bool is_stage = ranks.back[0] == '_' && strchr("0123456789", ranks.back[1]) != NULL;
    snprintf(text, sizeof(text), "%s: %s joined, %s everywhere; values are those of rank 0%s",
             wfs_count(ranks.n, "rank").text, wfs_count(ranks.n_joined, "tensor").text,
             wfs_count_as(ranks.n_equal, "is equal", "are equal").text,
             is_stage ? "; this is one stage of a pipeline, or one group of experts: the others, "
                        "whose numbers begin with 0 again, are not in it"
                      : "");
    report_add(pass->report, REPORT_NOTICES, "join", text);
    return 0;
}
