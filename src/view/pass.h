/* SPDX-License-Identifier: MIT */
/*
 * A view at work. The tensors are taken out of the catalog as items, each pass goes over all of
 * them, and what is left is put back. An item that is dropped stays, for the report.
 */
#ifndef WFS_PASS_H
#define WFS_PASS_H

#include "tensor/catalog.h"
#include "view/report.h"
#include "view/rule.h"

struct item {
    struct wfs_tensor tensor;
    const char *source_key; /* as it was in the file */
    const char *dropped;    /* why it is not shown; NULL: it is */
    struct verdict verdict; /* evidence or what the user told; no row: nobody asked */
    uint8_t done;           /* enum action, by an adapter */
    bool is_kept;           /* a keep rule has it */
    bool is_visited;        /* `like` has looked at it */
};

struct pass {
    const struct wfs_view *view;
    struct wfs_catalog *catalog;
    const struct wfs_catalog *like;
    struct wfs_report *report; /* owns the items */
    enum direction to;         /* of adapters */
    enum layout layout;        /* of the source, where evidence was asked */
    struct wfs_error *err;
};

/* The loops over items that are still shown. */
#define for_items(item, pass)                                                                      \
    for (struct item *item = (pass)->report->items, *end_ = item + (pass)->report->n_items;        \
         item < end_; item++)                                                                      \
        if (item->dropped == NULL)

/* 1, 0 or an error: whether the rule is for the item's key. */
int pass_matches(const struct pass *pass, const struct rule *rule, const struct item *item);

/* Gives the item another key, a text in the arena. */
int pass_rename(const struct pass *pass, struct item *item, const char *key, const char *why);

/* Adds to what `changes` says. */
int pass_note(const struct pass *pass, struct item *item, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Swaps or reorders dimensions: those shown become order[0], order[1], ... of the present ones. */
int pass_permute(const struct pass *pass, struct item *item, const uint32_t *order);

int pass_swap_last(const struct pass *pass, struct item *item);

/* Reordering or cutting needs elements of whole bytes that mean something by themselves. */
bool item_is_rigid(const struct item *item);

const char *item_leaf(const struct item *item);

/* The key without enum variants, in the arena; the same text when there are none. NULL when out of
 * memory. */
const char *pass_drop_variants(const struct pass *pass, const char *key);

/* 1, 0 or an error: whether the filters show a tensor with this key. */
int pass_filter_one(const struct pass *pass, const struct item *item, const char *key);

bool pass_has_filters(const struct pass *pass);

/* The passes, in their order. */
int pass_top_level_key(struct pass *pass);
int pass_judge(struct pass *pass);
int pass_remap(struct pass *pass);
int pass_contiguous(struct pass *pass);
int pass_classes(struct pass *pass); /* that are told, for conditions */
int pass_filter(struct pass *pass);
int pass_variants(struct pass *pass);
int pass_adapt(struct pass *pass);
int pass_like(struct pass *pass);
int pass_surgery(struct pass *pass);
int pass_collide(struct pass *pass);
int pass_values(struct pass *pass);

#endif
