/* SPDX-License-Identifier: MIT */
/*
 * A range is in one of three states: in the cache file, part of a transfer, or neither. Only the
 * last is asked of the server, so nothing is fetched twice.
 */
#include "fetch/fetch_object.h"

#include <weightfs/cleanup.h>
#include <weightfs/url.h>
#include "fetch/clock.h"

#include <string.h>

enum {
    HEAD = 64 << 10,     /* bytes of the first request; most headers are shorter */
    MOST_TRANSFERS = 16, /* at a time, for those who wait */
    MOST_AHEAD = 8,      /* at a time, where some are ahead */
    SMALLEST = 12 << 10, /* bytes that a new connection brings in one round trip */
    SMALL = 2 << 20,     /* bytes that are not split */
    LARGEST = 4 << 20,   /* bytes of one transfer; what is read first comes first */
    MOST_SPANS = 64,
};

struct fetch_want {
    uint32_t request;
    uint64_t offset, end;
    uint64_t goal; /* up to where its reader goes on */
    struct fetch_want *next;
};

struct fetch_span {
    uint64_t offset, end;
    struct fetch_span *next;
};

struct fetch_transfer {
    struct fetch_object *object;
    struct http_transfer *http;
    bool is_header;
    uint64_t offset, end;
    uint64_t at;     /* up to where it was written */
    uint64_t marked; /* and noted as present */
    struct fetch_transfer *next;
};

/* ---- answers ---- */

/* Answers all who wait for something in the range: with the error, or when all of it is present. */
static void answer(struct fetch_object *object, uint64_t offset, uint64_t end,
                   const struct wfs_error *err)
{
    for (struct fetch_want **at = &object->wants; *at != NULL;) {
        struct fetch_want *want = *at;
        uint64_t from = want->offset, to = want->end;
        struct wfs_error own = {0};
        bool is_over = want->offset < end && offset < want->end;
        if (is_over && err == NULL) {
            const int code = cachefile_missing(&object->cache, &from, &to);
            if (code < 0)
                wfs_fail(&own, -code, "cannot read the cache: %s", strerror(-code));
            is_over = code <= 0;
        }
        if (!is_over) {
            at = &want->next;
            continue;
        }
        *at = want->next;
        object->room->answered(object->room->ctx, want->request, object,
                               err != NULL     ? err
                               : own.code != 0 ? &own
                                               : NULL);
        free(want);
    }
}

static void answer_open(struct fetch_object *object, const struct wfs_error *err)
{
    if (object->is_open)
        return;
    object->is_open = true;
    object->room->answered(object->room->ctx, object->request, object, err);
}

/* ---- transfers ---- */

static unsigned *count_of(struct fetching_room *room, bool is_header)
{
    return is_header ? &room->n_headers : &room->n_transfers;
}

static void drop(struct fetch_transfer *transfer)
{
    struct fetch_transfer **at = &transfer->object->transfers;
    while (*at != transfer)
        at = &(*at)->next;
    *at = transfer->next;
    --*count_of(transfer->object->room, transfer->is_header);
    free(transfer);
}

/* Ends a transfer, and fails those who wait for what it has not brought. */
static void fail(struct fetch_transfer *transfer, const struct wfs_error *err)
{
    struct fetch_object *object = transfer->object;
    const uint64_t from = transfer->marked, end = transfer->end;
    drop(transfer);
    answer(object, from, end, err);
    object->has_failed = object->has_failed || !object->is_open;
    answer_open(object, err);
}

static void fail_cache(struct fetch_transfer *transfer, int code)
{
    struct wfs_error err = {0};
    const struct fetching_room *room = transfer->object->room;
    const bool is_kept = transfer->object->is_kept, is_full = code == -ENOSPC || code == -EDQUOT;
    const char *remedy = is_kept ? "; free some space, or bound it with cache_size"
                                 : "; free some space, or set TMPDIR to a directory that has more";
    wfs_fail(&err, -code, "cannot write the cache in '%s': %s%s",
             wfs_quote(is_kept ? room->kept_name : room->folder_name).text, strerror(-code),
             is_full ? remedy : "");
    http_cancel(transfer->http);
    fail(transfer, &err);
}

/* Other processes compare it, and people read it. */
static uint64_t date_ms(void)
{
    return (uint64_t)clock_ms(CLOCK_REALTIME);
}

/* Notes that bytes were written, and removes others now and then. */
static int trim(struct fetch_object *object, uint64_t n_bytes)
{
    struct fetching_room *room = object->room;
    const uint64_t most = room->most[object->is_kept];
    room->n_untrimmed += n_bytes;
    if (most == 0 || room->n_untrimmed < most / 16)
        return 0;
    room->n_untrimmed = 0;
    return cachestore_trim(object->cache.fd, most);
}

/* Notes the pieces that are complete with the last n_bytes that were written. */
static int mark(struct fetch_transfer *transfer, const void *bytes, size_t n_bytes)
{
    struct fetch_object *object = transfer->object;
    const uint64_t from = transfer->marked;
    const uint64_t end = transfer->at == object->cache.n_bytes
                             ? transfer->at
                             : transfer->at - transfer->at % CACHEFILE_PIECE;
    if (end <= from)
        return 0;
    cachefile_use(&object->cache, from, end - from, date_ms());
    int code = cachefile_mark(&object->cache, from, transfer->at - from, bytes, n_bytes);
    if (code == 0)
        code = trim(object, end - from);
    if (code < 0)
        return code;
    transfer->marked = end;
    answer(object, from, end, NULL);
    answer_open(object, NULL);
    return 0;
}

static void received(void *ctx, uint64_t offset, const void *bytes, size_t n_bytes)
{
    struct fetch_transfer *transfer = ctx;
    struct fetch_object *object = transfer->object;
    if (object->cache.fd < 0 || offset + n_bytes > transfer->end)
        return;
    object->room->n_fetched += n_bytes;
    int code = cachefile_write(&object->cache, offset, bytes, n_bytes);
    if (code == 0) {
        transfer->at = offset + n_bytes;
        code = mark(transfer, bytes, n_bytes);
    }
    if (code < 0)
        fail_cache(transfer, code);
}

static void done(void *ctx, const struct wfs_error *err)
{
    struct fetch_transfer *transfer = ctx;
    struct fetch_object *object = transfer->object;
    const struct wfs_error missing = {EIO, "the server sent less than it was asked for"};
    transfer->http = NULL;
    if (err != NULL || transfer->marked < transfer->end) {
        fail(transfer, err != NULL ? err : &missing);
        return;
    }
    drop(transfer);
    answer_open(object, NULL);
}

static const struct http_calls ranges = {.received = received, .done = done};

static struct fetch_transfer *add(struct fetch_object *object, uint64_t offset, uint64_t end,
                                  bool is_header)
{
    struct fetch_transfer *transfer = calloc(1, sizeof(*transfer));
    if (transfer == NULL)
        return NULL;
    *transfer = (struct fetch_transfer){.object = object,
                                        .is_header = is_header,
                                        .offset = offset,
                                        .end = end,
                                        .at = offset,
                                        .marked = offset,
                                        .next = object->transfers};
    object->transfers = transfer;
    ++*count_of(object->room, is_header);
    return transfer;
}

static int start(struct fetch_object *object, uint64_t offset, uint64_t end, bool is_header)
{
    struct fetch_transfer *transfer = add(object, offset, end, is_header);
    if (transfer == NULL)
        return -ENOMEM;
    const int code =
        http_get(object->http, offset, end - offset, &ranges, transfer, &transfer->http);
    if (code < 0)
        drop(transfer);
    return code;
}

/* Makes *from the first place that is in no transfer, and *end where the next one begins. */
static bool skip_transfers(const struct fetch_object *object, uint64_t *from, uint64_t *end)
{
    for (bool has_moved = true; has_moved && *from < *end;) {
        has_moved = false;
        for (const struct fetch_transfer *t = object->transfers; t != NULL; t = t->next) {
            if (t->offset <= *from && *from < t->end) {
                *from = t->end;
                has_moved = true;
            } else if (*from < t->offset && t->offset < *end)
                *end = t->offset;
        }
    }
    return *from < *end;
}

/* Returns how much of a range one transfer gets, so that several share a long one. */
static uint64_t share(const struct fetch_object *object, uint64_t n_bytes)
{
    if (n_bytes <= (object->is_hasty ? SMALLEST : SMALL))
        return n_bytes;
    const uint64_t unit = object->is_hasty ? SMALLEST : CACHEFILE_BLOCK;
    const uint64_t n = (n_bytes / MOST_AHEAD / unit + 1) * unit;
    return n > LARGEST ? LARGEST : n;
}

/* Starts transfers of what is missing in [*from, end), while there are fewer than `most`. Moves
 * *from to what is left. A negative errno. */
static int fetch_some(struct fetch_object *object, uint64_t *from, uint64_t end, unsigned most,
                      bool is_header)
{
    uint64_t n_each = 0;
    while (*from < end && *count_of(object->room, is_header) < most) {
        uint64_t first = *from, behind = end;
        int code = cachefile_missing(&object->cache, &first, &behind);
        if (code <= 0) {
            *from = end;
            return code;
        }
        if (!skip_transfers(object, &first, &behind)) {
            *from = behind > first ? behind : first;
            continue;
        }
        n_each = n_each == 0 ? share(object, behind - first) : n_each;
        behind = n_each < behind - first ? first + n_each : behind;
        code = start(object, first, behind, is_header);
        if (code < 0)
            return code;
        *from = behind;
    }
    return 0;
}

/* Returns up to where a range that somebody waits for is fetched in one request: with what was
 * asked ahead behind it, while that is short. */
static uint64_t reach_of(const struct fetch_object *object, const struct fetch_want *want)
{
    uint64_t reach = want->end;
    for (const struct fetch_span *span = object->spans; span != NULL; span = span->next) {
        if (span->offset <= reach && span->end > reach)
            reach = span->end;
    }
    const uint64_t most = want->offset + SMALL;
    return reach < most ? reach : want->end > most ? want->end : most;
}

void fetch_object_serve(struct fetch_object *object)
{
    struct wfs_error err = {0};
    for (struct fetch_want *want = object->wants; want != NULL && err.code == 0;
         want = want->next) {
        uint64_t from = want->offset;
        const int code = fetch_some(object, &from, reach_of(object, want), MOST_TRANSFERS, false);
        if (code < 0)
            wfs_fail(&err, -code, "cannot begin to fetch: %s", strerror(-code));
    }
    if (err.code != 0)
        answer(object, 0, UINT64_MAX, &err);
}

static void drop_span(struct fetch_object *object)
{
    struct fetch_span *span = object->spans;
    object->spans = span->next;
    free(span);
}

void fetch_object_serve_ahead(struct fetch_object *object)
{
    while (object->spans != NULL && object->room->n_transfers < MOST_AHEAD) {
        struct fetch_span *span = object->spans;
        if (fetch_some(object, &span->offset, span->end, MOST_AHEAD, false) < 0 ||
            span->offset >= span->end)
            drop_span(object);
    }
}

/* ---- questions ---- */

static bool is_inside(const struct fetch_object *object, uint64_t offset, uint64_t n_bytes)
{
    return object->is_open && object->cache.fd >= 0 && n_bytes > 0 &&
           offset < object->cache.n_bytes && n_bytes <= object->cache.n_bytes - offset;
}

int fetch_object_want(struct fetch_object *object, uint32_t request, uint64_t offset,
                      uint64_t n_bytes, uint64_t n_more)
{
    enum { GOAL_BLOCKS = 16 << 10 }; /* are counted at most, which costs little */
    if (!is_inside(object, offset, n_bytes))
        return -EINVAL;
    struct fetch_want *want = calloc(1, sizeof(*want));
    if (want == NULL)
        return -ENOMEM;
    const uint64_t end = offset + n_bytes, n_left = object->cache.n_bytes - end,
                   most = (uint64_t)GOAL_BLOCKS * CACHEFILE_BLOCK;
    n_more = n_more < most ? n_more : most;
    *want = (struct fetch_want){request, offset, end, end + (n_more < n_left ? n_more : n_left),
                                object->wants};
    object->wants = want;
    /* The reader found something missing; what is damaged is to be missing here, too. */
    (void)cachefile_verify(&object->cache, offset, n_bytes);
    answer(object, offset, offset + n_bytes, NULL);
    return 0;
}

/* Returns true when another reader waits for all of it, too. */
static bool is_double(const struct fetch_object *object, const struct fetch_want *want)
{
    const struct fetch_want *other = object->wants;
    while (other != want && (other->offset > want->offset || other->goal < want->goal))
        other = other->next;
    return other != want;
}

uint64_t fetch_object_missing(const struct fetch_object *object)
{
    uint64_t n = 0;
    for (const struct fetch_transfer *t = object->transfers; t != NULL && !object->is_open;
         t = t->next)
        n += t->end - t->at;
    for (const struct fetch_want *want = object->wants; want != NULL; want = want->next) {
        const uint64_t n_bytes = want->goal - want->offset;
        const uint64_t n_present =
            is_double(object, want) ? n_bytes
                                    : cachefile_present(&object->cache, want->offset, want->goal);
        n += n_present < n_bytes ? n_bytes - n_present : 0;
    }
    return n;
}

int fetch_object_ahead(struct fetch_object *object, uint64_t offset, uint64_t n_bytes)
{
    struct fetch_span **last = &object->spans;
    size_t n = 0;
    if (!is_inside(object, offset, n_bytes))
        return -EINVAL;
    cachefile_use(&object->cache, offset, n_bytes, date_ms());
    for (; *last != NULL; n++) {
        if ((*last)->end == offset) {
            (*last)->end += n_bytes;
            return 0;
        }
        last = &(*last)->next;
    }
    struct fetch_span *span = n < MOST_SPANS ? calloc(1, sizeof(*span)) : NULL;
    if (span == NULL)
        return -ENOMEM;
    *span = (struct fetch_span){offset, offset + n_bytes, NULL};
    *last = span;
    return 0;
}

int fetch_object_header(struct fetch_object *object, uint64_t offset, uint64_t n_bytes)
{
    uint64_t from = offset;
    return is_inside(object, offset, n_bytes)
               ? fetch_some(object, &from, offset + n_bytes, FETCH_HEADERS_MAX, true)
               : -EINVAL;
}

void fetch_object_beside(struct fetch_object *object, uint64_t n)
{
    object->is_hasty = true;
    if (object->is_open)
        http_object_prepare(object->http, n);
}

void fetch_object_cancel(struct fetch_object *object, uint32_t request)
{
    for (struct fetch_want **at = &object->wants; *at != NULL; at = &(*at)->next) {
        struct fetch_want *want = *at;
        if (want->request == request) {
            *at = want->next;
            free(want);
            break;
        }
    }
    while (object->spans != NULL)
        drop_span(object);
}

/* ---- what it names ---- */

/* Reads all of it into memory, which whoever reads it has done, too. */
static int load_described(struct fetch_object *object)
{
    enum { MOST = 1 << 30 };
    const uint64_t n_bytes = object->cache.n_bytes;
    if (object->described.text != NULL)
        return 0;
    autofree char *text = n_bytes > MOST ? NULL : malloc(n_bytes + 1);
    if (text == NULL || cachefile_read(&object->cache, 0, text, n_bytes) <= 0)
        return -EACCES;
    object->described.text = steal(&text);
    object->described.n_bytes = n_bytes;
    return 0;
}

/* Returns whether it is the file that describes a pipeline. */
static bool is_pipeline(const struct fetch_object *object)
{
    static const char name[] = "/model_index.json";
    const size_t n = strcspn(object->name, "?"), n_name = strlen(name);
    return n > n_name && strncmp(object->name + n - n_name, name, n_name) == 0;
}

bool fetch_object_names(struct fetch_object *object, const char *url)
{
    const size_t n = strlen(url);
    const bool is_folder = n > 0 && url[n - 1] == '/';
    if (!object->is_named || !object->is_open || object->cache.fd < 0 ||
        (is_folder && !is_pipeline(object)))
        return false;
    if (described_is_rank(object->name, url))
        return true;
    autofree char *plain = strndup(url, n - is_folder), *name = url_name(object->name);
    autofree char *path = plain == NULL ? NULL : url_path_below(object->name, plain);
    return path != NULL && name != NULL && (!is_folder || strchr(path, '/') == NULL) &&
           ((!is_folder && described_is_sibling(name, path)) ||
            (load_described(object) == 0 && described_has(&object->described, path)));
}

/* ---- opening ---- */

/* Finds or makes the cache file. An object whose changes would not show is not kept, nor, unless
 * the user named a cache, one that the server forbids to store. */
static int make_cache(struct fetch_object *object, const struct http_known *known)
{
    struct fetching_room *room = object->room;
    struct cachefile cache;
    const uint64_t n_bytes = known->n_bytes;
    const bool is_to_be_kept = room->kept >= 0 && (object->flags & FETCHING_IS_WEAK) == 0 &&
                               !(room->is_usual && known->is_fleeting);
    object->is_kept = is_to_be_kept;
    int code = object->is_kept ? cachestore_place(room->kept, object->name, object->validator,
                                                  n_bytes, date_ms(), &cache)
                               : -EBUSY;
    if (code == -EBUSY || code == -EFBIG) {
        object->is_kept = false;
        object->flags |= is_to_be_kept && !room->is_usual ? FETCHING_IS_UNKEPT : 0;
        code = cachestore_place(room->spool, object->name, object->validator, n_bytes, date_ms(),
                                &cache);
    }
    if (code == 0)
        object->cache = cache;
    return code;
}

static void opened(void *ctx, const char *name, const struct http_known *known)
{
    struct fetch_transfer *transfer = ctx;
    struct fetch_object *object = transfer->object;
    object->flags =
        (known->is_weak ? FETCHING_IS_WEAK : 0) | (known->is_private ? FETCHING_IS_PRIVATE : 0);
    object->validator = cachefile_hash(known->validator, 0);
    if (known->is_whole || known->n_bytes < transfer->end)
        transfer->end = known->n_bytes;
    object->name = strdup(name);
    const int code = object->name == NULL  ? -ENOMEM
                     : object->is_question ? 0
                                           : make_cache(object, known);
    if (code < 0)
        fail_cache(transfer, code);
}

static const struct http_calls opening = {.opened = opened, .received = received, .done = done};

int fetch_object_new(struct fetching_room *room, const char *url, const struct fetching *message,
                     struct fetch_object **out, struct wfs_error *err)
{
    const bool is_question = message->n_bytes == FETCHING_QUESTION;
    const uint64_t n_head = is_question                                       ? 0
                            : message->n_bytes > 0 && message->n_bytes < HEAD ? message->n_bytes
                                                                              : HEAD;
    struct fetch_object *object = calloc(1, sizeof(*object));
    if (object == NULL)
        return wfs_fail_memory(err);
    *object = (struct fetch_object){.room = room,
                                    .number = message->object,
                                    .request = message->request,
                                    .is_question = is_question,
                                    .cache.fd = -1};
    struct fetch_transfer *transfer = add(object, 0, n_head, true);
    const int code = transfer == NULL ? wfs_fail_memory(err)
                                      : http_object_open(room->http, url, n_head, &opening,
                                                         transfer, &object->http, err);
    if (code < 0) {
        fetch_object_free(object);
        return code;
    }
    transfer->http = http_object_opening(object->http);
    *out = object;
    return 0;
}

void fetch_object_free(struct fetch_object *object)
{
    if (object == NULL)
        return;
    http_object_free(object->http);
    while (object->transfers != NULL)
        drop(object->transfers);
    while (object->spans != NULL)
        drop_span(object);
    while (object->wants != NULL) {
        struct fetch_want *want = object->wants;
        object->wants = want->next;
        free(want);
    }
    if (object->cache.fd >= 0 && !object->is_kept)
        cachefile_clear(&object->cache);
    free(object->described.text);
    free(object->name);
    free(object);
}
