/* SPDX-License-Identifier: MIT */
/*
 * Views against the tables of names that Burn itself gave, where the optional folder of test data
 * is.
 */
#include "viewkit.h"

#include <errno.h>

#include <jansson.h>

#include "view/regex/regex.h"

static const char *text_at(const json_t *array, size_t i)
{
    return json_string_value(json_array_get(array, i));
}

/* The patterns on one name; NULL when one of them is refused. */
static const char *remap(const json_t *patterns, const char *name, struct arena *arena)
{
    for (size_t i = 0; i < json_array_size(patterns); i++) {
        struct regex *regex = NULL;
        const json_t *pair = json_array_get(patterns, i);
        if (regex_new(text_at(pair, 0), &regex, NULL) < 0)
            return NULL;
        check(regex_replace(regex, name, text_at(pair, 1), arena, &name, NULL) >= 0);
        regex_free(regex);
    }
    return name;
}

static void check_remap(const json_t *entry)
{
    const json_t *names = json_object_get(entry, "names"), *want = json_object_get(entry, "result");
    const json_t *patterns = json_object_get(entry, "patterns");
    for (size_t i = 0; i < json_array_size(names); i++) {
        struct arena arena = {0};
        const char *name = remap(patterns, text_at(names, i), &arena);
        if (want == NULL ? !check(name == NULL) : !check_str(name, text_at(want, i)))
            printf("# %s\n", text_at(json_array_get(patterns, 0), 0));
        arena_done(&arena);
    }
}

static struct wfs_catalog *catalog_of_names(const json_t *names)
{
    struct wfs_catalog *catalog = NULL;
    const uint64_t dim = 1;
    check_int(catalog_new(&catalog), 0);
    for (size_t i = 0; i < json_array_size(names); i++) {
        const json_t *name = json_array_get(names, i);
        const char *text = json_is_array(name) ? text_at(name, 0) : json_string_value(name);
        add_tensor(catalog, text, WFS_F32, 1, &dim);
    }
    return catalog;
}

static bool has_twins(const json_t *names)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(text_at(names, i), text_at(names, j)) == 0)
                return true;
        }
    }
    return false;
}

/* Where two names become one, Burn keeps either; here that is an error. */
static void check_contiguous(const json_t *entry)
{
    const json_t *want = json_object_get(entry, "result");
    struct wfs_catalog *catalog = catalog_of_names(json_object_get(entry, "names"));
    struct wfs_report *report = NULL;
    const int code = apply(catalog, NULL, OPTIONS("contiguous=on"), &report, NULL);
    check_int(code, has_twins(want) ? -EINVAL : 0);
    for (size_t i = 0; i < json_array_size(want) && code == 0; i++)
        check_str(catalog->tensors[i].key, text_at(want, i));
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

static void add_options(struct wfs_view *view, const json_t *filter, const char *name,
                        const char *option)
{
    const json_t *texts = json_object_get(filter, name);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        char text[256];
        snprintf(text, sizeof(text), "%s=%s", option, text_at(texts, i));
        check_int(wfs_view_add(view, text, NULL), 1);
    }
}

/* Predicates of Rust have no text, and an invalid regex is refused. */
static bool has_no_equal(const json_t *entry)
{
    const json_t *filter = json_object_get(entry, "filter");
    return json_object_get(filter, "predicate") != NULL ||
           json_object_get(entry, "error") != NULL ||
           json_object_get(filter, "match_all") != NULL || json_object_size(filter) == 0;
}

static void check_filter(const json_t *entry)
{
    const json_t *matches = json_object_get(entry, "matches");
    const json_t *filter = json_object_get(entry, "filter");
    struct wfs_catalog *catalog = catalog_of_names(matches);
    struct wfs_report *report = NULL;
    struct wfs_view *view = NULL;
    size_t n = 0;
    check_int(wfs_view_new(&view), 0);
    add_options(view, filter, "regex", "include");
    add_options(view, filter, "regexes", "include");
    add_options(view, filter, "full_path", "key");
    add_options(view, filter, "full_paths", "key");
    const int code = wfs_view_apply(view, catalog, &(struct wfs_view_loader){0}, &report, NULL);
    for (size_t i = 0; i < json_array_size(matches); i++) {
        const json_t *row = json_array_get(matches, i);
        if (!json_is_true(json_array_get(row, 2)))
            continue;
        check_str(catalog->tensors[n++].key, text_at(row, 0));
    }
    check_int(code, n == 0 ? -EINVAL : 0);
    check(n == 0 || n == catalog->n_tensors);
    wfs_view_free(view);
    wfs_report_free(report);
    wfs_catalog_free(catalog);
}

static void test_names_of_burn(void)
{
    const char *shared = getenv("WFS_SHARED");
    char path[512];
    snprintf(path, sizeof(path), "%s/golden/burn/cases/vectors/names-expected-0.22.1.json",
             shared ? shared : "../shared");
    json_t *json = json_load_file(path, 0, NULL), *entry;
    if (json == NULL) {
        printf("# skipped: no %s\n", path);
        return;
    }
    size_t i, n_filters = 0;
    json_array_foreach(json_object_get(json, "remap"), i, entry)
    {
        check_remap(entry);
    }
    check(i > 20);
    json_array_foreach(json_object_get(json, "contiguous"), i, entry)
    {
        check_contiguous(entry);
    }
    check(i > 5);
    json_array_foreach(json_object_get(json, "filter"), i, entry)
    {
        n_filters += !has_no_equal(entry);
        if (!has_no_equal(entry))
            check_filter(entry);
    }
    check(n_filters > 10);
    json_decref(json);
}

int main(void)
{
    check_run(test_names_of_burn);
    return check_done();
}
