/* SPDX-License-Identifier: MIT */
/*
 * What an earlier process left: any bytes as the journal, over a small tree. It is refused, or the
 * tree that comes of it can be listed and committed.
 */
#include <weightfs/format.h>
#include <weightfs/tree.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "catalog/catalog.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static struct wfs_catalog *make_catalog(void)
{
    static const uint64_t dims[] = {2, 3};
    static const uint8_t bytes[24];
    struct wfs_catalog *catalog;
    struct source *source;
    static const char *const keys[] = {"a.w", "a.b", "c", "d"};
    if (catalog_new(&catalog) < 0 || source_new_memory("model", bytes, 24, &source) < 0 ||
        catalog_adopt_source(catalog, source) < 0)
        abort();
    for (size_t i = 0; i < 4; i++) {
        struct wfs_tensor *tensor = catalog_add(catalog);
        if (tensor == NULL)
            abort();
        *tensor = (struct wfs_tensor){.key = keys[i], .dtype = WFS_F32, .n_bytes = 24};
        tensor->shape = (struct wfs_shape){2, dims};
        tensor->stored = (struct wfs_stored){.source = source, .dtype = WFS_F32};
    }
    catalog->format = wfs_format_by_name("safetensors");
    return catalog;
}

static void write_file(const char *directory, const char *name, const void *bytes, size_t n_bytes)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, n_bytes) != (ssize_t)n_bytes)
        abort();
    close(fd);
}

static void look_around(struct wfs_tree *tree)
{
    struct wfs_catalog *snapshot = NULL;
    struct wfs_replayed replayed;
    wfs_tree_replayed(tree, &replayed);
    if (wfs_tree_snapshot(tree, NULL, &snapshot, NULL) == 0)
        wfs_catalog_free(snapshot);
    wfs_tree_committed(tree, wfs_tree_generation(tree));
    wfs_tree_free(tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char directory[40];
    struct wfs_stage *stage;
    struct wfs_tree *tree;
    struct wfs_error err = {0};
    /* In memory, where nothing waits for a disk. */
    strcpy(directory,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/wfs-fuzz-XXXXXX" : "/tmp/wfs-fuzz-XXXXXX");
    if (mkdtemp(directory) == NULL)
        abort();
    write_file(directory, "journal", data, n_bytes);
    write_file(directory, "base", data, n_bytes);
    const struct wfs_stage_options options = {.path = directory, .boot = "boot"};
    if (wfs_stage_open(&options, &stage, &err) == 0) {
        struct wfs_catalog *catalog = make_catalog();
        const struct wfs_tree_options tree_options = {.stage = stage,
                                                      .reserved_key = "__metadata__"};
        if (wfs_tree_new(catalog, &tree_options, &tree, &err) == 0)
            look_around(tree);
        wfs_catalog_free(catalog);
    }
    struct wfs_stage *left;
    if (access(directory, F_OK) == 0 && wfs_stage_open(&options, &left, NULL) == 0) {
        if (wfs_stage_discard(left) < 0)
            abort();
        wfs_stage_close(left);
    }
    if (access(directory, F_OK) == 0) {
        char command[64];
        snprintf(command, sizeof(command), "rm -rf %s", directory);
        if (system(command) != 0)
            abort();
    }
    return 0;
}
