/* SPDX-License-Identifier: MIT */
/*
 * Small catalogs made by hand, and a tree reached by paths, for the tests of the tree.
 */
#ifndef WFS_TREEKIT_H
#define WFS_TREEKIT_H

#include <weightfs/format.h>
#include <weightfs/tree.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "check.h"
#include "catalog/catalog.h"

/* What the sources hold: byte i is i * 7 + 3. */
static uint8_t kit_bytes[1 << 16];

static inline struct wfs_catalog *kit_catalog(void)
{
    struct wfs_catalog *catalog = NULL;
    struct source *source = NULL;
    for (size_t i = 0; i < sizeof(kit_bytes); i++)
        kit_bytes[i] = (uint8_t)(i * 7 + 3);
    if (catalog_new(&catalog) < 0 ||
        source_new_memory("model.bin", kit_bytes, sizeof(kit_bytes), &source) < 0 ||
        catalog_adopt_source(catalog, source) < 0)
        abort();
    catalog->format = wfs_format_by_name("safetensors");
    return catalog;
}

/* A dense tensor of one or two dimensions (columns 0: one) at the offset of the source. */
static inline struct wfs_tensor *kit_add(struct wfs_catalog *catalog, const char *key,
                                         enum wfs_dtype dtype, uint64_t rows, uint64_t columns,
                                         uint64_t offset)
{
    uint64_t *dims = arena_calloc(&catalog->arena, 2, sizeof(*dims));
    struct wfs_tensor *tensor = catalog_add(catalog);
    if (dims == NULL || tensor == NULL)
        abort();
    dims[0] = rows;
    dims[1] = columns;
    tensor->key = arena_copy(&catalog->arena, key, strlen(key));
    tensor->shape = (struct wfs_shape){columns == 0 ? 1 : 2, dims};
    tensor->dtype = tensor->stored.dtype = (uint8_t)dtype;
    tensor->stored.source = catalog->sources.list[0];
    tensor->stored.offset = offset;
    if (wfs_shape_bytes(&tensor->shape, dtype, &tensor->n_bytes) < 0)
        abort();
    return tensor;
}

struct kit {
    struct wfs_catalog *catalog;
    struct wfs_tree *tree;
    char stage[64]; /* "": read-only */
    struct wfs_error err;
};

/* The directory, made or taken over; NULL with err. */
static inline struct wfs_stage *kit_stage(const char *path, struct wfs_error *err)
{
    const struct wfs_stage_options options = {.path = path, .boot = "boot"};
    struct wfs_stage *stage = NULL;
    return wfs_stage_open(&options, &stage, err) < 0 ? NULL : stage;
}

static inline struct wfs_tree_options kit_options(void)
{
    return (struct wfs_tree_options){.uid = 1000, .gid = 100, .umask = 022};
}

/* Makes the tree of the catalog, writable in a fresh place. */
static inline void kit_open(struct kit *kit, struct wfs_catalog *catalog,
                            struct wfs_tree_options options, bool is_writable)
{
    *kit = (struct kit){.catalog = catalog};
    if (is_writable) {
        strcpy(kit->stage, "/tmp/wfs-unit-XXXXXX");
        if (mkdtemp(kit->stage) == NULL)
            abort();
        strcat(kit->stage, "/stage");
        options.stage = kit_stage(kit->stage, &kit->err);
        options.base_text = "base\n";
    }
    if (!check_int(wfs_tree_new(catalog, &options, &kit->tree, &kit->err), 0)) {
        printf("# %s\n", kit->err.text);
        abort();
    }
}

static inline void kit_remove_stage(const char *stage)
{
    char command[160];
    char parent[64];
    snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(stage, '/') - stage), stage);
    snprintf(command, sizeof(command), "rm -rf '%s'", parent);
    if (system(command) != 0)
        abort();
}

static inline void kit_close(struct kit *kit)
{
    wfs_tree_free(kit->tree);
    wfs_catalog_free(kit->catalog);
    if (kit->stage[0] != '\0')
        kit_remove_stage(kit->stage);
}

/* The node at the path; NULL: none. */
static inline struct wfs_node *kit_at(const struct kit *kit, const char *path)
{
    struct wfs_node *node = wfs_tree_root(kit->tree);
    char copy[4096], *save = NULL;
    snprintf(copy, sizeof(copy), "%s", path);
    for (char *name = strtok_r(copy, "/", &save); name != NULL && node != NULL;
         name = strtok_r(NULL, "/", &save)) {
        struct wfs_node *next = NULL;
        if (wfs_node_lookup(kit->tree, node, name, &next) < 0)
            return NULL;
        node = next;
    }
    return node;
}

/* The directory of the path, and the name in it. */
static inline struct wfs_node *kit_dir(const struct kit *kit, const char *path, const char **ret)
{
    char parent[4096];
    const char *slash = strrchr(path, '/');
    *ret = slash == NULL ? path : slash + 1;
    snprintf(parent, sizeof(parent), "%.*s", slash == NULL ? 0 : (int)(slash - path), path);
    return kit_at(kit, parent);
}

static inline int kit_mv(struct kit *kit, const char *from, const char *to, unsigned flags)
{
    const char *from_name, *to_name;
    struct wfs_node *from_dir = kit_dir(kit, from, &from_name);
    struct wfs_node *to_dir = kit_dir(kit, to, &to_name);
    return wfs_node_rename(kit->tree, from_dir, from_name, to_dir, to_name, flags);
}

static inline int kit_rm(struct kit *kit, const char *path)
{
    const char *name;
    struct wfs_node *dir = kit_dir(kit, path, &name);
    return wfs_node_unlink(kit->tree, dir, name);
}

static inline int kit_rmdir(struct kit *kit, const char *path)
{
    const char *name;
    struct wfs_node *dir = kit_dir(kit, path, &name);
    return wfs_node_rmdir(kit->tree, dir, name);
}

static inline int kit_mkdir(struct kit *kit, const char *path)
{
    const char *name;
    struct wfs_node *node, *dir = kit_dir(kit, path, &name);
    return wfs_node_mkdir(kit->tree, dir, name, 0755, &node);
}

/* What `cp` does: opens for writing with O_CREAT and O_TRUNC, writes. */
static inline int kit_write(struct kit *kit, const char *path, const void *bytes, size_t n_bytes)
{
    const char *name;
    struct wfs_node *dir = kit_dir(kit, path, &name);
    struct wfs_node *node = kit_at(kit, path);
    int code = 0;
    if (node == NULL)
        code = wfs_node_create(kit->tree, dir, name, 0644, &node);
    else
        code = wfs_node_open(kit->tree, node, O_WRONLY | O_TRUNC);
    for (size_t i = 0; i < n_bytes && code == 0;) {
        const ssize_t n = wfs_node_write(kit->tree, node, i, (const char *)bytes + i,
                                         n_bytes - i < 4096 ? n_bytes - i : 4096, false);
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        i += (size_t)n;
    }
    return code;
}

static inline uint64_t kit_size(const struct kit *kit, const char *path)
{
    struct stat st = {0};
    const struct wfs_node *node = kit_at(kit, path);
    if (node != NULL)
        wfs_node_stat(kit->tree, node, &st);
    return node == NULL ? UINT64_MAX : (uint64_t)st.st_size;
}

/* All of the file as a string that the caller frees; in odd pieces. */
static inline char *kit_read(const struct kit *kit, const char *path, size_t *ret_n_bytes)
{
    const struct wfs_node *node = kit_at(kit, path);
    const uint64_t n_bytes = kit_size(kit, path);
    if (node == NULL)
        return NULL;
    char *bytes = calloc(n_bytes + 1, 1);
    size_t n_done = 0;
    for (ssize_t n = 1; n > 0; n_done += (size_t)n) {
        n = wfs_node_read(kit->tree, node, n_done, bytes + n_done,
                          n_bytes - n_done < 1000 ? n_bytes - n_done : 1000);
        if (n < 0) {
            free(bytes);
            return NULL;
        }
    }
    check_uint(n_done, n_bytes);
    *ret_n_bytes = n_done;
    return bytes;
}

/* The attribute as text in a static buffer, "" when there is none. */
static inline const char *kit_attr(const struct kit *kit, const char *path, const char *name)
{
    static char value[70000];
    char full[256];
    const struct wfs_node *node = kit_at(kit, path);
    snprintf(full, sizeof(full), "user.weightfs.%s", name);
    const ssize_t n = node == NULL
                          ? -ENOENT
                          : wfs_node_get_xattr(kit->tree, node, full, value, sizeof(value) - 1);
    value[n < 0 ? 0 : n] = '\0';
    if (n >= 0)
        check_int(wfs_node_get_xattr(kit->tree, node, full, NULL, 0), n);
    return value;
}

static inline int kit_set_attr(struct kit *kit, const char *path, const char *name,
                               const char *value)
{
    char full[256];
    snprintf(full, sizeof(full), "user.weightfs.%s", name);
    return wfs_node_set_xattr(kit->tree, kit_at(kit, path), full, value, strlen(value), 0);
}

/* Names of the directory, each followed by a space, in a static buffer. */
static inline const char *kit_ls(const struct kit *kit, const char *path)
{
    static char names[1 << 16];
    size_t n = 0;
    uint64_t cookie = 0;
    struct wfs_dirent found;
    names[0] = '\0';
    while (wfs_dir_next(kit->tree, kit_at(kit, path), &cookie, &found) == 1)
        n += (size_t)snprintf(names + n, sizeof(names) - n, "%s ", found.name);
    return names;
}

/* Keys of the snapshot, each followed by a space, in a static buffer; the error text when there is
 * none. */
static inline const char *kit_commit(struct kit *kit)
{
    static char keys[1 << 16];
    struct wfs_catalog *catalog = NULL;
    size_t n = 0;
    keys[0] = '\0';
    kit->err.code = 0;
    if (wfs_tree_snapshot(kit->tree, NULL, &catalog, &kit->err) < 0)
        return kit->err.text;
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog); i++)
        n += (size_t)snprintf(keys + n, sizeof(keys) - n, "%s ",
                              wfs_catalog_tensor(catalog, i)->key);
    wfs_catalog_free(catalog);
    return keys;
}

static inline struct wfs_catalog *kit_nested_catalog(void)
{
    struct wfs_catalog *catalog = kit_catalog();
    kit_add(catalog, "encoder.layer.0.weight", WFS_F32, 2, 3, 0);
    kit_add(catalog, "encoder.layer.0.bias", WFS_F32, 3, 0, 24);
    kit_add(catalog, "encoder.layer.1.weight", WFS_BF16, 2, 3, 36);
    kit_add(catalog, "encoder", WFS_I64, 1, 0, 48);
    kit_add(catalog, "head", WFS_U8, 5, 0, 56);
    kit_add(catalog, "nothing", WFS_F32, 0, 0, 61);
    if (catalog_add_meta(catalog, "format", "pt") < 0 ||
        catalog_add_meta(catalog, "who", "me \"quoted\"\n") < 0)
        abort();
    return catalog;
}

static inline struct wfs_catalog *kit_small_catalog(void)
{
    struct wfs_catalog *catalog = kit_catalog();
    kit_add(catalog, "a.w", WFS_F32, 2, 3, 0);
    kit_add(catalog, "a.b", WFS_F32, 3, 0, 24);
    kit_add(catalog, "c", WFS_BF16, 2, 3, 36);
    kit_add(catalog, "big", WFS_U8, 60000, 0, 48);
    if (catalog_add_meta(catalog, "format", "pt") < 0)
        abort();
    return catalog;
}

/* The bytes that a commit would write for the key. */
static inline bool kit_commits(struct kit *kit, const char *key, const char *dtype,
                               const char *shape, const void *bytes, size_t n_bytes)
{
    struct wfs_catalog *catalog = NULL;
    struct wfs_error err = {0};
    if (!check_int(wfs_tree_snapshot(kit->tree, NULL, &catalog, &err), 0)) {
        printf("# %s\n", err.text);
        return false;
    }
    const struct wfs_tensor *tensor = wfs_catalog_find(catalog, key);
    bool is_good = check(tensor != NULL);
    if (is_good) {
        char text[100];
        char *got = calloc(n_bytes + 1, 1);
        wfs_shape_format(&tensor->shape, text, sizeof(text));
        is_good = check_str(wfs_dtype_name((enum wfs_dtype)tensor->dtype), dtype) &&
                  check_str(text, shape) && check_uint(tensor->n_bytes, n_bytes) &&
                  check_int(wfs_tensor_read(tensor, 0, got, n_bytes), (int64_t)n_bytes) &&
                  check_bytes(got, bytes, n_bytes);
        free(got);
    }
    wfs_catalog_free(catalog);
    return is_good;
}

static inline unsigned kit_n_staged(const struct kit *kit)
{
    char path[100];
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/data", kit->stage);
    DIR *dir = opendir(path);
    while (dir != NULL && readdir(dir) != NULL)
        n++;
    if (dir != NULL)
        closedir(dir);
    return n < 2 ? 0 : n - 2;
}

#endif
