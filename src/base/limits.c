/* SPDX-License-Identifier: MIT */
/*
 * Default limits and their replacement by name.
 */
#include "base/limits.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

struct limit_name {
    const char *name;
    size_t offset; /* in struct limits */
};

static const struct limit_name names[] = {
#define X(name, value, reason) {#name, offsetof(struct limits, name)},
    LIMITS(X)
#undef X
};

enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

void limits_init(struct limits *limits)
{
    *limits = (struct limits){
#define X(name, value, reason) .name = value,
        LIMITS(X)
#undef X
    };
}

void limits_max(struct limits *limits, const struct listing_limits *listing)
{
    for (size_t i = 0; i < N_NAMES; i++)
        *(uint64_t *)((char *)limits + names[i].offset) = UINT64_MAX;
    limits->n_own = 0;
    limits->is_max = true;
    limits->depth = listing->depth;
    limits->repeats = listing->repeats;
}

void limits_listing(const struct limits *limits, struct listing_limits *ret)
{
    *ret = (struct listing_limits){limits->depth, limits->repeats};
}

static size_t index_of(const struct limits *limits, const struct wfs_limit *limit)
{
    size_t i = 0;
    while (i < limits->n_own && limits->own[i].limit != limit)
        i++;
    return i;
}

uint64_t limits_own(const struct limits *limits, const struct wfs_limit *limit)
{
    const size_t i = index_of(limits, limit);
    return i < limits->n_own ? limits->own[i].value : limits->is_max ? UINT64_MAX : limit->value;
}

static bool is_name(const char *name, const char *text, size_t n_text)
{
    return strlen(name) == n_text && memcmp(name, text, n_text) == 0;
}

/* Returns where the value of a limit goes, and its name; NULL: it is not known. */
static uint64_t *find(struct limits *limits, const char *text, size_t n_text,
                      const struct wfs_limit *(*own)(size_t i), const char **ret_name)
{
    const struct wfs_limit *limit;
    for (size_t i = 0; i < N_NAMES; i++) {
        *ret_name = names[i].name;
        if (is_name(names[i].name, text, n_text))
            return (uint64_t *)((char *)limits + names[i].offset);
    }
    for (size_t i = 0; (limit = own(i)) != NULL; i++) {
        const size_t at = index_of(limits, limit);
        if (!is_name(limit->name, text, n_text))
            continue;
        assert(at < LIMITS_OWN_MAX);
        *ret_name = limit->name;
        limits->own[at].limit = limit;
        limits->n_own += at == limits->n_own;
        return &limits->own[at].value;
    }
    return NULL;
}

static int fail_unknown(const char *text, size_t n_text, const struct wfs_limit *(*own)(size_t i),
                        struct wfs_error *err)
{
    char known[WFS_ERROR_TEXT_MAX] = "";
    const struct wfs_limit *limit;
    size_t n = 0;
    for (size_t i = 0; i < N_NAMES && n < sizeof(known); i++)
        n += (size_t)snprintf(known + n, sizeof(known) - n, " %s", names[i].name);
    for (size_t i = 0; (limit = own(i)) != NULL && n < sizeof(known); i++)
        n += (size_t)snprintf(known + n, sizeof(known) - n, " %s", limit->name);
    return wfs_fail(err, EINVAL, "unknown limit '%s'; known are:%s", wfs_quote_n(text, n_text).text,
                    known);
}

int limits_set(struct limits *limits, const char *text, const struct wfs_limit *(*own)(size_t i),
               struct wfs_error *err)
{
    const char *equals = strchr(text, '='), *name;
    const size_t n_text = equals == NULL ? strlen(text) : (size_t)(equals - text);
    uint64_t *limit = find(limits, text, n_text, own, &name);
    if (limit == NULL)
        return fail_unknown(text, n_text, own, err);
    return equals != NULL && digits_parse(equals + 1, strlen(equals + 1), limit)
               ? 0
               : wfs_fail(err, EINVAL, "limit '%s' needs a whole number: %s=NUMBER", name, name);
}
