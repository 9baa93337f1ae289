/* SPDX-License-Identifier: MIT */
/*
 * The moment before an output is published: what is told of the file, and that it can be kept back.
 */
#include <weightfs/cleanup.h>

#include "loaded.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/weightfs-unit-XXXXXX";
static char kept[64]; /* path of the output */

struct told {
    unsigned n_calls;
    int result;
    struct wfs_identity identity;
    uint64_t digest;
};

static void write_old(void)
{
    autoclose int fd = open(kept, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    check(fd >= 0 && write(fd, "old", 3) == 3);
}

static uint64_t n_bytes_of(const char *path)
{
    struct stat st;
    return stat(path, &st) < 0 ? UINT64_MAX : (uint64_t)st.st_size;
}

/* The file is whole under its temporary name, and what it replaces is still there. */
static int hear(void *ctx, const struct wfs_identity *identity, uint64_t digest,
                struct wfs_error *err)
{
    struct told *told = ctx;
    struct stat st = {0};
    char name[WFS_OUTPUT_NAME_MAX], path[512];
    told->n_calls++;
    told->identity = *identity;
    told->digest = digest;
    wfs_output_temporary(kept, name);
    check_str(name, ".kept.weightfs.tmp");
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    check_int(stat(path, &st), 0);
    const struct wfs_identity found = wfs_identity_of(&st);
    check(wfs_identity_is_equal(&found, identity));
    check_uint(n_bytes_of(kept), 3);
    return told->result == 0 ? 0 : wfs_fail(err, -told->result, "not now");
}

static void a_complete_file_is_told_before_it_is_published(void)
{
    struct file file = file_of("{\"a\":" A_TO_4 "}", 4);
    struct load_context context = default_context();
    struct loaded loaded = load(file, &context);
    struct wfs_catalog *again = NULL;
    struct wfs_layout *layout = NULL;
    struct wfs_save_report report;
    struct wfs_error err = {0};
    struct told told = {.result = -ENOSPC};
    const struct wfs_save_options options = {
        .replace = WFS_REPLACE_ANY, .mode = 0600, .complete = hear, .ctx = &told};
    uint64_t digest = 0;
    check_int(wfs_layout_new(&format_safetensors, loaded.catalog, &layout, NULL), 0);
    write_old();
    check_int(wfs_save(layout, kept, &options, &report, &err), -ENOSPC);
    check_str(err.text, "not now");
    check_uint(report.published.inode, 0);
    check_uint(n_bytes_of(kept), 3);
    told.result = 0;
    wfs_layout_free(layout);
    check_int(wfs_layout_new(&format_safetensors, loaded.catalog, &layout, NULL), 0);
    check_int(wfs_save(layout, kept, &options, &report, NULL), 0);
    check_uint(told.n_calls, 2);
    check(wfs_identity_is_equal(&told.identity, &report.published));
    check_int(wfs_load(kept, NULL, &again, NULL), 0);
    check_int(wfs_catalog_digest(again, &digest), 0);
    check_uint(digest, told.digest);
    again->tensors[0].dtype = WFS_I32;
    check_int(wfs_catalog_digest(again, &digest), 0);
    check(digest != told.digest);
    wfs_catalog_free(again);
    wfs_layout_free(layout);
    done(&file, &loaded);
}

static uint64_t digest_of(const struct wfs_catalog *catalog)
{
    uint64_t digest = 0;
    check_int(wfs_catalog_digest(catalog, &digest), 0);
    return digest;
}

/* Whatever a loader reads from the index of a file: another one gives another digest. */
static void a_digest_tells_every_part_of_an_index_apart(void)
{
    struct file file = file_of("{\"a\":" A_TO_4 "}", 4);
    struct load_context context = default_context();
    struct loaded loaded = load(file, &context);
    struct wfs_catalog *catalog = loaded.catalog;
    struct wfs_tensor *tensor = &catalog->tensors[0];
    const struct wfs_tensor before = *tensor;
    const uint64_t one = 1, two = 2, dims[] = {1, 1};
    const struct wfs_text text = {"param_id", "7", 1, NULL}, other = {"param_id", "8", 1, NULL};
    const struct wfs_tensor changes[] = {
        {.key = "b"},
        {.dtype = WFS_I32},
        {.n_bytes = 8},
        {.shape = {1, &two}},
        {.shape = {2, dims}},
        {.attrs = &text},
        {.attrs = &other},
        {.stored = {.offset = 1}},
        {.stored = {.dtype = WFS_I32}},
        {.stored = {.strides = &one}},
        {.stored = {.strides = &two}},
        {.stored = {.is_big_endian = true}},
        {.stored = {.is_conjugate = true}},
        {.stored = {.is_negative = true}},
    };
    enum { N = sizeof(changes) / sizeof(*changes) };
    uint64_t digests[N + 3] = {digest_of(catalog)};
    for (size_t i = 0; i < N; i++) {
        *tensor = before;
        tensor->key = changes[i].key != NULL ? changes[i].key : before.key;
        tensor->dtype = changes[i].dtype != 0 ? changes[i].dtype : before.dtype;
        tensor->n_bytes += changes[i].n_bytes;
        tensor->shape = changes[i].shape.dims != NULL ? changes[i].shape : before.shape;
        tensor->attrs = changes[i].attrs;
        tensor->stored.offset += changes[i].stored.offset;
        tensor->stored.dtype += changes[i].stored.dtype;
        tensor->stored.strides = changes[i].stored.strides;
        tensor->stored.is_big_endian = changes[i].stored.is_big_endian;
        tensor->stored.is_conjugate = changes[i].stored.is_conjugate;
        tensor->stored.is_negative = changes[i].stored.is_negative;
        digests[i + 1] = digest_of(catalog);
    }
    *tensor = before;
    catalog->meta.first = &text;
    digests[N + 1] = digest_of(catalog);
    catalog->meta.first = NULL;
    catalog->values.pickle_crc = 1;
    digests[N + 2] = digest_of(catalog);
    for (size_t i = 0; i < N + 3; i++) {
        for (size_t j = 0; j < i; j++)
            check(digests[i] != digests[j]);
    }
    done(&file, &loaded);
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        abort();
    snprintf(kept, sizeof(kept), "%s/kept", folder);
    check_run(a_complete_file_is_told_before_it_is_published);
    check_run(a_digest_tells_every_part_of_an_index_apart);
    unlink(kept);
    if (rmdir(folder) < 0) /* no temporary is left */
        abort();
    return check_done();
}
