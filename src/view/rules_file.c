/* SPDX-License-Identifier: MIT */
/*
 * The file is read whole and handed over option by option.
 */
#include "view/rules_file.h"

#include <weightfs/cleanup.h>
#include <weightfs/io.h>
#include <weightfs/view.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_BYTES = 16 << 20 };

/* The file that is being read. */
struct reading {
    struct wfs_quoted path;
    rules_file_add add;
    void *ctx;
    struct wfs_error *err;
};

static void free_json(json_t **json)
{
    json_decref(*json);
}

static bool is_pair(const json_t *value)
{
    return json_is_array(value) && json_array_size(value) == 2 &&
           json_is_string(json_array_get(value, 0)) && json_is_string(json_array_get(value, 1));
}

/* Returns the option as a command line would have it, malloc'ed; NULL when out of memory. */
static char *option_text(const char *name, const json_t *value)
{
    char *text = NULL;
    if (json_is_true(value))
        return strdup(name);
    autofree char *pair = json_is_string(value)
                              ? NULL
                              : wfs_view_pair(json_string_value(json_array_get(value, 0)),
                                              json_string_value(json_array_get(value, 1)));
    const char *plain = json_is_string(value) ? json_string_value(value) : pair;
    return plain == NULL || asprintf(&text, "%s=%s", name, plain) < 0 ? NULL : text;
}

static int add_member(const struct reading *r, size_t i, const char *name, const json_t *value)
{
    if (!json_is_true(value) && !json_is_string(value) && !is_pair(value))
        return wfs_fail(r->err, EINVAL,
                        "rules file '%s': rule %zu: the value of '%s' is not a string, a pair of "
                        "strings or true",
                        r->path.text, i + 1, wfs_quote(name).text);
    struct wfs_error inner = {0};
    autofree char *text = option_text(name, value);
    if (text == NULL)
        return wfs_fail_memory(r->err);
    const int code = r->add(r->ctx, text, &inner);
    if (code == 0)
        return wfs_fail(r->err, EINVAL, "rules file '%s': rule %zu: unknown option '%s'",
                        r->path.text, i + 1, wfs_quote(name).text);
    if (inner.code == ENOMEM)
        return wfs_fail_memory(r->err);
    return code > 0 ? 0
                    : wfs_fail(r->err, inner.code, "rules file '%s': rule %zu: %s", r->path.text,
                               i + 1, inner.text);
}

static int add_rule(const struct reading *r, size_t i, json_t *object)
{
    const char *name;
    json_t *value;
    int code = 0;
    if (!json_is_object(object))
        return wfs_fail(r->err, EINVAL, "rules file '%s': rule %zu is not an object", r->path.text,
                        i + 1);
    json_object_foreach(object, name, value)
    {
        code = code < 0 ? code : add_member(r, i, name, value);
    }
    return code;
}

static int read_file(const struct reading *r, const char *path, char **ret, size_t *ret_n)
{
    struct stat st;
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return wfs_fail(r->err, errno, "cannot open the rules file '%s': %s", r->path.text,
                        strerror(errno));
    if (!S_ISREG(st.st_mode))
        return wfs_fail(r->err, EINVAL, "rules file '%s' is not a regular file", r->path.text);
    if (st.st_size > MAX_BYTES)
        return wfs_fail(r->err, EINVAL, "rules file '%s' is larger than %d bytes", r->path.text,
                        MAX_BYTES);
    autofree char *text = malloc((size_t)st.st_size + 1);
    if (text == NULL)
        return wfs_fail_memory(r->err);
    const ssize_t n = io_read_at(fd, text, (size_t)st.st_size, 0);
    if (n < 0)
        return wfs_fail(r->err, (int)-n, "cannot read the rules file '%s': %s", r->path.text,
                        strerror((int)-n));
    *ret = steal(&text);
    *ret_n = (size_t)n;
    return 0;
}

/* The parser quotes what it found in the file. */
static int fail_syntax(const struct reading *r, const json_error_t *where)
{
    char text[sizeof(where->text) * WFS_ESCAPE_MAX] = "", *end = text;
    const size_t n_bytes = strlen(where->text);
    for (size_t i = 0; i < n_bytes; end += strlen(end))
        i += wfs_escape(WFS_ESCAPE_TEXT, where->text + i, n_bytes - i, end);
    return wfs_fail(r->err, EINVAL, "rules file '%s', line %d: %s", r->path.text, where->line,
                    text);
}

int rules_file_read(const char *path, rules_file_add add, void *ctx, struct wfs_error *err)
{
    const struct reading r = {wfs_quote(path), add, ctx, err};
    autofree char *text = NULL;
    size_t n = 0, i;
    int code = read_file(&r, path, &text, &n);
    if (code < 0)
        return code;
    json_error_t where;
    cleanup(free_json) json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (json == NULL && json_error_code(&where) == json_error_out_of_memory)
        return wfs_fail_memory(err);
    if (json == NULL)
        return fail_syntax(&r, &where);
    if (!json_is_array(json))
        return wfs_fail(err, EINVAL, "rules file '%s': not an array of objects", r.path.text);
    json_t *object;
    json_array_foreach(json, i, object)
    {
        code = code < 0 ? code : add_rule(&r, i, object);
    }
    return code;
}
