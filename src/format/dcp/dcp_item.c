/* SPDX-License-Identifier: MIT */
/*
 * An item is the zip that torch.save writes of one tensor. It is read as any file of PyTorch is,
 * into a catalog of its own, and its tensor compared with the chunk. In a safetensors file, which
 * is given to its reader as a source that is the end of another one, DCP_SHARDING_INFO is checked
 * in full; members of an entry other than its offsets are passed over.
 */
#include "format/dcp/dcp_item.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/utf8.h"
#include "format/pytorch/object/torch_builder.h"
#include "format/pytorch/object/torch_storage.h"
#include "format/pytorch/torch_containers.h"
#include "format/safetensors/safetensors.h"
#include "tensor/tensor.h"
#include "text/json.h"

/* ---- DCP_SHARDING_INFO ---- */

static const char text_name[] = "DCP_SHARDING_INFO";

/* Reads one number, which may be negative; false: it is not an integer of 64 bits. */
static bool take_integer(struct json *json, int64_t *ret)
{
    if (json_kind(json) != JSON_KIND_NUMBER) {
        json_skip(json);
        return false;
    }
    const char *start = json->at;
    char *end;
    json_skip(json);
    errno = 0;
    *ret = strtoll(start, &end, 10);
    return errno == 0 && end == json->at;
}

/* Reads what is known of one key, and adds its offsets. */
static int read_entry(struct dcp_sharding *s, struct json *json)
{
    static const char name[] = "saved_offsets";
    struct dcp_sharding_offsets offsets = {.is_bad = true};
    struct json_text member;
    bool is_open = false;
    if (json_kind(json) != JSON_KIND_OBJECT)
        json_skip(json);
    else
        is_open = json_open_object(json);
    while (is_open && json_next_key(json, &member)) {
        if (member.n_bytes != sizeof(name) - 1 || memcmp(member.bytes, name, member.n_bytes) != 0 ||
            json_kind(json) != JSON_KIND_ARRAY) {
            json_skip(json);
            continue;
        }
        offsets = (struct dcp_sharding_offsets){.first = (uint32_t)s->n_numbers};
        json_open_array(json);
        for (; json_next_item(json); offsets.rank++) {
            int64_t number = 0;
            offsets.is_bad = !take_integer(json, &number) || offsets.is_bad;
            if (array_reserve(&s->numbers, sizeof(number), s->n_numbers, 1, &s->n_number_room) < 0)
                return -ENOMEM;
            s->numbers[s->n_numbers++] = number;
        }
    }
    if (array_reserve(&s->offsets, sizeof(offsets), s->n_offsets, 1, &s->n_offset_room) < 0)
        return -ENOMEM;
    s->offsets[s->n_offsets++] = offsets;
    return 0;
}

static int read_all(struct dcp_sharding *s, size_t n_bytes, struct wfs_error *err)
{
    struct json json = json_of(s->text, n_bytes);
    struct json_text key;
    json_open_object(&json);
    while (json.error == NULL && json_next_key(&json, &key)) {
        uint32_t number;
        const size_t n_before = s->keys.n_texts;
        if (text_index_add(&s->keys, key.bytes, key.n_bytes, &number) < 0)
            return wfs_fail_memory(err);
        if (number != n_before)
            return wfs_fail(err, EBADMSG, "%s: duplicate key '%s'", text_name,
                            wfs_quote_n(key.bytes, key.n_bytes).text);
        if (read_entry(s, &json) < 0)
            return wfs_fail_memory(err);
    }
    if (json.error != NULL || !json_end(&json))
        return wfs_fail(err, EBADMSG, "%s is not a JSON object: %s at byte %zu", text_name,
                        json.error, json_offset(&json));
    return 1;
}

int dcp_sharding_read(struct dcp_sharding *s, const struct wfs_catalog *catalog,
                      struct wfs_error *err)
{
    const struct wfs_text *text = text_find(catalog->meta.first, text_name);
    *s = (struct dcp_sharding){0};
    if (text == NULL)
        return 0;
    s->text = malloc(text->n_bytes + 1);
    if (s->text == NULL)
        return wfs_fail_memory(err);
    memcpy(s->text, text->value, text->n_bytes);
    s->text[text->n_bytes] = '\0';
    if (utf8_valid(s->text, text->n_bytes) != text->n_bytes)
        return wfs_fail(err, EBADMSG, "%s is not valid UTF-8", text_name);
    return read_all(s, text->n_bytes, err);
}

const struct dcp_sharding_offsets *dcp_sharding_find(const struct dcp_sharding *s, const char *key)
{
    const uint32_t number = text_index_find(&s->keys, key, strlen(key));
    return number == TEXT_INDEX_NONE ? NULL : &s->offsets[number];
}

void dcp_sharding_done(struct dcp_sharding *s)
{
    const int saved = errno;
    free(s->text);
    free(s->offsets);
    free(s->numbers);
    text_index_done(&s->keys);
    *s = (struct dcp_sharding){0};
    errno = saved;
}

/* ---- messages about parts ---- */

/* Fails about the part: "its chunk at [2, 0] in 'FILE': WHAT". */
static int fail_part(const struct dcp_opening *o, int code, const char *what, struct wfs_error *err)
{
    autostrbuf struct strbuf at = {.n_max = 120};
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    dcp_print_numbers(&at, o->box, o->tensor->rank);
    return wfs_fail(err, -code, "its chunk at %s in '%s': %s", at.bytes != NULL ? at.bytes : "?",
                    wfs_quote(o->file_name).text, what);
}

/* Compares what is stored with what is expected. -EBADMSG. */
static int compare(const struct dcp_opening *o, enum wfs_dtype dtype, const uint64_t *dims,
                   uint32_t rank, struct wfs_error *err)
{
    const struct dcp_tensor *tensor = o->tensor;
    const int64_t *sizes = o->box + tensor->rank;
    autostrbuf struct strbuf text = {.n_max = 240};
    if (dtype != (enum wfs_dtype)tensor->dtype) {
        strbuf_printf(&text, "the stored dtype is %s, not %s", wfs_dtype_name(dtype),
                      wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    } else if (rank != tensor->rank ||
               (rank > 0 && memcmp(dims, sizes, rank * sizeof(*dims)) != 0)) {
        strbuf_puts(&text, "the stored shape is ");
        dcp_print_numbers(&text, (const int64_t *)dims, rank);
        strbuf_puts(&text, ", not ");
        dcp_print_numbers(&text, sizes, tensor->rank);
    } else {
        return 0;
    }
    return fail_part(o, -EBADMSG, text.bytes != NULL ? text.bytes : "it is another tensor", err);
}

/* ---- safetensors files at the end of others ---- */

struct window_place {
    const struct source *file;
    uint64_t offset;
};

struct dcp_window {
    struct window_place place;
    struct wfs_catalog *catalog; /* NULL: it cannot be read */
    struct dcp_sharding sharding;
    struct text_index keys; /* of the tensors of the catalog */
    struct wfs_error err;   /* why it cannot */
};

static int read_shifted(const struct source *source, const struct wfs_io *io, uint64_t offset,
                        void *buf, size_t n_bytes)
{
    const struct window_place *place = source->ctx;
    return source_read_for(io, place->file, place->offset + offset, buf, n_bytes);
}

static void window_drop(struct dcp_window *window)
{
    wfs_catalog_free(window->catalog);
    window->catalog = NULL;
    dcp_sharding_done(&window->sharding);
    text_index_done(&window->keys);
}

void dcp_windows_done(struct dcp_windows *windows)
{
    for (size_t i = 0; i < windows->places.n_texts; i++) {
        window_drop(windows->list[i]);
        free(windows->list[i]);
    }
    free(windows->list);
    text_index_done(&windows->places);
    *windows = (struct dcp_windows){0};
}

int dcp_window_probe(const struct source *file, uint64_t offset)
{
    uint8_t head[9];
    if (file->n_bytes < sizeof(head) || offset > file->n_bytes - sizeof(head))
        return 0;
    if (source_read(file, offset, head, sizeof(head)) < 0)
        return -EIO;
    return memcmp(head, "PK", 2) != 0 && head[8] == '{';
}

/* Counts the header of a window before it is read. Those of one file do not overlap, so that all of
 * them take no longer than the file. */
static int count_header(const struct dcp_window *window, const struct dcp_opening *o,
                        struct wfs_error *err)
{
    uint8_t head[8];
    if (source_read(o->file, window->place.offset, head, sizeof(head)) < 0)
        return wfs_fail(err, EIO, "it cannot be read");
    const uint64_t n_left = o->file->n_bytes - *o->n_header_bytes, n_header = load_le64(head);
    if (n_left < sizeof(head) || n_header > n_left - sizeof(head))
        return wfs_fail(err, EBADMSG, "the safetensors parts of its file overlap");
    *o->n_header_bytes += sizeof(head) + n_header;
    return 0;
}

static int index_keys(struct dcp_window *window)
{
    uint32_t number;
    int code = text_index_reserve(&window->keys, window->catalog->n_tensors);
    for (size_t i = 0; i < window->catalog->n_tensors && code == 0; i++) {
        const char *key = window->catalog->tensors[i].key;
        code = text_index_add(&window->keys, key, strlen(key), &number);
    }
    return code;
}

static int load_window(struct dcp_window *window, const struct dcp_opening *o,
                       struct wfs_error *err)
{
    static const struct source_kind kind = {.read = read_shifted};
    struct load_context context = {.limits = *o->limits};
    struct source *source;
    int code = count_header(window, o, err);
    if (code < 0)
        return code;
    if (o->windows->n_bytes >= context.limits.index_memory)
        return wfs_fail(err, E2BIG,
                        "the headers of its parts are above the limit (limit index_memory)");
    context.limits.index_memory -= o->windows->n_bytes;
    if (source_new(&kind, o->file->path, &window->place, o->file->n_bytes - o->item->offset,
                   &source) < 0)
        return wfs_fail_memory(err);
    code = format_load(&format_safetensors, source, &context, &window->catalog, err);
    if (code == 0)
        code = dcp_sharding_read(&window->sharding, window->catalog, err);
    if (code < 0)
        return code;
    o->windows->n_bytes += window->catalog->arena.n_bytes;
    return index_keys(window) < 0 ? wfs_fail_memory(err) : 0;
}

/* Finds the window of an item, or reads it: one that cannot be read is kept, too, unless it may
 * come later over the network. NULL then, and without memory. */
static const struct dcp_window *find_window(const struct dcp_opening *o, struct wfs_error *err)
{
    struct dcp_windows *windows = o->windows;
    const uint64_t n_header_bytes = *o->n_header_bytes;
    const struct window_place place = {o->file, o->item->offset};
    uint32_t number = text_index_find(&windows->places, (const char *)&place, sizeof(place));
    if (number != TEXT_INDEX_NONE)
        return windows->list[number];
    autofree struct dcp_window *window = calloc(1, sizeof(*window));
    if (window == NULL || array_reserve(&windows->list, sizeof(*windows->list),
                                        windows->places.n_texts, 1, &windows->n_room) < 0) {
        (void)wfs_fail_memory(err);
        return NULL;
    }
    window->place = place;
    const int code = load_window(window, o, &window->err);
    if (code < 0)
        window_drop(window);
    if (code == -EIO && o->file->is_remote) {
        *o->n_header_bytes = n_header_bytes;
        (void)wfs_fail(err, EIO, "%s", window->err.text);
        return NULL;
    }
    if (code == -ENOMEM || text_index_add(&windows->places, (const char *)&window->place,
                                          sizeof(place), &number) < 0) {
        window_drop(window);
        (void)wfs_fail_memory(err);
        return NULL;
    }
    return windows->list[number] = steal(&window);
}

/* Returns whether the file says that the tensor is the part. */
static bool is_placed(const struct dcp_window *window, const struct dcp_opening *o)
{
    const struct dcp_sharding_offsets *offsets =
        dcp_sharding_find(&window->sharding, o->tensor->key);
    return offsets != NULL && !offsets->is_bad && offsets->rank == o->tensor->rank &&
           (offsets->rank == 0 || memcmp(&window->sharding.numbers[offsets->first], o->box,
                                         offsets->rank * sizeof(*o->box)) == 0);
}

/* Finds the elements of the part in it, as dcp_item_open. */
static int find_in_window(const struct dcp_opening *o, uint64_t *ret_data, struct wfs_error *err)
{
    struct wfs_error inner = {0};
    const struct dcp_window *window = find_window(o, &inner);
    const struct wfs_error *problem = window == NULL ? &inner : &window->err;
    if (window == NULL || window->catalog == NULL)
        return fail_part(o, -(int)problem->code, problem->text, err);
    const char *key = o->tensor->key;
    const uint32_t number = text_index_find(&window->keys, key, strlen(key));
    if (number == TEXT_INDEX_NONE)
        return fail_part(o, -EBADMSG, "the safetensors part does not have the key", err);
    const struct wfs_tensor *tensor = &window->catalog->tensors[number];
    if (!is_placed(window, o))
        return fail_part(o, -EBADMSG, "DCP_SHARDING_INFO does not place it there", err);
    if (compare(o, (enum wfs_dtype)tensor->dtype, tensor->shape.dims, tensor->shape.rank, err) < 0)
        return -EBADMSG;
    if (tensor->trouble != NULL || tensor->n_bytes != o->item->n_bytes)
        return fail_part(o, -EBADMSG,
                         tensor->trouble != NULL ? tensor->trouble
                                                 : "its length is not that of its elements",
                         err);
    *ret_data = o->item->offset + tensor->stored.offset;
    return 0;
}

/* ---- zips ---- */

/* Reads the one tensor of a zip, and compares it with the part. 1: it is more than elements. */
static int read_tensor(const struct dcp_opening *o, struct torch *torch, struct wfs_error *err)
{
    cleanup(zip_close) struct zip zip = {0};
    struct torch_records records;
    struct torch_tensor tensor;
    uint32_t root;
    int code = torch_zip_read(torch, o->item->offset, o->item->n_bytes, &zip, &records, &root);
    if (code < 0)
        return fail_part(o, code, torch->err->text, err);
    torch->find = torch_records_find_storage;
    torch->container = &records;
    code = torch_builder_read(torch, root, &tensor);
    if (code < 0)
        return fail_part(o, code, torch->err->text, err);
    if (code == 0)
        return fail_part(o, -EBADMSG, "what is stored is not a tensor", err);
    const struct value *value = graph_at(torch->graph, root);
    const bool is_quantized = torch_is_quantized(torch->graph, value);
    if (is_quantized || torch_is_composed(torch->graph, value))
        return o->tensor->n_parts == 1
                   ? 1
                   : fail_part(o, -EOPNOTSUPP,
                               is_quantized ? "it is quantized, and such parts are not joined"
                                            : "it is of a class of its own, and not joined",
                               err);
    if (tensor.trouble != NULL)
        return fail_part(o, -EBADMSG, tensor.trouble, err);
    if (compare(o, tensor.dtype, tensor.dims, tensor.rank, err) < 0)
        return -EBADMSG;
    code = torch_tensor_add(torch, "", 0, &tensor);
    if (code < 0)
        return fail_part(o, code, torch->err->text, err);
    const struct wfs_tensor *added = &torch->catalog->tensors[0];
    return added->trouble == NULL ? 0 : fail_part(o, -EBADMSG, added->trouble, err);
}

static const uint64_t *copy_numbers(struct wfs_catalog *catalog, const uint64_t *numbers,
                                    uint32_t n)
{
    uint64_t *copy = arena_calloc(&catalog->arena, (size_t)n + 1, sizeof(*copy));
    return copy == NULL || n == 0 ? copy : memcpy(copy, numbers, n * sizeof(*copy));
}

/* Leaves of a catalog that described an item its tensor alone: there may be very many of them. */
static int shrink(struct wfs_catalog **catalog, const struct source *file)
{
    auto_catalog struct wfs_catalog *small = NULL;
    const struct wfs_tensor *tensor = &(*catalog)->tensors[0];
    if (tensor->stored.source != file)
        return 0; /* its bytes are made of others, by what is in the catalog */
    if (catalog_new(&small) < 0)
        return -ENOMEM;
    struct wfs_tensor *copy = catalog_add(small);
    if (copy == NULL)
        return -ENOMEM;
    *copy = *tensor;
    copy->key = "";
    copy->attrs = NULL;
    copy->shape.dims = copy_numbers(small, tensor->shape.dims, tensor->shape.rank);
    if (tensor->stored.strides != NULL)
        copy->stored.strides = copy_numbers(small, tensor->stored.strides, tensor->shape.rank);
    if (copy->shape.dims == NULL ||
        (tensor->stored.strides != NULL && copy->stored.strides == NULL))
        return -ENOMEM;
    wfs_catalog_free(*catalog);
    *catalog = steal(&small);
    return 0;
}

static int open_zip(const struct dcp_opening *o, uint64_t *ret_data, struct wfs_catalog **ret_odd,
                    struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    struct wfs_error inner = {0};
    if (catalog_new(&catalog) < 0)
        return wfs_fail_memory(err);
    catalog->arena.limit = o->limits->index_memory;
    catalog->values.graph.arena = &catalog->arena;
    struct torch torch = {.catalog = catalog,
                          .graph = &catalog->values.graph,
                          .limits = o->limits,
                          .err = &inner,
                          .source = o->file,
                          .budget = pickle_budget_of(o->limits)};
    const int code = read_tensor(o, &torch, err);
    torch_cache_done(&torch);
    free(torch.scratch);
    if (code != 0)
        return code;
    if (torch.has_failed)
        return wfs_fail_memory(err);
    const struct wfs_tensor *tensor = &catalog->tensors[0];
    if (wfs_tensor_is_plain(tensor) && tensor->stored.source == o->file) {
        *ret_data = tensor->stored.offset;
        return 0;
    }
    if (shrink(&catalog, o->file) < 0)
        return wfs_fail_memory(err);
    *ret_odd = steal(&catalog);
    return 0;
}

int dcp_item_open(const struct dcp_opening *o, uint64_t *ret_data, struct wfs_catalog **ret_odd,
                  struct wfs_error *err)
{
    const int is_window = dcp_window_probe(o->file, o->item->offset);
    if (is_window < 0)
        return fail_part(o, is_window, "it cannot be read", err);
    return is_window ? find_in_window(o, ret_data, err) : open_zip(o, ret_data, ret_odd, err);
}
