/* SPDX-License-Identifier: MIT */
/*
 * A reading has all that it needs of the tree: the tensor, whose shape the edit of the node may own
 * and free, or the checkpoint that is generated.
 */
#include <weightfs/cleanup.h>
#include <weightfs/tree.h>

#include <limits.h>
#include <stdlib.h>

#include "tensor/shape.h"
#include "tree/control/control.h"
#include "tree/file/description.h"
#include "tree/frame.h"
#include "tree/node/edit.h"

struct wfs_reading {
    struct wfs_tensor tensor;
    size_t n_header; /* bytes of a generated header before the data */
    struct arena arena;
    const struct wfs_tree_made *made; /* NULL: the tensor is read */
    const void *held;
    const struct wfs_node *node; /* of what is generated: lives as long as the tree */
    uint64_t number;
};

static int hold(const struct wfs_tree *tree, const struct wfs_node *node, uint64_t number,
                struct wfs_reading *reading)
{
    const int code = control_hold(tree, node, number, &reading->held);
    reading->made = code < 0 ? NULL : wfs_node_made(tree, node);
    reading->node = node;
    reading->number = number;
    return code;
}

static int take_tensor(const struct wfs_tree *tree, const struct wfs_node *node,
                       struct wfs_reading *reading)
{
    reading->tensor = description_shown(node);
    reading->n_header = frame_header_n_bytes(tree, node);
    return node->edit != NULL && node->edit->has_shape
               ? shape_own(&reading->tensor.shape, &reading->arena)
               : 0;
}

int wfs_reading_new(const struct wfs_tree *tree, uint64_t number, struct wfs_reading **ret)
{
    const struct wfs_node *node = wfs_tree_node(tree, number);
    const bool is_made = wfs_node_made(tree, node) != NULL;
    *ret = NULL;
    if (!is_made && (node->kind != NODE_FILE || edit_is_staged(node) || node->tensor == NULL))
        return 0;
    struct wfs_reading *reading = calloc(1, sizeof(*reading));
    if (reading == NULL)
        return -ENOMEM;
    const int code = is_made ? hold(tree, node, number, reading) : take_tensor(tree, node, reading);
    if (code < 0)
        wfs_reading_free(reading);
    else
        *ret = reading;
    return code;
}

void wfs_reading_free(struct wfs_reading *reading)
{
    if (reading == NULL)
        return;
    if (reading->made != NULL)
        reading->made->let_go(reading->made->ctx, reading->held);
    arena_done(&reading->arena);
    free(reading);
}

bool wfs_reading_is_plain(const struct wfs_reading *reading)
{
    return reading->made == NULL && wfs_tensor_is_plain(&reading->tensor);
}

ssize_t wfs_reading_run(const struct wfs_reading *reading, uint64_t offset, void *buf,
                        size_t n_bytes)
{
    n_bytes = n_bytes < SSIZE_MAX ? n_bytes : SSIZE_MAX;
    return reading->made != NULL
               ? reading->made->read(reading->held, offset, buf, n_bytes)
               : frame_read(&reading->tensor, reading->n_header, offset, buf, n_bytes);
}

int wfs_reading_check(const struct wfs_tree *tree, const struct wfs_reading *reading)
{
    return reading->made == NULL ? 0 : control_check_held(tree, reading->node, reading->number);
}

void wfs_reading_ahead(const struct wfs_reading *reading, uint64_t offset)
{
    if (reading->made == NULL && offset >= reading->n_header)
        wfs_tensor_read_ahead(&reading->tensor, offset - reading->n_header);
}
