/* SPDX-License-Identifier: MIT */
/*
 * The catalog: filling one, and looking into one.
 */
#include "catalog/catalog.h"

#include <weightfs/array.h>
#include <weightfs/catalog.h>
#include <weightfs/cleanup.h>
#include <weightfs/value.h>
#include "base/arena.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/source.h"
#include "tensor/tensor.h"
#include "value/value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int catalog_new(struct wfs_catalog **out)
{
    struct limits limits;
    struct wfs_catalog *catalog = calloc(1, sizeof(*catalog));
    struct catalog_own *own = calloc(1, sizeof(*own));
    if (catalog == NULL || own == NULL) {
        free(catalog);
        free(own);
        return -ENOMEM;
    }
    own->owner = catalog;
    catalog->own = own;
    limits_init(&limits);
    limits_listing(&limits, &catalog->values.listing);
    catalog->meta.end = (struct wfs_text **)(uintptr_t)&catalog->meta.first;
    *out = catalog;
    return 0;
}

void wfs_catalog_free(struct wfs_catalog *catalog)
{
    if (catalog == NULL)
        return;
    const int saved = errno;
    for (size_t i = 0; i < catalog->parts.n; i++)
        wfs_catalog_free(catalog->parts.list[i]);
    free(catalog->parts.list);
    for (size_t i = 0; i < catalog->sources.n; i++)
        source_free(catalog->sources.list[i]);
    free(catalog->sources.list);
    if (catalog->own->owner == catalog) {
        source_free(catalog->own->derived);
        source_free(catalog->own->assembled);
        free(catalog->own);
    }
    for (size_t i = 0; i < catalog->sources.n_made; i++)
        source_free(catalog->sources.made[i]);
    free(catalog->sources.made);
    free(catalog->values.list);
    if (catalog->values.n_place_room > 0)
        free(catalog->values.places);
    free(catalog->findings.list);
    free(catalog->tensors);
    free(catalog->borrowed);
    arena_done(&catalog->arena);
    free(catalog);
    errno = saved;
}

int catalog_fail_memory(const struct wfs_catalog *catalog, struct wfs_error *err)
{
    if (catalog->arena.is_full)
        return wfs_fail(err, E2BIG, "its index takes more than %s of memory (limit index_memory)",
                        wfs_count(catalog->arena.limit, "byte").text);
    return wfs_fail_memory(err);
}

int catalog_reserve(struct wfs_catalog *catalog, size_t n)
{
    return array_reserve(&catalog->tensors, sizeof(*catalog->tensors), 0, n, &catalog->n_room);
}

struct wfs_tensor *catalog_add(struct wfs_catalog *catalog)
{
    if (array_reserve(&catalog->tensors, sizeof(*catalog->tensors), catalog->n_tensors, 1,
                      &catalog->n_room) < 0)
        return NULL;
    struct wfs_tensor *tensor = &catalog->tensors[catalog->n_tensors++];
    *tensor = (struct wfs_tensor){0};
    return tensor;
}

int catalog_borrow(struct wfs_catalog *catalog, const struct wfs_tensor *tensor)
{
    if (array_reserve(&catalog->borrowed, sizeof(*catalog->borrowed), catalog->n_tensors, 1,
                      &catalog->n_room) < 0)
        return -ENOMEM;
    catalog->borrowed[catalog->n_tensors++] = tensor;
    return 0;
}

int catalog_own_tensors(struct wfs_catalog *catalog)
{
    if (catalog->borrowed == NULL)
        return 0;
    catalog->n_room = 0;
    if (catalog_reserve(catalog, catalog->n_tensors) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < catalog->n_tensors; i++)
        catalog->tensors[i] = *catalog->borrowed[i];
    free(catalog->borrowed);
    catalog->borrowed = NULL;
    return 0;
}

void catalog_move_tensor(struct wfs_catalog *catalog, size_t from, size_t to)
{
    if (catalog->borrowed != NULL)
        catalog->borrowed[to] = catalog->borrowed[from];
    else
        catalog->tensors[to] = catalog->tensors[from];
}

int catalog_keys_add(struct catalog_keys *keys, const struct wfs_catalog *catalog, size_t first)
{
    const size_t n_more = catalog->n_tensors - first;
    if (text_index_reserve(&keys->index, keys->index.n_texts + n_more) < 0 ||
        array_reserve(&keys->tensor_of, sizeof(*keys->tensor_of), keys->index.n_texts, n_more,
                      &keys->n_room) < 0)
        return -ENOMEM;
    for (size_t i = first; i < catalog->n_tensors; i++) {
        const char *key = wfs_catalog_tensor(catalog, i)->key;
        const size_t n_before = keys->index.n_texts;
        uint32_t number;
        if (text_index_add(&keys->index, key, strlen(key), &number) < 0)
            return -ENOMEM;
        if (number == n_before)
            keys->tensor_of[number] = (uint32_t)i;
    }
    return 0;
}

uint32_t catalog_keys_find(const struct catalog_keys *keys, const char *key)
{
    const uint32_t number = text_index_find(&keys->index, key, strlen(key));
    return number == TEXT_INDEX_NONE ? number : keys->tensor_of[number];
}

void catalog_keys_done(struct catalog_keys *keys)
{
    text_index_done(&keys->index);
    free(keys->tensor_of);
}

int catalog_adopt_source(struct wfs_catalog *catalog, struct source *source)
{
    if (array_reserve(&catalog->sources.list, sizeof(*catalog->sources.list), catalog->sources.n, 1,
                      &catalog->sources.n_room) < 0) {
        source_free(source);
        return -ENOMEM;
    }
    catalog->sources.list[catalog->sources.n++] = source;
    return 0;
}

int catalog_adopt_made(struct wfs_catalog *catalog, struct source *source)
{
    if (array_reserve(&catalog->sources.made, sizeof(*catalog->sources.made),
                      catalog->sources.n_made, 1, &catalog->sources.n_made_room) < 0) {
        source_free(source);
        return -ENOMEM;
    }
    catalog->sources.made[catalog->sources.n_made++] = source;
    return 0;
}

int catalog_add_value(struct wfs_catalog *catalog, const char *name, uint32_t id, uint32_t place)
{
    if (array_reserve(&catalog->values.list, sizeof(*catalog->values.list), catalog->values.n, 1,
                      &catalog->values.n_room) < 0)
        return -ENOMEM;
    catalog->values.list[catalog->values.n++] =
        (struct catalog_value){.name = name, .id = id, .place = place};
    return 0;
}

int catalog_reserve_places(struct wfs_catalog *catalog, uint32_t n)
{
    return array_reserve(&catalog->values.places, sizeof(*catalog->values.places), 1, n,
                         &catalog->values.n_place_room);
}

uint32_t catalog_add_place(struct wfs_catalog *catalog, const struct catalog_place *place)
{
    if (array_reserve(&catalog->values.places, sizeof(*catalog->values.places),
                      (size_t)catalog->values.n_places + 1, 1, &catalog->values.n_place_room) < 0)
        return 0;
    catalog->values.places[++catalog->values.n_places] = *place;
    for (uint32_t i = place->parent; place->name != NULL && i != 0;
         i = catalog->values.places[i].parent) {
        if (catalog->values.places[i].name != NULL)
            break;
        catalog->values.places[i].name = place->name;
    }
    return catalog->values.n_places;
}

bool catalog_is_attribute(const struct wfs_catalog *catalog, uint32_t place)
{
    const uint32_t dict = place == 0 ? 0 : catalog->values.places[place].parent,
                   object = dict == 0 ? 0 : catalog->values.places[dict].parent;
    if (object == 0 || catalog->values.places[dict].start != PLACE_FIXED)
        return false;
    const struct value *call = graph_at(&catalog->values.graph, catalog->values.places[object].id);
    const uint32_t items =
        call->kind == VALUE_CALL ? value_part(&catalog->values.graph, call, PART_ITEMS) : 0;
    return items != 0 && items != catalog->values.places[dict].id;
}

uint32_t catalog_tensor_around(const struct wfs_catalog *catalog, uint32_t place)
{
    uint32_t i = place == 0 ? 0 : catalog->values.places[place].parent;
    while (i != 0 && catalog->values.places[i].kind != PLACE_TENSOR)
        i = catalog->values.places[i].parent;
    return i;
}

uint64_t catalog_stamp(const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    const bool has_strides = stored->strides != NULL && tensor->shape.rank > 0;
    const uint64_t flags = (uint64_t)stored->is_big_endian | (uint64_t)stored->is_conjugate << 1 |
                           (uint64_t)stored->is_negative << 2 | (uint64_t)has_strides << 3;
    uint64_t facts[] = {tensor->dtype,
                        tensor->n_bytes,
                        tensor->shape.rank,
                        stored->dtype,
                        stored->source == NULL ? 0 : stored->source->id,
                        stored->offset,
                        flags,
                        0};
    const size_t n_bytes = tensor->shape.rank * sizeof(uint64_t);
    if (tensor->shape.rank > 0)
        facts[7] = hash_bytes(tensor->shape.dims, n_bytes, hash_seed());
    if (has_strides)
        facts[7] += hash_bytes(stored->strides, n_bytes, ~hash_seed());
    return hash_bytes(facts, sizeof(facts), hash_seed());
}

const struct source *catalog_home(const struct wfs_catalog *catalog,
                                  const struct wfs_tensor *tensor)
{
    const struct wfs_catalog *loaded = catalog->own->owner;
    const bool has_home = catalog->values.n_places == 0 && tensor->place != 0;
    return has_home ? loaded->sources.list[tensor->place - 1] : NULL;
}

void catalog_copy_graph(struct wfs_catalog *to, const struct wfs_catalog *from)
{
    struct catalog_value *list = to->values.list;
    const size_t n = to->values.n, n_room = to->values.n_room;
    to->values = from->values;
    to->values.list = list;
    to->values.n = n;
    to->values.n_room = n_room;
    to->values.n_place_room = 0;
    if (to->own->owner == to)
        free(to->own);
    to->own = from->own;
    to->notes.unshown = from->notes.unshown;
}

struct wfs_text *catalog_text_new(struct wfs_catalog *catalog, const char *name, const char *value,
                                  size_t n_bytes)
{
    struct wfs_text *text = arena_calloc(&catalog->arena, 1, sizeof(*text));
    if (text == NULL)
        return NULL;
    text->name = arena_copy(&catalog->arena, name, strlen(name));
    text->value = arena_copy(&catalog->arena, value, n_bytes);
    text->n_bytes = n_bytes;
    return text->name == NULL || text->value == NULL ? NULL : text;
}

int catalog_add_meta(struct wfs_catalog *catalog, const char *name, const char *value)
{
    return catalog_add_meta_bytes(catalog, name, value, strlen(value));
}

int catalog_add_meta_bytes(struct wfs_catalog *catalog, const char *name, const char *value,
                           size_t n_bytes)
{
    struct wfs_text *text = catalog_text_new(catalog, name, value, n_bytes);
    if (text == NULL)
        return -ENOMEM;
    *catalog->meta.end = text;
    catalog->meta.end = &text->next;
    catalog->meta.exists = true;
    return 0;
}

int catalog_add_attr(struct wfs_catalog *catalog, struct wfs_tensor *tensor, const char *name,
                     const char *value)
{
    struct wfs_text *text = catalog_text_new(catalog, name, value, strlen(value));
    if (text == NULL)
        return -ENOMEM;
    text->next = (struct wfs_text *)(uintptr_t)tensor->attrs;
    tensor->attrs = text;
    return 0;
}

int catalog_add_finding(struct wfs_catalog *catalog, unsigned severity, const char *format, ...)
{
    if (array_reserve(&catalog->findings.list, sizeof(*catalog->findings.list), catalog->findings.n,
                      1, &catalog->findings.n_room) < 0)
        return -ENOMEM;
    char text[WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    const char *copy = arena_copy(&catalog->arena, text, strlen(text));
    if (copy == NULL)
        return -ENOMEM;
    const struct wfs_finding finding = {severity & WFS_HIGH, severity & ~(unsigned)WFS_HIGH, copy};
    struct wfs_finding *findings = catalog->findings.list;
    size_t at = catalog->findings.n++;
    for (; at > 0 && findings[at - 1].severity < finding.severity; at--)
        findings[at] = findings[at - 1];
    findings[at] = finding;
    return 0;
}

uint64_t *catalog_dense_strides(struct wfs_catalog *catalog, const struct wfs_shape *shape)
{
    uint64_t *strides = arena_calloc(&catalog->arena, shape->rank, sizeof(*strides));
    if (strides == NULL || shape->rank == 0)
        return NULL;
    uint64_t step = 1;
    for (uint32_t i = shape->rank; i-- > 0;) {
        strides[i] = step;
        /* Only a tensor without elements can overflow here, and nobody steps through that. */
        if (!checked_mul(step, shape->dims[i], &step))
            step = 0;
    }
    return strides;
}

const struct wfs_note *wfs_catalog_described(const struct wfs_catalog *catalog)
{
    return catalog->notes.described;
}

const struct wfs_format *wfs_catalog_format(const struct wfs_catalog *catalog)
{
    return catalog->format;
}

const struct wfs_container *wfs_catalog_container(const struct wfs_catalog *catalog)
{
    return catalog->container;
}

size_t wfs_catalog_n_tensors(const struct wfs_catalog *catalog)
{
    return catalog->n_tensors;
}

const struct wfs_tensor *wfs_catalog_tensor(const struct wfs_catalog *catalog, size_t i)
{
    return catalog->borrowed != NULL ? catalog->borrowed[i] : &catalog->tensors[i];
}

const struct wfs_tensor *wfs_catalog_find(const struct wfs_catalog *catalog, const char *key)
{
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct wfs_tensor *tensor = wfs_catalog_tensor(catalog, i);
        if (strcmp(tensor->key, key) == 0)
            return tensor;
    }
    return NULL;
}

const struct wfs_text *wfs_catalog_meta(const struct wfs_catalog *catalog)
{
    return catalog->meta.first;
}

size_t wfs_catalog_n_findings(const struct wfs_catalog *catalog)
{
    return catalog->findings.n;
}

const struct wfs_finding *wfs_catalog_finding(const struct wfs_catalog *catalog, size_t i)
{
    return &catalog->findings.list[i];
}

size_t wfs_catalog_n_sources(const struct wfs_catalog *catalog)
{
    return catalog->sources.n;
}

const char *wfs_catalog_source_path(const struct wfs_catalog *catalog, size_t i)
{
    return catalog->sources.list[i]->path;
}

struct wfs_access wfs_catalog_access(const struct wfs_catalog *catalog)
{
    struct wfs_access access = catalog->sources.access;
    for (size_t i = 0; i < catalog->sources.n; i++)
        source_add_access(catalog->sources.list[i], &access);
    return access;
}

uint64_t wfs_catalog_source_bytes(const struct wfs_catalog *catalog, size_t i)
{
    return catalog->sources.list[i]->n_bytes;
}

uint64_t wfs_catalog_source_cached(const struct wfs_catalog *catalog, size_t i, bool *ret)
{
    const struct source *source = catalog->sources.list[i];
    *ret = source->kind->count_cached != NULL;
    return *ret ? source->kind->count_cached(source) : source->n_bytes;
}

struct wfs_identity wfs_catalog_source_identity(const struct wfs_catalog *catalog, size_t i)
{
    return catalog->sources.list[i]->identity;
}

const char *wfs_catalog_source_trouble(const struct wfs_catalog *catalog, size_t i)
{
    const struct source *source = catalog->sources.list[i];
    return source->is_remote && source->kind->trouble != NULL ? source->kind->trouble(source, 0)
                                                              : NULL;
}

int wfs_catalog_source_of(const struct wfs_catalog *catalog, const struct wfs_tensor *tensor)
{
    const struct source *source = tensor->stored.source;
    if (source != NULL && source->origin != NULL)
        source = source->origin;
    for (size_t i = 0; i < catalog->sources.n; i++) {
        if (catalog->sources.list[i] == source)
            return (int)i;
    }
    return -1;
}

bool wfs_catalog_reads(const struct wfs_catalog *catalog, const struct stat *st)
{
    for (size_t i = 0; i < catalog->sources.n; i++) {
        const struct wfs_identity *identity = &catalog->sources.list[i]->identity;
        if (identity->inode == st->st_ino && identity->device == st->st_dev)
            return true;
    }
    return false;
}

int wfs_catalog_check_backup(const struct wfs_catalog *catalog, const char *path,
                             const struct wfs_backup *backup, struct wfs_error *err)
{
    struct stat st, output;
    if (backup->control != WFS_BACKUP_SIMPLE && backup->control != WFS_BACKUP_EXISTING)
        return 0;
    autofree char *kept = NULL;
    if (asprintf(&kept, "%s%s", path, backup->suffix) < 0) {
        kept = NULL;
        return wfs_fail_memory(err);
    }
    if (lstat(path, &output) < 0 || lstat(kept, &st) < 0 || !wfs_catalog_reads(catalog, &st) ||
        (st.st_ino == output.st_ino && st.st_dev == output.st_dev))
        return 0;
    return wfs_fail(err, EEXIST,
                    "its backup would replace '%s', which is read; use numbered "
                    "backups or another suffix",
                    wfs_quote(kept).text);
}

int wfs_catalog_check_sources(const struct wfs_catalog *catalog, size_t *ret_i)
{
    for (size_t i = 0; i < catalog->sources.n; i++) {
        if (source_check(catalog->sources.list[i]) < 0) {
            *ret_i = i;
            return -EIO;
        }
    }
    return 0;
}

static int move_sources(struct wfs_catalog *catalog, struct wfs_catalog *part)
{
    if (array_reserve(&catalog->sources.list, sizeof(*catalog->sources.list), catalog->sources.n,
                      part->sources.n, &catalog->sources.n_room) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < part->sources.n; i++)
        catalog->sources.list[catalog->sources.n++] = part->sources.list[i];
    part->sources.n = 0;
    wfs_access_merge(&catalog->sources.access, &part->sources.access);
    return 0;
}

int catalog_adopt_part(struct wfs_catalog *catalog, struct wfs_catalog *part)
{
    if (array_reserve(&catalog->parts.list, sizeof(*catalog->parts.list), catalog->parts.n, 1,
                      &catalog->parts.n_room) < 0 ||
        move_sources(catalog, part) < 0) {
        wfs_catalog_free(part);
        return -ENOMEM;
    }
    catalog->parts.list[catalog->parts.n++] = part;
    return 0;
}

int catalog_merge_texts(struct wfs_catalog *catalog, const struct wfs_catalog *part)
{
    for (const struct wfs_text *text = part->meta.first; text != NULL; text = text->next) {
        if (text_find(catalog->meta.first, text->name) == NULL &&
            catalog_add_meta_bytes(catalog, text->name, text->value, text->n_bytes) < 0)
            return -ENOMEM;
    }
    for (size_t i = 0; i < part->findings.n; i++) {
        if (catalog_add_finding(catalog,
                                part->findings.list[i].severity | part->findings.list[i].flags,
                                "%s", part->findings.list[i].text) < 0)
            return -ENOMEM;
    }
    return 0;
}
