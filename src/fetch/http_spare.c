/* SPDX-License-Identifier: MIT */
/*
 * libcurl asks for each socket, and takes one that is connected.
 */
#include "fetch/http_spare.h"

#include "fetch/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { KEPT_MS = 10000 };

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

int http_spares_offer(struct http_spares *spares, CURL *easy)
{
    int rc = curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
    rc |= curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, spares);
    rc |= curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_options);
    return rc | curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, spares);
}
