/* SPDX-License-Identifier: MIT */
/*
 * Extended attributes with the rules of the system calls: ours, the metadata of the root, others. A
 * file whose whole content was copied from a tensor gets those that cp -a would set.
 */
#include "base/utf8.h"
#include "tensor/tensor.h"
#include "tree/attrs.h"
#include "tree/content.h"
#include "tree/control/texts.h"
#include "tree/file/editfile.h"
#include "tree/node/edit.h"
#include "tree/node/entry.h"

#include <errno.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#define USER "user."
#define OURS "user.weightfs."
#define METADATA "user.weightfs.metadata."
#define FORMAT "user.weightfs.format"

enum {
    LISTED_MAX = 4000, /* bytes that those listed may take on ext4, which has 4096 for all */
    ENTRY_BYTES = 16,  /* of each of them there, beside name and value */
};

static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* ---- get ---- */

static int get_of_root(const struct wfs_tree *tree, const char *name, struct strbuf *value)
{
    const struct wfs_text *text;
    if (strcmp(name, FORMAT) == 0 && wfs_catalog_format(tree->catalog) != NULL) {
        strbuf_puts(value, wfs_catalog_format(tree->catalog)->name);
        return 0;
    }
    if (!has_prefix(name, METADATA))
        return -ENODATA;
    const int code = metadata_list(tree, &text, NULL);
    text = code < 0 ? NULL : text_find(text, name + strlen(METADATA));
    if (code < 0 || text == NULL)
        return code < 0 && code != -EBADMSG ? code : -ENODATA;
    strbuf_add(value, text->value, text->n_bytes);
    return 0;
}

static int get_of_file(const struct wfs_tree *tree, const struct wfs_node *node, const char *name,
                       struct strbuf *value)
{
    const struct attr *attr = attrs_find(name + strlen(OURS));
    struct look look;
    if (attr == NULL)
        return -ENODATA;
    int code = attrs_look(tree, node, &look);
    if (code == 0)
        code = attrs_get(&look, attr, value);
    attrs_look_done(&look);
    return code;
}

static int get(const struct wfs_tree *tree, const struct wfs_node *node, const char *name,
               struct strbuf *value)
{
    int code = -ENODATA;
    if (!has_prefix(name, USER))
        return -EOPNOTSUPP;
    if (has_prefix(name, OURS)) {
        if (node == tree->root)
            code = get_of_root(tree, name, value);
        else if (node->kind == NODE_FILE && !wfs_node_is_control(tree, node))
            code = get_of_file(tree, node, name, value);
    } else {
        const struct foreign_attr *attr =
            node->edit == NULL ? NULL : foreign_find(&node->edit->foreign, name);
        if (attr != NULL) {
            strbuf_add(value, attr->value, attr->n_bytes);
            code = 0;
        }
    }
    if (code < 0)
        return code;
    return value->has_failed ? -ENOMEM : value->n_bytes > FOREIGN_VALUE_MAX ? -E2BIG : 0;
}

/* The length rule of getxattr and listxattr. */
static ssize_t hand_out(const struct strbuf *text, void *buf, size_t n_bytes)
{
    if (n_bytes == 0)
        return (ssize_t)text->n_bytes;
    if (text->n_bytes > n_bytes)
        return -ERANGE;
    if (text->n_bytes > 0)
        memcpy(buf, text->bytes, text->n_bytes);
    return (ssize_t)text->n_bytes;
}

ssize_t wfs_node_get_xattr(const struct wfs_tree *tree, const struct wfs_node *node,
                           const char *name, void *buf, size_t n_bytes)
{
    autostrbuf struct strbuf value = {0};
    const int code = get(tree, node, name, &value);
    return code < 0 ? code : hand_out(&value, buf, n_bytes);
}

/* ---- list ---- */

struct list {
    struct strbuf names;
    size_t n_cost; /* on ext4 */
};

static size_t rounded(size_t n_bytes)
{
    return (n_bytes + 3) / 4 * 4;
}

/* Names an attribute of ours, if there is still room on a filesystem that it may be copied to. */
static void add_ours(struct list *list, const char *prefix, const char *name, size_t n_value)
{
    const size_t n_name = strlen(prefix) + strlen(name);
    const size_t n_cost = ENTRY_BYTES + rounded(n_name - strlen(USER)) + rounded(n_value);
    if (n_name > XATTR_NAME_MAX || n_cost > LISTED_MAX - list->n_cost)
        return;
    list->n_cost += n_cost;
    strbuf_puts(&list->names, prefix);
    strbuf_add(&list->names, name, strlen(name) + 1);
}

static int list_root(const struct wfs_tree *tree, struct list *list)
{
    const struct wfs_format *format = wfs_catalog_format(tree->catalog);
    const struct wfs_text *text;
    if (format != NULL)
        add_ours(list, OURS, "format", strlen(format->name));
    const int code = metadata_list(tree, &text, NULL);
    for (; code == 0 && text != NULL; text = text->next) {
        if (text->name[0] != '\0')
            add_ours(list, METADATA, text->name, text->n_bytes);
    }
    return code == -EBADMSG ? 0 : code; /* a commit reports that */
}

static int list_file(const struct wfs_tree *tree, const struct wfs_node *node, struct list *list)
{
    struct look look;
    autostrbuf struct strbuf value = {0};
    int code = attrs_look(tree, node, &look);
    for (size_t i = 0; i < attrs_table_n && code == 0; i++) {
        value.n_bytes = 0;
        if (!attrs_table[i].is_listed)
            continue;
        code = attrs_get(&look, &attrs_table[i], &value);
        if (code == 0)
            add_ours(list, OURS, attrs_table[i].name, value.n_bytes);
        code = code == -ENODATA ? 0 : code;
    }
    attrs_look_done(&look);
    return value.has_failed ? -ENOMEM : code;
}

ssize_t wfs_node_list_xattr(const struct wfs_tree *tree, const struct wfs_node *node, char *buf,
                            size_t n_bytes)
{
    struct list list = {0};
    int code = 0;
    if (node == tree->root)
        code = list_root(tree, &list);
    else if (node->kind == NODE_FILE && !wfs_node_is_control(tree, node))
        code = list_file(tree, node, &list);
    for (const struct foreign_attr *at = node->edit == NULL ? NULL : node->edit->foreign.first;
         at != NULL; at = at->next)
        strbuf_add(&list.names, at->name, strlen(at->name) + 1);
    if (code == 0 && list.names.has_failed)
        code = -ENOMEM;
    const ssize_t n = code < 0 ? code : hand_out(&list.names, buf, n_bytes);
    strbuf_done(&list.names);
    return n;
}

/* ---- set, remove ---- */

/* An attribute that cannot be set and whose value takes long to compute. */
static bool is_digest(const char *name)
{
    return strcmp(name, OURS "xxh3") == 0 || strcmp(name, OURS "stats") == 0;
}

/*
 * Returns true when the file keeps the attribute wherever it goes. A new file does so only with
 * what was set: the rest is that of a sibling, or of the tensor that had its key, and changes when
 * the file is renamed.
 */
static bool keeps(const struct wfs_node *node, const char *name)
{
    const struct attr *attr = has_prefix(name, OURS) ? attrs_find(name + strlen(OURS)) : NULL;
    return !edit_is_staged(node) || edit_is_told(node) ||
           (attr != NULL && attrs_is_set(node->edit, attr));
}

/* Returns a negative errno, 0 to go on, or 1 when the file keeps the value that it has. */
static int compare_old(const struct wfs_tree *tree, const struct wfs_node *node, const char *name,
                       const void *value, size_t n_bytes, int flags)
{
    autostrbuf struct strbuf old = {0};
    const int code = is_digest(name) ? -E2BIG : get(tree, node, name, &old);
    if (code < 0 && code != -ENODATA && code != -E2BIG)
        return code;
    if ((flags & XATTR_CREATE) != 0 && code != -ENODATA)
        return -EEXIST;
    if ((flags & XATTR_REPLACE) != 0 && code == -ENODATA)
        return -ENODATA;
    return code == 0 && keeps(node, name) && old.n_bytes == n_bytes &&
           (n_bytes == 0 || memcmp(old.bytes, value, n_bytes) == 0);
}

/* metadata.json is the one place of edited metadata. */
static int set_metadata(struct wfs_tree *tree, const char *name, const char *value, size_t n_bytes)
{
    if (*name == '\0' || utf8_valid(name, strlen(name)) != strlen(name) ||
        (value != NULL && utf8_valid(value, n_bytes) != n_bytes))
        return -EINVAL;
    autostrbuf struct strbuf text = {0};
    struct wfs_node *node = entry_metadata(tree);
    int code = metadata_render(tree, name, value, n_bytes, &text);
    if (code == 0 && node == NULL)
        code = wfs_node_create(tree, tree->control, ENTRY_METADATA, 0644 & ~tree->options.umask,
                               &node);
    if (code == 0)
        code = editfile_put(tree, node, text.bytes, text.n_bytes);
    if (code == 0) {
        node->edit->has_new_text = true;
        editfile_touch(tree, node);
        edit_touch(tree, tree->root);
    }
    return code;
}

static int set_foreign(struct wfs_tree *tree, struct wfs_node *node, const char *name,
                       const void *value, size_t n_bytes, int flags)
{
    struct edit *edit = edit_of(tree, node);
    if (edit == NULL)
        return -ENOMEM;
    const uint64_t n_others = tree->n_foreign_bytes - edit->foreign.n_bytes;
    const int code =
        foreign_set(&edit->foreign, name, value, n_bytes, flags, FOREIGN_TREE_MAX - n_others);
    tree->n_foreign_bytes = n_others + edit->foreign.n_bytes;
    if (code == 0)
        edit_touch(tree, node);
    return code;
}

static int remove_foreign(struct wfs_tree *tree, struct wfs_node *node, const char *name)
{
    if (node->edit == NULL)
        return -ENODATA;
    const uint64_t n_before = node->edit->foreign.n_bytes;
    const int code = foreign_remove(&node->edit->foreign, name);
    tree->n_foreign_bytes -= n_before - node->edit->foreign.n_bytes;
    if (code == 0)
        edit_touch(tree, node);
    return code;
}

int wfs_node_set_xattr(struct wfs_tree *tree, struct wfs_node *node, const char *name,
                       const void *value, size_t n_bytes, int flags)
{
    if (!has_prefix(name, USER))
        return -EOPNOTSUPP;
    if (!tree_is_open(tree))
        return -EROFS;
    if (name[strlen(USER)] == '\0')
        return -EINVAL;
    if (n_bytes > FOREIGN_VALUE_MAX)
        return -E2BIG;
    if (!has_prefix(name, OURS))
        return set_foreign(tree, node, name, value, n_bytes, flags);
    const struct attr *attr = attrs_find(name + strlen(OURS));
    if (attr == NULL && !has_prefix(name, METADATA) && strcmp(name, FORMAT) != 0)
        return -EINVAL; /* no node could have it */
    const int code = compare_old(tree, node, name, value, n_bytes, flags);
    if (code != 0)
        return code < 0 ? code : 0;
    if (node == tree->root && has_prefix(name, METADATA))
        return set_metadata(tree, name + strlen(METADATA), value == NULL ? "" : value, n_bytes);
    if (attr != NULL && node->kind == NODE_FILE && !wfs_node_is_control(tree, node)) {
        const int set = attrs_set(tree, node, attr, value == NULL ? "" : value, n_bytes);
        if (set == 0 && attr->effect != ATTR_FIXED)
            edit_touch(tree, node);
        return set;
    }
    return 0; /* copies of files and directories try whatever the original has */
}

int wfs_node_remove_xattr(struct wfs_tree *tree, struct wfs_node *node, const char *name)
{
    autostrbuf struct strbuf old = {0};
    if (!has_prefix(name, USER))
        return -EOPNOTSUPP;
    if (!tree_is_open(tree))
        return -EROFS;
    if (!has_prefix(name, OURS))
        return remove_foreign(tree, node, name);
    const int code = is_digest(name) && node->kind == NODE_FILE ? 0 : get(tree, node, name, &old);
    if (code < 0 && code != -E2BIG)
        return code;
    if (node == tree->root)
        return has_prefix(name, METADATA) ? set_metadata(tree, name + strlen(METADATA), NULL, 0)
                                          : 0;
    const struct attr *attr = attrs_find(name + strlen(OURS));
    if (attr->effect < ATTR_TEXT || node->edit == NULL)
        return 0;
    const int noted = notes_attr(tree, node, attr->name, NULL, 0);
    if (noted < 0)
        return noted;
    attrs_unset(tree, node->edit, attr);
    edit_touch(tree, node);
    return 0;
}

/* Returns whether the header of a .npy file says what the attribute does. Then it need not be set,
 * and another array may be written over the copy. */
static bool is_in_header(const struct look *look, const struct attr *attr,
                         const struct strbuf *value)
{
    const struct description *description = &look->description;
    autostrbuf struct strbuf own = {0};
    return description->is_framed && description->has_dtype &&
           wfs_dtype_bits((enum wfs_dtype)description->dtype) >= 8 &&
           strchr(wfs_dtype_descr((enum wfs_dtype)description->dtype), 'V') == NULL &&
           attr->effect >= ATTR_DTYPE && attrs_get(look, attr, &own) == 0 &&
           own.n_bytes == value->n_bytes && memcmp(own.bytes, value->bytes, own.n_bytes) == 0;
}

static int carry(struct wfs_tree *tree, struct wfs_node *node, const struct wfs_node *from)
{
    struct look look, own;
    autostrbuf struct strbuf name = {0}, value = {0};
    int code = attrs_look(tree, from, &look);
    const int looked = attrs_look(tree, node, &own);
    code = code < 0 ? code : looked;
    for (size_t i = 0; i < attrs_table_n && code == 0; i++) {
        const struct attr *attr = &attrs_table[i];
        name.n_bytes = value.n_bytes = 0;
        code = attr->is_listed && attr->effect != ATTR_FIXED ? attrs_get(&look, attr, &value)
                                                             : -ENODATA;
        strbuf_printf(&name, "user.weightfs.%s", attr->name);
        if (code == 0 && !is_in_header(&own, attr, &value))
            code = name.has_failed || value.has_failed
                       ? -ENOMEM
                       : wfs_node_set_xattr(tree, node, name.bytes, value.bytes, value.n_bytes, 0);
        code = code == -ENODATA ? 0 : code;
    }
    attrs_look_done(&own);
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
