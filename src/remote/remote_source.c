/* SPDX-License-Identifier: MIT */
/*
 * A read is a pread of the cache file where all of it is present, which costs no message. What is
 * missing is asked for, and what will be read next with it.
 */
#include "remote/remote_source.h"

#include <weightfs/cachefile.h>
#include <weightfs/cleanup.h>
#include <weightfs/url.h>
#include "base/bytes.h"
#include "remote/remote_call.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    SLICE = 4 << 20,
    ATTEMPTS = 16,
    /* Bytes of each of many that are opened: what a server sends in one round trip of a connection
     * that is new (10 segments, with the header of the answer). */
    FIRST_OF_MANY = 12 << 10,
    LARGEST_HEADER = 8 << 20, /* bytes that are fetched before they are read */
};

/* Stays until the source is freed, because other threads may look at it. */
struct trouble {
    char text[WFS_ERROR_TEXT_MAX];
    struct trouble *next;
};

struct remote_object {
    struct wfs_remote *remote;
    uint32_t number;
    char *url;
    struct cachefile cache;
    pthread_mutex_t opening; /* held while it is asked for again; of the next one */
    uint32_t generation;     /* of the process that has it open */
    pthread_mutex_t lock;    /* of all below */
    struct forward forward;
    struct trouble *troubles; /* of reads that failed, the last one first */
    size_t n_troubles;
};

/* Says something that needs no answer. */
static void tell(const struct remote_object *object, struct fetching message)
{
    message.object = object->number;
    remote_tell(object->remote, &message);
}

static void free_object(void *ctx)
{
    struct remote_object *object = ctx;
    tell(object, (struct fetching){.kind = FETCHING_CLOSE});
    close(object->cache.fd);
    wfs_remote_free(object->remote);
    pthread_mutex_destroy(&object->opening);
    pthread_mutex_destroy(&object->lock);
    while (object->troubles != NULL) {
        struct trouble *trouble = object->troubles;
        object->troubles = trouble->next;
        free(trouble);
    }
    free(object->url);
    free(object);
}

/* ---- reading ---- */

static void remember(struct remote_object *object, const char *text)
{
    enum { MOST = 64 };
    pthread_mutex_lock(&object->lock);
    const bool is_new = object->troubles == NULL || strcmp(object->troubles->text, text) != 0;
    struct trouble *trouble =
        is_new && object->n_troubles < MOST ? calloc(1, sizeof(*trouble)) : NULL;
    if (trouble != NULL) {
        snprintf(trouble->text, sizeof(trouble->text), "%s", text);
        trouble->next = object->troubles;
        object->troubles = trouble;
        object->n_troubles++;
    }
    pthread_mutex_unlock(&object->lock);
}

static int fail(const struct source *source, struct wfs_error *err, int code)
{
    struct remote_object *object = source->ctx;
    if (code == -EINTR || code == -ENOMEM)
        return code;
    remember(object, err->text);
    if (code == -ESTALE)
        atomic_store(source->has_changed, true);
    return code == -ENOSPC || code == -EDQUOT ? code : -EIO;
}

/* Asks for what will be read soon. */
static void look_ahead(const struct source *source, uint64_t offset, uint64_t n_bytes, uint64_t end)
{
    struct remote_object *object = source->ctx;
    uint64_t from, behind;
    pthread_mutex_lock(&object->lock);
    const bool is_ahead = forward_note(&object->forward, offset, n_bytes, end, &from, &behind);
    pthread_mutex_unlock(&object->lock);
    if (is_ahead && behind > source->n_bytes)
        behind = source->n_bytes;
    if (is_ahead && behind > from)
        tell(source->ctx,
             (struct fetching){.kind = FETCHING_AHEAD, .offset = from, .n_bytes = behind - from});
}

/* Asks for the object again, where the process that had it open was killed. */
static int reopen(const struct wfs_io *io, const struct source *source, struct wfs_error *err)
{
    struct remote_object *object = source->ctx;
    struct remote_answer answer = {.fd = -1};
    pthread_mutex_lock(&object->opening);
    const uint32_t generation = remote_generation(object->remote);
    int code = generation == object->generation
                   ? 0
                   : remote_reopen(io, object->remote, object->number, object->url, &answer, err);
    if (code == 0 && generation != object->generation &&
        (cachefile_hash(answer.text, answer.digest) != source->identity.inode ||
         answer.base != object->cache.base))
        code = wfs_fail(err, ESTALE, "it is another object since what had fetched it was killed");
    if (code == 0)
        object->generation = generation;
    pthread_mutex_unlock(&object->opening);
    free(answer.text);
    if (answer.fd >= 0)
        close(answer.fd);
    return code;
}

/* A piece may be removed from a bounded cache before it was read: then it is asked for again. */
static int read_slice(const struct wfs_io *io, const struct source *source, uint64_t offset,
                      void *buf, size_t n_bytes, uint64_t end)
{
    struct remote_object *object = source->ctx;
    const uint64_t behind = offset + n_bytes;
    const struct remote_range range = {object->number, offset, n_bytes,
                                       end > behind ? end - behind : 0};
    struct wfs_error err = {0};
    int code = cachefile_read(&object->cache, offset, buf, n_bytes);
    const int pass =
        code == 0 ? remote_pass(io, object->remote, source, offset, end > behind ? end : behind)
                  : 0;
    if (pass < 0)
        return pass;
    if (end != 0 || code == 0)
        look_ahead(source, offset, n_bytes, end);
    for (int i = 0; code == 0 && i < ATTEMPTS; i++) {
        code = reopen(io, source, &err);
        if (code == 0)
            code = remote_want(io, object->remote, &range, &err);
        if (code == -ENOTCONN) {
            err = (struct wfs_error){0};
            code = 0;
            continue;
        }
        if (code == 0)
            code = cachefile_read(&object->cache, offset, buf, n_bytes);
    }
    if (code == 0)
        code = wfs_fail(&err, EIO, "the cache loses what it is given");
    return code < 0 ? fail(source, &err, code) : 0;
}

static int read_object(const struct source *source, const struct wfs_io *io, uint64_t offset,
                       void *buf, size_t n_bytes)
{
    const uint64_t behind = offset + n_bytes, expected = source_expected(io, source, offset);
    /* Whoever reads much at once knows how much it needs. */
    const bool is_known = expected != 0 || n_bytes > SLICE;
    const uint64_t end = is_known && expected < behind ? behind : expected;
    char *out = buf;
    int code = 0;
    if (atomic_load_explicit(source->has_changed, memory_order_relaxed))
        return -EIO;
    while (n_bytes > 0 && code == 0) {
        const size_t n = n_bytes < SLICE ? n_bytes : SLICE;
        code = read_slice(io, source, offset, out, n, end);
        offset += n;
        out += n;
        n_bytes -= n;
    }
    return code;
}

int wfs_remote_fetch(const struct wfs_io *io, const struct source *source, uint64_t offset,
                     uint64_t end)
{
    enum { N_PIECE = 1 << 20 };
    const uint64_t last = end < source->n_bytes ? end : source->n_bytes;
    const struct wfs_io expecting = source_expect(io, source, offset, last - offset);
    autofree char *piece = malloc(N_PIECE);
    int code = piece == NULL ? -ENOMEM : 0;
    while (code == 0 && offset < last) {
        const size_t n = last - offset < N_PIECE ? (size_t)(last - offset) : N_PIECE;
        code = source_read_for(&expecting, source, offset, piece, n);
        offset += n;
    }
    return code;
}

static const char *trouble(const struct source *source, uint64_t offset)
{
    struct remote_object *object = source->ctx;
    pthread_mutex_lock(&object->lock);
    const char *text = object->troubles != NULL ? object->troubles->text : NULL;
    pthread_mutex_unlock(&object->lock);
    return text;
}

static void count_fetched(const struct source *source, uint64_t *ret_fetched, uint64_t *ret_needed)
{
    wfs_remote_progress(((const struct remote_object *)source->ctx)->remote, ret_fetched,
                        ret_needed);
}

static uint64_t count_cached(const struct source *source)
{
    return cachefile_count(&((const struct remote_object *)source->ctx)->cache);
}

/* ---- opening ---- */

static const struct source_kind remote_kind = {.read = read_object,
                                               .done = free_object,
                                               .trouble = trouble,
                                               .count_cached = count_cached,
                                               .count_fetched = count_fetched};

const char *remote_source_url(const struct source *source)
{
    return source->kind == &remote_kind ? ((const struct remote_object *)source->ctx)->url : NULL;
}

/* Takes what the answer has. */
static int make_source(struct wfs_remote *remote, uint32_t number, uint32_t generation,
                       struct remote_answer *answer, struct source **out)
{
    autofree char *shown = url_shown(answer->text);
    struct remote_object *object = calloc(1, sizeof(*object));
    struct source *source = NULL;
    if (shown == NULL || object == NULL) {
        free(object);
        return -ENOMEM;
    }
    object->remote = remote_share(remote);
    object->number = number;
    object->generation = generation;
    pthread_mutex_init(&object->opening, NULL);
    pthread_mutex_init(&object->lock, NULL);
    const uint64_t hash = cachefile_hash(answer->text, answer->digest);
    cachefile_init(&object->cache, answer->fd, answer->base, answer->n_bytes, hash);
    object->url = steal(&answer->text);
    answer->fd = -1;
    if (source_new(&remote_kind, shown, object, answer->n_bytes, &source) < 0)
        return -ENOMEM;
    source->identity =
        (struct wfs_identity){.device = UINT64_MAX, .inode = hash, .n_bytes = answer->n_bytes};
    source->is_remote = true;
    source->is_weak = (answer->code & FETCHING_IS_WEAK) != 0;
    source->is_unkept = (answer->code & FETCHING_IS_UNKEPT) != 0;
    source->is_private = (answer->code & FETCHING_IS_PRIVATE) != 0;
    *out = source;
    return 0;
}

static int check_answer(const struct remote_answer *answer, struct wfs_error *err)
{
    struct cachefile cache;
    return answer->fd < 0 ||
                   cachefile_init(&cache, answer->fd, answer->base, answer->n_bytes, 0) < 0
               ? wfs_fail(err, EIO, "the process that fetches it gives a wrong answer")
               : 0;
}

int remote_source_open(struct wfs_remote *remote, const char *url, struct source **out,
                       struct wfs_error *err)
{
    struct remote_answer answer = {.fd = -1};
    uint32_t number;
    if (remote == NULL)
        return wfs_fail(err, EOPNOTSUPP, "is a URL, which is not read here: download it first");
    if (strlen(url) > FETCHING_TEXT_MAX)
        return wfs_fail(err, EINVAL, "the URL is longer than %d bytes", FETCHING_TEXT_MAX);
    struct wfs_error inner;
    uint32_t generation;
    int code = -ENOTCONN;
    for (int i = 0; code == -ENOTCONN && i < ATTEMPTS; i++) {
        inner = (struct wfs_error){0};
        generation = remote_generation(remote);
        code = remote_open(remote, url, &number, &answer, &inner);
    }
    code = code < 0 ? wfs_fail(err, -code, "%s", inner.text) : check_answer(&answer, err);
    if (code == 0 && make_source(remote, number, generation, &answer, out) < 0)
        code = wfs_fail_memory(err);
    free(answer.text);
    if (answer.fd >= 0)
        close(answer.fd);
    return code;
}

int remote_source_pass(const struct source *source)
{
    const struct remote_object *object = source->ctx;
    return remote_source_url(source) == NULL
               ? 0
               : remote_pass(NULL, object->remote, source, 0, source->n_bytes);
}

int wfs_remote_ask(struct wfs_remote *remote, const char *url, char **ret, uint64_t *ret_digest,
                   struct wfs_error *err)
{
    struct remote_answer answer = {.fd = -1};
    uint32_t number;
    if (strlen(url) > FETCHING_TEXT_MAX)
        return wfs_fail(err, EINVAL, "the URL is longer than %d bytes", FETCHING_TEXT_MAX);
    remote_open_early(remote, url, FETCHING_QUESTION);
    const int code = remote_open(remote, url, &number, &answer, err);
    if (answer.fd >= 0)
        close(answer.fd);
    if (code < 0)
        return code;
    remote_tell(remote, &(struct fetching){.kind = FETCHING_CLOSE, .object = number});
    *ret = answer.text;
    *ret_digest = answer.digest;
    return 0;
}

void remote_source_open_early(struct wfs_remote *remote, const char *url)
{
    if (remote != NULL && strlen(url) <= FETCHING_TEXT_MAX)
        remote_open_early(remote, url, FIRST_OF_MANY);
}

void remote_source_expect_header(const struct source *source, uint64_t offset, uint64_t n_bytes)
{
    uint64_t end;
    if (remote_source_url(source) == NULL || offset >= source->n_bytes ||
        !checked_add(offset, n_bytes, &end))
        return;
    n_bytes = (end < source->n_bytes ? end : source->n_bytes) - offset;
    n_bytes = n_bytes < LARGEST_HEADER ? n_bytes : LARGEST_HEADER;
    if (n_bytes > 0 && offset + n_bytes > FIRST_OF_MANY)
        tell(source->ctx,
             (struct fetching){.kind = FETCHING_HEADER, .offset = offset, .n_bytes = n_bytes});
}

void remote_source_expect_siblings(const struct source *source, uint64_t n)
{
    if (remote_source_url(source) != NULL)
        tell(source->ctx, (struct fetching){.kind = FETCHING_BESIDE,
                                            .n_bytes = n < UINT32_MAX ? n : UINT32_MAX});
}
