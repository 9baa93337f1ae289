/* SPDX-License-Identifier: MIT */
/*
 * What says who asks: the input is the name of an AWS profile, ~/.aws/credentials, ~/.aws/config
 * and the token file of the Hub, with form feeds between them.
 */
#include "fetch/http_credentials.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { N_FILES = 3 };

/* Makes a file for each part, once; the variables name them by their descriptors. */
static const int *files(void)
{
    static const char *const variables[N_FILES] = {"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
                                                   "HF_TOKEN_PATH"};
    static int fds[N_FILES];
    for (size_t i = 0; fds[N_FILES - 1] == 0 && i < N_FILES; i++) {
        char path[32];
        fds[i] = memfd_create(variables[i], 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[i]);
        if (fds[i] < 0 || setenv(variables[i], path, 1) < 0 || unsetenv("HOME") < 0)
            abort();
    }
    return fds;
}

/* Takes what is before the next form feed. */
static char *take_part(const char **at, const char *end)
{
    const char *feed = memchr(*at, '\f', (size_t)(end - *at));
    char *part = strndup(*at, (size_t)((feed == NULL ? end : feed) - *at));
    *at = feed == NULL ? end : feed + 1;
    return part;
}

static bool is_visible(const char *text)
{
    for (; text != NULL && *text != '\0'; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

/* What is used goes into headers and host names. */
static void check(const struct http_credentials *credentials)
{
    const struct aws *aws = &credentials->aws;
    if (credentials->aws_problem.code == 0 &&
        ((aws->key == NULL) != (aws->secret == NULL) || !is_visible(aws->key) ||
         !is_visible(aws->secret) || !is_visible(aws->session) || aws->region == NULL ||
         strpbrk(aws->region, "./@:?# \t\r\n") != NULL || strlen(aws->region) > 63))
        abort();
    if (!is_visible(credentials->hub_token) ||
        (credentials->hub_token != NULL && *credentials->hub_token == '\0'))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const int *fds = files();
    const char *at = (const char *)data, *end = at + n_bytes;
    autofree char *profile = take_part(&at, end);
    if (profile == NULL || setenv("AWS_PROFILE", profile, 1) < 0)
        return 0;
    for (size_t i = 0; i < N_FILES; i++) {
        autofree char *part = take_part(&at, end);
        const size_t n = part == NULL ? 0 : strlen(part);
        if (ftruncate(fds[i], 0) < 0 || (n > 0 && pwrite(fds[i], part, n, 0) != (ssize_t)n))
            abort();
    }
    struct http_credentials credentials = {0};
    if (http_credentials_read(&credentials, NULL) == 0)
        check(&credentials);
    http_credentials_done(&credentials);
    return 0;
}
