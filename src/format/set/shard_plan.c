/* SPDX-License-Identifier: MIT */
/*
 * A set before it is saved: which files are to be written, and which are taken over.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/set/shard_set.h"

void wfs_shards_free(struct wfs_shards *set)
{
    if (set == NULL)
        return;
    for (size_t i = 0; i < set->n_shards; i++) {
        outfile_free(set->shards[i].outfile);
        wfs_layout_free(set->shards[i].layout);
        wfs_catalog_free(set->shards[i].found);
        wfs_catalog_free(set->shards[i].part);
    }
    free(set->shards);
    arena_done(&set->arena);
    free(set);
}

static const struct wfs_text *find_text(const struct wfs_text *texts, const char *name)
{
    while (texts != NULL && strcmp(texts->name, name) != 0)
        texts = texts->next;
    return texts;
}

static bool is_equal(const struct wfs_text *a, const struct wfs_text *b)
{
    return a->n_bytes == b->n_bytes && memcmp(a->value, b->value, a->n_bytes) == 0;
}

/*
 * The metadata of a set is what the first file that has a name says of it. A file may stay as it is
 * while each of its texts is what is wanted, or one before it says what is.
 */
static bool has_wanted_texts(const struct wfs_shards *set, size_t i)
{
    for (const struct wfs_text *text = set->shards[i].found->meta; text; text = text->next) {
        const struct wfs_text *wanted = find_text(set->catalog->meta, text->name);
        bool is_said = wanted != NULL && is_equal(wanted, text);
        for (size_t j = 0; wanted != NULL && j < i && !is_said; j++) {
            const struct shard *shard = &set->shards[j];
            is_said = shard->found == NULL || find_text(shard->found->meta, text->name) != NULL;
        }
        if (!is_said)
            return false;
    }
    return true;
}

static bool is_said_somewhere(const struct wfs_shards *set, const struct wfs_text *text)
{
    for (size_t i = 0; i < set->n_shards; i++) {
        const struct wfs_catalog *found = set->shards[i].found;
        if (found == NULL || find_text(found->meta, text->name) != NULL)
            return true;
    }
    return false;
}

/* Files that are as they are to be; `found` says which. */
static int find_untouched(struct wfs_shards *set, struct wfs_error *err)
{
    for (size_t i = 0; i < set->n_shards; i++) {
        struct shard *shard = &set->shards[i];
        const int code = shard_is_untouched(set, shard, &shard->found, err);
        if (code < 0)
            return code;
        if (code > 0 && !has_wanted_texts(set, i)) {
            wfs_catalog_free(shard->found);
            shard->found = NULL;
        }
    }
    for (const struct wfs_text *text = set->catalog->meta; text != NULL; text = text->next) {
        if (is_said_somewhere(set, text))
            continue;
        wfs_catalog_free(set->shards[0].found);
        set->shards[0].found = NULL;
    }
    return 0;
}

static int plan(struct wfs_shards *set, uint64_t max_bytes, struct wfs_error *err)
{
    int code = shard_cut(set, max_bytes, err);
    if (code == 0)
        code = find_untouched(set, err);
    for (size_t i = 0; code == 0 && i < set->n_shards; i++) {
        struct shard *shard = &set->shards[i];
        if (shard->found == NULL)
            code = wfs_layout_new(set->format, shard->part, &shard->layout, err);
        const uint64_t n = shard->layout != NULL ? shard->layout->n_bytes
                           : shard->home != NULL ? shard->home->n_bytes
                                                 : 0;
        if (!checked_add(set->n_bytes, n, &set->n_bytes))
            return wfs_fail(err, EFBIG, "the files would have more than 2^64 bytes");
    }
    return code;
}

int wfs_shards_new(const struct wfs_format *format, const struct wfs_catalog *catalog,
                   uint64_t max_bytes, struct wfs_shards **out, struct wfs_error *err)
{
    struct wfs_shards *set = calloc(1, sizeof(*set));
    if (set == NULL)
        return wfs_fail_memory(err);
    set->format = format;
    set->catalog = catalog;
    const int code = plan(set, max_bytes, err);
    if (code < 0) {
        wfs_shards_free(set);
        return code;
    }
    *out = set;
    return 0;
}

uint64_t wfs_shards_n_bytes(const struct wfs_shards *set)
{
    return set->n_bytes;
}

size_t wfs_shards_n_files(const struct wfs_shards *set)
{
    return set->n_shards;
}

bool wfs_shards_is_large(const struct wfs_shards *set)
{
    for (size_t i = 0; i < set->n_shards; i++) {
        if (set->shards[i].layout != NULL && wfs_layout_is_large(set->shards[i].layout))
            return true;
    }
    return false;
}
