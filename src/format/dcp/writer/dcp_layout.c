/* SPDX-License-Identifier: MIT */
/*
 * The files of a new checkpoint. All values are in the first one, before its tensors, as in files
 * of PyTorch. .metadata is a pickle of protocol 4, with the objects that PyTorch 2.4 to 2.6 writes;
 * later versions only add fields that may be missing:
 *
 *     Metadata(state_dict_metadata={KEY: TensorStorageMetadata | BytesStorageMetadata},
 *              planner_data={KEY: (PART, PART, ...)},
 *              storage_data={MetadataIndex(KEY, OFFSET): _StorageInfo(FILE, OFFSET, LENGTH)},
 *              storage_meta=None)
 *
 * Each object is its class, no arguments, and a dict of its fields. Only what many objects share is
 * put into the memo: names, and a few objects without a state of their own.
 */
#include "format/dcp/writer/dcp_plan.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/pytorch/writer/torch_checkpoint.h"
#include "pickle/pickle_output.h"

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
    int n = 0;
    (void)sscanf(name, "__%*[0-9]_%*[0-9].distcp%n", &n);
    return n > 0 && name[n] == '\0';
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

/* Plans the file beside the checkpoint as the last one, if something in it changed. */
static int add_companion(struct directory *directory, struct torch_plan *plan)
{
    struct wfs_layout *const first = plan->layout;
    cleanup(pickle_writer_done) struct pickle_writer writer = {0};
    struct torch_item item;
    uint32_t dict;
    int code = dcp_companion_change(plan, dcp_plan_leaves(directory)->dict, &dict);
    if (code == 0 && dict == 0)
        return 0;
    plan->layout = code < 0 ? NULL : add_file(directory);
    code = plan->layout == NULL ? wfs_fail_memory(plan->err)
                                : torch_item_value(plan, &writer, dict, &item);
    plan->layout = first;
    directory->rewritten = plan->catalog->own->companion.source;
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
    if (code == 0)
        code = add_tensors(directory, leaves, max_bytes, plan->err);
    return code < 0 ? code : add_companion(directory, plan);
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

/* ---- .metadata ---- */

#define METADATA "torch.distributed.checkpoint.metadata"

/* Opcodes. */
#define NEW_OBJECT ")\x81" /* of the class before it, without arguments */
#define BEGIN_DICT "}("
#define END_DICT "u"
#define END_STATE "ub" /* of an object whose state is a dict */
#define REDUCE "\x85R" /* calls what is before the argument */
#define FALSE_VALUE "\x89"
#define NONE "N"

struct describing {
    struct pickle_output out;
    struct text_index memo; /* what is in it, in the order of its numbers */
};

static void put_codes(struct describing *d, const char *codes)
{
    pickle_put(&d->out, codes, strlen(codes));
}

static void put_string(struct describing *d, const char *text)
{
    pickle_put_text(&d->out, text, strlen(text));
}

/* Fetches what is in the memo; false: it is not, and the caller writes it and calls keep. */
static bool fetch(struct describing *d, const char *name)
{
    const uint32_t number = text_index_find(&d->memo, name, strlen(name));
    if (number != TEXT_INDEX_NONE)
        pickle_put_length(&d->out, 'h', number, 1);
    return number != TEXT_INDEX_NONE;
}

static void keep(struct describing *d, const char *name)
{
    uint32_t number;
    put_codes(d, "\x94");
    if (text_index_add(&d->memo, name, strlen(name), &number) < 0)
        d->out.code = -ENOMEM;
}

static void put_global(struct describing *d, const char *module, const char *name)
{
    if (fetch(d, name))
        return;
    put_string(d, module);
    put_string(d, name);
    put_codes(d, "\x93");
    keep(d, name);
}

static void put_field(struct describing *d, const char *name)
{
    if (fetch(d, name))
        return;
    put_string(d, name);
    keep(d, name);
}

/* Begins an object with a dict of fields, which END_STATE ends. */
static void begin_object(struct describing *d, const char *module, const char *class)
{
    put_global(d, module, class);
    put_codes(d, NEW_OBJECT BEGIN_DICT);
}

/* Writes torch.Size((N, N, ...)); without numbers, zeros. */
static void put_size(struct describing *d, const char *field, const uint64_t *numbers, uint32_t n)
{
    put_field(d, field);
    put_global(d, "torch", "Size");
    put_codes(d, "(");
    for (uint32_t i = 0; i < n; i++)
        pickle_put_integer(&d->out, numbers == NULL ? 0 : (int64_t)numbers[i]);
    put_codes(d, "t" REDUCE);
}

/* Their state is a tuple: dtype, layout, requires_grad, memory_format, pin_memory. */
static void put_properties(struct describing *d, enum wfs_dtype dtype)
{
    static const char layout[] = "torch.strided", format[] = "torch.contiguous_format";
    put_global(d, METADATA, "TensorProperties");
    put_codes(d, NEW_OBJECT "(");
    put_global(d, "torch", torch_spelling_of(dtype)->dtype);
    if (!fetch(d, layout)) {
        put_global(d, "torch.serialization", "_get_layout");
        put_string(d, layout);
        put_codes(d, REDUCE);
        keep(d, layout);
    }
    put_codes(d, FALSE_VALUE);
    if (!fetch(d, format)) {
        put_global(d, METADATA, "_MEM_FORMAT_ENCODING");
        pickle_put_integer(&d->out, 0);
        put_codes(d, REDUCE);
        keep(d, format);
    }
    put_codes(d, FALSE_VALUE "tb");
}

static void put_tensor(struct describing *d, const struct wfs_tensor *tensor)
{
    const uint32_t rank = tensor->shape.rank;
    autofree uint64_t *numbers = calloc(2 * (size_t)rank + 1, sizeof(*numbers));
    if (numbers == NULL) {
        d->out.code = -ENOMEM;
        return;
    }
    torch_spelling_shape(tensor, numbers, numbers + rank);
    begin_object(d, METADATA, "TensorStorageMetadata");
    put_field(d, "properties");
    put_properties(d, (enum wfs_dtype)tensor->dtype);
    put_size(d, "size", numbers, rank);
    put_field(d, "chunks");
    put_codes(d, "]");
    begin_object(d, METADATA, "ChunkStorageMetadata");
    put_size(d, "offsets", NULL, rank);
    put_size(d, "sizes", numbers, rank);
    put_codes(d, END_STATE "a" END_STATE);
}

static void put_path(struct describing *d, const struct dcp_leaf *leaf)
{
    put_codes(d, "(");
    for (uint32_t i = 0; i < leaf->n_path; i++) {
        const struct dcp_step *step = &leaf->path[i];
        if (step->text != NULL)
            pickle_put_text(&d->out, step->text, step->n_text);
        else
            pickle_put_integer(&d->out, step->index);
    }
    put_codes(d, "t");
}

/* Writes where a leaf is stored: a MetadataIndex, and a _StorageInfo. */
static void put_storage(struct describing *d, const struct dcp_leaf *leaf, const char *name)
{
    begin_object(d, METADATA, "MetadataIndex");
    put_field(d, "fqn");
    pickle_put_text(&d->out, leaf->key, leaf->n_key);
    if (leaf->tensor != NULL)
        put_size(d, "offset", NULL, leaf->tensor->shape.rank);
    put_field(d, "index");
    if (leaf->tensor != NULL)
        pickle_put_integer(&d->out, 0);
    else
        put_codes(d, NONE);
    put_codes(d, END_STATE);
    begin_object(d, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
    put_field(d, "relative_path");
    put_string(d, name);
    put_field(d, "offset");
    pickle_put_integer(&d->out, (int64_t)leaf->item.offset);
    put_field(d, "length");
    pickle_put_integer(&d->out, (int64_t)leaf->item.n_bytes);
    put_codes(d, END_STATE);
}

static void put_metadata(struct describing *d, const struct dcp_leaves *leaves,
                         const char *const *names)
{
    put_codes(d, "\x80\4");
    begin_object(d, METADATA, "Metadata");
    put_string(d, "state_dict_metadata");
    put_codes(d, BEGIN_DICT);
    for (size_t i = 0; i < leaves->n; i++) {
        const struct dcp_leaf *leaf = &leaves->leaves[i];
        pickle_put_text(&d->out, leaf->key, leaf->n_key);
        if (leaf->tensor != NULL) {
            put_tensor(d, leaf->tensor);
        } else {
            put_global(d, METADATA, "BytesStorageMetadata");
            put_codes(d, NEW_OBJECT);
        }
    }
    put_codes(d, END_DICT);
    put_string(d, "planner_data");
    put_codes(d, BEGIN_DICT);
    for (size_t i = 0; i < leaves->n; i++) {
        pickle_put_text(&d->out, leaves->leaves[i].key, leaves->leaves[i].n_key);
        put_path(d, &leaves->leaves[i]);
    }
    put_codes(d, END_DICT);
    put_string(d, "storage_data");
    put_codes(d, BEGIN_DICT);
    for (size_t i = 0; i < leaves->n; i++)
        put_storage(d, &leaves->leaves[i], names[leaves->leaves[i].file]);
    put_codes(d, END_DICT);
    put_string(d, "storage_meta");
    put_codes(d, NONE END_STATE ".");
}

/* Copies the pieces, none of which is a range, into one text. */
static char *join(const struct pickle_output *out, struct arena *arena)
{
    char *text = arena_chars(arena, (size_t)out->n_bytes + 1);
    size_t n = 0;
    for (size_t i = 0; text != NULL && i < out->n_pieces; i++) {
        memcpy(text + n, out->pieces[i].bytes, (size_t)out->pieces[i].n_bytes);
        n += (size_t)out->pieces[i].n_bytes;
    }
    return text;
}

int dcp_plan_describe(const struct directory *directory, const char *const *names,
                      struct arena *arena, const char **ret, size_t *ret_n, struct wfs_error *err)
{
    cleanup(arena_done) struct arena scratch = {0};
    struct describing d = {.out = {.arena = &scratch, .err = err}};
    put_metadata(&d, dcp_plan_leaves(directory), names);
    *ret_n = (size_t)d.out.n_bytes;
    *ret = d.out.code < 0 ? NULL : join(&d.out, arena);
    pickle_output_done(&d.out);
    text_index_done(&d.memo);
    return *ret == NULL ? wfs_fail_memory(err) : 0;
}
