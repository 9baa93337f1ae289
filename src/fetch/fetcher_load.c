/* SPDX-License-Identifier: MIT */
/*
 * libcurl brings forty libraries, which would take most of the time and memory of a short run. Only
 * the module has them, and it is loaded when the first URL comes.
 */
#include "fetch/fetcher.h"

#include <weightfs/cleanup.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define MODULE "weightfs-fetch.so"

typedef int start_function(const struct fetcher_settings *settings, struct wfs_remote **out,
                           struct wfs_error *err);

/* Beside the program, as in the folder of a build; else where it is installed. Stays loaded. */
static void *load(void)
{
    enum { N_PATH = 4096 };
    char path[N_PATH + sizeof(MODULE)];
    const ssize_t n = readlink("/proc/self/exe", path, N_PATH);
    if (n > 0 && n < N_PATH) {
        path[n] = '\0';
        strcpy(strrchr(path, '/') + 1, MODULE);
        if (access(path, F_OK) == 0)
            return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return dlopen(WFS_FETCH_FOLDER "/" MODULE, RTLD_NOW | RTLD_LOCAL);
}

int fetcher_load(const struct fetcher_settings *settings, struct wfs_remote **out,
                 struct wfs_error *err)
{
    void *module = load();
    void *symbol = module == NULL ? NULL : dlsym(module, "fetcher_start");
    if (symbol == NULL)
        return wfs_fail(err, EOPNOTSUPP, "URLs cannot be read: %s", dlerror());
    start_function *start;
    memcpy(&start, &symbol, sizeof(start)); /* C has no conversion from an object to a function */
    return start(settings, out, err);
}
