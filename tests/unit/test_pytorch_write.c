/* SPDX-License-Identifier: MIT */
/*
 * Writing PyTorch checkpoints: bytes that are known to load, what a zip of them is made of, and
 * what comes back when the result is loaded again.
 */
#include <weightfs/cleanup.h>

#include "loaded.h"
#include "made.h"

#include <errno.h>

#include "format/pytorch/writer/torch_checkpoint.h"
#include "format/core/zip_layout.h"

static const uint64_t square[] = {2, 2}, turned[] = {1, 2};

static const char golden_pickle[] =
    "800263636f6c6c656374696f6e730a4f726465726564446963740a710029522858010000007763746f7263682e5f75"
    "74696c730a5f72656275696c645f74656e736f725f76320a71042828580700000073746f72616765710163746f7263"
    "680a466c6f617453746f726167650a7102580100000030580300000063707571034b0474514b004b024b02864b024b"
    "0186896800295274525803000000772e54680428286801680258010000003068034b0474514b004b024b02864b014b"
    "02868968002952745258010000006e68042828680163746f7263680a4c6f6e6753746f726167650a71055801000000"
    "3168034b0174514b00292989680029527452752e";

/* The whole file, malloc'ed; NULL, and a failed check, when there is none. */
static char *written(const char *folder, const struct wfs_catalog *catalog, size_t *ret_n)
{
    struct wfs_layout *layout = calloc(1, sizeof(*layout));
    struct wfs_error err = {0};
    char *file = NULL;
    if (layout == NULL)
        abort();
    layout->format = &format_pytorch;
    layout->catalog = catalog;
    if (check_int(torch_checkpoint_plan_in(folder, catalog, layout, &err), 0)) {
        *ret_n = (size_t)wfs_layout_n_bytes(layout);
        file = malloc(*ret_n);
        check_int(wfs_layout_read(NULL, layout, 0, file, *ret_n), (int64_t)*ret_n);
        char piece[7];
        for (size_t at = 0; at < *ret_n; at += sizeof(piece)) { /* any range is the same */
            const size_t n = *ret_n - at < sizeof(piece) ? *ret_n - at : sizeof(piece);
            check_int(wfs_layout_read(NULL, layout, at, piece, sizeof(piece)), (int64_t)n);
            check_bytes(piece, file + at, n);
        }
    } else {
        printf("# %s\n", err.text);
    }
    wfs_layout_free(layout);
    return file;
}

static struct wfs_catalog *golden_catalog(void)
{
    static const float numbers[] = {1, 2, 3, 4};
    static char bytes[24];
    memcpy(bytes, numbers, sizeof(numbers));
    store_le64(bytes + 16, (uint64_t)-5);
    struct wfs_catalog *catalog = made_catalog(bytes, sizeof(bytes));
    made_tensor(catalog, "w", WFS_F32, 2, square, 0);
    made_tensor(catalog, "w.T", WFS_F32, 2, square, 0)->stored.strides = turned;
    made_tensor(catalog, "n", WFS_I64, 0, NULL, 16);
    return catalog;
}

static void a_state_is_written_as_pytorch_is_known_to_load_it(void)
{
    struct wfs_catalog *catalog = golden_catalog();
    size_t n;
    char *file = written("m", catalog, &n);
    char hex[sizeof(golden_pickle) + 2];
    if (file != NULL && check_uint(n, 952)) {
        for (size_t i = 0; i < 255; i++)
            snprintf(hex + 2 * i, 3, "%02x", (unsigned char)file[64 + i]);
        check_str(hex, golden_pickle);
        check_uint(load_le32(file + 14), 0x2dd3a1de);
        check_bytes(file + 0x180, "little", 6);
        check_uint(load_le64(file + 0x200), (uint64_t)-5);
        check_bytes(file + 0x240, "3\n", 2);
        check_uint(zip_crc(0, file, n), 0xa9aac143);
    }
    free(file);
    wfs_catalog_free(catalog);
}

int main(void)
{
    check_run(a_state_is_written_as_pytorch_is_known_to_load_it);
    return check_done();
}
