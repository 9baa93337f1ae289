/* SPDX-License-Identifier: MIT */
/*
 * A set before it is saved: which tensor goes into which file, which files are going to be written,
 * and which are taken over.
 */
#include <weightfs/array.h>
#include <weightfs/cleanup.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text_index.h"
#include "format/core/format.h"
#include "format/core/save.h"
#include "format/set/set.h"
#include "format/set/shard_set.h"
#include "tensor/tensor.h"

/* ---- which tensor goes into which file ---- */

enum { MAX_SHARDS = 10000 };

/* A new shard, or NULL when out of memory. */
static struct shard *add_shard(struct wfs_shards *set)
{
    if (array_reserve(&set->shards, sizeof(*set->shards), set->n_shards, 1, &set->n_room) < 0)
        return NULL;
    struct shard *shard = &set->shards[set->n_shards];
    *shard = (struct shard){0};
    if (catalog_new(&shard->part) < 0)
        return NULL;
    set->n_shards++;
    shard->part->format = set->catalog->format;
    shard->part->container = set->catalog->container;
    shard->part->meta = set->catalog->meta;
    shard->part->meta.exists = set->catalog->meta.exists;
    return shard;
}

/* Adds a tensor, with its place until find_homes has looked at that. -ENOMEM. */
static int add_tensor(struct shard *shard, const struct wfs_tensor *tensor)
{
    struct wfs_tensor *added = catalog_add(shard->part);
    if (added == NULL)
        return -ENOMEM;
    *added = *tensor;
    return 0;
}

static struct shard *find_home(const struct wfs_shards *set, const struct source *home)
{
    for (size_t i = set->n_shards; i-- > 0;) {
        if (set->shards[i].home == home)
            return &set->shards[i];
    }
    return NULL;
}

/* Each goes where it was; one that was nowhere goes where the one before it went. */
static int cut_as_it_was(struct wfs_shards *set, struct wfs_error *err)
{
    const struct wfs_catalog *catalog = set->catalog;
    struct shard *shard = NULL;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        const struct source *home = catalog_home(catalog, tensor);
        if (shard == NULL || home != NULL) {
            shard = find_home(set, home);
            if (shard == NULL && set->n_shards > 0 && set->shards[0].home == NULL)
                shard = &set->shards[0];
            if (shard == NULL)
                shard = add_shard(set);
            if (shard == NULL)
                return wfs_fail_memory(err);
            shard->home = home;
        }
        if (add_tensor(shard, tensor) < 0)
            return wfs_fail_memory(err);
    }
    return 0;
}

struct cutting {
    struct wfs_shards *set;
    uint64_t max_bytes, n_bytes; /* of the shard that is being filled */
    uint64_t (*positions)[2];    /* malloc'ed, of each tensor: source and offset */
    struct text_index by_position;
    size_t *shard_of; /* malloc'ed, by number in by_position */
};

static void cutting_done(struct cutting *cutting)
{
    text_index_done(&cutting->by_position);
    free(cutting->positions);
    free(cutting->shard_of);
}

/* Adds the tensor to the file of one that lies at the same place, to the open one, or a new one. */
static int put(struct cutting *cutting, size_t i)
{
    struct wfs_shards *set = cutting->set;
    const struct wfs_tensor *tensor = wfs_catalog_tensor(set->catalog, i);
    const bool is_stored = tensor->n_bytes > 0 && tensor->stored.source != NULL;
    const uint32_t n_before = cutting->by_position.n_texts;
    uint32_t number = n_before;
    cutting->positions[i][0] = (uintptr_t)tensor->stored.source;
    cutting->positions[i][1] = tensor->stored.offset;
    if (is_stored && text_index_add(&cutting->by_position, (const char *)cutting->positions[i],
                                    sizeof(*cutting->positions), &number) < 0)
        return -ENOMEM;
    if (number < n_before)
        return add_tensor(&set->shards[cutting->shard_of[number]], tensor);
    const bool is_full = cutting->n_bytes > 0 && tensor->n_bytes > 0 &&
                         (cutting->n_bytes >= cutting->max_bytes ||
                          tensor->n_bytes > cutting->max_bytes - cutting->n_bytes);
    if (set->n_shards == 0 || is_full) {
        if (add_shard(set) == NULL)
            return -ENOMEM;
        cutting->n_bytes = 0;
    }
    if (!checked_add(cutting->n_bytes, tensor->n_bytes, &cutting->n_bytes))
        return -EFBIG;
    cutting->shard_of[number] = set->n_shards - 1;
    if (add_tensor(&set->shards[set->n_shards - 1], tensor) < 0)
        return -ENOMEM;
    return set->n_shards > MAX_SHARDS ? -E2BIG : 0;
}

static int cut_by_size(struct wfs_shards *set, uint64_t max_bytes, struct wfs_error *err)
{
    const size_t n = set->catalog->n_tensors;
    cleanup(cutting_done) struct cutting cutting = {.set = set, .max_bytes = max_bytes};
    int code = n >= UINT32_MAX ? -E2BIG : 0;
    cutting.positions = calloc(n + 1, sizeof(*cutting.positions));
    cutting.shard_of = calloc(n + 1, sizeof(*cutting.shard_of));
    if (cutting.positions == NULL || cutting.shard_of == NULL)
        return wfs_fail_memory(err);
    for (size_t i = 0; code == 0 && i < n; i++)
        code = put(&cutting, i);
    if (code == -E2BIG)
        return wfs_fail(err, E2BIG, "%s more than %d files: use a larger size",
                        wfs_count_as(max_bytes, "byte a file makes", "bytes a file make").text,
                        MAX_SHARDS);
    if (code == -EFBIG)
        return wfs_fail(err, EFBIG, "the tensors take more than 2^64 bytes");
    return code < 0 ? wfs_fail_memory(err) : 0;
}

/* Files that were whole before may be so again: those whose tensors all lie in one. The places of
 * tensors are numbers in the whole: they have none in a file. */
static void find_homes(struct wfs_shards *set)
{
    for (size_t i = 0; i < set->n_shards; i++) {
        struct shard *shard = &set->shards[i];
        for (size_t j = 0; j < shard->part->n_tensors; j++) {
            struct wfs_tensor *tensor = &shard->part->tensors[j];
            const struct source *home = catalog_home(set->catalog, tensor);
            shard->home = j == 0 || home == shard->home ? home : NULL;
            tensor->place = 0;
        }
    }
}

void wfs_shards_free(struct wfs_shards *set)
{
    if (set == NULL)
        return;
    for (size_t i = 0; i < set->n_shards; i++) {
        outfile_free(set->shards[i].outfile);
        if (set->kind == NULL)
            wfs_layout_free(set->shards[i].layout);
        wfs_catalog_free(set->shards[i].found);
        wfs_catalog_free(set->shards[i].part);
    }
    free(set->shards);
    for (size_t i = 0; i < set->directory.n_layouts; i++)
        wfs_layout_free(set->directory.layouts[i]);
    free(set->directory.layouts);
    if (set->kind != NULL)
        set->kind->done(&set->directory);
    if (set->parts != NULL)
        set->functions->done(set);
    arena_done(&set->arena);
    free(set);
}

/* ---- what is as it was ---- */

static bool is_equal(const struct wfs_text *a, const struct wfs_text *b)
{
    return a->n_bytes == b->n_bytes && memcmp(a->value, b->value, a->n_bytes) == 0;
}

static bool is_same_text(const struct wfs_text *a, const struct wfs_text *b)
{
    for (; a != NULL && b != NULL; a = a->next, b = b->next) {
        if (strcmp(a->name, b->name) != 0 || !is_equal(a, b))
            return false;
    }
    return a == b;
}

static bool is_same_tensor(const struct shard *shard, const struct wfs_tensor *wanted,
                           const struct wfs_tensor *found)
{
    const struct source *source = wanted->stored.source;
    return (source == NULL || source == shard->home || source->origin == shard->home) &&
           strcmp(wanted->key, found->key) == 0 && wanted->dtype == found->dtype &&
           wanted->n_bytes == found->n_bytes && wfs_shape_is_equal(&wanted->shape, &found->shape) &&
           wanted->stored.offset == found->stored.offset && tied_are_stored_alike(wanted, found) &&
           is_same_text(wanted->attrs, found->attrs);
}

/* Returns whether a file describes itself as this part of the set. The first one has the values of
 * the whole, and is written in any case. */
static bool is_same_part(const struct shard *shard, const struct wfs_catalog *found)
{
    const struct catalog_part *wanted = &shard->part->output.part, *part = &found->notes.part;
    bool is_same = wanted->n == 0 || (wanted->number > 0 && wanted->number == part->number &&
                                      wanted->n == part->n && wanted->n_tensors == part->n_tensors);
    for (size_t i = 0; i < found->values.n && wanted->n > 0 && is_same; i++)
        is_same = found->format->functions->describes_part(found->values.list[i].name);
    return is_same;
}

/* What the home of a shard holds, as its loader reads it now. */
static int load_home(const struct wfs_shards *set, const struct shard *shard,
                     struct wfs_catalog **out, struct wfs_error *err)
{
    struct load_context context = {0};
    struct source *source;
    limits_max(&context.limits, &set->catalog->values.listing);
    const int fd = fcntl(shard->home->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return wfs_fail(err, errno, "cannot open a shard again: %s", strerror(errno));
    const int code = source_new_fd(shard->home->path, fd, &source, err);
    return code < 0 ? code : format_load(set->format, source, &context, out, err);
}

/*
 * Returns 1 when the home of the shard holds exactly what the shard is going to hold, stored as it
 * is stored there: *out is what is in it. 0 when it does not, or when there is no home. One that
 * cannot be loaded without force does not: what can be read of it is written again.
 */
static int is_untouched(const struct wfs_shards *set, const struct shard *shard,
                        struct wfs_catalog **out, struct wfs_error *err)
{
    auto_catalog struct wfs_catalog *found = NULL;
    struct wfs_error inner = {0};
    if (shard->home == NULL || shard->home->fd < 0 || set->catalog->format != set->format)
        return 0;
    const int code = load_home(set, shard, &found, &inner);
    if (inner.code == ENOMEM || inner.code == EMFILE || inner.code == ENFILE)
        return wfs_fail(err, inner.code, "%s", inner.text);
    if (code < 0)
        return 0;
    bool is_same = found->n_tensors == shard->part->n_tensors && is_same_part(shard, found) &&
                   !(set->catalog->output.is_safe && save_has_dangers(found));
    for (size_t i = 0; is_same && i < found->n_tensors; i++)
        is_same = is_same_tensor(shard, &shard->part->tensors[i], &found->tensors[i]);
    for (size_t i = 0; i < found->sources.n; i++)
        source_close(found->sources.list[i]);
    if (is_same)
        *out = steal(&found);
    return is_same;
}

/* ---- metadata ---- */

/* Returns true if one of the first n files has a text with the name, or will be written anyway. */
static bool is_said(const struct wfs_shards *set, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        const struct wfs_catalog *found = set->shards[i].found;
        if (found == NULL || text_find(found->meta.first, name) != NULL)
            return true;
    }
    return false;
}

/*
 * If several files have a text with the same name, the set has that of the first. A file can stay
 * as it is if each of its texts is the expected one, or an earlier file has the expected one.
 */
static bool has_wanted_texts(const struct wfs_shards *set, size_t i)
{
    for (const struct wfs_text *text = set->shards[i].found->meta.first; text; text = text->next) {
        const struct wfs_text *wanted = text_find(set->catalog->meta.first, text->name);
        if (wanted == NULL || (!is_equal(wanted, text) && !is_said(set, i, text->name)))
            return false;
    }
    return true;
}

/* Files that are as they are to be; `found` says which. */
static int find_untouched(struct wfs_shards *set, struct wfs_error *err)
{
    for (size_t i = 0; i < set->n_shards; i++) {
        struct shard *shard = &set->shards[i];
        const int code = is_untouched(set, shard, &shard->found, err);
        if (code < 0)
            return code;
        if (code > 0 && !has_wanted_texts(set, i)) {
            wfs_catalog_free(shard->found);
            shard->found = NULL;
        }
    }
    for (const struct wfs_text *text = set->catalog->meta.first; text != NULL; text = text->next) {
        if (is_said(set, set->n_shards, text->name))
            continue;
        wfs_catalog_free(set->shards[0].found);
        set->shards[0].found = NULL;
    }
    return 0;
}

/* A directory that the format plans itself: each of its layouts is a file. */
static int plan_directory(struct wfs_shards *set, uint64_t max_bytes, struct wfs_error *err)
{
    set->directory.format = set->format;
    set->directory.catalog = set->catalog;
    int code = layout_check_tensors(set->catalog, err);
    if (code == 0)
        code = set->kind->plan(&set->directory, max_bytes, err);
    if (code < 0)
        return code;
    const struct catalog_own *own = set->catalog->own;
    const size_t n_layouts = set->directory.n_layouts;
    if (array_reserve(&set->shards, sizeof(*set->shards), 0, n_layouts + own->n_beside,
                      &set->n_room) < 0)
        return wfs_fail_memory(err);
    for (size_t i = 0; i < n_layouts; i++)
        set->shards[set->n_shards++] = (struct shard){.layout = set->directory.layouts[i]};
    const struct source *rewritten = set->directory.rewritten;
    if (rewritten != NULL) {
        set->shards[n_layouts - 1].home = rewritten;
        set->shards[n_layouts - 1].is_beside = true;
    }
    for (size_t i = 0; i < own->n_beside; i++)
        if (own->beside[i] != rewritten)
            set->shards[set->n_shards++] =
                (struct shard){.home = own->beside[i], .is_beside = true};
    return 0;
}

/* Files of a format that describe themselves as parts get what they need for that, and the first
 * one the values of the whole. -ENOMEM. */
static int describe_parts(struct wfs_shards *set)
{
    const struct catalog_values *values = &set->catalog->values;
    struct wfs_catalog *first = set->shards[0].part;
    int code = 0;
    if (set->format->functions->describes_part == NULL)
        return 0;
    catalog_copy_graph(first, set->catalog);
    for (size_t i = 0; i < values->n && code == 0; i++) {
        code = catalog_add_value(first, values->list[i].name, values->list[i].id, 0);
        if (code == 0)
            first->values.list[i].is_edited = values->list[i].is_edited;
    }
    for (size_t i = 0; i < set->n_shards; i++)
        set->shards[i].part->output.part =
            (struct catalog_part){(uint32_t)i, (uint32_t)set->n_shards, set->catalog->n_tensors};
    return code;
}

/* Each tensor goes where it was, or with max_bytes not 0 into files of at most that. */
static int plan_shards(struct wfs_shards *set, uint64_t max_bytes, struct wfs_error *err)
{
    if (set->catalog->n_tensors == 0)
        return wfs_fail(err, EINVAL, "there are no tensors to write as a set");
    const int code = max_bytes == 0 ? cut_as_it_was(set, err) : cut_by_size(set, max_bytes, err);
    if (code < 0)
        return code;
    find_homes(set);
    return describe_parts(set) < 0 ? wfs_fail_memory(err) : find_untouched(set, err);
}

static int plan(struct wfs_shards *set, uint64_t max_bytes, struct wfs_error *err)
{
    int code =
        set->kind != NULL ? plan_directory(set, max_bytes, err) : plan_shards(set, max_bytes, err);
    for (size_t i = 0; code == 0 && i < set->n_shards; i++) {
        struct shard *shard = &set->shards[i];
        if (shard->found == NULL && set->kind == NULL)
            code = wfs_layout_new(set->format, shard->part, &shard->layout, err);
        const uint64_t n = shard->layout != NULL ? shard->layout->n_bytes
                           : shard->home != NULL ? shard->home->n_bytes
                                                 : 0;
        if (!checked_add(set->n_bytes, n, &set->n_bytes))
            return wfs_fail(err, EFBIG, "the files would have more than 2^64 bytes");
    }
    return code;
}

int set_plan_new(const struct format_table *table, const struct wfs_format *format,
                 const struct wfs_catalog *catalog, uint64_t max_bytes, struct wfs_shards **out,
                 struct wfs_error *err)
{
    struct wfs_shards *set = calloc(1, sizeof(*set));
    if (set == NULL)
        return wfs_fail_memory(err);
    set->table = table;
    set->format = format;
    set->kind = format->functions->directory;
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
    return set->parts != NULL ? set->n_files : set->n_shards;
}

bool wfs_shards_is_large(const struct wfs_shards *set)
{
    for (size_t i = 0; i < set->n_shards; i++) {
        if (set->shards[i].layout != NULL && wfs_layout_is_large(set->shards[i].layout))
            return true;
    }
    return false;
}
