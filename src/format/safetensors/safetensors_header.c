/* SPDX-License-Identifier: MIT */
/*
 * The header's JSON: one object of tensors and, under "__metadata__", an object of texts. Accepts
 * what the reference accepts, which is more than its documentation says, and notes what is odd.
 */
#include "format/safetensors/safetensors_header.h"

#include <weightfs/array.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "format/core/nul_key.h"
#include "format/safetensors/safetensors_fields.h"

/* A text of the header to look for in a map. */
struct wanted {
    const struct safetensors_load *load;
    const struct json_text *text;
};

static bool is_key(const void *ctx, uint32_t id)
{
    const struct wanted *wanted = ctx;
    const struct safetensors_entry *entry = &wanted->load->entries[id];
    return entry->n_key == wanted->text->n_bytes &&
           memcmp(entry->key, wanted->text->bytes, entry->n_key) == 0;
}

/* As a path it would leave the directory that it is taken in. */
static bool leads_elsewhere(const struct json_text *key)
{
    const char *end = key->bytes + key->n_bytes;
    for (const char *at = key->bytes; at < end;) {
        const char *slash = memchr(at, '/', (size_t)(end - at));
        const char *stop = slash != NULL ? slash : end;
        if (stop - at == 2 && at[0] == '.' && at[1] == '.')
            return true;
        at = stop + 1;
    }
    return key->n_bytes > 0 && key->bytes[0] == '/';
}

static void note_key(struct safetensors_load *load, const struct json_text *key)
{
    const bool has_slash = memchr(key->bytes, '/', key->n_bytes) != NULL;
    if (!has_slash && !safetensors_is_text(key, ".."))
        return;
    const bool is_path = leads_elsewhere(key);
    const enum wfs_finding_kind kind = is_path ? WFS_FINDING_ST_PATH : WFS_FINDING_ST_SLASH;
    if (tally_count(&load->tally, kind))
        tally_describe(&load->tally, &load->catalog->arena, kind, "the key '%s' %s",
                       safetensors_quote(key).text,
                       is_path ? "would lead out of the directory if a tool used it as a path"
                               : "contains a slash");
}

static int check_key(struct safetensors_load *load)
{
    const struct json_text *key = &load->tensor;
    const uint64_t at = safetensors_at(key);
    if (key->n_bytes > load->context->limits.key)
        return wfs_fail(
            load->err, E2BIG, "the key '%s' at byte %" PRIu64 " is longer than %s (limit key)",
            safetensors_quote(key).text, at, wfs_count(load->context->limits.key, "byte").text);
    note_key(load, key);
    return 0;
}

static void note_duplicate(struct safetensors_load *load, const struct safetensors_entry *first)
{
    if (!tally_count(&load->tally, WFS_FINDING_ST_DUPLICATE))
        return;
    struct arena *arena = &load->catalog->arena;
    load->duplicate = arena_print(
        arena, "duplicate key '%s' at byte %" PRIu64 ", first at byte %" PRIu32,
        safetensors_quote(&load->tensor).text, safetensors_at(&load->tensor), first->offset);
    if (load->duplicate != NULL)
        tally_describe(&load->tally, arena, WFS_FINDING_ST_DUPLICATE, "%s: the last one counts",
                       load->duplicate);
}

/* The last of several entries of one key takes the place of the others. */
static int keep(struct safetensors_load *load, const struct safetensors_entry *entry)
{
    const struct wanted wanted = {load, &load->tensor};
    const uint64_t hash = hash_bytes(entry->key, entry->n_key, hash_seed());
    uint32_t id;
    if (map_find(&load->keys, hash, is_key, &wanted, &id)) {
        note_duplicate(load, &load->entries[id]);
        load->entries[id] = *entry;
        return 0;
    }
    if (load->n_entries == load->context->limits.tensors)
        return wfs_fail(load->err, E2BIG, "it has more than %s (limit tensors)",
                        wfs_count(load->n_entries, "tensor").text);
    if (array_reserve(&load->entries, sizeof(*load->entries), load->n_entries, 1, &load->n_room) <
            0 ||
        map_add(&load->keys, hash, (uint32_t)load->n_entries) < 0)
        return wfs_fail_memory(load->err);
    load->entries[load->n_entries++] = *entry;
    return 0;
}

/* Escapes the NULs of a key, or refuses it. Returns 1 if there are any. */
static int escape(struct safetensors_load *load, struct json_text *key, const char *what)
{
    const int code = nul_key_escape(load->context->force || load->context->escapes_nul,
                                    &load->catalog->arena, &key->bytes, &key->n_bytes);
    if (code == -EOPNOTSUPP)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "the %s '%s' at byte %" PRIu64
                        " contains a NUL, which no file name can" NUL_KEY_HINT,
                        what, safetensors_quote(key).text, safetensors_at(key));
    return code < 0 ? catalog_fail_memory(load->catalog, load->err) : code;
}

static int take_tensor(struct safetensors_load *load, const struct json_text *key)
{
    load->tensor = *key;
    int code = check_key(load);
    const int has_nul = code < 0 ? code : escape(load, &load->tensor, "key");
    if (has_nul < 0)
        return has_nul;
    struct safetensors_entry entry = {
        .key = load->tensor.bytes,
        .n_key = (uint32_t)load->tensor.n_bytes,
        .offset = (uint32_t)safetensors_at(key),
        .has_nul = has_nul > 0,
    };
    code = safetensors_fields_take(load, &entry);
    if (code == 0)
        code = keep(load, &entry);
    load->tensor = (struct json_text){0};
    return code;
}

static bool is_meta_name(const void *ctx, uint32_t id)
{
    const struct wanted *wanted = ctx;
    const struct json_text *name = &wanted->load->meta[id];
    return name->n_bytes == wanted->text->n_bytes &&
           memcmp(name->bytes, wanted->text->bytes, name->n_bytes) == 0;
}

static int keep_meta(struct safetensors_load *load, const struct json_text *name,
                     const struct json_text *value)
{
    const struct wanted wanted = {load, name};
    const uint64_t hash = hash_bytes(name->bytes, name->n_bytes, hash_seed());
    uint32_t id;
    if (map_find(&load->meta_names, hash, is_meta_name, &wanted, &id)) {
        load->meta[id + 1] = *value;
        if (tally_count(&load->tally, WFS_FINDING_ST_META_DUPLICATE))
            tally_describe(&load->tally, &load->catalog->arena, WFS_FINDING_ST_META_DUPLICATE,
                           "metadata key '%s' is a duplicate, at byte %" PRIu64
                           ": the last one counts",
                           safetensors_quote(name).text, safetensors_at(name));
        return 0;
    }
    if (array_reserve(&load->meta, sizeof(*load->meta), load->n_meta, 2, &load->meta_room) < 0 ||
        map_add(&load->meta_names, hash, (uint32_t)load->n_meta) < 0)
        return wfs_fail_memory(load->err);
    load->meta[load->n_meta++] = *name;
    load->meta[load->n_meta++] = *value;
    return 0;
}

static void note_metadata(struct safetensors_load *load, bool is_null)
{
    struct arena *arena = &load->catalog->arena;
    bool has_format = false;
    for (size_t i = 0; i < load->n_meta; i += 2)
        has_format = has_format || safetensors_is_text(&load->meta[i], "format");
    if (load->n_meta == 0 && tally_count(&load->tally, WFS_FINDING_ST_META_EMPTY))
        tally_describe(&load->tally, arena, WFS_FINDING_ST_META_EMPTY,
                       "the metadata is %s, which some loaders refuse", is_null ? "null" : "empty");
    if (load->n_meta > 0 && !has_format && tally_count(&load->tally, WFS_FINDING_ST_META_FORMAT))
        tally_describe(&load->tally, arena, WFS_FINDING_ST_META_FORMAT,
                       "the metadata has no 'format', which some loaders refuse");
}

static int fill_metadata(struct safetensors_load *load)
{
    for (size_t i = 0; i < load->n_meta; i += 2) {
        const struct json_text *name = &load->meta[i], *value = &load->meta[i + 1];
        if (catalog_add_meta_bytes(load->catalog, name->bytes, value->bytes, value->n_bytes) < 0)
            return catalog_fail_memory(load->catalog, load->err);
    }
    return 0;
}

static int take_metadata(struct safetensors_load *load)
{
    struct json *json = &load->json;
    struct json_text name, value;
    if (load->has_metadata)
        return safetensors_load_fail_json(load, "duplicate field '" SAFETENSORS_METADATA "'");
    load->has_metadata = true;
    const bool is_null = json_kind(json) == JSON_KIND_NULL;
    if (is_null)
        json_take_null(json);
    else
        json_open_object(json);
    while (!is_null && json_next_key(json, &name)) {
        int code = escape(load, &name, "metadata key");
        if (code < 0)
            return code;
        if (!json_take_string(json, &value))
            return safetensors_load_fail_json(load, NULL);
        code = keep_meta(load, &name, &value);
        if (code < 0)
            return code;
    }
    if (json->error != NULL)
        return safetensors_load_fail_json(load, NULL);
    load->catalog->has_meta = !is_null;
    note_metadata(load, is_null);
    return fill_metadata(load);
}

static int take_header(struct safetensors_load *load)
{
    struct json *json = &load->json;
    struct json_text key;
    json_open_object(json);
    while (json_next_key(json, &key)) {
        const int code = safetensors_is_text(&key, SAFETENSORS_METADATA) ? take_metadata(load)
                                                                         : take_tensor(load, &key);
        if (code < 0)
            return code;
    }
    const size_t n_text = json_offset(json);
    if (!json_end(json))
        return safetensors_load_fail_json(load, NULL);
    for (size_t i = n_text; i < load->n_header; i++) {
        if (load->header[i] == ' ')
            continue;
        if (tally_count(&load->tally, WFS_FINDING_ST_PADDING))
            tally_describe(&load->tally, &load->catalog->arena, WFS_FINDING_ST_PADDING,
                           "the header is padded with white space that is not spaces");
        break;
    }
    return 0;
}

int safetensors_header_parse(struct safetensors_load *load)
{
    load->json = json_of(load->header, (size_t)load->n_header);
    const int code = take_header(load);
    map_done(&load->keys); /* the catalog, which comes next, needs the room */
    return code;
}
