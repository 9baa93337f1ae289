/* SPDX-License-Identifier: MIT */
/*
 * In a build without libcurl.
 */
#include "fetch/fetcher.h"

#include <errno.h>

int fetcher_load(const struct fetcher_settings *settings, struct wfs_remote **out,
                 struct wfs_error *err)
{
    return wfs_fail(
        err, EOPNOTSUPP,
        "is a URL, and this build of weightfs has no libcurl to read it with: download it "
        "first");
}
