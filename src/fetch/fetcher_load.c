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

/* Beside the library, as in the folder of a build, or in a folder there; else where it is
 * installed. Not beside the program, which may lie among downloads. Stays loaded. */
static void *load(void)
{
    static const char *const places[] = {"/" MODULE, "/weightfs/" MODULE};
    Dl_info library;
    const void *symbol = dlsym(RTLD_DEFAULT, "wfs_load");
    const char *slash = symbol != NULL && dladdr(symbol, &library) != 0 && library.dli_fname != NULL
                            ? strrchr(library.dli_fname, '/')
                            : NULL;
    for (size_t i = 0; slash != NULL && i < sizeof(places) / sizeof(*places); i++) {
        autofree char *path = NULL;
        if (asprintf(&path, "%.*s%s", (int)(slash - library.dli_fname), library.dli_fname,
                     places[i]) < 0)
            path = NULL;
        if (path != NULL && access(path, F_OK) == 0)
            return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return dlopen(WFS_FETCH_FOLDER "/" MODULE, RTLD_NOW | RTLD_LOCAL);
}

int fetcher_load(const struct fetcher_settings *settings, struct wfs_remote **out,
                 struct wfs_error *err)
{
    void *module = load();
    void *symbol = module == NULL ? NULL : dlsym(module, "fetcher_start");
    if (symbol == NULL) {
        const char *why = dlerror();
        return wfs_fail(err, EOPNOTSUPP, "URLs cannot be read: %s%s", why,
                        strstr(why, "libcurl.so") != NULL
                            ? "; install the libcurl of this system (Debian: libcurl4)"
                            : "");
    }
    start_function *start;
    memcpy(&start, &symbol, sizeof(start)); /* C has no conversion from an object to a function */
    return start(settings, out, err);
}
