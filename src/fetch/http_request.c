/* SPDX-License-Identifier: MIT */
/*
 * libcurl is asked for plain requests: redirects and retries are decided on by the caller.
 */
#include "fetch/http_engine.h"

#include <weightfs/strbuf.h>
#include "fetch/clock.h"
#include "fetch/http_credentials.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    KEPT_MS = 10000,          /* of connections that nobody uses */
    LARGE_BUFFER = 256 << 10, /* bytes that are received at a time, of long ranges */
};

/* ---- connections: libcurl asks for each socket, and takes one that is connected ---- */

static int open_one(const struct http_spares *spares)
{
    const int fd = socket(spares->address.ss_family, spares->type | SOCK_CLOEXEC | SOCK_NONBLOCK,
                          spares->protocol);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&spares->address, spares->n_address) < 0 &&
        errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

void http_spares_open(struct http_spares *spares, size_t n)
{
    spares->until_ms = now_ms() + KEPT_MS;
    while (spares->n_address > 0 && spares->n < n && spares->n < HTTP_SPARE_MAX) {
        const int fd = open_one(spares);
        if (fd < 0)
            return;
        spares->fds[spares->n++] = fd;
    }
}

void http_spares_close(struct http_spares *spares)
{
    while (spares->n > 0)
        close(spares->fds[--spares->n]);
}

int64_t http_spares_age(struct http_spares *spares, int64_t now)
{
    if (spares->until_ms == 0)
        return -1;
    if (now < spares->until_ms)
        return spares->until_ms - now;
    spares->until_ms = 0;
    http_spares_close(spares);
    return 0;
}

/* Takes one that is connected. Returns -1 when there is none. */
static int take(struct http_spares *spares)
{
    for (size_t i = spares->n; i-- > 0;) {
        struct pollfd state = {.fd = spares->fds[i], .events = POLLIN | POLLOUT | POLLRDHUP};
        if (poll(&state, 1, 0) <= 0) /* not yet */
            continue;
        spares->fds[i] = spares->fds[--spares->n];
        if (state.revents == POLLOUT)
            return state.fd;
        close(state.fd); /* refused, or closed by the server */
    }
    return -1;
}

static curl_socket_t on_open(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct http_spares *spares = ctx;
    const size_t n = address->addrlen;
    const bool is_known = spares->n_address == n && spares->type == address->socktype &&
                          memcmp(&spares->address, &address->addr, n) == 0;
    const int fd = is_known ? take(spares) : -1;
    spares->has_taken = fd >= 0;
    spares->taken = fd;
    if (fd >= 0)
        return fd;
    if (!is_known && n <= sizeof(spares->address)) {
        http_spares_close(spares);
        memcpy(&spares->address, &address->addr, n);
        spares->n_address = (socklen_t)n;
        spares->type = address->socktype;
        spares->protocol = address->protocol;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static int on_options(void *ctx, curl_socket_t fd, curlsocktype purpose)
{
    struct http_spares *spares = ctx;
    const bool is_spare = spares->has_taken && spares->taken == fd;
    spares->has_taken = false;
    return is_spare ? CURL_SOCKOPT_ALREADY_CONNECTED : CURL_SOCKOPT_OK;
}

/* Sets the options of a handle that let it take one. Not 0 when that fails. */
static int offer_spares(struct http_spares *spares, CURL *easy)
{
    int rc = curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
    rc |= curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, spares);
    rc |= curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_options);
    return rc | curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, spares);
}

/* ---- options and headers ---- */

static int add_header(struct http_request *request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int add_header(struct http_request *request, const char *format, ...)
{
    char *line = NULL;
    va_list args;
    va_start(args, format);
    const int n = vasprintf(&line, format, args);
    va_end(args);
    struct curl_slist *headers = n < 0 ? NULL : curl_slist_append(request->headers, line);
    if (n >= 0)
        free(line);
    if (headers == NULL)
        return -ENOMEM;
    request->headers = headers;
    return 0;
}

/* Bytes of another version are not asked for in the first place. */
static int add_condition(struct http_request *request, const struct http_known *known)
{
    if (!known->is_open || known->kind == HTTP_BY_SIZE || known->kind == HTTP_BY_WEAK_TAG)
        return 0;
    return add_header(request, "%s: %s",
                      known->kind == HTTP_BY_ETAG ? "If-Match" : "If-Unmodified-Since",
                      known->validator);
}

static int set_range(struct http_request *request, const struct http_asked *asked)
{
    char range[64];
    if (asked->is_question)
        return curl_easy_setopt(request->easy, CURLOPT_NOBODY, 1L);
    if (asked->known->is_whole)
        return 0;
    snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, asked->start, asked->end - 1);
    return curl_easy_setopt(request->easy, CURLOPT_RANGE, range);
}

static int set_trust(CURL *easy, const struct http_trust *trust)
{
    int rc = 0;
    if (trust->file != NULL)
        rc |= curl_easy_setopt(easy, CURLOPT_CAINFO, trust->file);
    if (trust->directory != NULL)
        return rc | curl_easy_setopt(easy, CURLOPT_CAPATH, trust->directory);
    /* libcurl keeps what it read, if it can, for as long as no directory is to be looked into. */
    (void)curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    (void)curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, -1L);
    return rc;
}

/* The payload of a request that has none. */
#define NO_PAYLOAD "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* From 7.88 on, libcurl signs the headers that are set here; later ones refuse to sign a path as it
 * is, so that no dots may be in it. */
static int set_signature(struct http_request *request, const struct http_place *identity)
{
    int rc = curl_easy_setopt(request->easy, CURLOPT_AWS_SIGV4, identity->signer);
    rc |= curl_easy_setopt(request->easy, CURLOPT_PATH_AS_IS, 0L);
    rc |= add_header(request, "x-amz-content-sha256: " NO_PAYLOAD);
    if (identity->session != NULL)
        rc |= add_header(request, "x-amz-security-token: %s", identity->session);
    return rc;
}

static int set_identity(struct http_request *request, const struct http_place *identity)
{
    if (identity == NULL)
        return 0;
    if (identity->bearer != NULL)
        return add_header(request, "authorization: Bearer %s", identity->bearer);
    int rc = identity->signer != NULL ? set_signature(request, identity) : 0;
    if (identity->url.user == NULL && identity->url.password == NULL)
        return rc;
    const char *user = identity->url.user, *password = identity->url.password;
    rc |= curl_easy_setopt(request->easy, CURLOPT_USERNAME, user == NULL ? "" : user);
    rc |= curl_easy_setopt(request->easy, CURLOPT_PASSWORD, password == NULL ? "" : password);
    return rc;
}

int http_request_make(struct http_request *request, const struct http_asked *asked,
                      http_chunk on_header, http_chunk on_body, void *ctx)
{
    *request = (struct http_request){.easy = curl_easy_init()};
    CURL *easy = request->easy;
    if (easy == NULL)
        return -ENOMEM;
    int rc = curl_easy_setopt(easy, CURLOPT_URL, asked->url);
    rc |= curl_easy_setopt(easy, CURLOPT_PRIVATE, ctx);
    rc |= curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, request->message);
    rc |= curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS); /* or 1.1 */
    rc |= curl_easy_setopt(easy, CURLOPT_PIPEWAIT, 1L);
    rc |= curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    rc |= curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    /* One that is cancelled does not wait for its resolver. */
    rc |= curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    rc |= curl_easy_setopt(easy, CURLOPT_USERAGENT, "weightfs/" WFS_VERSION);
    rc |= curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "identity");
    rc |= curl_easy_setopt(easy, CURLOPT_HTTP_CONTENT_DECODING, 0L); /* what comes is judged here */
    if (asked->end - asked->start >= LARGE_BUFFER)
        (void)curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)LARGE_BUFFER);
    rc |= curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, (long)asked->is_fresh);
    rc |= curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, (long)asked->timeout_s);
    rc |= curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    rc |= curl_easy_setopt(easy, CURLOPT_HEADERDATA, ctx);
    rc |= curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    rc |= curl_easy_setopt(easy, CURLOPT_WRITEDATA, ctx);
    rc |= curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    rc |= offer_spares(asked->spares, easy);
    rc |= set_trust(easy, asked->trust);
    rc |= set_identity(request, asked->identity);
    rc |= set_range(request, asked);
    rc |= add_condition(request, asked->known);
    rc |= curl_easy_setopt(easy, CURLOPT_HTTPHEADER, request->headers);
    if (rc != 0) {
        http_request_done(request);
        return -ENOMEM;
    }
    return 0;
}

/* ---- failures ---- */

/* Returns which variable names a proxy for the request, or NULL. */
static const char *proxy_variable(const struct http_request *request)
{
    static const char *const names[][5] = {
        {"http_proxy", "all_proxy", "ALL_PROXY", NULL},
        {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", NULL}};
    const char *url = NULL;
    curl_easy_getinfo(request->easy, CURLINFO_EFFECTIVE_URL, &url);
    const bool is_tls = url != NULL && strncasecmp(url, "https:", 6) == 0;
    const char *const *name = names[is_tls];
    while (*name != NULL && environment(*name) == NULL)
        name++;
    return *name;
}

/* Reports a connection that was not made. */
static void report_connection(const struct http_request *request, struct wfs_error *err)
{
    const char *proxy = proxy_variable(request);
    long number = 0;
    curl_easy_getinfo(request->easy, CURLINFO_OS_ERRNO, &number);
    wfs_fail(err, EHOSTUNREACH, "cannot connect%s%s%s%s%s", number != 0 ? ": " : "",
             number != 0 ? strerror((int)number) : "", proxy != NULL ? "; " : "",
             proxy != NULL ? proxy : "", proxy != NULL ? " names a proxy" : "");
}

/* Reports what libcurl has other words for. */
static enum http_verdict report_special(const struct http_request *request, CURLcode result,
                                        struct wfs_error *err)
{
    enum { TOO_LARGE = 100 }; /* CURLE_TOO_LARGE, which libcurl has from 8.6 on */
    long number = 0;
    curl_easy_getinfo(request->easy, CURLINFO_HTTP_CONNECTCODE, &number);
    if (number >= 400) {
        wfs_fail(err, number < 500 ? EACCES : EHOSTUNREACH,
                 "the proxy answers %ld; https_proxy names it, with user and password", number);
        return number < 500 ? HTTP_FAIL : HTTP_RETRY;
    }
    if (result == CURLE_OUT_OF_MEMORY) { /* also for a line of more than 100 KB */
        wfs_fail(err, EIO, "the server sends a header that is too long, or memory ran out");
        return HTTP_FAIL;
    }
    if ((int)result == TOO_LARGE) {
        wfs_fail(err, EIO, "the headers of the answer are too long");
        return HTTP_RETRY;
    }
    if (result == CURLE_UNSUPPORTED_PROTOCOL) {
        wfs_fail(err, EIO, "the server does not speak HTTP");
        return HTTP_RETRY;
    }
    if (result != CURLE_COULDNT_CONNECT)
        return HTTP_NO_VERDICT;
    report_connection(request, err);
    return HTTP_RETRY;
}

/* Failures that no second attempt mends. */
static const struct {
    CURLcode result;
    int code;
    const char *hint;
} finals[] = {
    {CURLE_PEER_FAILED_VERIFICATION, EACCES,
     "; CURL_CA_BUNDLE=FILE names the certificates to trust"},
    {CURLE_SSL_CACERT_BADFILE, EINVAL,
     "; the package ca-certificates has one, CURL_CA_BUNDLE or SSL_CERT_FILE names another"},
    {CURLE_SSL_CERTPROBLEM, EACCES, ""},
    {CURLE_URL_MALFORMAT, EINVAL, ""},
    {CURLE_COULDNT_RESOLVE_PROXY, EHOSTUNREACH, "; http_proxy or https_proxy names it"},
};

enum http_verdict http_request_failure(const struct http_request *request, CURLcode result,
                                       const struct http_known *known, struct wfs_error *err)
{
    const enum http_verdict special = report_special(request, result, err);
    if (special != HTTP_NO_VERDICT)
        return special;
    /* The texts of curl for these name a host or a certificate. Those of others may name a proxy
     * with its password. */
    const bool is_unknown = result == CURLE_COULDNT_RESOLVE_HOST;
    const bool is_plain = is_unknown || result == CURLE_PEER_FAILED_VERIFICATION;
    const char *text =
        is_plain && *request->message != '\0' ? request->message : curl_easy_strerror(result);
    const struct wfs_prose prose = wfs_prose(text);
    for (size_t i = 0; i < sizeof(finals) / sizeof(*finals); i++) {
        if (finals[i].result == result) {
            wfs_fail(err, finals[i].code, "%s%s", prose.text, finals[i].hint);
            return HTTP_FAIL;
        }
    }
    const bool is_not_tls = result == CURLE_SSL_CONNECT_ERROR && !known->is_open;
    wfs_fail(err, is_unknown || is_not_tls ? EHOSTUNREACH : EIO, "%s%s", prose.text,
             is_not_tls ? "; does the server speak https there?" : "");
    /* A host that was never found is a slip of the pen. */
    return is_unknown && !known->is_open ? HTTP_FAIL : HTTP_RETRY;
}

void http_request_done(struct http_request *request)
{
    curl_easy_cleanup(request->easy);
    curl_slist_free_all(request->headers);
    *request = (struct http_request){0};
}
