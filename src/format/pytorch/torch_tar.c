/* SPDX-License-Identifier: MIT */
/*
 * The archive that PyTorch wrote before 0.1.10. Member storages: a pickled count; for each a
 * pickled (key, location, class), i64 number of elements and the elements; a pickled list of views
 * (key, root key, offset, number of elements). Member tensors: a pickled count; for each a pickled
 * (key, storage key, class), i32 rank, 4 bytes, i64 sizes, strides, and the offset. Member pickle:
 * the object, whose persistent ids are keys of either.
 */
#include "format/pytorch/torch_containers.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "archive/tar.h"
#include "base/bytes.h"
#include "base/text_index.h"
#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_listing.h"
#include "format/pytorch/object/torch_storage.h"
#include "format/pytorch/object/torch_tensor.h"

struct tar_storage {
    int64_t key;
    const struct torch_global *class;
    uint64_t offset, n_bytes;
};

struct tar_tensor {
    int64_t key, storage;
    uint32_t size, stride; /* values */
    int64_t offset;
};

struct tar_content {
    struct tar_storage *storages;
    struct tar_tensor *tensors;
    size_t n_storage_room, n_tensor_room;
    struct text_index storage_keys, tensor_keys; /* bytes of keys, in the same order */
};

static void content_done(struct tar_content *content)
{
    free(content->storages);
    free(content->tensors);
    text_index_done(&content->storage_keys);
    text_index_done(&content->tensor_keys);
}

static const struct tar_storage *find_storage(const struct tar_content *content, int64_t key)
{
    const uint32_t i = text_index_find(&content->storage_keys, (const char *)&key, sizeof(key));
    return i == TEXT_INDEX_NONE ? NULL : &content->storages[i];
}

static const struct tar_tensor *find_tensor(const struct tar_content *content, int64_t key)
{
    const uint32_t i = text_index_find(&content->tensor_keys, (const char *)&key, sizeof(key));
    return i == TEXT_INDEX_NONE ? NULL : &content->tensors[i];
}

/* Adds the key of a storage or tensor, which are called `what`. */
static int add_key(struct torch *torch, struct text_index *keys, int64_t key, const char *what)
{
    const char *copy = arena_copy(&torch->catalog->arena, (const char *)&key, sizeof(key));
    const size_t n_before = keys->n_texts;
    uint32_t number;
    if (copy == NULL || text_index_add(keys, copy, sizeof(key), &number) < 0)
        return wfs_fail_memory(torch->err);
    return number == n_before
               ? 0
               : wfs_fail(torch->err, EBADMSG, "duplicate %s %lld", what, (long long)key);
}

static int add_storage(struct torch *torch, struct tar_content *content,
                       const struct tar_storage *storage)
{
    const size_t n = content->storage_keys.n_texts;
    if (array_reserve(&content->storages, sizeof(*content->storages), n, 1,
                      &content->n_storage_room) < 0)
        return wfs_fail_memory(torch->err);
    content->storages[n] = *storage;
    return add_key(torch, &content->storage_keys, storage->key, "storage");
}

/* Reads a pickled count. */
static int read_count(struct torch *torch, uint64_t *offset, uint64_t end, int64_t *ret)
{
    uint32_t id;
    const int code = torch_read_pickle(torch, torch->source, offset, end, &id);
    if (code < 0)
        return code;
    if (!torch_integer(torch->graph, id, ret) || *ret < 0)
        return wfs_fail(torch->err, EBADMSG, "a count is not an integer");
    return 0;
}

/* Reads the next n_bytes before end; *offset moves after them. */
static int read_bytes(struct torch *torch, uint64_t *offset, uint64_t end, uint8_t *buf,
                      size_t n_bytes, const char *what)
{
    if (end - *offset < n_bytes)
        return wfs_fail(torch->err, EBADMSG, "the file ends inside %s", what);
    const int code = source_read(torch->source, *offset, buf, n_bytes);
    if (code < 0)
        return torch_fail_read(torch, code, what);
    *offset += n_bytes;
    return 0;
}

static int read_storage(struct torch *torch, uint64_t *offset, uint64_t end,
                        struct tar_content *content)
{
    struct tar_storage storage;
    uint8_t number[8];
    uint32_t id;
    int code = torch_read_pickle(torch, torch->source, offset, end, &id);
    if (code < 0)
        return code;
    storage.class = torch_global_of(torch->graph, torch_arg(torch->graph, id, 2));
    if (!torch_integer(torch->graph, torch_arg(torch->graph, id, 0), &storage.key) ||
        storage.class == NULL || storage.class->what != WHAT_STORAGE)
        return wfs_fail(torch->err, EBADMSG, "a storage is not described by a key and a class");
    if ((code = read_bytes(torch, offset, end, number, sizeof(number), "the storages")) < 0)
        return code;
    storage.offset = *offset;
    if (!checked_mul(load_le64(number), torch_storage_item(storage.class), &storage.n_bytes) ||
        storage.n_bytes > end - storage.offset)
        return wfs_fail(torch->err, EBADMSG, "storage %lld of %s runs past the end of the file",
                        (long long)storage.key, wfs_count(load_le64(number), "element").text);
    *offset = storage.offset + storage.n_bytes;
    return add_storage(torch, content, &storage);
}

static int add_view(struct torch *torch, struct tar_content *content, uint32_t view)
{
    const struct graph *graph = torch->graph;
    int64_t key, root_key, offset, n;
    uint64_t first, n_bytes, end;
    if (!torch_integer(graph, torch_arg(graph, view, 0), &key) ||
        !torch_integer(graph, torch_arg(graph, view, 1), &root_key) ||
        !torch_integer(graph, torch_arg(graph, view, 2), &offset) ||
        !torch_integer(graph, torch_arg(graph, view, 3), &n) || offset < 0 || n < 0)
        return wfs_fail(torch->err, EBADMSG,
                        "a view of a storage is not described by four integers");
    const struct tar_storage *root = find_storage(content, root_key);
    if (root == NULL)
        return wfs_fail(torch->err, EBADMSG, "storage %lld is a view of %lld, which does not exist",
                        (long long)key, (long long)root_key);
    if (!checked_mul((uint64_t)offset, torch_storage_item(root->class), &first) ||
        !checked_mul((uint64_t)n, torch_storage_item(root->class), &n_bytes) ||
        !checked_add(first, n_bytes, &end) || end > root->n_bytes)
        return wfs_fail(torch->err, EBADMSG,
                        "storage %lld runs past the end of %lld, which it is a view of",
                        (long long)key, (long long)root_key);
    return add_storage(torch, content,
                       &(struct tar_storage){key, root->class, root->offset + first, n_bytes});
}

static int read_storages(struct torch *torch, const struct tar_member *member,
                         struct tar_content *content)
{
    uint64_t offset = member->offset;
    const uint64_t end = member->offset + member->n_bytes;
    int64_t n;
    uint32_t views;
    int code = read_count(torch, &offset, end, &n);
    for (int64_t i = 0; i < n && code == 0; i++)
        code = read_storage(torch, &offset, end, content);
    if (code < 0 || (code = torch_read_pickle(torch, torch->source, &offset, end, &views)) < 0)
        return code;
    for (uint32_t i = 0; i < torch_n_args(torch->graph, views) && code == 0; i++)
        code = add_view(torch, content, torch_arg(torch->graph, views, i));
    return code;
}

/* Reads n i64 as a tuple of values. */
static int read_tuple(struct torch *torch, uint64_t *offset, uint64_t end, uint32_t n,
                      uint32_t *ret)
{
    const size_t n_bytes = 8 * (size_t)n;
    autofree uint8_t *bytes = malloc(n_bytes + 1);
    autofree uint32_t *ids = calloc(n + 1, sizeof(*ids));
    if (bytes == NULL || ids == NULL)
        return wfs_fail_memory(torch->err);
    const int code = read_bytes(torch, offset, end, bytes, n_bytes, "the tensors");
    if (code < 0)
        return code;
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = value_new_integer(torch->graph, (int64_t)load_le64(bytes + 8 * i));
        if (ids[i] == 0)
            return wfs_fail_memory(torch->err);
    }
    *ret = value_new_items(torch->graph, VALUE_TUPLE, ids, n);
    return *ret == 0 ? wfs_fail_memory(torch->err) : 0;
}

static int read_tensor(struct torch *torch, uint64_t *offset, uint64_t end,
                       struct tar_content *content)
{
    struct tar_tensor tensor;
    uint8_t number[8];
    uint32_t id;
    int code = torch_read_pickle(torch, torch->source, offset, end, &id);
    if (code < 0)
        return code;
    if (!torch_integer(torch->graph, torch_arg(torch->graph, id, 0), &tensor.key) ||
        !torch_integer(torch->graph, torch_arg(torch->graph, id, 1), &tensor.storage))
        return wfs_fail(torch->err, EBADMSG, "a tensor is not described by two integer keys");
    if ((code = read_bytes(torch, offset, end, number, sizeof(number), "the tensors")) < 0)
        return code;
    const uint32_t rank = load_le32(number);
    if (rank > torch->limits->rank || rank > INT32_MAX)
        return wfs_fail(torch->err, E2BIG, "tensor %lld has %s, above the limit (limit rank)",
                        (long long)tensor.key, wfs_count(rank, "dimension").text);
    if ((code = read_tuple(torch, offset, end, rank, &tensor.size)) < 0 ||
        (code = read_tuple(torch, offset, end, rank, &tensor.stride)) < 0 ||
        (code = read_bytes(torch, offset, end, number, sizeof(number), "the tensors")) < 0)
        return code;
    tensor.offset = (int64_t)load_le64(number);
    const size_t n = content->tensor_keys.n_texts;
    if (array_reserve(&content->tensors, sizeof(*content->tensors), n, 1, &content->n_tensor_room) <
        0)
        return wfs_fail_memory(torch->err);
    content->tensors[n] = tensor;
    return add_key(torch, &content->tensor_keys, tensor.key, "tensor");
}

static int read_tensors(struct torch *torch, const struct tar_member *member,
                        struct tar_content *content)
{
    uint64_t offset = member->offset;
    const uint64_t end = member->offset + member->n_bytes;
    int64_t n;
    int code = read_count(torch, &offset, end, &n);
    for (int64_t i = 0; i < n && code == 0; i++)
        code = read_tensor(torch, &offset, end, content);
    return code;
}

/* Reads the key that a persistent value holds: an integer, or its digits. */
static bool key_of(const struct graph *graph, uint32_t id, int64_t *ret)
{
    const struct value *value = graph_at(graph, id);
    const struct value *inner = graph_at(graph, value->id);
    char *end;
    if (torch_integer(graph, value->id, ret))
        return true;
    if (inner->kind != VALUE_TEXT || inner->n == 0)
        return false;
    errno = 0;
    *ret = strtoll(inner->text, &end, 10);
    return errno == 0 && end == inner->text + inner->n;
}

static bool tar_is_tensor(const struct torch *torch, uint32_t id)
{
    int64_t key;
    return key_of(torch->graph, id, &key);
}

static int tar_find_tensor(struct torch *torch, uint32_t id, struct torch_tensor *ret)
{
    const struct tar_content *content = torch->container;
    int64_t key;
    if (!key_of(torch->graph, id, &key))
        return 0;
    const struct tar_tensor *tensor = find_tensor(content, key);
    const struct tar_storage *storage =
        find_storage(content, tensor == NULL ? key : tensor->storage);
    if (storage == NULL) {
        torch_tensor_spoil(ret,
                           torch_print(torch, "storage %lld is not in the file", (long long)key));
        return 1;
    }
    ret->dtype = storage->class->dtype;
    ret->storage = (struct torch_storage){.source = torch->source,
                                          .offset = storage->offset,
                                          .n_bytes = storage->n_bytes,
                                          .dtype = storage->class->dtype};
    const int code = torch_tensor_set_shape(torch, ret, tensor == NULL ? 0 : tensor->size,
                                            tensor == NULL ? 0 : tensor->stride);
    if (code < 0)
        return code;
    if (tensor == NULL) {
        ret->rank = 1;
        ret->dims[0] = storage->n_bytes / torch_storage_item(storage->class);
    } else if (tensor->offset < 0) {
        torch_tensor_spoil(ret, "its offset is negative");
    } else {
        ret->offset = (uint64_t)tensor->offset;
    }
    return 1;
}

static int no_storage(struct torch *torch, const struct torch_storage_id *id,
                      struct torch_storage *ret)
{
    ret->trouble = "a legacy tar has no storages of this kind";
    return 0;
}

/* Keeps the name of the first member that looks like a checkpoint. */
static void find_checkpoint(void *ctx, const char *name, uint64_t offset, uint64_t n_bytes)
{
    static const char *const endings[] = {".ckpt",        ".pth", ".pt",  ".bin",
                                          ".safetensors", ".bpk", ".mpk", ".distcp"};
    char *found = ctx;
    const size_t n_name = strlen(name);
    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings) && *found == '\0'; i++) {
        const size_t n = strlen(endings[i]);
        if (n_name > n && strcmp(name + n_name - n, endings[i]) == 0)
            memcpy(found, name, n_name + 1);
    }
}

static int fail_foreign(struct torch *torch, const char *name)
{
    char found[TAR_NAME_MAX] = "";
    const int code = tar_each(torch->source, find_checkpoint, found, torch->err);
    if (code < 0)
        return code;
    return *found != '\0'
               ? wfs_fail(torch->err, EMEDIUMTYPE,
                          "is a tar archive with '%s' in it: unpack it first",
                          wfs_quote(found).text)
               : wfs_fail(torch->err, EMEDIUMTYPE,
                          "is a tar archive, but not from PyTorch: it has no member '%s'", name);
}

static int find_member(struct torch *torch, const char *name, struct tar_member *ret)
{
    const int code = tar_find(torch->source, name, ret, torch->err);
    if (code == -ENOENT)
        return fail_foreign(torch, name);
    if (code < 0 || ret->n_same == 1)
        return code;
    return catalog_add_finding(torch->catalog, WFS_LOW,
                               "the tar has %s called '%s'; the last one counts, as in Python",
                               wfs_count(ret->n_same, "member").text, name) < 0
               ? wfs_fail_memory(torch->err)
               : 0;
}

int torch_tar_load(struct torch *torch)
{
    static const struct wfs_container container = {.name = "legacy tar"};
    cleanup(content_done) struct tar_content content = {0};
    struct tar_member storages, tensors, object;
    uint32_t root;
    int code;
    torch->catalog->container = &container;
    if ((code = find_member(torch, "storages", &storages)) < 0 ||
        (code = find_member(torch, "tensors", &tensors)) < 0 ||
        (code = find_member(torch, "pickle", &object)) < 0 ||
        (code = read_storages(torch, &storages, &content)) < 0 ||
        (code = read_tensors(torch, &tensors, &content)) < 0)
        return code;
    uint64_t offset = object.offset;
    if ((code = torch_read_pickle(torch, torch->source, &offset, object.offset + object.n_bytes,
                                  &root)) < 0)
        return code;
    torch->find = no_storage;
    torch->is_tensor = tar_is_tensor;
    torch->find_tensor = tar_find_tensor;
    torch->container = &content;
    torch->catalog->values.root = root;
    torch->catalog->values.is_object = true;
    return torch_listing_add(torch, root, "");
}
