/* SPDX-License-Identifier: MIT */
/*
 * Keys of S3 and paths of the Hub are taken as they are; only http and https have queries,
 * fragments and escapes.
 */
#include <weightfs/cleanup.h>
#include <weightfs/percent.h>
#include <weightfs/url.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Returns how long the scheme is with its colon, of those that are read; 0 for another text. */
static size_t scheme_of(const char *text)
{
    static const char *const schemes[] = {"http:", "https:", "s3:", "hf:"};
    for (size_t i = 0; i < sizeof(schemes) / sizeof(*schemes); i++) {
        if (strncasecmp(text, schemes[i], strlen(schemes[i])) == 0)
            return strlen(schemes[i]);
    }
    return 0;
}

static bool has_escapes(const char *url)
{
    return strncasecmp(url, "s3://", 5) != 0 && strncasecmp(url, "hf://", 5) != 0;
}

/* Returns how long any scheme of two letters or more is with all slashes that follow it: at least
 * two, but for one that is read, which is malformed otherwise. */
static size_t any_scheme_of(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (n > 0 && text[n] != '\0' && strchr("+-.", text[n])))
        n++;
    const bool is_whole = strncmp(text + n, "://", 3) == 0;
    if (n < 2 || !isalpha((unsigned char)*text) || (!is_whole && scheme_of(text) == 0))
        return 0;
    return n + 1 + strspn(text + n + 1, "/");
}

/* Returns how long the user is, with the '@' behind it. A password that has a slash, '?' or '#' in
 * it, which is malformed, shows in what would be the port. */
static size_t user_of(const char *host)
{
    const size_t n_host = strcspn(host, "/?#");
    const char *at = memrchr(host, '@', n_host), *colon = memchr(host, ':', n_host);
    if (at == NULL && colon != NULL && *host != '[' &&
        colon + 1 + strspn(colon + 1, "0123456789") < host + n_host)
        at = strrchr(host, '@');
    return at == NULL ? 0 : (size_t)(at + 1 - host);
}

/* A URL cut into what is shown of it and what is not. */
struct parts {
    size_t n_scheme; /* with all slashes behind it */
    size_t n_user;   /* with the '@' */
    size_t n_shown;  /* host and path, behind the user */
};

static struct parts cut(const char *url)
{
    struct parts parts = {.n_scheme = any_scheme_of(url)};
    const char *host = url + parts.n_scheme;
    parts.n_user = user_of(host);
    host += parts.n_user;
    parts.n_shown = has_escapes(url) ? strcspn(host, "?#") : strlen(host);
    return parts;
}

bool url_is(const char *text)
{
    const size_t n = scheme_of(text);
    return n > 0 && strncmp(text + n, "//", 2) == 0;
}

const char *url_find(const char *text)
{
    bool is_in_word = false;
    for (; *text != '\0'; text++) {
        const size_t n = any_scheme_of(text);
        if (n > 0 && (!is_in_word || strncmp(text + n - 2, "//", 2) == 0))
            return text;
        is_in_word = isalnum((unsigned char)*text);
    }
    return NULL;
}

char *url_shown(const char *url)
{
    char *text;
    const struct parts parts = cut(url);
    return asprintf(&text, "%.*s%.*s", (int)parts.n_scheme, url, (int)parts.n_shown,
                    url + parts.n_scheme + parts.n_user) < 0
               ? NULL
               : text;
}

size_t url_word_length(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] != '\0' && strchr("._-", text[n]) != NULL))
        n++;
    return n;
}

bool url_path_is_odd(const char *path, bool allows_empty)
{
    for (;;) {
        const size_t n = strcspn(path, "/");
        if ((n == 0 && !allows_empty) || (n == 1 && *path == '.') ||
            (n == 2 && path[0] == '.' && path[1] == '.'))
            return true;
        if (path[n] == '\0')
            return false;
        path += n + 1;
    }
}

/* Undoes %HH, but not of a NUL, in place. */
static void decode(char *text)
{
    char *out = text;
    for (const char *in = text; *in != '\0';) {
        uint32_t byte;
        if (*in == '%' && strlen(in) >= PERCENT_N && hex_decode(in + 1, 2, &byte) && byte != 0) {
            *out++ = (char)byte;
            in += PERCENT_N;
        } else
            *out++ = *in++;
    }
    *out = '\0';
}

char *url_name(const char *url)
{
    autofree char *shown = url_shown(url);
    if (shown == NULL)
        return NULL;
    const char *path = shown + any_scheme_of(shown);
    const char *slash = strrchr(path, '/');
    char *name = slash == NULL ? NULL : strdup(slash + 1);
    if (name != NULL && has_escapes(url))
        decode(name);
    const bool is_name =
        name != NULL && name[strspn(name, ".")] != '\0' && strchr(name, '/') == NULL;
    if (is_name)
        return name;
    free(name);
    return strdup("download");
}

/* Returns true for a name that a relative reference would take for a URL or another folder. */
static bool leads_away(const char *name)
{
    size_t n = isalpha((unsigned char)*name) ? 1 : 0;
    while (n > 0 &&
           (isalnum((unsigned char)name[n]) || (name[n] != '\0' && strchr("+-.", name[n]))))
        n++;
    return *name == '\0' || strchr(name, '/') != NULL || (n > 0 && name[n] == ':') ||
           strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Returns the name with escapes for all that has a meaning in a URL. malloc'ed. */
static char *encode(const char *name)
{
    char *text = malloc(strlen(name) * PERCENT_N + 1), *out = text;
    for (; text != NULL && *name != '\0'; name++) {
        const unsigned char byte = (unsigned char)*name;
        if (isalnum(byte) || strchr("-._~!$&'()*+,;=@", byte) != NULL)
            *out++ = (char)byte;
        else {
            percent_encode(byte, out);
            out += PERCENT_N;
        }
    }
    if (text != NULL)
        *out = '\0';
    return text;
}

/* Returns how long the part before the last slash of the path is, which the siblings share. */
static size_t folder_length(const char *url)
{
    const struct parts parts = cut(url);
    const size_t n_front = parts.n_scheme + parts.n_user;
    const char *slash = memrchr(url + n_front, '/', parts.n_shown);
    return slash == NULL ? n_front + parts.n_shown : (size_t)(slash - url);
}

int url_sibling(const char *url, const char *name, char **ret, struct wfs_error *err)
{
    if (leads_away(name))
        return wfs_fail(err, EINVAL, "'%s' is not the name of a file beside it",
                        wfs_quote(name).text);
    autofree char *encoded = has_escapes(url) ? encode(name) : strdup(name);
    char *sibling;
    if (encoded == NULL || asprintf(&sibling, "%.*s/%s", (int)folder_length(url), url, encoded) < 0)
        return wfs_fail_memory(err);
    *ret = sibling;
    return 0;
}

int url_below(const char *url, const char *path, char **ret, struct wfs_error *err)
{
    autofree char *at = strdup(url);
    for (;;) {
        const size_t n = strcspn(path, "/");
        autofree char *name = strndup(path, n);
        char *next = NULL;
        const int code =
            at == NULL || name == NULL ? wfs_fail_memory(err) : url_sibling(at, name, &next, err);
        if (code < 0)
            return code;
        free(steal(&at));
        if (path[n] == '\0') {
            *ret = next;
            return 0;
        }
        if (asprintf(&at, "%s/", next) < 0)
            at = NULL;
        free(next);
        path += n + 1;
    }
}

/* Undoes the escapes of a component of a path, in place. Returns false where that is not the name
 * of a file or folder below. */
static bool take_component(const char *url, char *name)
{
    if (has_escapes(url) && name[strcspn(name, "?#")] != '\0')
        return false;
    if (has_escapes(url))
        decode(name);
    return !leads_away(name);
}

char *url_path_below(const char *url, const char *other)
{
    const size_t n = folder_length(url);
    if (strncmp(url, other, n) != 0 || other[n] != '/')
        return NULL;
    autofree char *rest = strdup(other + n + 1);
    char *path = rest == NULL ? NULL : calloc(1, strlen(rest) + 1), *out = path, *at = rest;
    for (char *name; path != NULL && (name = strsep(&at, "/")) != NULL;) {
        if (!take_component(url, name)) {
            free(path);
            return NULL;
        }
        out += sprintf(out, "%s%s", out == path ? "" : "/", name);
    }
    return path;
}
