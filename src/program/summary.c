/* SPDX-License-Identifier: MIT */
/*
 * Sums that are too large are UINT64_MAX.
 */
#include "program/summary.h"

#include <weightfs/cleanup.h>
#include "program/print.h"

#include <jansson.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void add(uint64_t *sum, uint64_t n)
{
    if (__builtin_add_overflow(*sum, n, sum))
        *sum = UINT64_MAX;
}

static void count(struct totals *totals, const struct wfs_tensor *tensor)
{
    uint64_t n_elems = 0;
    (void)wfs_shape_count(&tensor->shape, &n_elems);
    totals->n_tensors++;
    add(&totals->n_bytes, tensor->n_bytes);
    add(&totals->n_elems, n_elems);
}

int summary_make(struct summary *summary, const char *path, const struct wfs_catalog *catalog)
{
    const size_t n = wfs_catalog_n_tensors(catalog);
    *summary = (struct summary){.path = path, .catalog = catalog};
    summary->tree.tensors = calloc(n + 1, sizeof(*summary->tree.tensors));
    if (summary->tree.tensors == NULL)
        return -ENOMEM;
    summary->tree.n_tensors = n;
    for (size_t i = 0; i < n; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        summary->tree.tensors[i] = tensor;
        count(&summary->all, tensor);
        count(&summary->by_dtype[tensor->dtype], tensor);
    }
    key_tree_sort(&summary->tree);
    return 0;
}

void summary_done(struct summary *summary)
{
    free(summary->tree.tensors);
}

const char *summary_writer(const struct wfs_catalog *catalog)
{
    static const char *const names[] = {"producer", "writer", "framework"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (const struct wfs_text *meta = wfs_catalog_meta(catalog); meta; meta = meta->next) {
            if (strcmp(meta->name, names[i]) == 0)
                return meta->value;
        }
    }
    return NULL;
}

/* ---- as JSON ---- */

const char *summary_severity(const struct wfs_finding *finding)
{
    static const char *const names[] = {
        [WFS_INFO] = "info", [WFS_LOW] = "low", [WFS_MEDIUM] = "medium", [WFS_HIGH] = "high"};
    return names[finding->severity];
}

void summary_put_finding(struct json_out *json, const struct wfs_finding *finding)
{
    json_out_open_object(json, NULL);
    json_out_text(json, "severity", summary_severity(finding));
    json_out_text(json, "text", finding->text);
    json_out_close(json);
}

void summary_put_stats(struct json_out *out, const struct wfs_stats *stats)
{
    if (stats == NULL) {
        json_out_text(out, "stats", NULL);
        return;
    }
    const bool has_any = stats->n_finite > 0;
    json_out_open_object(out, "stats");
    json_out_double(out, "min", has_any ? stats->min : NAN);
    json_out_double(out, "max", has_any ? stats->max : NAN);
    json_out_double(out, "mean", has_any ? stats->mean : NAN);
    json_out_double(out, "std", has_any ? stats->std : NAN);
    json_out_u64(out, "finite", stats->n_finite);
    json_out_u64(out, "zero", stats->n_zero);
    json_out_u64(out, "nan", stats->n_nan);
    json_out_u64(out, "positive_inf", stats->n_positive_inf);
    json_out_u64(out, "negative_inf", stats->n_negative_inf);
    json_out_close(out);
}

static void close_totals(struct json_out *json, uint64_t n_tensors, uint64_t n_bytes)
{
    json_out_u64(json, "tensors", n_tensors);
    json_out_u64(json, "bytes", n_bytes);
    json_out_close(json);
}

static void put_dtypes(const struct summary *summary, struct json_out *json)
{
    json_out_open(json, "dtypes", '{', JSON_LINES);
    for (int dtype = 0; dtype < WFS_N_DTYPES; dtype++) {
        const struct totals *totals = &summary->by_dtype[dtype];
        if (totals->n_tensors == 0)
            continue;
        json_out_open_object(json, wfs_dtype_name((enum wfs_dtype)dtype));
        close_totals(json, totals->n_tensors, totals->n_bytes);
    }
    json_out_close(json);
}

static void put_top_level(const struct key_tree *tree, struct json_out *json)
{
    json_out_open(json, "top_level", '[', JSON_LINES);
    for (size_t i = 0, end; i < tree->n_tensors; i = end) {
        const char *key = tree->tensors[i]->key;
        end = key_tree_end(tree, i, tree->n_tensors, 0);
        json_out_open_object(json, NULL);
        json_out_text_n(json, "name", key, key_tree_component(key, 0));
        close_totals(json, end - i, key_tree_n_bytes(tree, i, end));
    }
    json_out_close(json);
}

static void put_sources(const struct wfs_catalog *catalog, struct json_out *json)
{
    json_out_open(json, "files", '[', JSON_LINES);
    for (size_t i = 0; i < wfs_catalog_n_sources(catalog); i++) {
        bool is_remote;
        const uint64_t n_cached = wfs_catalog_source_cached(catalog, i, &is_remote);
        json_out_open_object(json, NULL);
        json_out_text(json, "file", wfs_catalog_source_path(catalog, i));
        json_out_u64(json, "bytes", wfs_catalog_source_bytes(catalog, i));
        if (is_remote)
            json_out_u64(json, "cached", n_cached);
        json_out_close(json);
    }
    json_out_close(json);
}

void summary_put_metadata(const struct wfs_catalog *catalog, const char *name,
                          struct json_out *json)
{
    json_out_open(json, name, '{', JSON_LINES);
    for (const struct wfs_text *meta = wfs_catalog_meta(catalog); meta != NULL; meta = meta->next)
        json_out_text_n(json, meta->name, meta->value, meta->n_bytes);
    json_out_close(json);
}

void summary_put(const struct summary *summary, struct json_out *json)
{
    const struct wfs_catalog *catalog = summary->catalog;
    const struct wfs_container *container = wfs_catalog_container(catalog);
    const struct wfs_format *format = wfs_catalog_format(catalog);
    json_out_open(json, NULL, '{', JSON_LINES);
    json_out_text(json, "file", summary->path);
    json_out_text(json, "container", container == NULL ? NULL : container->name);
    json_out_text(json, "format", format == NULL ? NULL : format->name);
    json_out_text(json, "writer", summary_writer(catalog));
    model_config_put(json, catalog);
    json_out_u64(json, "n_tensors", summary->all.n_tensors);
    json_out_u64(json, "n_bytes", summary->all.n_bytes);
    json_out_u64(json, "n_elems", summary->all.n_elems);
    put_dtypes(summary, json);
    summary_put_metadata(catalog, "metadata", json);
    put_top_level(&summary->tree, json);
    put_sources(catalog, json);
    json_out_open(json, "findings", '[', JSON_LINES);
    for (size_t i = 0; i < wfs_catalog_n_findings(catalog); i++)
        summary_put_finding(json, wfs_catalog_finding(catalog, i));
    json_out_close(json);
    json_out_close(json);
}

enum { N_FILE_MAX = 1 << 20 };

/* Returns the length of the folder that a path is in, and its slash. */
static size_t folder_length(const char *path, size_t n)
{
    while (n > 0 && path[n - 1] != '/')
        n--;
    return n;
}

/* Returns the file of that name in a folder as JSON, or NULL. */
static json_t *load_in(const char *path, size_t n_folder, const char *file)
{
    autofree char *name = NULL;
    struct stat st;
    if (asprintf(&name, "%.*s%s", (int)n_folder, path, file) < 0) {
        name = NULL;
        return NULL;
    }
    autoclose int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > N_FILE_MAX)
        return NULL;
    autofree char *text = malloc((size_t)st.st_size + 1);
    const ssize_t n = text != NULL ? read(fd, text, (size_t)st.st_size) : -1;
    return n < 0 ? NULL : json_loadb(text, (size_t)n, 0, NULL);
}

/* Returns the first of the members that is a number above 0, there or in the part about the text;
 * 0: none is. */
static uint64_t number_of(const json_t *config, const char *const names[], size_t n)
{
    const json_t *parts[] = {config, json_object_get(config, "text_config")};
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < n; k++) {
            const json_int_t number = json_integer_value(json_object_get(parts[i], names[k]));
            if (number > 0)
                return (uint64_t)number;
        }
    }
    return 0;
}

void model_config_put(struct json_out *json, const struct wfs_catalog *catalog)
{
    static const char *const hidden[] = {"hidden_size", "d_model", "n_embd", "dim"};
    static const char *const layers[] = {"num_hidden_layers", "n_layer", "num_layers", "n_layers"};
    /* The models of a pipeline have folders of their own. */
    const bool is_pipeline = wfs_catalog_container(catalog)->kind == WFS_CONTAINER_MODELS;
    const char *file = is_pipeline ? "model_index.json" : "config.json";
    const char *path =
        wfs_catalog_n_sources(catalog) > 0 ? wfs_catalog_source_path(catalog, 0) : "";
    size_t n_folder = folder_length(path, strlen(path));
    if (is_pipeline && n_folder > 0)
        n_folder = folder_length(path, n_folder - 1);
    json_t *config = load_in(path, n_folder, file);
    const uint64_t n_hidden = number_of(config, hidden, 4), n_layers = number_of(config, layers, 4);
    const char *name =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    if (name == NULL)
        name = json_string_value(json_object_get(config, "_class_name"));
    if (name == NULL)
        name = json_string_value(json_object_get(config, "model_type"));
    if (name != NULL && json != NULL) {
        json_out_open_object(json, "model");
        json_out_text(json, "architecture", name);
        if (n_hidden > 0)
            json_out_u64(json, "hidden_size", n_hidden);
        if (n_layers > 0)
            json_out_u64(json, "n_layers", n_layers);
        json_out_close(json);
    } else if (name != NULL) {
        fputs("model:      ", stdout);
        print_escaped(stdout, name);
        if (n_hidden > 0)
            printf(", hidden size %" PRIu64, n_hidden);
        if (n_layers > 0)
            printf(", %s", wfs_count(n_layers, "layer").text);
        printf(" (%s)\n", file);
    }
    json_decref(config);
}
