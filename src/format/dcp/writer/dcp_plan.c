/* SPDX-License-Identifier: MIT */
/*
 * All values are in the first file, before its tensors, as in files of PyTorch.
 */
#include "format/dcp/writer/dcp_plan.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/pytorch/writer/torch_checkpoint.h"
#include "format/pytorch/writer/torch_record.h"

enum { MAX_FILES = 10000 }; /* as a reader opens by default */

bool dcp_plan_stores(const struct wfs_tensor *tensor)
{
    switch (tensor->dtype) {
    case WFS_BITS8:
    case WFS_BITS1X8:
    case WFS_BITS2X4:
    case WFS_BITS4X2:
    case WFS_BITS16:
        return false;
    default:
        return torch_record_stores(tensor);
    }
}

const char *dcp_plan_name(struct arena *arena, uint64_t number)
{
    return arena_print(arena, "__0_%" PRIu64 ".distcp", number);
}

bool dcp_plan_is_name(const char *name)
{
    static const char *const marks[] = {"__", "_"};
    for (size_t i = 0; i < 2; i++) {
        if (strncmp(name, marks[i], strlen(marks[i])) != 0)
            return false;
        name += strlen(marks[i]);
        const size_t n = strspn(name, "0123456789");
        if (n == 0)
            return false;
        name += n;
    }
    return strcmp(name, ".distcp") == 0;
}

const struct dcp_leaves *dcp_plan_leaves(const struct directory *directory)
{
    return directory->plan;
}

void dcp_plan_done(struct directory *directory)
{
    if (directory->plan != NULL)
        dcp_leaves_done(directory->plan);
    free(directory->plan);
    directory->plan = NULL;
}

/* Adds an empty file. NULL without memory. */
static struct wfs_layout *add_file(struct directory *directory)
{
    if (array_reserve(&directory->layouts, sizeof(*directory->layouts), directory->n_layouts, 1,
                      &directory->n_room) < 0)
        return NULL;
    struct wfs_layout *layout = layout_new(directory->format, directory->catalog);
    if (layout != NULL)
        directory->layouts[directory->n_layouts++] = layout;
    return layout;
}

static int add_values(struct torch_plan *plan, struct dcp_leaves *leaves)
{
    cleanup(pickle_writer_done) struct pickle_writer writer = {0};
    int code = 0;
    for (size_t i = 0; i < leaves->n && code == 0; i++) {
        struct dcp_leaf *leaf = &leaves->leaves[i];
        if (leaf->tensor == NULL)
            code = torch_item_value(plan, &writer, leaf->id, &leaf->item);
    }
    return code;
}

static int add_tensors(struct directory *directory, struct dcp_leaves *leaves, uint64_t max_bytes,
                       struct wfs_error *err)
{
    uint64_t n_bytes = 0; /* of the last file */
    int code = 0;
    for (size_t i = 0; i < leaves->n && code == 0; i++) {
        struct dcp_leaf *leaf = &leaves->leaves[i];
        if (leaf->tensor == NULL)
            continue;
        const uint64_t n = leaf->tensor->n_bytes;
        const bool is_full = max_bytes > 0 && n_bytes > 0 && n > 0 &&
                             (n_bytes >= max_bytes || n > max_bytes - n_bytes);
        if (is_full && directory->n_layouts == MAX_FILES)
            return wfs_fail(err, E2BIG, "%s more than %d files: use a larger size",
                            wfs_count_as(max_bytes, "byte a file makes", "bytes a file make").text,
                            MAX_FILES);
        if (is_full && add_file(directory) == NULL)
            return wfs_fail_memory(err);
        leaf->file = (uint32_t)directory->n_layouts - 1;
        code = torch_item_tensor(directory->layouts[leaf->file], leaf->tensor, &leaf->item, err);
        n_bytes = (is_full ? 0 : n_bytes) + n;
    }
    return code;
}

static int make(struct directory *directory, struct torch_plan *plan, uint64_t max_bytes)
{
    struct dcp_leaves *leaves = directory->plan;
    int code = torch_checkpoint_graph(plan);
    if (code == 0)
        code = dcp_leaves_find(plan, leaves);
    directory->left_out = leaves->empty;
    directory->n_left_out = leaves->n_empty;
    if (code == 0)
        code = add_values(plan, leaves);
    return code < 0 ? code : add_tensors(directory, leaves, max_bytes, plan->err);
}

int dcp_plan_make(struct directory *directory, uint64_t max_bytes, struct wfs_error *err)
{
    directory->plan = calloc(1, sizeof(struct dcp_leaves));
    cleanup(torch_checkpoint_done) struct torch_plan plan = {.catalog = directory->catalog,
                                                             .layout = add_file(directory),
                                                             .err = err,
                                                             .folder = "archive",
                                                             .wants_tensors = true};
    return directory->plan == NULL || plan.layout == NULL ? wfs_fail_memory(err)
                                                          : make(directory, &plan, max_bytes);
}
