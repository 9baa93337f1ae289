/* SPDX-License-Identifier: MIT */
/*
 * The attributes of tensor files: name, get, set. Names are without "user.weightfs.".
 */
#ifndef WFS_TREE_ATTRS_H
#define WFS_TREE_ATTRS_H

#include "tree/file/description.h"
#include "tree/node/edit.h"

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

/* What setting an attribute does. Those from ATTR_TEXT on can be removed again. */
enum attr_effect { ATTR_FIXED, ATTR_KEY, ATTR_TEXT, ATTR_DTYPE, ATTR_SHAPE };

struct attr {
    const char *name;
    bool is_listed;
    enum attr_effect effect;
    /* -ENODATA: the file has none. NULL: it is the text of the tensor that has the name. */
    int (*get)(const struct look *look, struct strbuf *text);
};

extern const struct attr attrs_table[];
extern const size_t attrs_table_n;

/* Returns NULL when there is no such attribute. */
const struct attr *attrs_find(const char *name);

/* -ENODATA: the file has none. */
int attrs_get(const struct look *look, const struct attr *attr, struct strbuf *text);

/* Succeeds without a change for what cannot be set. -EINVAL for what it cannot be. */
int attrs_set(struct wfs_tree *tree, struct wfs_node *node, const struct attr *attr,
              const char *value, size_t n_bytes);

/* Returns true when the attribute was set and not removed since. */
bool attrs_is_set(struct edit *edit, const struct attr *attr);

/* Removes what was set. */
void attrs_unset(struct wfs_tree *tree, struct edit *edit, const struct attr *attr);

#endif
