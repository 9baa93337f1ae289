/* SPDX-License-Identifier: MIT */
/*
 * The process that fetches, asked by a reader that does not keep to what the user named. A server
 * of one index counts what it is asked for; at another port nobody listens.
 */
#include "fetch/fetcher.h"

#include "check.h"

#include <weightfs/cleanup.h>
#include <weightfs/fetching.h>

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "remote/remote_call.h"

enum { N_NAMES = 300 };

/* ---- a server ---- */

struct server {
    pid_t pid;
    int port;
    char *index;
    unsigned *n_asked; /* shared */
};

static void answer(const struct server *server, FILE *stream)
{
    char line[4096], path[4096] = "";
    while (fgets(line, sizeof(line), stream) != NULL && *line != '\r')
        (void)sscanf(line, "GET %4000s", path);
    const size_t n = strlen(server->index);
    *server->n_asked += *path != '\0';
    fseek(stream, 0, SEEK_CUR);
    if (strcmp(path, "/a/index.json") == 0)
        fprintf(stream,
                "HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\nContent-Length: %zu\r\n"
                "Content-Range: bytes 0-%zu/%zu\r\n\r\n%s",
                n, n - 1, n, server->index);
    else
        fputs("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", stream);
    fflush(stream);
}

static _Noreturn void serve(const struct server *server, int listening)
{
    for (;;) {
        const int fd = accept(listening, NULL, NULL);
        if (fork() > 0) {
            close(fd);
            continue;
        }
        FILE *stream = fdopen(fd, "r+");
        while (!feof(stream) && !ferror(stream))
            answer(server, stream);
        _exit(0);
    }
}

/* Its index names m0 to m299. */
static struct server start_server(void)
{
    struct server server = {.index = calloc(1, 64 + N_NAMES * 32)};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_address = sizeof(address);
    char *out = server.index + sprintf(server.index, "{\"weight_map\": {");
    for (int i = 0; i < N_NAMES; i++)
        out += sprintf(out, "%s\"k%d\": \"m%d\"", i == 0 ? "" : ", ", i, i);
    strcpy(out, "}}");
    server.n_asked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
          listen(fd, 64) == 0 && getsockname(fd, (struct sockaddr *)&address, &n_address) == 0);
    server.port = ntohs(address.sin_port);
    fflush(stdout);
    server.pid = fork();
    if (server.pid == 0) {
        setpgid(0, 0);
        signal(SIGCHLD, SIG_IGN);
        serve(&server, fd);
    }
    setpgid(server.pid, server.pid);
    close(fd);
    return server;
}

/* ---- what is asked of it ---- */

static int open_it(struct wfs_remote *remote, const char *url, struct wfs_error *err)
{
    struct remote_answer answer = {.fd = -1};
    uint32_t number;
    *err = (struct wfs_error){0};
    const int code = remote_open(remote, url, &number, &answer, err);
    free(answer.text);
    if (answer.fd >= 0)
        close(answer.fd);
    return code;
}

static void only_what_was_named_is_asked_of_a_server(void)
{
    static const char *const urls[] = {"http://127.0.0.1:1/a/index.json?x=1"};
    static const char *const refused[] = {"http://127.0.0.1:2/a/index.json", "http://127.0.0.1:1/b",
                                          "http://127.0.0.1:1/a/m?leak=1", "s3://bucket/key",
                                          "http://127.0.0.1:1/a/m.safetensors"};
    const struct fetcher_settings settings = {.has_retries = true, .urls = urls, .n_urls = 1};
    struct wfs_remote *remote = NULL;
    struct wfs_error err = {0};
    check_int(fetcher_start(&settings, &remote, &err), 0);
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        check_int(open_it(remote, refused[i], &err), -EACCES);
        check(strstr(err.text, "named") != NULL);
    }
    check_int(open_it(remote, urls[0], &err), -EHOSTUNREACH);
    check(strstr(err.text, "refused") != NULL);
    check_int(remote_want(NULL, remote, &(struct remote_range){77, 0, 1, 0}, &err), -EINVAL);
    remote_tell(remote, &(struct fetching){.kind = FETCHING_CLOSE, .object = 77});
    remote_tell(remote, &(struct fetching){.kind = FETCHING_AHEAD, .object = 77, .n_bytes = 9});
    remote_tell(remote, &(struct fetching){.kind = FETCHING_CANCEL, .request = 9});
    check_int(open_it(remote, refused[0], &err), -EACCES);
    wfs_remote_free(remote);
}

/* Opens a file in a folder of the server. */
static int open_at(struct wfs_remote *remote, const struct server *server, const char *folder,
                   const char *name, struct wfs_error *err)
{
    autofree char *url = NULL;
    return asprintf(&url, "http://127.0.0.1:%d/%s/%s", server->port, folder, name) < 0
               ? -ENOMEM
               : open_it(remote, url, err);
}

static void only_names_of_a_description_are_asked_of_its_server(void)
{
    static const char *const odd[] = {"m",    "weight", "m3000",       "secret",
                                      "m1?x", "../m1",  "%2e%2e/a/m1", "index.json?"};
    struct server server = start_server();
    autofree char *named = NULL;
    check(asprintf(&named, "http://127.0.0.1:%d/a/index.json", server.port) > 0);
    const struct fetcher_settings settings = {
        .has_retries = true, .urls = (const char *const *)&named, .n_urls = 1};
    struct wfs_remote *remote = NULL;
    struct wfs_error err = {0};
    check_int(fetcher_start(&settings, &remote, &err), 0);
    check_int(open_at(remote, &server, "a", "m1", &err), -EACCES); /* too early */
    check_int(open_it(remote, named, &err), 0);
    check_int(*server.n_asked, 1);
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
        check_int(open_at(remote, &server, "a", odd[i], &err), -EACCES);
    check_int(open_at(remote, &server, "b", "m1", &err), -EACCES);
    check_int(open_at(remote, &server, "a/b", "m1", &err), -EACCES);
    check_int(*server.n_asked, 1);
    int code = -ENOENT;
    unsigned n = 0;
    for (char name[16]; n < N_NAMES && code == -ENOENT; n++) {
        snprintf(name, sizeof(name), "m%u", n);
        code = open_at(remote, &server, "a", name, &err);
    }
    check_int(code, -EACCES); /* that many are not looked for in vain */
    check_int(n, 257);
    check_int(*server.n_asked, n);
    wfs_remote_free(remote);
    kill(-server.pid, SIGKILL);
    free(server.index);
}

int main(void)
{
    check_run(only_what_was_named_is_asked_of_a_server);
    check_run(only_names_of_a_description_are_asked_of_its_server);
    return check_done();
}
