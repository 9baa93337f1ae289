/* SPDX-License-Identifier: MIT */
/*
 * A number and a unit; no fractions.
 */
#include <weightfs/size.h>

#include <stddef.h>
#include <string.h>

#include "base/bytes.h"

bool wfs_size_parse(const char *text, uint64_t *ret)
{
    static const struct {
        const char *name;
        uint64_t n_bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"KB", 1000},
                 {"MB", 1000000},
                 {"GB", 1000000000},
                 {"TB", 1000000000000},
                 {"K", (uint64_t)1 << 10},
                 {"M", (uint64_t)1 << 20},
                 {"G", (uint64_t)1 << 30},
                 {"T", (uint64_t)1 << 40},
                 {"KiB", (uint64_t)1 << 10},
                 {"MiB", (uint64_t)1 << 20},
                 {"GiB", (uint64_t)1 << 30},
                 {"TiB", (uint64_t)1 << 40}};
    uint64_t number = 0;
    const size_t n_digits = strspn(text, "0123456789");
    if (!digits_parse(text, n_digits, &number))
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        if (strcasecmp(text + n_digits, units[i].name) == 0)
            return checked_mul(number, units[i].n_bytes, ret);
    }
    return false;
}
