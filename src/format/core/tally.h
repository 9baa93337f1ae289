/* SPDX-License-Identifier: MIT */
/*
 * The findings of one load, counted by kind: each kind becomes one finding whose text describes the
 * first case, so that a file cannot make a million of them. Kinds are counted apart: many cases of
 * one never hide another. A format numbers its own kinds; findings of one severity are listed in
 * this order.
 */
#ifndef WFS_TALLY_H
#define WFS_TALLY_H

#include "catalog/catalog.h"

enum { TALLY_N_KINDS = 24 };

/* A zeroed one is empty. */
struct tally {
    struct {
        uint64_t n;
        enum wfs_severity severity;
        const char *text; /* of the first case; NULL: none, or out of memory */
    } kinds[TALLY_N_KINDS];
};

/* Counts one more case, and describes it if it is the first. */
void tally_note(struct tally *tally, struct arena *arena, enum wfs_severity severity, unsigned kind,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

/*
 * The same in two steps, for cases so frequent that their texts are not to be made in vain:
 * counting, which returns true for the first case, and describing it in the arena.
 */
bool tally_count(struct tally *tally, unsigned kind);
void tally_describe(struct tally *tally, struct arena *arena, enum wfs_severity severity,
                    unsigned kind, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Adds the kinds that were counted to the catalog. -ENOMEM. */
int tally_report(const struct tally *tally, struct wfs_catalog *catalog);

#endif
