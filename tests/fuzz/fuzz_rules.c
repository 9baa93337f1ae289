/* SPDX-License-Identifier: MIT */
/*
 * A rules file, whole: the input is its JSON.
 */
#include "view.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static int fd = -1;
    static char option[64];
    struct wfs_view *view;
    if (fd < 0) {
        fd = memfd_create("rules", 0);
        snprintf(option, sizeof(option), "rules=/proc/self/fd/%d", fd);
    }
    demand(ftruncate(fd, 0) == 0 && pwrite(fd, data, n_bytes, 0) == (ssize_t)n_bytes);
    demand(wfs_view_new(&view) == 0);
    if (wfs_view_add(view, option, NULL) == 1)
        fuzz_apply(view);
    wfs_view_free(view);
    return 0;
}
