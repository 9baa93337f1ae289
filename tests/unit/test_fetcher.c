/* SPDX-License-Identifier: MIT */
/*
 * The process that fetches, asked by a reader that does not keep to what the user named. Nothing
 * listens on the port.
 */
#include "fetch/fetcher.h"

#include "check.h"

#include <weightfs/fetching.h>

#include <errno.h>
#include <stdlib.h>

#include "remote/remote_call.h"

static int open_it(struct wfs_remote *remote, const char *url, struct wfs_error *err)
{
    struct remote_answer answer;
    uint32_t number;
    *err = (struct wfs_error){0};
    return remote_open(remote, url, &number, &answer, err);
}

static void only_what_was_named_is_asked_of_a_server(void)
{
    static const char *const urls[] = {"http://127.0.0.1:1/a/index.json?x=1"};
    static const char *const refused[] = {"http://127.0.0.1:2/a/index.json", "http://127.0.0.1:1/b",
                                          "http://127.0.0.1:1/a/m?leak=1", "s3://bucket/key"};
    static const char *const asked[] = {"http://127.0.0.1:1/a/index.json?x=1",
                                        "http://127.0.0.1:1/a/m.safetensors"};
    const struct fetcher_settings settings = {.has_retries = true, .urls = urls, .n_urls = 1};
    struct wfs_remote *remote = NULL;
    struct wfs_error err = {0};
    check_int(fetcher_start(&settings, &remote, &err), 0);
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        check_int(open_it(remote, refused[i], &err), -EACCES);
        check(strstr(err.text, "named") != NULL);
    }
    for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
        check_int(open_it(remote, asked[i], &err), -EHOSTUNREACH);
        check(strstr(err.text, "refused") != NULL);
    }
    check_int(remote_want(NULL, remote, &(struct remote_range){77, 0, 1, 0}, &err), -EINVAL);
    remote_tell(remote, &(struct fetching){.kind = FETCHING_CLOSE, .object = 77});
    remote_tell(remote, &(struct fetching){.kind = FETCHING_AHEAD, .object = 77, .n_bytes = 9});
    remote_tell(remote, &(struct fetching){.kind = FETCHING_CANCEL, .request = 9});
    check_int(open_it(remote, refused[0], &err), -EACCES);
    wfs_remote_free(remote);
}

int main(void)
{
    check_run(only_what_was_named_is_asked_of_a_server);
    return check_done();
}
