/* SPDX-License-Identifier: MIT */
/*
 * Names of sources by URL: the first line of the input is one, the rest a .netrc file.
 */
#include "fetch/http_place.h"

#include <weightfs/cleanup.h>
#include <weightfs/url.h>

#include <errno.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void try_files(const char *name)
{
    for (unsigned i = 0; i < 5; i++) {
        char *file = http_place_try(name, i);
        struct wfs_error err = {0};
        struct http_place place;
        const struct http_credentials none = {.aws.region = "eu-west-1",
                                              .hub = "https://hub.example"};
        if (file != NULL && http_place_find(&place, file, &none, &err) < 0 &&
            (http_place_is_repository(name) || err.code == 0))
            abort(); /* what may be tried in a repository can be asked for */
        if (file != NULL)
            http_place_done(&place);
        free(file);
    }
}

/* What is shown has no user in it, and what is beside it is known to be. */
static void show(const char *name)
{
    struct wfs_error err = {0};
    autofree char *shown = url_shown(name), *last = url_name(name), *sibling = NULL;
    if (shown == NULL || last == NULL)
        return;
    const char *host = strstr(shown, "://");
    if (url_find(name) != name || host == NULL || *last == '\0' || strchr(last, '/') != NULL)
        abort();
    if (memchr(host + 3, '@', strcspn(host + 3, "/?#")) != NULL)
        abort();
    if (url_sibling(name, "a b?c", &sibling, &err) < 0)
        return;
    autofree char *path = url_path_below(name, sibling);
    if (path == NULL || strcmp(path, "a b?c") != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    autofree char *name = strndup((const char *)data, n_bytes);
    if (name == NULL)
        return 0;
    char *netrc = strchr(name, '\n');
    if (netrc != NULL)
        *netrc++ = '\0';
    const struct http_credentials credentials = {
        .aws = {.key = "key", .secret = "secret", .session = "session", .region = "eu-west-1"},
        .hub = "https://hub.example",
        .hub_token = "token",
        .netrc = netrc,
    };
    struct http_place place;
    struct wfs_error err = {0};
    const int rc = http_place_find(&place, name, &credentials, &err);
    if (rc < 0 ? err.code == 0 : place.url.text == NULL || strpbrk(place.url.text, " \r\n") != NULL)
        abort();
    if (rc == 0 && place.bearer != NULL && strcmp(place.url.origin, "https://hub.example:443") != 0)
        abort(); /* a token goes to the Hub only */
    http_place_done(&place);
    if (url_is(name))
        show(name);
    free(http_place_pin(name, "0123456789abcdef0123456789abcdef01234567"));
    try_files(name);
    return 0;
}
