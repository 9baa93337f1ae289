/* SPDX-License-Identifier: MIT */
/*
 * The passes of a view: what each is given, what it may do to an item, and the list of them. A pass
 * goes over all items that are still shown; no pass calls another, their order is in pipeline.c.
 */
#ifndef WFS_PASS_H
#define WFS_PASS_H

#include "view/report.h"
#include "view/rule.h"

struct pass {
    const struct wfs_view *view;
    struct wfs_catalog *catalog;
    struct wfs_catalog *like;  /* NULL: none */
    struct wfs_report *report; /* owns the items */
    enum direction to;         /* of adapters */
    enum layout layout;        /* of the source, where evidence was used */
    bool has_classes;          /* something asks for the types of modules */
    bool has_attributes;       /* tensors are attributes of others */
    bool *is_used;             /* by the number of a rule: it matched something */
    struct wfs_error *err;
};

/* Loops over the items that are still shown. */
#define for_items(item, pass)                                                                      \
    for (struct item *item = (pass)->report->items, *end_ = item + (pass)->report->n_items;        \
         item < end_; item++)                                                                      \
        if (item_is_shown(item))

/* Returns 1 or 0: whether the rule is for the item's key; or a negative errno. */
int pass_matches(const struct pass *pass, const struct rule *rule, const struct item *item);

/* Notes that the rule matched something. */
static inline void pass_use(const struct pass *pass, const struct rule *rule)
{
    pass->is_used[rule->number] = true;
}

/* Adds a notice for the report and for the user to see; an error under `strict`. */
int pass_warn(const struct pass *pass, const char *about, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns what a warning about the first of n says of the others: "" or " (and 2 more)". */
struct wfs_counted pass_more(size_t n);

/*
 * What a pass does to an item. Each leaves it as it was when memory runs out, which the report
 * remembers and the pipeline looks at after each pass.
 */

/* Gives the item another key, a text in the arena, and notes why. NULL: there was no memory for it.
 */
void pass_rename(const struct pass *pass, struct item *item, const char *key, const char *why);

/* Appends to what `changes` of the item says. */
void pass_note(const struct pass *pass, struct item *item, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reorders the dimensions: those shown become order[0], order[1], ... of the present ones. */
void pass_permute(const struct pass *pass, struct item *item, const uint32_t *order);

/* Swaps the last two dimensions; there are at least two. */
void pass_swap_last(const struct pass *pass, struct item *item);

/*
 * Returns the key without enum variants, in the arena, or the same text when it has none; NULL when
 * out of memory.
 */
const char *pass_drop_variants(const struct pass *pass, const char *key);

/* Returns true if the segment of a key looks like a variant of an enum in Burn: `BaseConv`. */
bool pass_is_variant(const char *segment, size_t n);

/* Transposes, permutes and casts the item as the rules that match its key say. -EINVAL: that is not
 * possible. */
int pass_change(const struct pass *pass, struct item *item);

/* Returns 1 or 0: whether the filters show a tensor that has this key; or a negative errno. */
int pass_filter_one(const struct pass *pass, const struct item *item, const char *key);

/* The same for the name of a value, which no `where` matches. */
int pass_filter_value(const struct pass *pass, const char *name);

/* Returns the tensor that this one is an attribute of; NULL: none. */
const struct item *pass_base(const struct pass *pass, const struct item *item);

/* Reads the ranks of model parallelism beside the source, and joins their tensors to its own.
 * -EINVAL for those that do not fit, or what the loader returned. */
int ranks_join(struct pass *pass, const struct wfs_view_loader *loader);

/*
 * Replaces tensors of the catalog by those of an overlay that have the same key, and adds the
 * others at the end. over belongs to the catalog afterwards, or is freed on failure. -EINVAL if the
 * filter of the rule matches nothing, -E2BIG for a regex that takes too many steps.
 */
int overlay_lay(const struct rule *rule, struct wfs_catalog *catalog, struct wfs_catalog *over,
                struct wfs_report *report, struct wfs_error *err);

/* Shows codes as the values that they and their companions stand for. -EINVAL if there are none. */
int dequantize_apply(struct pass *pass);

/*
 * Computes the tensors that rules for sums and adapters are about, of those that the loader loads.
 * -EINVAL for keys, shapes and adapters that do not fit, or what the loader returned.
 */
int arithmetic_apply(struct pass *pass, const struct wfs_view_loader *loader);

/* The passes. Each returns 0 or a negative errno with the report in `err`. */
int pass_attributes(struct pass *pass);
int pass_follow(struct pass *pass); /* attributes, the tensors that were renamed */
int pass_top_level_key(struct pass *pass);
int pass_evidence(struct pass *pass);
int pass_remap(struct pass *pass);
int pass_contiguous(struct pass *pass);
int pass_classes(struct pass *pass); /* of `class` options, for conditions */
int pass_filter(struct pass *pass);
int pass_variants(struct pass *pass);
int pass_companions(struct pass *pass); /* finds scales of codes, for surgery and the last */
int pass_split(struct pass *pass);      /* with `like`, before it */
int pass_adapters(struct pass *pass);
int pass_fuse(struct pass *pass);
int pass_parts_of_burn(struct pass *pass); /* notices those that are left */
int pass_like(struct pass *pass);
int pass_fillers(struct pass *pass);
int pass_surgery(struct pass *pass); /* what `like` and the split before it have not done */
int pass_parted(struct pass *pass);  /* codes whose scales are not beside them any more */
int pass_collisions(struct pass *pass);
int pass_value_names(struct pass *pass);

/* Returns the Jaro similarity of two texts, on characters: 0 to 1. */
double similarity_jaro(const char *a, const char *b); /* for tests */

/*
 * Returns the suggestion for a missing key: the key without its first inner segment that looks like
 * an enum variant, if that is unused; else the most similar unused key, from 0.7 on; or NULL.
 */
const char *similarity_suggest(const char *missing,
                               const struct report_lines *unused); /* for tests */

#endif
