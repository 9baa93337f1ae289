/* SPDX-License-Identifier: MIT */
/*
 * Counts become findings of the catalog.
 */
#include "format/core/tally.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool tally_count(struct tally *tally, unsigned kind)
{
    return tally->kinds[kind].n++ == 0;
}

static void describe(struct tally *tally, struct arena *arena, enum wfs_severity severity,
                     unsigned kind, const char *format, va_list args)
{
    char text[WFS_ERROR_TEXT_MAX];
    wfs_format(text, sizeof(text), format, args);
    tally->kinds[kind].severity = severity;
    tally->kinds[kind].text = arena_copy(arena, text, strlen(text));
}

void tally_describe(struct tally *tally, struct arena *arena, enum wfs_severity severity,
                    unsigned kind, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    describe(tally, arena, severity, kind, format, args);
    va_end(args);
}

void tally_note(struct tally *tally, struct arena *arena, enum wfs_severity severity, unsigned kind,
                const char *format, ...)
{
    va_list args;
    if (!tally_count(tally, kind))
        return;
    va_start(args, format);
    describe(tally, arena, severity, kind, format, args);
    va_end(args);
}

int tally_report(const struct tally *tally, struct wfs_catalog *catalog)
{
    for (unsigned kind = 0; kind < TALLY_N_KINDS; kind++) {
        const uint64_t n = tally->kinds[kind].n;
        const char *text = tally->kinds[kind].text;
        char more[48] = "";
        if (n == 0)
            continue;
        if (n > 1)
            snprintf(more, sizeof(more), " (and %" PRIu64 " more like it)", n - 1);
        if (text == NULL ||
            catalog_add_finding(catalog, tally->kinds[kind].severity, "%s%s", text, more) < 0)
            return -ENOMEM;
    }
    return 0;
}
