/* SPDX-License-Identifier: MIT */
/*
 * weightfs info and config: a summary of a checkpoint, and its non-tensor contents.
 */
#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/value.h>

#include "cli/input.h"
#include <weightfs/json_out.h>
#include "cli/key_tree.h"
#include "cli/args.h"
#include "program/print.h"
#include "program/terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct info {
    const char *path;
    const struct wfs_catalog *catalog;
    struct key_tree tree;
    struct module_totals all;
    struct module_totals by_dtype[WFS_N_DTYPES];
};

static void count(struct module_totals *totals, const struct wfs_tensor *tensor)
{
    totals->n_tensors++;
    totals->n_bytes = input_add(totals->n_bytes, tensor->n_bytes);
    totals->n_elems = input_add(totals->n_elems, input_n_elems(tensor));
}

/* Returns false when out of memory. */
static bool collect(struct info *info)
{
    const size_t n = wfs_catalog_n_tensors(info->catalog);
    info->tree.tensors = calloc(n + 1, sizeof(*info->tree.tensors));
    if (info->tree.tensors == NULL)
        return false;
    info->tree.n_tensors = n;
    for (size_t i = 0; i < n; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(info->catalog, i);
        info->tree.tensors[i] = tensor;
        count(&info->all, tensor);
        count(&info->by_dtype[tensor->dtype], tensor);
    }
    key_tree_sort(&info->tree);
    return true;
}

/* Returns the first metadata text that names the writer of the file, or NULL. */
static const char *writer_of(const struct wfs_catalog *catalog)
{
    static const char *const names[] = {"producer", "writer", "framework", "format"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (const struct wfs_text *meta = wfs_catalog_meta(catalog); meta; meta = meta->next) {
            if (strcmp(meta->name, names[i]) == 0)
                return meta->value;
        }
    }
    return NULL;
}

/* ---- JSON ---- */

static void json_totals(struct json_out *out, const struct module_totals *totals)
{
    json_out_u64(out, "tensors", totals->n_tensors);
    json_out_u64(out, "bytes", totals->n_bytes);
}

static void json_dtypes(struct json_out *out, const struct info *info)
{
    json_out_open_object(out, "dtypes");
    for (int dtype = 0; dtype < WFS_N_DTYPES; dtype++) {
        if (info->by_dtype[dtype].n_tensors == 0)
            continue;
        json_out_open_object(out, wfs_dtype_name((enum wfs_dtype)dtype));
        json_totals(out, &info->by_dtype[dtype]);
        json_out_close(out);
    }
    json_out_close(out);
}

static void json_metadata(struct json_out *out, const struct wfs_catalog *catalog)
{
    json_out_open_object(out, "metadata");
    for (const struct wfs_text *meta = wfs_catalog_meta(catalog); meta != NULL; meta = meta->next)
        json_out_text_n(out, meta->name, meta->value, meta->n_bytes);
    json_out_close(out);
}

static void json_top_level(struct json_out *out, const struct info *info)
{
    const struct key_tree *tree = &info->tree;
    json_out_open_array(out, "top_level");
    for (size_t i = 0, end; i < tree->n_tensors; i = end) {
        const char *key = tree->tensors[i]->key;
        end = key_tree_end(tree, i, tree->n_tensors, 0);
        json_out_open_object(out, NULL);
        json_out_text_n(out, "name", key, key_tree_component(key, 0));
        json_out_u64(out, "tensors", end - i);
        json_out_u64(out, "bytes", key_tree_n_bytes(tree, i, end));
        json_out_close(out);
    }
    json_out_close(out);
}

static void json_sources(struct json_out *out, const struct wfs_catalog *catalog)
{
    json_out_open_array(out, "sources");
    for (size_t i = 0; i < wfs_catalog_n_sources(catalog); i++) {
        json_out_open_object(out, NULL);
        json_out_text(out, "file", wfs_catalog_source_path(catalog, i));
        json_out_u64(out, "bytes", wfs_catalog_source_bytes(catalog, i));
        bool is_remote;
        const uint64_t n_cached = wfs_catalog_source_cached(catalog, i, &is_remote);
        if (is_remote)
            json_out_u64(out, "cached", n_cached);
        json_out_close(out);
    }
    json_out_close(out);
}

static void json_findings(struct json_out *out, const struct wfs_catalog *catalog)
{
    json_out_open_array(out, "findings");
    for (size_t i = 0; i < wfs_catalog_n_findings(catalog); i++)
        print_json_finding(out, wfs_catalog_finding(catalog, i));
    json_out_close(out);
}

static void json_info(const struct info *info)
{
    struct json_out out = {.file = stdout, .spelling = JSON_ASCII};
    json_out_open_object(&out, NULL);
    json_out_text(&out, "file", info->path);
    json_out_text(&out, "container", wfs_container_name(wfs_catalog_container(info->catalog)));
    json_out_text(&out, "format", wfs_catalog_format(info->catalog)->name);
    json_out_text(&out, "writer", writer_of(info->catalog));
    json_out_u64(&out, "n_tensors", info->all.n_tensors);
    json_out_u64(&out, "n_bytes", info->all.n_bytes);
    json_out_u64(&out, "n_elems", info->all.n_elems);
    json_dtypes(&out, info);
    json_metadata(&out, info->catalog);
    json_top_level(&out, info);
    json_sources(&out, info->catalog);
    json_findings(&out, info->catalog);
    json_out_close(&out);
}

/* ---- text ---- */

enum { N_SHOWN = 10 }; /* items of a list before "and N more" */

static void print_label(const char *label, size_t i)
{
    printf("%-11s ", i == 0 ? label : "");
}

static void print_more(size_t n_items)
{
    if (n_items > N_SHOWN) {
        print_label("", 1);
        printf("and %zu more\n", n_items - N_SHOWN);
    }
}

static void print_totals(const struct module_totals *totals)
{
    printf("%s, ", wfs_count(totals->n_tensors, "tensor").text);
    print_size(stdout, totals->n_bytes);
    putchar('\n');
}

static void print_field(const char *label, const char *text)
{
    if (text == NULL)
        return;
    print_label(label, 0);
    print_escaped(stdout, text);
    putchar('\n');
}

static void print_dtypes(const struct info *info)
{
    size_t n = 0;
    for (int dtype = 0; dtype < WFS_N_DTYPES; dtype++) {
        if (info->by_dtype[dtype].n_tensors == 0)
            continue;
        print_label("dtypes:", n++);
        printf("%-8s ", wfs_dtype_name((enum wfs_dtype)dtype));
        print_totals(&info->by_dtype[dtype]);
    }
}

static void print_metadata(const struct wfs_catalog *catalog)
{
    size_t n = 0;
    for (const struct wfs_text *meta = wfs_catalog_meta(catalog); meta; meta = meta->next, n++) {
        if (n >= N_SHOWN)
            continue;
        print_label("metadata:", n);
        printf("%s = %s\n", wfs_quote(meta->name).text,
               wfs_quote_n(meta->value, meta->n_bytes).text);
    }
    print_more(n);
}

static void print_top_level(const struct info *info)
{
    const struct key_tree *tree = &info->tree;
    size_t n = 0;
    for (size_t i = 0, end; i < tree->n_tensors; i = end, n++) {
        const char *key = tree->tensors[i]->key;
        const size_t n_name = key_tree_component(key, 0);
        end = key_tree_end(tree, i, tree->n_tensors, 0);
        if (n >= N_SHOWN)
            continue;
        print_label("top level:", n);
        printf("%-16s ", n_name > 0 ? wfs_quote_n(key, n_name).text : "%");
        print_totals(&(struct module_totals){end - i, key_tree_n_bytes(tree, i, end), 0});
    }
    print_more(n);
}

static void print_sources(const struct wfs_catalog *catalog)
{
    const size_t n = wfs_catalog_n_sources(catalog);
    for (size_t i = 0; i < n && i < N_SHOWN; i++) {
        print_label("sources:", i);
        print_escaped(stdout, wfs_catalog_source_path(catalog, i));
        bool is_remote;
        const uint64_t n_cached = wfs_catalog_source_cached(catalog, i, &is_remote);
        printf(", %s", wfs_count(wfs_catalog_source_bytes(catalog, i), "byte").text);
        if (is_remote)
            printf(", %" PRIu64 " in the cache", n_cached);
        putchar('\n');
    }
    print_more(n);
}

static void print_findings(const struct wfs_catalog *catalog)
{
    const size_t n = wfs_catalog_n_findings(catalog);
    for (size_t i = 0; i < n && i < N_SHOWN; i++) {
        print_label("findings:", i);
        print_finding(stdout, wfs_catalog_finding(catalog, i));
    }
    print_more(n);
}

static void print_info(const struct info *info, bool is_screen)
{
    print_field("file:", info->path);
    print_field("format:", wfs_catalog_format(info->catalog)->name);
    print_field("container:", wfs_container_name(wfs_catalog_container(info->catalog)));
    print_field("writer:", writer_of(info->catalog));
    print_label("tensors:", 0);
    printf("%" PRIu64 "\n", info->all.n_tensors);
    print_label("bytes:", 0);
    printf("%" PRIu64 " (", info->all.n_bytes);
    print_size(stdout, info->all.n_bytes);
    puts(")");
    print_label("elements:", 0);
    printf("%" PRIu64, info->all.n_elems);
    if (is_screen)
        printf(" (%s)", amount_of_count(info->all.n_elems).text);
    putchar('\n');
    if (!is_screen)
        print_dtypes(info);
    print_metadata(info->catalog);
    if (!is_screen)
        print_top_level(info);
    print_sources(info->catalog);
    print_findings(info->catalog);
}

/* A terminal gets tables with bars in place of the lists of dtypes and of the top level. */
static enum exit_code print_all(const struct info *info, const struct args *args)
{
    const bool is_screen = screen_width(STDOUT_FILENO) > 0;
    print_info(info, is_screen);
    if (is_screen &&
        (modules_print(&info->tree, args) < 0 || modules_print_dtypes(info->by_dtype, args) < 0))
        return print_memory(info->path);
    return EXIT_DONE;
}

static enum exit_code run_info(const struct args *args)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    struct info info = {.path = args->operands[0]};
    enum exit_code exit_code = input_load(args, info.path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    info.catalog = catalog;
    if (!collect(&info))
        return print_memory(info.path);
    if (args_has(args, "json"))
        json_info(&info);
    else
        exit_code = print_all(&info, args);
    free(info.tree.tensors);
    return exit_code;
}

static const struct args_option info_options[] = {
    {"json", NULL, "print one JSON object"},
    {NULL, NULL, NULL},
};

const struct verb verb_info = {
    .name = "info",
    .operands = "SOURCE",
    .text = "Print a summary of a checkpoint: container, writer, counts, bytes, dtypes,\n"
            "metadata, structure, files and oddities; on a terminal with a bar for each\n"
            "module and dtype. Reads no tensor data.",
    .n_min = 1,
    .n_max = 1,
    .has_source = true,
    .options = info_options,
    .run = run_info,
};

/* ---- config ---- */

static enum exit_code run_config(const struct args *args)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    autofree char *text = NULL;
    size_t n_bytes;
    struct wfs_error err = {0};
    const char *path = args->operands[0];
    enum exit_code exit_code = input_load(args, path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    const char *key = args->n_operands > 1 ? args->operands[1] : NULL;
    int code = wfs_catalog_config(catalog, key, &text, &n_bytes, &err);
    autofree char *unescaped = code == -ENOENT ? input_unescape(key) : NULL;
    if (unescaped != NULL && strcmp(unescaped, key) != 0)
        code = wfs_catalog_config(catalog, unescaped, &text, &n_bytes, &err);
    if (code < 0)
        return print_error(code == -ENOENT ? EXIT_NO_MATCH : exit_of_errno(-code), path, "%s",
                           err.text);
    print_json(stdout, text, n_bytes);
    return EXIT_DONE;
}

static const struct args_option config_options[] = {
    {NULL, NULL, NULL},
};

const struct verb verb_config = {
    .name = "config",
    .operands = "SOURCE [KEY]",
    .text = "Print the non-tensor contents of a checkpoint as JSON: all of them, or those at\n"
            "the dotted KEY. Python objects are shown as {\"$python\": \"module.Class\", ...};\n"
            "they are never constructed.",
    .n_min = 1,
    .n_max = 2,
    .has_source = true,
    .is_json = true,
    .options = config_options,
    .run = run_config,
};
