/* SPDX-License-Identifier: MIT */
/*
 * The attributes of tensor files: name, get, set. Names are without "user.weightfs.".
 */
#ifndef WFS_TREE_ATTRS_H
#define WFS_TREE_ATTRS_H

#include "tree/file/description.h"
#include "tree/node/edit.h"

enum { ATTRS_RANK_MAX = 16384 }; /* as the loaders take */

/* A node, described by its first name. */
struct look {
    const struct wfs_tree *tree;
    const struct wfs_node *node;
    struct arena arena;
    struct description description;
    struct wfs_tensor tensor; /* that a commit would write, as far as it is known */
};

/* -EIO, -ENOMEM; attrs_look_done is due in any case. */
int attrs_look(const struct wfs_tree *tree, const struct wfs_node *node, struct look *look);
void attrs_look_done(struct look *look);

struct attr {
    const char *name;
    bool is_listed;
    /* -ENODATA: the file has none. */
    int (*get)(const struct look *look, struct strbuf *text);
    /* NULL: setting it succeeds and changes nothing. -EINVAL for what it cannot be. */
    int (*set)(struct wfs_tree *tree, struct wfs_node *node, const char *value, size_t n_bytes);
    /* Removes what was set; NULL: the attribute cannot be removed. */
    void (*unset)(struct edit *edit);
};

extern const struct attr attrs_table[];
extern const size_t attrs_table_n;

/* Sets the attribute if possible; NULL removes it. -ENODATA: unknown attribute. */
int attrs_change(struct wfs_tree *tree, struct wfs_node *node, const char *name, const char *value);

/* Parses "[2, 3]", with spaces or without. -EINVAL, -ENOMEM. */
int attrs_parse_shape(const char *text, size_t n_bytes, struct arena *arena, struct wfs_shape *ret);

#endif
