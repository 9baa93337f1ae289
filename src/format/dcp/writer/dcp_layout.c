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

/* ---- .metadata ---- */

#define METADATA "torch.distributed.checkpoint.metadata"

enum shared {
    METADATA_CLASS,
    TENSOR_CLASS,
    BYTES_CLASS,
    CHUNK_CLASS,
    PROPERTIES_CLASS,
    INDEX_CLASS,
    FORMAT_CLASS,
    STORAGE_CLASS,
    SIZE_CLASS,
    LAYOUT_FUNCTION,
    N_GLOBALS,
    FIELD_PROPERTIES = N_GLOBALS,
    FIELD_SIZE,
    FIELD_CHUNKS,
    FIELD_OFFSETS,
    FIELD_SIZES,
    FIELD_FQN,
    FIELD_OFFSET,
    FIELD_INDEX,
    FIELD_PATH,
    FIELD_LENGTH,
    LAYOUT, /* objects */
    FORMAT,
    FIRST_DTYPE,
    N_SHARED = FIRST_DTYPE + WFS_N_DTYPES,
};

static const struct {
    const char *module, *name;
} globals[N_GLOBALS] = {
    [METADATA_CLASS] = {METADATA, "Metadata"},
    [TENSOR_CLASS] = {METADATA, "TensorStorageMetadata"},
    [BYTES_CLASS] = {METADATA, "BytesStorageMetadata"},
    [CHUNK_CLASS] = {METADATA, "ChunkStorageMetadata"},
    [PROPERTIES_CLASS] = {METADATA, "TensorProperties"},
    [INDEX_CLASS] = {METADATA, "MetadataIndex"},
    [FORMAT_CLASS] = {METADATA, "_MEM_FORMAT_ENCODING"},
    [STORAGE_CLASS] = {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    [SIZE_CLASS] = {"torch", "Size"},
    [LAYOUT_FUNCTION] = {"torch.serialization", "_get_layout"},
};

static const char *const fields[] = {"properties", "size",   "chunks", "offsets",       "sizes",
                                     "fqn",        "offset", "index",  "relative_path", "length"};

struct describing {
    struct pickle_output out;
    uint32_t memo[N_SHARED]; /* 1 + number in the memo; 0: not in it yet */
    uint32_t n_memo;
};

enum {
    MARK = '(',
    EMPTY_TUPLE = ')',
    EMPTY_DICT = '}',
    EMPTY_LIST = ']',
    TUPLE = 't',
    TUPLE1 = 0x85,
    SET_ITEMS = 'u',
    APPEND = 'a',
    BUILD = 'b',
    REDUCE = 'R',
    NEW_OBJECT = 0x81,
    NONE = 'N',
    FALSE_VALUE = 0x89,
    STACK_GLOBAL = 0x93,
    MEMOIZE = 0x94,
    STOP = '.',
};

static void put(struct describing *d, uint8_t code)
{
    pickle_put_code(&d->out, code);
}

static void put_string(struct describing *d, const char *text)
{
    pickle_put_text(&d->out, text, strlen(text));
}

/* Fetches what is in the memo; false: it is not, and the caller writes it and calls keep. */
static bool fetch(struct describing *d, unsigned shared)
{
    const uint32_t number = d->memo[shared];
    if (number != 0)
        pickle_put_length(&d->out, 'h', number - 1, 1);
    return number != 0;
}

static void keep(struct describing *d, unsigned shared)
{
    put(d, MEMOIZE);
    d->memo[shared] = ++d->n_memo;
}

static void put_global(struct describing *d, unsigned shared, const char *module, const char *name)
{
    if (fetch(d, shared))
        return;
    put_string(d, module);
    put_string(d, name);
    put(d, STACK_GLOBAL);
    keep(d, shared);
}

static void put_class(struct describing *d, enum shared class)
{
    put_global(d, class, globals[class].module, globals[class].name);
}

static void put_field(struct describing *d, enum shared field)
{
    if (fetch(d, field))
        return;
    put_string(d, fields[field - FIELD_PROPERTIES]);
    keep(d, field);
}

/* Makes an object; what follows is its state, and BUILD. */
static void put_object(struct describing *d, enum shared class)
{
    put_class(d, class);
    put(d, EMPTY_TUPLE);
    put(d, NEW_OBJECT);
}

static void begin_dict(struct describing *d)
{
    put(d, EMPTY_DICT);
    put(d, MARK);
}

static void end_state(struct describing *d)
{
    put(d, SET_ITEMS);
    put(d, BUILD);
}

/* Writes torch.Size((N, N, ...)); without numbers, zeros. */
static void put_size(struct describing *d, const uint64_t *numbers, uint32_t n)
{
    put_class(d, SIZE_CLASS);
    put(d, MARK);
    for (uint32_t i = 0; i < n; i++)
        pickle_put_integer(&d->out, numbers == NULL ? 0 : (int64_t)numbers[i]);
    put(d, TUPLE);
    put(d, TUPLE1);
    put(d, REDUCE);
}

static void put_layout(struct describing *d)
{
    if (fetch(d, LAYOUT))
        return;
    put_class(d, LAYOUT_FUNCTION);
    put_string(d, "torch.strided");
    put(d, TUPLE1);
    put(d, REDUCE);
    keep(d, LAYOUT);
}

static void put_format(struct describing *d)
{
    if (fetch(d, FORMAT))
        return;
    put_class(d, FORMAT_CLASS);
    pickle_put_integer(&d->out, 0);
    put(d, TUPLE1);
    put(d, REDUCE);
    keep(d, FORMAT);
}

/* Its state is a tuple: dtype, layout, requires_grad, memory_format, pin_memory. */
static void put_properties(struct describing *d, enum wfs_dtype dtype)
{
    put_object(d, PROPERTIES_CLASS);
    put(d, MARK);
    put_global(d, FIRST_DTYPE + dtype, "torch", torch_spelling_of(dtype)->dtype);
    put_layout(d);
    put(d, FALSE_VALUE);
    put_format(d);
    put(d, FALSE_VALUE);
    put(d, TUPLE);
    put(d, BUILD);
}

static int put_tensor(struct describing *d, const struct wfs_tensor *tensor)
{
    const uint32_t rank = tensor->shape.rank;
    autofree uint64_t *numbers = calloc(2 * (size_t)rank + 1, sizeof(*numbers));
    if (numbers == NULL)
        return -ENOMEM;
    torch_spelling_shape(tensor, numbers, numbers + rank);
    put_object(d, TENSOR_CLASS);
    begin_dict(d);
    put_field(d, FIELD_PROPERTIES);
    put_properties(d, (enum wfs_dtype)tensor->dtype);
    put_field(d, FIELD_SIZE);
    put_size(d, numbers, rank);
    put_field(d, FIELD_CHUNKS);
    put(d, EMPTY_LIST);
    put_object(d, CHUNK_CLASS);
    begin_dict(d);
    put_field(d, FIELD_OFFSETS);
    put_size(d, NULL, rank);
    put_field(d, FIELD_SIZES);
    put_size(d, numbers, rank);
    end_state(d);
    put(d, APPEND);
    end_state(d);
    return 0;
}

static void put_path(struct describing *d, const struct dcp_leaf *leaf)
{
    put(d, MARK);
    for (uint32_t i = 0; i < leaf->n_path; i++) {
        const struct dcp_step *step = &leaf->path[i];
        if (step->text != NULL)
            pickle_put_text(&d->out, step->text, step->n_text);
        else
            pickle_put_integer(&d->out, step->index);
    }
    put(d, TUPLE);
}

static void put_index(struct describing *d, const struct dcp_leaf *leaf)
{
    put_object(d, INDEX_CLASS);
    begin_dict(d);
    put_field(d, FIELD_FQN);
    pickle_put_text(&d->out, leaf->key, leaf->n_key);
    if (leaf->tensor != NULL) {
        put_field(d, FIELD_OFFSET);
        put_size(d, NULL, leaf->tensor->shape.rank);
    }
    put_field(d, FIELD_INDEX);
    if (leaf->tensor != NULL)
        pickle_put_integer(&d->out, 0);
    else
        put(d, NONE);
    end_state(d);
}

static void put_storage(struct describing *d, const struct dcp_leaf *leaf, const char *name)
{
    put_object(d, STORAGE_CLASS);
    begin_dict(d);
    put_field(d, FIELD_PATH);
    put_string(d, name);
    put_field(d, FIELD_OFFSET);
    pickle_put_integer(&d->out, (int64_t)leaf->item.offset);
    put_field(d, FIELD_LENGTH);
    pickle_put_integer(&d->out, (int64_t)leaf->item.n_bytes);
    end_state(d);
}

static int put_metadata(struct describing *d, const struct dcp_leaves *leaves,
                        const char *const *names)
{
    int code = 0;
    put_object(d, METADATA_CLASS);
    begin_dict(d);
    put_string(d, "state_dict_metadata");
    begin_dict(d);
    for (size_t i = 0; i < leaves->n && code == 0; i++) {
        const struct dcp_leaf *leaf = &leaves->leaves[i];
        pickle_put_text(&d->out, leaf->key, leaf->n_key);
        if (leaf->tensor != NULL)
            code = put_tensor(d, leaf->tensor);
        else
            put_object(d, BYTES_CLASS);
    }
    put(d, SET_ITEMS);
    put_string(d, "planner_data");
    begin_dict(d);
    for (size_t i = 0; i < leaves->n; i++) {
        pickle_put_text(&d->out, leaves->leaves[i].key, leaves->leaves[i].n_key);
        put_path(d, &leaves->leaves[i]);
    }
    put(d, SET_ITEMS);
    put_string(d, "storage_data");
    begin_dict(d);
    for (size_t i = 0; i < leaves->n; i++) {
        put_index(d, &leaves->leaves[i]);
        put_storage(d, &leaves->leaves[i], names[leaves->leaves[i].file]);
    }
    put(d, SET_ITEMS);
    put_string(d, "storage_meta");
    put(d, NONE);
    end_state(d);
    return code;
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
    pickle_put(&d.out, "\x80\4", 2);
    const int code = put_metadata(&d, dcp_plan_leaves(directory), names);
    put(&d, STOP);
    *ret_n = (size_t)d.out.n_bytes;
    *ret = code < 0 || d.out.has_failed ? NULL : join(&d.out, arena);
    pickle_output_done(&d.out);
    return *ret == NULL ? wfs_fail_memory(err) : 0;
}
