/* SPDX-License-Identifier: MIT */
/*
 * One thread, one loop. Its socket is all that it has in common with the process that reads: when
 * that one ends, however it does, the socket ends and with it this process.
 */
#include "fetch/fetcher.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/fetching.h>
#include "fetch/clock.h"
#include "fetch/fetch_object.h"
#include "fetch/fetch_sandbox.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

enum { RETRIES = 5, TIMEOUT_S = 60 };

/* An answer that the socket had no room for. */
struct answer {
    uint32_t request;
    struct fetch_object *object; /* of an open; NULL: of a range */
    struct wfs_error err;
    struct answer *next;
};

/* A URL that was opened, by a hash with a secret seed. */
struct permit {
    uint64_t hash, is_named;
};

/* What the parent of the process that fetches knows. A process that takes the place of one that was
 * killed may open again what that had open, although what described it is not at hand. */
struct permits {
    uint64_t seed;
    struct permit *list; /* malloc'ed */
    size_t n, n_room;
};

struct fetcher {
    const struct fetcher_settings *settings;
    int socket;
    int record;                    /* to the parent: permits */
    const struct permits *permits; /* of those before it */
    struct fetching_room room;
    struct fetch_object *objects;
    struct answer *first, **last; /* to be sent, in order */
    unsigned n_missing;           /* opens that were refused by a server */
    uint64_t n_told, n_needed;    /* bytes, when progress was sent */
    int64_t told_at_ms;
    struct wfs_error problem; /* that keeps it from fetching anything */
};

/* ---- answers ---- */

static void answered(void *ctx, uint32_t request, struct fetch_object *object,
                     const struct wfs_error *err)
{
    struct fetcher *fetcher = ctx;
    struct answer *answer = calloc(1, sizeof(*answer));
    if (answer == NULL)
        _exit(EXIT_FAILURE); /* readers get an error when the socket ends */
    answer->request = request;
    answer->object = err == NULL && object != NULL && object->request == request ? object : NULL;
    if (err != NULL) {
        answer->err = *err;
        fetcher->n_missing += object != NULL && object->request == request &&
                              (err->code == ENOENT || err->code == EACCES);
    }
    *fetcher->last = answer;
    fetcher->last = &answer->next;
}

/* Reports to the parent what is open. */
static void record(const struct fetcher *fetcher, const struct fetch_object *object)
{
    const struct permit permit = {cachefile_hash(object->name, fetcher->permits->seed),
                                  object->is_named};
    if (write(fetcher->record, &permit, sizeof(permit)) < 0)
        return; /* it is not opened again then */
}

static const struct permit *find_permit(const struct fetcher *fetcher, const char *url)
{
    const uint64_t hash = cachefile_hash(url, fetcher->permits->seed);
    for (size_t i = 0; i < fetcher->permits->n; i++) {
        if (fetcher->permits->list[i].hash == hash)
            return &fetcher->permits->list[i];
    }
    return NULL;
}

static int send_answer(const struct fetcher *fetcher, const struct answer *answer)
{
    const struct fetch_object *object = answer->object;
    struct fetching message = {.kind = FETCHING_DONE,
                               .request = answer->request,
                               .n_fetched = fetcher->room.n_fetched,
                               .n_needed = fetcher->n_needed};
    if (answer->err.code != 0) {
        message.kind = FETCHING_FAILED;
        message.code = answer->err.code;
        message.text = answer->err.text;
        message.n_text = strlen(answer->err.text);
    } else if (object != NULL) {
        record(fetcher, object);
        message.kind = FETCHING_OPENED;
        message.object = object->number;
        message.code = object->flags;
        message.offset = object->cache.base;
        message.digest = object->validator;
        message.n_bytes = object->cache.n_bytes;
        message.text = object->name;
        message.n_text = strlen(object->name);
    }
    const int fd = object == NULL    ? -1
                   : object->is_kept ? fetcher->room.kept_read /* readers cannot change it */
                                     : object->cache.fd;
    return fetching_send(fetcher->socket, &message, fd);
}

/* Returns 1 when some are left, because the socket is full. */
static int send_answers(struct fetcher *fetcher)
{
    while (fetcher->first != NULL) {
        struct answer *answer = fetcher->first;
        const int code = send_answer(fetcher, answer);
        if (code == -EAGAIN)
            return 1;
        if (code < 0)
            return code;
        fetcher->first = answer->next;
        if (fetcher->first == NULL)
            fetcher->last = &fetcher->first;
        free(answer);
    }
    return 0;
}

/* Returns whether somebody waits for an answer. */
static bool is_awaited(const struct fetcher *fetcher)
{
    for (const struct fetch_object *at = fetcher->objects; at != NULL; at = at->next) {
        if (!at->is_open || at->wants != NULL)
            return true;
    }
    return false;
}

/* Tells those who wait, now and then, how many bytes have come, and of how many: an answer to no
 * request. */
static void tell_progress(struct fetcher *fetcher)
{
    enum { PAUSE_MS = 200 };
    const int64_t now = now_ms();
    if (fetcher->n_told == fetcher->room.n_fetched || now < fetcher->told_at_ms + PAUSE_MS ||
        !is_awaited(fetcher))
        return;
    fetcher->n_needed = fetcher->room.n_fetched;
    for (const struct fetch_object *at = fetcher->objects; at != NULL; at = at->next)
        fetcher->n_needed += fetch_object_missing(at);
    const struct answer none = {0};
    (void)send_answer(fetcher, &none); /* what the socket has no room for is sent later */
    fetcher->n_told = fetcher->room.n_fetched;
    fetcher->told_at_ms = now;
}

/* ---- questions ---- */

static struct fetch_object **find(struct fetcher *fetcher, uint32_t number)
{
    struct fetch_object **at = &fetcher->objects;
    while (*at != NULL && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

/* Returns whether it is what the user named. */
static bool is_named(const struct fetcher *fetcher, const char *url)
{
    const struct fetcher_settings *settings = fetcher->settings;
    for (size_t i = 0; i < settings->n_urls; i++) {
        if (strcmp(settings->urls[i], url) == 0)
            return true;
    }
    return false;
}

/* Returns whether what the user named has it in its list of files. Names that lead nowhere are
 * counted: they are a way to ask which files there are. */
static int check_described(const struct fetcher *fetcher, const char *url, struct wfs_error *err)
{
    enum { MISSING_MAX = 256 };
    if (fetcher->n_missing >= MISSING_MAX)
        return wfs_fail(err, EACCES, "more than %d files beside what was named do not exist",
                        MISSING_MAX);
    for (struct fetch_object *at = fetcher->objects; at != NULL; at = at->next) {
        if (fetch_object_names(at, url))
            return 0;
    }
    return wfs_fail(err, EACCES, "is neither a URL that was named nor a file that one describes");
}

static void open_object(struct fetcher *fetcher, const struct fetching *message)
{
    struct wfs_error err = fetcher->problem;
    struct fetch_object *object = NULL;
    autofree char *url = strndup(message->text, message->n_text);
    int code = url == NULL ? wfs_fail_memory(&err) : -err.code;
    if (code == 0 && *find(fetcher, message->object) != NULL)
        code = wfs_fail(&err, EINVAL, "it is open already");
    const bool was_named = code == 0 && is_named(fetcher, url);
    const struct permit *permit = code == 0 && !was_named ? find_permit(fetcher, url) : NULL;
    if (code == 0 && !was_named && permit == NULL)
        code = check_described(fetcher, url, &err);
    if (code == 0)
        code = fetch_object_new(&fetcher->room, url, message, &object, &err);
    if (code < 0) {
        answered(fetcher, message->request, NULL, &err);
        return;
    }
    object->is_named =
        was_named ||
        (permit != NULL ? permit->is_named != 0 : url[strlen(url) - 1] == '/'); /* a pipeline's */
    object->next = fetcher->objects;
    fetcher->objects = object;
}

/* Answers that were not sent yet are of nobody's interest. */
static void close_object(struct fetcher *fetcher, uint32_t number)
{
    struct fetch_object **at = find(fetcher, number), *object = *at;
    if (object == NULL)
        return;
    for (struct answer *answer = fetcher->first; answer != NULL; answer = answer->next) {
        if (answer->object == object) {
            answer->object = NULL;
            wfs_fail(&answer->err, EIO, "it was closed");
        }
    }
    *at = object->next;
    fetch_object_free(object);
}

static void want(struct fetcher *fetcher, const struct fetching *message)
{
    struct fetch_object *object = *find(fetcher, message->object);
    struct wfs_error err = {0};
    const int code = object == NULL ? -EINVAL
                                    : fetch_object_want(object, message->request, message->offset,
                                                        message->n_bytes, message->n_needed);
    if (code < 0) {
        wfs_fail(&err, -code, "cannot fetch that range: %s", strerror(-code));
        answered(fetcher, message->request, NULL, &err);
    }
}

static void hear(struct fetcher *fetcher, const struct fetching *message)
{
    struct fetch_object *object = *find(fetcher, message->object);
    if (message->kind == FETCHING_OPEN)
        open_object(fetcher, message);
    else if (message->kind == FETCHING_WANT)
        want(fetcher, message);
    else if (message->kind == FETCHING_CLOSE)
        close_object(fetcher, message->object);
    else if (message->kind == FETCHING_AHEAD && object != NULL)
        (void)fetch_object_ahead(object, message->offset, message->n_bytes);
    else if (message->kind == FETCHING_HEADER && object != NULL)
        (void)fetch_object_header(object, message->offset, message->n_bytes);
    else if (message->kind == FETCHING_BESIDE && object != NULL)
        fetch_object_beside(object, message->n_bytes);
    else if (message->kind == FETCHING_CANCEL && object != NULL)
        fetch_object_cancel(object, message->request);
}

/* Takes all that has arrived. */
static int hear_all(struct fetcher *fetcher)
{
    static uint8_t buf[FETCHING_MAX];
    for (;;) {
        struct fetching message;
        autoclose int fd = -1;
        const int code = fetching_receive(fetcher->socket, buf, &message, &fd);
        if (code < 0)
            return code == -EAGAIN ? 0 : code;
        hear(fetcher, &message);
    }
}

/* ---- the process ---- */

static void remove_failed(struct fetcher *fetcher)
{
    for (struct fetch_object **at = &fetcher->objects; *at != NULL;) {
        struct fetch_object *object = *at;
        if (object->has_failed) {
            *at = object->next;
            fetch_object_free(object);
        } else
            at = &object->next;
    }
}

static void serve(struct fetcher *fetcher)
{
    int code = 0;
    while (code >= 0) {
        struct pollfd news = {.fd = fetcher->socket, .events = POLLIN};
        remove_failed(fetcher);
        for (struct fetch_object *at = fetcher->objects; at != NULL; at = at->next)
            fetch_object_serve(at);
        for (struct fetch_object *at = fetcher->objects; at != NULL; at = at->next)
            fetch_object_serve_ahead(at);
        code = send_answers(fetcher);
        if (code < 0)
            break;
        if (code == 0)
            tell_progress(fetcher);
        news.events = (short)(POLLIN | (code > 0 ? POLLOUT : 0));
        code = fetcher->room.http != NULL ? http_wait(fetcher->room.http, &news, 1, -1)
                                          : poll(&news, 1, -1);
        if (code == -EINTR || (code < 0 && fetcher->room.http == NULL && errno == EINTR))
            code = 0;
        if (code >= 0)
            code = hear_all(fetcher);
    }
}

static int compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Keeps nothing that was inherited but these: no file, no terminal. */
static void detach(int *fds, size_t n)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    unsigned first = STDERR_FILENO + 1;
    qsort(fds, n, sizeof(*fds), compare);
    for (size_t i = 0; i < n; i++) {
        if (fds[i] > (int)first)
            (void)close_range(first, (unsigned)fds[i] - 1, 0);
        if (fds[i] >= (int)first)
            first = (unsigned)fds[i] + 1;
    }
    (void)close_range(first, UINT_MAX, 0);
}

/* What ends the process that reads ends this one too, but not before it. */
static void ignore_signals(void)
{
    static const int numbers[] = {SIGINT, SIGHUP, SIGTERM, SIGPIPE, SIGXFSZ, SIGQUIT};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        signal(numbers[i], SIG_IGN);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
}

/* What was opened before it began. */
struct opened {
    int spool, kept, kept_read; /* -1: none */
    uint64_t most;              /* bytes of kept; 0: no limit */
    const char *folder_name;
};

static _Noreturn void run(const struct fetcher_settings *settings, int socket,
                          const struct opened *opened, const struct permits *permits, int pipe,
                          bool is_another)
{
    const struct http_settings http = {
        .retries = settings->has_retries ? settings->retries : RETRIES,
        .timeout_s = settings->has_timeout ? settings->timeout_s : TIMEOUT_S,
        .endpoint = settings->endpoint,
        .n_requests = FETCH_HEADERS_MAX};
    struct fetcher fetcher = {.socket = socket,
                              .record = pipe,
                              .permits = permits,
                              .settings = settings,
                              .room = {.spool = opened->spool,
                                       .folder_name = opened->folder_name,
                                       .kept = opened->kept,
                                       .kept_read = opened->kept_read,
                                       .kept_name = settings->cache,
                                       .most = {settings->cache_size, opened->most},
                                       .is_usual = settings->is_usual_cache,
                                       .answered = answered,
                                       .ctx = &fetcher}};
    int fds[] = {socket, pipe, opened->spool, opened->kept, opened->kept_read};
    detach(fds, sizeof(fds) / sizeof(*fds));
    fetcher.last = &fetcher.first;
    if (http_new(&fetcher.room.http, &http, &fetcher.problem) < 0)
        fetcher.room.http = NULL;
    if (chdir("/") < 0) /* until here, variables may have relative paths */
        _exit(EXIT_FAILURE);
    if (!settings->is_unconfined)
        fetch_sandbox_enter();
    if (is_another)
        (void)fetching_send(socket, &(struct fetching){.kind = FETCHING_STARTED}, -1);
    serve(&fetcher);
    while (fetcher.objects != NULL)
        close_object(&fetcher, fetcher.objects->number);
    http_free(fetcher.room.http);
    _exit(EXIT_SUCCESS);
}

/* Reads what a process that fetches reports, until it ends. */
static void listen_to(int pipe, struct permits *permits)
{
    enum { MOST = 1 << 20 };
    struct permit permit;
    while (read(pipe, &permit, sizeof(permit)) == sizeof(permit)) {
        if (permits->n < MOST && array_reserve(&permits->list, sizeof(*permits->list), permits->n,
                                               1, &permits->n_room) == 0)
            permits->list[permits->n++] = permit;
    }
}

/*
 * The parent of the process that fetches, which starts another one when that is killed. It reads
 * nothing that comes from a server, and nothing from the process that reads the checkpoint: their
 * socket ends with both.
 */
static _Noreturn void tend(const struct fetcher_settings *settings, int socket,
                           const struct opened *opened)
{
    enum { STARTS_MAX = 16 };
    struct permits permits = {0};
    int status = 0, fds[] = {socket, opened->spool, opened->kept, opened->kept_read};
    detach(fds, sizeof(fds) / sizeof(*fds));
    ignore_signals();
    if (getrandom(&permits.seed, sizeof(permits.seed), 0) != sizeof(permits.seed))
        _exit(EXIT_FAILURE);
    for (int i = 0; i < STARTS_MAX && (i == 0 || status != 0); i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
            break;
        const pid_t pid = fork();
        if (pid == 0)
            run(settings, socket, opened, &permits, ends[1], i > 0);
        close(ends[1]);
        if (pid > 0)
            listen_to(ends[0], &permits);
        close(ends[0]);
        if (pid < 0 || waitpid(pid, &status, 0) < 0)
            break;
    }
    _exit(EXIT_SUCCESS);
}

/* ---- starting ---- */

/* Makes an unnamed store. */
static int make_spool(const char **ret_folder, struct wfs_error *err)
{
    const char *const names[] = {getenv("TMPDIR"), "/var/tmp", "/tmp"};
    const char *first = NULL;
    int problem = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (names[i] == NULL || *names[i] == '\0')
            continue;
        const int fd = open(names[i], O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
        *ret_folder = names[i];
        if (fd >= 0 && cachestore_make(fd) == 0)
            return fd;
        if (fd >= 0)
            close(fd);
        problem = first == NULL ? errno : problem;
        first = first == NULL ? names[i] : first;
    }
    return wfs_fail(err, problem, "cannot make a file for the cache in '%s': %s; set TMPDIR",
                    wfs_quote(first).text, strerror(problem));
}

/* What is removed from a cache has to give its room back. Of the first page only a line is used. */
static int check_size(uint64_t most, int fd, struct wfs_error *err)
{
    return most > 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2048, 8) < 0
               ? wfs_fail(err, errno,
                          "cannot bound the cache: its filesystem cannot free a part of "
                          "a file; leave out cache_size")
               : 0;
}

/* Opens the cache that nobody asked for, with at most a quarter of what is free, if it can be
 * bounded. */
static void open_usual(const struct fetcher_settings *settings, struct opened *ret)
{
    static const uint64_t most = UINT64_C(10) << 30;
    enum { LEAST = 128 << 20 };
    struct statvfs st;
    if (cachestore_open(settings->cache, true, &ret->kept, &ret->kept_read, NULL) < 0)
        return;
    const uint64_t n_free = fstatvfs(ret->kept, &st) < 0 ? 0 : (uint64_t)st.f_bavail * st.f_frsize;
    ret->most = settings->cache_size > 0 ? settings->cache_size
                : n_free / 4 < most      ? n_free / 4
                                         : most;
    if (ret->most >= LEAST && check_size(ret->most, ret->kept, NULL) == 0)
        return;
    close(ret->kept);
    close(ret->kept_read);
    ret->kept = ret->kept_read = -1;
}

static int open_stores(const struct fetcher_settings *settings, struct opened *ret,
                       struct wfs_error *err)
{
    *ret = (struct opened){.kept = -1, .kept_read = -1, .most = settings->cache_size};
    ret->spool = make_spool(&ret->folder_name, err);
    int code = ret->spool;
    if (code >= 0 && settings->is_usual_cache)
        open_usual(settings, ret);
    else if (code >= 0 && settings->cache != NULL)
        code = cachestore_open(settings->cache, true, &ret->kept, &ret->kept_read, err);
    if (code >= 0)
        code = check_size(settings->cache_size, ret->kept >= 0 ? ret->kept : ret->spool, err);
    return code < 0 ? code : 0;
}

static void close_stores(const struct opened *opened)
{
    const int fds[] = {opened->spool, opened->kept, opened->kept_read};
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

/* Forks as fork does; a guest's child is not a child of the caller, whose streams stay as they are.
 */
static pid_t fork_for(const struct fetcher_settings *settings)
{
    int status = 0;
    if (!settings->is_guest) {
        fflush(NULL);
        return fork();
    }
    const pid_t pid = fork();
    if (pid == 0) {
        const pid_t child = fork();
        if (child != 0)
            _exit(child < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
        return 0;
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0)
        errno = EAGAIN;
    return status == 0 ? pid : -1;
}

static int start(const struct fetcher_settings *settings, const struct opened *opened,
                 struct wfs_remote **out, struct wfs_error *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return wfs_fail(err, errno, "cannot start to fetch: %s", strerror(errno));
    const pid_t pid = fork_for(settings);
    if (pid == 0)
        tend(settings, ends[1], opened);
    close(ends[1]);
    if (pid < 0) {
        const int code = errno;
        close(ends[0]);
        return wfs_fail(err, code, "cannot start to fetch: %s", strerror(code));
    }
    return wfs_remote_new(ends[0], out) < 0 ? wfs_fail_memory(err) : 0;
}

int fetcher_start(const struct fetcher_settings *settings, struct wfs_remote **out,
                  struct wfs_error *err)
{
    struct opened opened;
    int code = open_stores(settings, &opened, err);
    if (code == 0)
        code = start(settings, &opened, out, err);
    close_stores(&opened);
    return code;
}
