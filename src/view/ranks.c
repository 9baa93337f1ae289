/* SPDX-License-Identifier: MIT */
/*
 * Ranks of model parallelism: checkpoints of the same keys, of which each has a part of some
 * tensors and a copy of others. Their names have a number. They become one before anything else
 * looks at the tensors. Copies are compared: a part that was taken for one would be lost without a
 * word.
 */
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/bytes.h"
#include "compute/compute.h"
#include "remote/remote_source.h"
#include "tensor/tensor.h"
#include "view/pass.h"

enum { MOST_RANKS = 1024 };

struct ranks {
    struct pass *pass;
    bool is_remote;
    const char *front, *back; /* of the path or URL, around the number */
    int n_digits;
    struct rank {
        const struct wfs_catalog *catalog; /* that of rank 0 is the source */
        struct catalog_keys keys;
        const struct wfs_tensor *part; /* of the tensor that is being joined */
    } * list;                          /* malloc'ed: MOST_RANKS */
    size_t n, n_joined, n_equal;
};

static void ranks_done(struct ranks *ranks)
{
    for (size_t i = 0; i < ranks->n; i++)
        catalog_keys_done(&ranks->list[i].keys);
    free(ranks->list);
}

/* ---- files ---- */

/* Finds the number in the path or the URL of the source, which is of rank 0. The query of a URL is
 * not that of the others. */
static int find_number(struct ranks *ranks, const char *name)
{
    static const char *const marks[] = {"consolidated.", "mp_rank_", "model_part-"};
    struct arena *arena = &ranks->pass->catalog->arena;
    const bool has_query = ranks->is_remote && strncasecmp(name, "http", strlen("http")) == 0;
    const size_t n_name = has_query ? strcspn(name, "?#") : strlen(name);
    const char *host = ranks->is_remote ? strstr(name, "://") : NULL, *number = NULL;
    for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
        const char *at = host == NULL ? name : host + 3 + strcspn(host + 3, "/");
        for (; (at = strstr(at, marks[i])) != NULL && at < name + n_name; at++)
            number = at + strlen(marks[i]) > number ? at + strlen(marks[i]) : number;
    }
    const size_t n = number == NULL ? 0 : strspn(number, "0123456789");
    if (n == 0 || n > 4)
        return wfs_fail(ranks->pass->err, EINVAL,
                        "join: '%s' has no rank in its name, as 'consolidated.00.*', "
                        "mp_rank_00/NAME and NAME-model_part-0.pt have",
                        wfs_quote(name).text);
    if (strspn(number, "0") < n)
        return wfs_fail(ranks->pass->err, EINVAL,
                        "join: '%s' is not rank 0, whose file has to be named",
                        wfs_quote(name).text);
    ranks->n_digits = (int)n;
    ranks->front = arena_copy(arena, name, (size_t)(number - name));
    ranks->back = arena_copy(arena, number + n, (size_t)(name + n_name - number) - n);
    return ranks->front == NULL || ranks->back == NULL ? wfs_fail_memory(ranks->pass->err) : 0;
}

/* Loads a rank. Returns 1: it is not there. */
static int load_rank(const struct ranks *ranks, const struct wfs_view_loader *loader,
                     const char *path, struct wfs_catalog **ret)
{
    struct wfs_error inner = {0};
    if (path == NULL)
        return wfs_fail_memory(ranks->pass->err);
    if (!ranks->is_remote && access(path, F_OK) < 0)
        return 1;
    const int code = loader->load(loader->ctx, path, ret, &inner);
    if (code == 0 && catalog_adopt_part(ranks->pass->catalog, *ret) < 0)
        return wfs_fail_memory(ranks->pass->err);
    if (code == -ENOENT && ranks->is_remote)
        return 1;
    return code < 0 ? wfs_fail(ranks->pass->err, inner.code, "%s", inner.text) : 0;
}

/* Loads the ranks, which have all numbers from 0 on. A server is not asked far beyond the last. */
static int load(struct ranks *ranks, const struct wfs_view_loader *loader)
{
    struct pass *pass = ranks->pass;
    struct wfs_catalog *catalog = pass->catalog;
    ranks->list = calloc(MOST_RANKS, sizeof(*ranks->list));
    if (ranks->list == NULL)
        return wfs_fail_memory(pass->err);
    for (size_t i = 0; i < MOST_RANKS && (!ranks->is_remote || i < ranks->n + 2); i++) {
        const char *path = arena_print(&catalog->arena, "%s%0*zu%s", ranks->front, ranks->n_digits,
                                       i, ranks->back);
        const int code = i == 0 ? 0 : load_rank(ranks, loader, path, &catalog);
        if (code < 0)
            return code;
        if (code > 0)
            continue;
        if (i > ranks->n)
            return wfs_fail(pass->err, ENOENT,
                            "join: there is no rank %zu beside '%s', which is rank %zu", ranks->n,
                            wfs_quote(path).text, i);
        ranks->list[ranks->n].catalog = catalog;
        if (catalog_keys_add(&ranks->list[ranks->n++].keys, catalog, 0) < 0)
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
    const uint32_t norm = catalog_keys_find(&ranks->list[0].keys, "norm.weight");
    for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++) {
        const size_t n = strlen(key), n_name = strlen(cuts[i].name);
        if (n >= n_name && strcmp(key + n - n_name, cuts[i].name) == 0 &&
            (n == n_name || key[n - n_name - 1] == '.'))
            *ret = (struct rule_join){JOIN_DIM, cuts[i].dim, 1};
    }
    if (strcmp(key, "tok_embeddings.weight") == 0)
        *ret = (struct rule_join){JOIN_DIM,
                                  norm == TEXT_INDEX_NONE ||
                                      tensor_dim(ranks->list[0].part, 1) !=
                                          tensor_dim(&ranks->list[0].catalog->tensors[norm], 0),
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
        const struct wfs_tensor *part = ranks->list[i].part;
        const bool is_alike = part->dtype == ranks->list[0].part->dtype &&
                              wfs_shape_is_equal(&part->shape, &ranks->list[0].part->shape);
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
    const struct wfs_tensor *first = ranks->list[0].part;
    const unsigned n_bits = wfs_dtype_bits((enum wfs_dtype)first->dtype);
    *ret_n = 0;
    for (size_t i = 0; i < ranks->n; i++) {
        const struct wfs_tensor *part = ranks->list[i].part;
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
        parts[i] = *ranks->list[i].part;
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
        const uint32_t at = catalog_keys_find(&ranks->list[i].keys, key);
        ranks->list[i].part = at == TEXT_INDEX_NONE ? NULL : &ranks->list[i].catalog->tensors[at];
        n += ranks->list[i].part != NULL;
        *(ranks->list[i].part != NULL ? &has : &lacks) = i;
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
        for (size_t k = 0; k < ranks->list[i].catalog->n_tensors; k++) {
            const struct wfs_tensor *tensor = &ranks->list[i].catalog->tensors[k];
            if (catalog_keys_find(&ranks->list[0].keys, tensor->key) != TEXT_INDEX_NONE)
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
    const char *url = source == NULL ? NULL : remote_source_url(source);
    ranks.is_remote = url != NULL;
    int code = find_number(&ranks, url != NULL ? url : source == NULL ? "" : source->path);
    code = code < 0 ? code : load(&ranks, loader);
    const size_t n = pass->catalog->n_tensors;
    for (size_t i = 0; i < n && code >= 0; i++)
        code = join_tensor(&ranks, &pass->catalog->tensors[i]);
    code = code < 0 ? code : add_rest(&ranks);
    if (code < 0)
        return code;
    if (compute_tie(pass->catalog->tensors, pass->catalog->n_tensors, NULL, false, NULL) < 0)
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
