/* SPDX-License-Identifier: MIT */
/*
 * Loads a source for a verb and looks into it.
 */
#include "cli/input.h"

#include "cli/print.h"
#include "cli/suggest.h"

#include <errno.h>
#include <string.h>

enum exit_code input_load(const struct args *args, const char *path, struct wfs_catalog **out)
{
    struct wfs_error err = {0};
    const struct wfs_load_options options = args_load_options(args);
    const char *real_path = strcmp(path, "-") == 0 ? "/dev/fd/0" : path;
    if (wfs_load(real_path, &options, out, &err) < 0)
        return print_error(exit_of_errno(err.code), path, "%s", err.text);
    return EXIT_DONE;
}

enum exit_code input_find(const struct wfs_catalog *catalog, const char *path, const char *key,
                          const struct wfs_tensor **ret)
{
    *ret = wfs_catalog_find(catalog, key);
    if (*ret != NULL)
        return EXIT_DONE;
    const char *near[3];
    const size_t n_near = suggest_keys(catalog, key, near);
    const char *const words[] = {"; did you mean", ",", " or"};
    char text[3 * WFS_QUOTE_MAX + 64] = "";
    size_t n_text = 0;
    for (size_t i = 0; i < n_near; i++) {
        const size_t word = i == 0 ? 0 : i + 1 == n_near ? 2 : 1;
        n_text += (size_t)snprintf(text + n_text, sizeof(text) - n_text, "%s '%s'", words[word],
                                   wfs_quote(near[i]).text);
    }
    return print_error(EXIT_NO_MATCH, path, "no tensor has the key '%s'%s%s", wfs_quote(key).text,
                       text, n_near > 0 ? "?" : "");
}

enum exit_code input_read_error(const char *path, const struct wfs_tensor *tensor, int code)
{
    const struct wfs_quoted key = wfs_quote(tensor->key);
    if (tensor->trouble != NULL)
        return print_error(EXIT_DAMAGED, path, "tensor '%s': %s", key.text, tensor->trouble);
    if (code == -EIO)
        return print_error(EXIT_DAMAGED, path,
                           "tensor '%s': cannot be read, or the file has changed meanwhile",
                           key.text);
    return print_error(exit_of_errno(-code), path, "tensor '%s': %s", key.text, strerror(-code));
}

uint64_t input_n_elems(const struct wfs_tensor *tensor)
{
    uint64_t n_elems;
    return wfs_shape_count(&tensor->shape, &n_elems) == 0 ? n_elems : 0;
}

const char *input_file_of(const struct wfs_catalog *catalog, const struct wfs_tensor *tensor)
{
    const int i = wfs_catalog_source_of(catalog, tensor);
    return i < 0 ? NULL : wfs_catalog_source_path(catalog, (size_t)i);
}

uint64_t input_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
