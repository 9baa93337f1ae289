/* SPDX-License-Identifier: MIT */
/*
 * Rules in a JSON file: an array of objects, each with one option, `{"remap": "A=>B"}`; a pair may
 * be an array of two texts, `{"remap": ["A", "B"]}`, and an option without a value is true.
 */
#include <weightfs/cleanup.h>

#include "view/rule.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_BYTES = 16 << 20, MAX_FILES = 8 };

static void free_json(json_t **json)
{
    json_decref(*json);
}

/* The option as a command line would have it; NULL when the value is none that we take. */
static char *option_text(const char *name, const json_t *value)
{
    char *text = NULL;
    int n = -1;
    if (json_is_true(value))
        return strdup(name);
    if (json_is_string(value))
        n = asprintf(&text, "%s=%s", name, json_string_value(value));
    else if (json_is_array(value) && json_array_size(value) == 2 &&
             json_is_string(json_array_get(value, 0)) && json_is_string(json_array_get(value, 1)))
        n = asprintf(&text, "%s=%s=>%s", name, json_string_value(json_array_get(value, 0)),
                     json_string_value(json_array_get(value, 1)));
    return n < 0 ? NULL : text;
}

static int add_one(struct wfs_view *view, const char *path, size_t i, json_t *object,
                   struct wfs_error *err)
{
    const char *name;
    json_t *value;
    const struct wfs_quoted quoted = wfs_quote(path);
    if (!json_is_object(object))
        return wfs_fail(err, EINVAL, "%s: rule %zu is not an object", quoted.text, i + 1);
    json_object_foreach(object, name, value)
    {
        autofree char *text = option_text(name, value);
        if (text == NULL)
            return wfs_fail(err, EINVAL, "%s: rule %zu: the value of '%s' is no text", quoted.text,
                            i + 1, wfs_quote(name).text);
        struct wfs_error inner = {0};
        const int code = wfs_view_add(view, text, &inner);
        if (code == 0)
            return wfs_fail(err, EINVAL, "%s: rule %zu: there is no option '%s'", quoted.text,
                            i + 1, wfs_quote(name).text);
        if (code < 0)
            return wfs_fail(err, inner.code, "%s: rule %zu: %s", quoted.text, i + 1, inner.text);
    }
    return 0;
}

static int read_file(const char *path, char **ret, size_t *ret_n, struct wfs_error *err)
{
    struct stat st;
    const struct wfs_quoted quoted = wfs_quote(path);
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return wfs_fail(err, errno, "cannot open the rules file '%s': %s", quoted.text,
                        strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size > MAX_BYTES)
        return wfs_fail(err, EINVAL, "rules file '%s': not a regular file of at most %d bytes",
                        quoted.text, MAX_BYTES);
    autofree char *text = malloc((size_t)st.st_size + 1);
    if (text == NULL)
        return wfs_fail_memory(err);
    const ssize_t n = pread(fd, text, (size_t)st.st_size, 0);
    if (n < 0)
        return wfs_fail(err, errno, "cannot read the rules file '%s': %s", quoted.text,
                        strerror(errno));
    *ret = steal(&text);
    *ret_n = (size_t)n;
    return 0;
}

int rules_file_add(struct wfs_view *view, const char *path, struct wfs_error *err)
{
    autofree char *text = NULL;
    size_t n = 0, i;
    if (view->n_files == MAX_FILES)
        return wfs_fail(err, EINVAL, "rules files name each other: '%s'", wfs_quote(path).text);
    int code = read_file(path, &text, &n, err);
    if (code < 0)
        return code;
    json_error_t where;
    cleanup(free_json) json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (json == NULL)
        return wfs_fail(err, EINVAL, "rules file '%s', line %d: %s", wfs_quote(path).text,
                        where.line, wfs_quote(where.text).text);
    if (!json_is_array(json))
        return wfs_fail(err, EINVAL, "rules file '%s': an array of objects is wanted",
                        wfs_quote(path).text);
    json_t *object;
    view->n_files++;
    json_array_foreach(json, i, object)
    {
        code = code < 0 ? code : add_one(view, path, i, object, err);
    }
    view->n_files--;
    return code;
}
