/* SPDX-License-Identifier: MIT */
/*
 * Default limits and their replacement by name.
 */
#include "base/limits.h"

#include <errno.h>
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

#define X(name, value, reason) " " #name
static const char known[] = LIMITS(X);
#undef X

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
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        *(uint64_t *)((char *)limits + names[i].offset) = UINT64_MAX;
    limits->depth = listing->depth;
    limits->repeats = listing->repeats;
}

void limits_listing(const struct limits *limits, struct listing_limits *ret)
{
    *ret = (struct listing_limits){limits->depth, limits->repeats};
}

static bool parse_number(const char *text, uint64_t *ret)
{
    uint64_t value = 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || !checked_mul(value, (uint64_t)10, &value) ||
            !checked_add(value, (uint64_t)(*text - '0'), &value))
            return false;
    }
    *ret = value;
    return true;
}

int limits_set(struct limits *limits, const char *text, struct wfs_error *err)
{
    const char *equals = strchr(text, '=');
    const size_t n_name = equals == NULL ? strlen(text) : (size_t)(equals - text);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i].name) != n_name || memcmp(names[i].name, text, n_name) != 0)
            continue;
        uint64_t *limit = (uint64_t *)((char *)limits + names[i].offset);
        if (equals == NULL || !parse_number(equals + 1, limit))
            return wfs_fail(err, EINVAL, "limit '%s' needs a whole number: %s=NUMBER",
                            names[i].name, names[i].name);
        return 0;
    }
    return wfs_fail(err, EINVAL, "unknown limit '%s'; known are:%s", wfs_quote_n(text, n_name).text,
                    known);
}
