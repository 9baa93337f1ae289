/* SPDX-License-Identifier: MIT */
/*
 * A tensor on its way through a view: what it has become, what it was, and what was decided about
 * it. An item that is dropped stays, for the report.
 */
#ifndef WFS_ITEM_H
#define WFS_ITEM_H

#include "tensor/catalog.h"
#include "view/evidence/verdict.h"

/* Why an item is not shown. */
enum drop {
    DROP_NONE, /* it is shown */
    DROP_TOP_LEVEL_KEY,
    DROP_FILTER,
    DROP_UNREADABLE,
    DROP_SHAPE,
    DROP_DTYPE,
    DROP_UNUSED,
};

struct item {
    struct wfs_tensor tensor;
    const char *source_key; /* as it was in the file */
    const char *cut_key;    /* the same without top_level_key */
    const char *last_key;   /* after the last pass that attributes have followed */
    uint32_t base;          /* 1 + number of the item that it is an attribute of; 0: none */
    struct verdict verdict; /* by evidence or by the user; ROW_NONE: not examined */
    uint8_t drop;           /* enum drop */
    uint8_t done;           /* enum action: what an adapter or `like` did */
    bool is_kept;           /* a keep rule matches it */
    bool is_visited;        /* `like` has looked at it */
};

static inline bool item_is_shown(const struct item *item)
{
    return item->drop == DROP_NONE;
}

/* Returns static text: the reason in the report. */
const char *item_drop_name(const struct item *item);

/* Returns true if the key is not the one in the file. */
bool item_is_renamed(const struct item *item);

bool item_is_cast(const struct item *item);

/* Returns true if an adapter changed it on likely evidence. */
bool item_is_guessed(const struct item *item);

bool item_is_undecided(const struct item *item);

/* Returns true if its elements are packed or opaque: they cannot be reordered or cut. */
bool item_is_rigid(const struct item *item);

/* Returns the last segment of the key. */
const char *item_leaf(const struct item *item);

/* Returns the number of bytes of the key before its leaf, the dot included. */
size_t item_path_bytes(const struct item *item);

#endif
