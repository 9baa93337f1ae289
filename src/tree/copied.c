/* SPDX-License-Identifier: MIT */
/*
 * A file whose whole content was copied from a tensor, in order and with nothing in between, is
 * that tensor again: it gets what cp -a would set.
 */
#include <errno.h>

#include "tree/attrs.h"
#include "tree/content.h"
#include "tree/node/edit.h"

static int carry(struct wfs_tree *tree, struct wfs_node *node, const struct wfs_node *from)
{
    struct look look;
    autostrbuf struct strbuf name = {0}, value = {0};
    int code = attrs_look(tree, from, &look);
    for (size_t i = 0; i < attrs_table_n && code == 0; i++) {
        const struct attr *attr = &attrs_table[i];
        name.n_bytes = value.n_bytes = 0;
        code = attr->is_listed && attr->set != NULL ? attr->get(&look, &value) : -ENODATA;
        strbuf_printf(&name, "user.weightfs.%s", attr->name);
        if (code == 0)
            code = name.has_failed || value.has_failed
                       ? -ENOMEM
                       : wfs_node_set_xattr(tree, node, name.bytes, value.bytes, value.n_bytes, 0);
        code = code == -ENODATA ? 0 : code;
    }
    attrs_look_done(&look);
    return code;
}

int wfs_node_copied(struct wfs_tree *tree, struct wfs_node *node, uint64_t offset,
                    const struct wfs_node *from, uint64_t from_offset, uint64_t n_bytes)
{
    if (node->kind != NODE_FILE || from->kind != NODE_FILE || !edit_is_staged(node) || node == from)
        return 0;
    struct edit_copy *copy = &node->edit->copy;
    const bool goes_on = offset == 0 || (copy->ino == from->ino && copy->end == offset &&
                                         copy->version + 1 == node->edit->version);
    copy->ino = goes_on && offset == from_offset ? from->ino : 0;
    copy->end = offset + n_bytes;
    copy->version = node->edit->version;
    return copy->ino != 0 && copy->end == content_n_bytes(tree, from) &&
                   copy->end == content_n_bytes(tree, node)
               ? carry(tree, node, from)
               : 0;
}
