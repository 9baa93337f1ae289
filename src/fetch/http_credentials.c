/* SPDX-License-Identifier: MIT */
/*
 * The places of the Hub's token are those of its own programs.
 */
#include "fetch/http_credentials.h"

#include "fetch/textfile.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Returns where the Hub's programs keep the token, malloc'ed, or NULL. */
static char *token_path(void)
{
    const char *path = environment("HF_TOKEN_PATH"), *home = environment("HF_HOME"),
               *cache = environment("XDG_CACHE_HOME");
    char *ret;
    if (path != NULL)
        return strdup(path);
    if (home == NULL && cache == NULL)
        return home_path(".cache/huggingface/token");
    const int n = home != NULL ? asprintf(&ret, "%s/token", home)
                               : asprintf(&ret, "%s/huggingface/token", cache);
    return n < 0 ? NULL : ret;
}

/* Copies a token without the blanks around it; it goes into a header. */
static int take_token(const char *text, char **ret, struct wfs_error *err)
{
    static const char blanks[] = " \t\r\n";
    text += strspn(text, blanks);
    size_t n = strlen(text);
    while (n > 0 && strchr(blanks, text[n - 1]) != NULL)
        n--;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return wfs_fail(err, EINVAL,
                            "the token of the Hub has blanks or other unusual "
                            "characters in it; set HF_TOKEN");
    *ret = n == 0 ? NULL : strndup(text, n);
    return n > 0 && *ret == NULL ? -ENOMEM : 0;
}

static int read_hub(struct http_credentials *credentials)
{
    struct wfs_error *err = &credentials->hub_problem;
    const char *hub = environment("HF_ENDPOINT"), *token = environment("HF_TOKEN");
    credentials->hub = strdup(hub == NULL ? HTTP_HUB_USUAL : hub);
    if (credentials->hub == NULL)
        return -ENOMEM;
    for (size_t n = strlen(credentials->hub); n > 0 && credentials->hub[n - 1] == '/'; n--)
        credentials->hub[n - 1] = '\0';
    if (token == NULL)
        token = environment("HUGGING_FACE_HUB_TOKEN");
    if (token != NULL)
        return take_token(token, &credentials->hub_token, err);
    autofree char *path = token_path(), *text = NULL;
    if (path == NULL || textfile_read(path, &text, err) < 0 || text == NULL)
        return 0;
    return take_token(text, &credentials->hub_token, err);
}

int http_credentials_read(struct http_credentials *credentials, const char *endpoint)
{
    autofree char *netrc = home_path(".netrc");
    int rc = aws_read(&credentials->aws, endpoint, &credentials->aws_problem);
    if (rc != -ENOMEM)
        rc = read_hub(credentials);
    if (rc != -ENOMEM && netrc != NULL)
        rc = textfile_read(netrc, &credentials->netrc, NULL);
    return rc == -ENOMEM ? rc : 0;
}

void http_credentials_done(struct http_credentials *credentials)
{
    aws_done(&credentials->aws);
    free(credentials->hub);
    free(credentials->hub_token);
    free(credentials->netrc);
    *credentials = (struct http_credentials){0};
}
