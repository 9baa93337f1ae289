/* SPDX-License-Identifier: MIT */
/*
 * Distributed checkpoints: the input is the file .metadata of a directory, and, behind the pickle
 * in it, whatever its items name in that file itself. Items are looked at when it is loaded, or
 * when they are read.
 */
#include "pytorch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static char folder[64];
static int file = -1;

static void clean(void)
{
    char path[80];
    snprintf(path, sizeof(path), "%s/.metadata", folder);
    unlink(path);
    rmdir(folder);
}

static void prepare(void)
{
    char path[80];
    strcpy(folder,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/fuzz-dcp-XXXXXX" : "/tmp/fuzz-dcp-XXXXXX");
    if (mkdtemp(folder) == NULL)
        abort();
    snprintf(path, sizeof(path), "%s/.metadata", folder);
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        abort();
    atexit(clean);
}

/* Any range of a tensor that can be read has the bytes that the whole has there. */
static void compare_ranges(const struct wfs_catalog *catalog)
{
    char whole[512], part[512];
    for (size_t i = 0; i < wfs_catalog_n_tensors(catalog) && i < 16; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        const ssize_t n = wfs_tensor_read(tensor, 0, whole, sizeof(whole));
        for (ssize_t from = 1; from < n; from = from * 2 + 1) {
            const ssize_t got = wfs_tensor_read(tensor, (uint64_t)from, part, (size_t)(n - from));
            if (got != n - from || memcmp(part, whole + from, (size_t)got) != 0)
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct wfs_error err = {0};
    struct load_context context = {.table = &registry_table};
    struct wfs_catalog *catalog = NULL;
    const bool is_late = n_bytes > 0 && data[n_bytes - 1] % 4 == 1;
    if (file < 0)
        prepare();
    if (ftruncate(file, (off_t)n_bytes) < 0 || pwrite(file, data, n_bytes, 0) != (ssize_t)n_bytes)
        abort();
    limits_init(&context.limits);
    context.limits.opcodes = context.limits.values = 4000;
    context.limits.tensors = 1000;
    limits_set(&context.limits, "chunks=1000", registry_limit, NULL);
    context.limits.text = 65536;
    context.limits.index_memory = 64 << 20;
    limits_set(&context.limits, is_late ? "items=0" : "items=1000", registry_limit, NULL);
    const int code = dcp_load(folder, &context, &catalog, &err);
    if (code < 0 && (err.code != -code || err.text[0] == '\0' || strchr(err.text, '\n') != NULL))
        abort();
    if (code <= 0)
        return 0;
    if (!is_late)
        look_at_tensors(catalog);
    compare_ranges(catalog);
    look_at_values(catalog);
    if (wfs_verify(catalog, &err) < 0 && err.code == 0)
        abort();
    wfs_catalog_free(catalog);
    return 0;
}
