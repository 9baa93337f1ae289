/* SPDX-License-Identifier: MIT */
/*
 * Distributed checkpoints: the input is the file .metadata of a directory, and, behind the pickle
 * in it, whatever its items name in that file itself; behind MARK, the file meta.pt. Items are
 * looked at when it is loaded, or when they are read.
 */
#include "pytorch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define MARK "meta.pt\n"

static char folder[64];
static int directory = -1;

static void clean(void)
{
    unlinkat(directory, ".metadata", 0);
    unlinkat(directory, "meta.pt", 0);
    rmdir(folder);
}

static void prepare(void)
{
    strcpy(folder,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/fuzz-dcp-XXXXXX" : "/tmp/fuzz-dcp-XXXXXX");
    if (mkdtemp(folder) == NULL)
        abort();
    directory = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        abort();
    atexit(clean);
}

static void put(const char *name, const uint8_t *data, size_t n_bytes)
{
    const int file = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || write(file, data, n_bytes) != (ssize_t)n_bytes)
        abort();
    close(file);
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
    if (directory < 0)
        prepare();
    const uint8_t *mark = n_bytes == 0 ? NULL : memmem(data, n_bytes, MARK, strlen(MARK));
    const size_t n_beside = mark == NULL ? 0 : n_bytes - (size_t)(mark - data);
    put(".metadata", data, n_bytes - n_beside);
    if (mark != NULL)
        put("meta.pt", mark + strlen(MARK), n_beside - strlen(MARK));
    else
        unlinkat(directory, "meta.pt", 0);
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
