/* SPDX-License-Identifier: MIT */
/*
 * What is known of a checkpoint and of its tensors, as the JSON that the program prints.
 */
#include "library/call.h"

#include "program/checkpoint.h"
#include "program/checkup.h"
#include "program/pairing.h"
#include "program/threads.h"
#include "program/print.h"
#include "program/summary.h"

#include <weightfs/json_out.h>
#include <weightfs/value.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

/* A report that is made for a call. */
struct making {
    struct call *call;
    struct strbuf text;
    struct json_out json;
    uint64_t n_done, n_total; /* bytes */
};

static void making_start(struct making *making, struct call *call)
{
    *making = (struct making){.call = call};
    making->json = (struct json_out){.text = &making->text, .spelling = JSON_ASCII};
}

/* Hands the text over unless code is a failure, which is reported already. */
static int making_end(struct making *making, int code, char **out, struct wfs_error *err)
{
    if (code == 0)
        return call_text(&making->text, out, err);
    strbuf_done(&making->text);
    return code;
}

static int step(void *ctx, uint64_t n_bytes)
{
    struct making *making = ctx;
    making->n_done += n_bytes;
    return call_step(making->call, making->n_done, making->n_total);
}

static const char *name_of(const struct wfs_checkpoint *checkpoint)
{
    return checkpoint->source != NULL ? checkpoint->source : "";
}

/* ---- without reading elements ---- */

int wfs_info(const struct wfs_checkpoint *checkpoint, char **out, struct wfs_error *err)
{
    struct making making;
    cleanup(summary_done) struct summary summary = {0};
    call_clear(err);
    if (summary_make(&summary, name_of(checkpoint), checkpoint->catalog) < 0)
        return wfs_fail_memory(err);
    making_start(&making, NULL);
    pthread_mutex_lock(&checkpoint->index->checking);
    summary_put(&summary, &making.json);
    pthread_mutex_unlock(&checkpoint->index->checking);
    return making_end(&making, 0, out, err);
}

int wfs_metadata(const struct wfs_checkpoint *checkpoint, char **out, struct wfs_error *err)
{
    struct making making;
    call_clear(err);
    making_start(&making, NULL);
    summary_put_metadata(checkpoint->catalog, NULL, &making.json);
    return making_end(&making, 0, out, err);
}

int wfs_values(const struct wfs_checkpoint *checkpoint, const char *key, char **out,
               struct wfs_error *err)
{
    size_t n_bytes;
    struct wfs_error own = {0};
    call_clear(err);
    const int code = wfs_catalog_config(checkpoint->catalog, key, out, &n_bytes, &own);
    if (code == -ENOENT)
        own.code = ENOKEY;
    return code == 0 ? 0 : call_fail(err, checkpoint->source, &own);
}

/* ---- elements ---- */

int wfs_stats(const struct wfs_tensor *tensor, const struct wfs_options *options, char **out,
              struct wfs_error *err)
{
    auto_call struct call call;
    struct making making;
    struct wfs_stats stats;
    int code = call_init(&call, options, 0, NULL, err);
    if (code < 0)
        return code;
    making_start(&making, &call);
    code = wfs_tensor_stats(call_io(&call), tensor, &stats);
    if (code < 0 && code != -EOPNOTSUPP)
        return wfs_tensor_fail_read(err, tensor, code);
    json_out_open_object(&making.json, NULL);
    summary_put_stats(&making.json, code == 0 ? &stats : NULL);
    json_out_close(&making.json);
    return making_end(&making, 0, out, err);
}

/* Prepares to look at all elements of tensors. -EFBIG unless allows_large. */
static int prepare(struct making *making, const struct wfs_work *works, size_t n, bool allows_large,
                   struct wfs_workload **out, struct wfs_error *err)
{
    struct wfs_error own = {0};
    if (works == NULL || wfs_workload_new(works, n, out) < 0)
        return wfs_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        const uint64_t n_bytes = works[i].tensor == NULL ? 0 : works[i].tensor->n_bytes;
        if (__builtin_add_overflow(making->n_total, n_bytes, &making->n_total))
            making->n_total = UINT64_MAX;
    }
    return allows_large || wfs_workload_check(*out, &own) == 0
               ? 0
               : wfs_fail(err, own.code, "%s; choose fewer with include, or set large", own.text);
}

/* ---- check ---- */

static void put_finding(void *ctx, const struct wfs_finding *finding)
{
    struct making *making = ctx;
    summary_put_finding(&making->json, finding);
}

static int check(struct making *making, struct checkup *checkup,
                 const struct wfs_checkpoint *checkpoint, struct wfs_error *err)
{
    int code = checkpoint->index->is_verified ? 0 : wfs_verify(checkpoint->catalog, err);
    checkpoint->index->is_verified |= code == 0;
    if (code < 0)
        return code;
    json_out_open_object(&making->json, NULL);
    json_out_text(&making->json, "file", name_of(checkpoint));
    json_out_u64(&making->json, "n_tensors", wfs_catalog_n_tensors(checkpoint->catalog));
    json_out_open_array(&making->json, "findings");
    code = checkup_run(checkup, err);
    json_out_close(&making->json);
    checkup_put(checkup, &making->json);
    json_out_close(&making->json);
    return code;
}

int wfs_check(const struct wfs_checkpoint *checkpoint, const struct wfs_options *options,
              char **out, struct wfs_error *err)
{
    static const char *const words[] = {"values", "large", NULL};
    auto_call struct call call;
    struct making making;
    struct wfs_error own = {0};
    int code = call_init(&call, options, 0, words, err);
    if (code < 0)
        return code;
    making_start(&making, &call);
    struct checkup checkup = {.catalog = checkpoint->catalog,
                              .has_values = call.words & 1,
                              .allows_large = call.words & 2,
                              .visit = put_finding,
                              .step = step,
                              .ctx = &making};
    pthread_mutex_lock(&checkpoint->index->checking);
    code = check(&making, &checkup, checkpoint, &own);
    pthread_mutex_unlock(&checkpoint->index->checking);
    if (code == -EINTR)
        wfs_fail(&own, EINTR, "interrupted");
    if (code < 0)
        code = call_fail(
            err, checkup.failed_path != NULL ? checkup.failed_path : checkpoint->source, &own);
    return making_end(&making, code, out, err);
}

/* ---- sum ---- */

struct summing {
    struct making making; /* first: ctx */
    const struct wfs_checkpoint *checkpoint;
    struct pool pool;
    struct wfs_error *err;
};

struct sums {
    char sha256[2 * SHA256_DIGEST_SIZE + 1], xxh3[17];
};

static struct summing *summing_of(struct pool *pool)
{
    return (struct summing *)((char *)pool - offsetof(struct summing, pool));
}

struct reading {
    const struct pool *pool;
    struct sha256_ctx sha256;
};

static int add_piece(void *ctx, const void *bytes, size_t n_bytes)
{
    struct reading *reading = ctx;
    sha256_update(&reading->sha256, n_bytes, bytes);
    return reading->pool->is_stopped ? -ECANCELED : 0;
}

static int make_sums(struct pool *pool, size_t i, void *result)
{
    uint64_t xxh3;
    unsigned char digest[SHA256_DIGEST_SIZE];
    struct sums *sums = result;
    struct reading reading = {.pool = pool};
    const struct wfs_tensor *tensor = wfs_catalog_tensor(summing_of(pool)->checkpoint->catalog, i);
    sha256_init(&reading.sha256);
    const int code = wfs_tensor_digest_and(&pool->io, tensor, add_piece, &reading, &xxh3);
    if (code < 0)
        return code;
    sha256_digest(&reading.sha256, sizeof(digest), digest);
    for (size_t k = 0; k < sizeof(digest); k++)
        snprintf(sums->sha256 + 2 * k, 3, "%02x", digest[k]);
    snprintf(sums->xxh3, sizeof(sums->xxh3), "%016" PRIx64, xxh3);
    return 0;
}

static int put_sums(struct pool *pool, size_t i, const void *result)
{
    const struct sums *sums = result;
    struct summing *summing = summing_of(pool);
    struct json_out *json = &summing->making.json;
    const struct wfs_tensor *tensor = wfs_catalog_tensor(summing->checkpoint->catalog, i);
    json_out_open_object(json, NULL);
    print_json_tensor(json, tensor);
    json_out_text(json, "sha256", sums->sha256);
    json_out_text(json, "xxh3", sums->xxh3);
    json_out_close(json);
    return step(&summing->making, tensor->n_bytes);
}

static int fail_sums(struct pool *pool, size_t i, int code)
{
    struct summing *summing = summing_of(pool);
    return wfs_tensor_fail_read(summing->err, wfs_catalog_tensor(summing->checkpoint->catalog, i),
                                code);
}

static int sum_all(struct summing *summing, bool allows_large, struct wfs_error *err)
{
    const struct wfs_catalog *catalog = summing->checkpoint->catalog;
    const size_t n = wfs_catalog_n_tensors(catalog);
    struct wfs_workload *workload = NULL;
    autofree struct wfs_work *works = calloc(n + 1, sizeof(*works));
    for (size_t i = 0; works != NULL && i < n; i++)
        works[i] = (struct wfs_work){wfs_catalog_tensor(catalog, i), .reads_shown = true};
    int code = prepare(&summing->making, works, n, allows_large, &workload, err);
    summing->pool = (struct pool){.workload = workload,
                                  .n = n,
                                  .n_result = sizeof(struct sums),
                                  .make = make_sums,
                                  .visit = put_sums,
                                  .fail = fail_sums};
    summing->err = err;
    if (code == 0)
        code = pool_run(&summing->pool);
    wfs_workload_free(workload);
    return code;
}

int wfs_sum(const struct wfs_checkpoint *checkpoint, const struct wfs_options *options, char **out,
            struct wfs_error *err)
{
    static const char *const words[] = {"large", NULL};
    auto_call struct call call;
    struct wfs_error own = {0};
    struct summing summing = {.checkpoint = checkpoint};
    struct json_out *json = &summing.making.json;
    int code = call_init(&call, options, 0, words, err);
    if (code < 0)
        return code;
    making_start(&summing.making, &call);
    json_out_open_object(json, NULL);
    json_out_text(json, "file", name_of(checkpoint));
    json_out_open_array(json, "tensors");
    code = sum_all(&summing, call.words & 1, &own);
    json_out_close(json);
    json_out_close(json);
    wfs_fail(&own, -code, code == -EINTR ? "interrupted" : "out of memory");
    if (code < 0)
        code = call_fail(err, checkpoint->source, &own);
    return making_end(&summing.making, code, out, err);
}

/* ---- diff ---- */

enum diff_word { DIFF_EXACT = 1, DIFF_LARGE = 2, DIFF_LONG = 4 };

struct diffing {
    struct making making;
    const struct wfs_checkpoint *sides[2];
    struct comparison_options options;
    struct diff_row *rows; /* malloc'ed */
    size_t n_rows;
    struct wfs_workload *workload;
    size_t *firsts; /* of each group: 1 + the first row that was compared; malloc'ed */
    size_t n_only[2], n_changed, n_equal, n_renamed;
};

static void diffing_done(struct diffing *diffing)
{
    wfs_workload_free(diffing->workload);
    free(diffing->firsts);
    free(diffing->rows);
}

/* Reports a failed read, by the file of the tensor. */
static int fail_side(const struct diffing *diffing, size_t side, const struct wfs_tensor *tensor,
                     int code, struct wfs_error *err)
{
    struct wfs_error own = {0};
    if (tensor == NULL)
        return wfs_fail_memory(err);
    (void)wfs_tensor_fail_read(&own, tensor, code);
    return call_fail(err, diffing->sides[side]->source, &own);
}

/* Finds out what there is to read, before it is read. */
static int begin(struct diffing *diffing, bool allows_large, struct wfs_error *err)
{
    const struct wfs_tensor *failed;
    if (diff_rows_make(diffing->sides[0]->catalog, diffing->sides[1]->catalog, &diffing->rows,
                       &diffing->n_rows) < 0)
        return wfs_fail_memory(err);
    int code = diff_rows_pair(diffing->rows, &diffing->n_rows, NULL, 0, &failed);
    if (code < 0)
        return fail_side(diffing, 0, failed, code, err);
    autofree struct wfs_work *works = calloc(diffing->n_rows + 1, sizeof(*works));
    for (size_t i = 0; i < diffing->n_rows && works != NULL; i++) {
        const struct diff_row *row = &diffing->rows[i];
        if (row->a != NULL && row->b != NULL && comparison_has_content(row->a, row->b))
            works[i] = (struct wfs_work){row->a, row->b};
    }
    code = prepare(&diffing->making, works, diffing->n_rows, allows_large, &diffing->workload, err);
    if (code < 0)
        return code;
    diffing->firsts =
        calloc(wfs_workload_n_groups(diffing->workload) + 1, sizeof(*diffing->firsts));
    return diffing->firsts == NULL ? wfs_fail_memory(err) : 0;
}

static void put_only(struct diffing *diffing, size_t side)
{
    json_out_open_array(&diffing->making.json, side == 0 ? "only_a" : "only_b");
    for (size_t i = 0; i < diffing->n_rows; i++) {
        const struct diff_row *row = &diffing->rows[i];
        if ((side == 0 ? row->b : row->a) != NULL)
            continue;
        diffing->n_only[side]++;
        comparison_put_tensor(&diffing->making.json, NULL, side == 0 ? row->a : row->b);
    }
    json_out_close(&diffing->making.json);
}

/* Compares the tensors of a row, or takes over what is known of a pair that shows the same. */
static int compare(struct diffing *diffing, size_t i, struct wfs_error *err)
{
    struct diff_row *row = &diffing->rows[i];
    const struct wfs_tensor *failed;
    const size_t group = wfs_workload_group(diffing->workload, i);
    if (group > 0 && diffing->firsts[group] > 0) {
        row->comparison = diffing->rows[diffing->firsts[group] - 1].comparison;
    } else {
        const int code = comparison_make(call_io(diffing->making.call), row->a, row->b,
                                         diffing->options, &row->comparison, &failed);
        if (code < 0)
            return fail_side(diffing, failed == row->b, failed, code, err);
        diffing->firsts[group] = i + 1;
    }
    row->is_equal = comparison_is_alike(row->a, row->b) && row->comparison.has_content &&
                    row->comparison.n_changed == 0;
    if (!row->is_equal)
        comparison_put(&diffing->making.json, row->a, row->b, &row->comparison,
                       diffing->options.has_measures);
    const bool is_renamed = row->is_equal && diff_row_is_renamed(row);
    diffing->n_renamed += is_renamed;
    diffing->n_equal += row->is_equal && !is_renamed;
    diffing->n_changed += !row->is_equal;
    return step(&diffing->making, row->a->n_bytes);
}

static int put_changed(struct diffing *diffing, struct wfs_error *err)
{
    struct json_out *json = &diffing->making.json;
    int code = 0;
    json_out_open_array(json, "changed");
    for (size_t i = 0; i < diffing->n_rows && code == 0; i++) {
        if (diffing->rows[i].a != NULL && diffing->rows[i].b != NULL)
            code = compare(diffing, i, err);
    }
    json_out_close(json);
    json_out_open_array(json, "renamed");
    for (size_t i = 0; i < diffing->n_rows && code == 0; i++) {
        const struct diff_row *row = &diffing->rows[i];
        if (!diff_row_is_renamed(row))
            continue;
        json_out_open_object(json, NULL);
        json_out_text(json, "key", row->a->key);
        json_out_text(json, "new_key", row->b->key);
        json_out_close(json);
    }
    json_out_close(json);
    return code;
}

static int diff(struct diffing *diffing, bool allows_large, struct wfs_error *err)
{
    struct json_out *json = &diffing->making.json;
    int code = begin(diffing, allows_large, err);
    if (code < 0)
        return code;
    json_out_open_object(json, NULL);
    put_only(diffing, 0);
    put_only(diffing, 1);
    code = put_changed(diffing, err);
    json_out_u64(json, "n_only_a", diffing->n_only[0]);
    json_out_u64(json, "n_only_b", diffing->n_only[1]);
    json_out_u64(json, "n_renamed", diffing->n_renamed);
    json_out_u64(json, "n_changed", diffing->n_changed);
    json_out_u64(json, "n_equal", diffing->n_equal);
    json_out_bool(
        json, "is_equal",
        diffing->n_only[0] + diffing->n_only[1] + diffing->n_renamed + diffing->n_changed == 0);
    json_out_close(json);
    return code;
}

int wfs_diff(const struct wfs_checkpoint *a, const struct wfs_checkpoint *b,
             const struct wfs_options *options, char **out, struct wfs_error *err)
{
    static const char *const words[] = {"exact", "large", "long", NULL};
    auto_call struct call call;
    cleanup(diffing_done) struct diffing diffing = {.sides = {a, b}};
    int code = call_init(&call, options, 0, words, err);
    if (code < 0)
        return code;
    making_start(&diffing.making, &call);
    diffing.options =
        (struct comparison_options){(call.words & DIFF_EXACT) != 0, (call.words & DIFF_LONG) != 0};
    code = diff(&diffing, call.words & DIFF_LARGE, err);
    if (code == -EINTR)
        wfs_fail(err, EINTR, "interrupted");
    return making_end(&diffing.making, code, out, err);
}
