/* SPDX-License-Identifier: MIT */
/*
 * A treemap as SVG: the area of a tile is the parameters of a tensor, and tensors with the same
 * leading components of the key lie together in a frame. Knows nothing of what the colours mean.
 */
#ifndef WFS_TREEMAP_H
#define WFS_TREEMAP_H

#include "program/key_tree.h"

/* A line of the legend. */
struct treemap_legend {
    const char *colour; /* a class of report/map.css */
    const char *text;   /* our own */
};

struct treemap {
    const struct key_tree *tree; /* sorted */
    const struct treemap_legend *legend;
    size_t n_legend;
    const char *label;                          /* what the picture shows, for those who hear it */
    const char *(*colour)(void *ctx, size_t i); /* of the tensor with that place in the tree */
    /* Adds lines of our own words that follow the key, dtype and shape of a tensor. May be NULL. */
    void (*describe)(void *ctx, size_t i, struct strbuf *out);
    void *ctx;
};

/* Adds an <svg> with its style. -ENOMEM. */
int treemap_draw(const struct treemap *map, struct strbuf *out);

/*
 * Adds a name from a file as text of HTML and XML, or as the value of an attribute in quotes: with
 * the escapes of a terminal, so that no control or direction character is left, and those of
 * markup.
 */
void markup_name(struct strbuf *out, const char *name);

/* The files of src/cli/report: see embed.py there. */
extern const char report_map_css[], report_page_css[], report_page_js[];

#endif
