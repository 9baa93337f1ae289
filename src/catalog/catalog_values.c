/* SPDX-License-Identifier: MIT */
/*
 * The values of a catalog by name, as one JSON text, and as a part of the digest of all that it
 * says.
 */
#include "catalog/catalog_values.h"

#include <weightfs/cleanup.h>
#include <weightfs/value.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "value/value_json.h"
#include "value/value_leaf.h"

enum { MAX_DEPTH = 256, MAX_NAMED = 10 };

/* Returns the value that a tensor of the catalog came from. */
static uint32_t value_of(const struct wfs_catalog *catalog, uint32_t i)
{
    const uint32_t place = catalog_place(catalog, wfs_catalog_tensor(catalog, i));
    return place == 0 ? 0 : catalog->values.places[place].id;
}

static int by_value(const void *a, const void *b, void *ctx)
{
    const uint32_t x = value_of(ctx, *(const uint32_t *)a), y = value_of(ctx, *(const uint32_t *)b);
    return (x > y) - (x < y);
}

static void sort_tensors(struct catalog_writer *writer)
{
    const struct wfs_catalog *catalog = writer->catalog;
    writer->tensors = calloc(catalog->n_tensors + 1, sizeof(*writer->tensors));
    if (writer->tensors == NULL) {
        strbuf_fail(&writer->json.text);
        return;
    }
    for (size_t i = 0; i < catalog->n_tensors; i++)
        writer->tensors[i] = (uint32_t)i;
    writer->n_tensors = catalog->n_tensors;
    qsort_r(writer->tensors, writer->n_tensors, sizeof(*writer->tensors), by_value,
            (void *)(uintptr_t)catalog);
}

static const char *tensor_key(struct json_writer *json, uint32_t id)
{
    struct catalog_writer *writer = (struct catalog_writer *)json; /* its first field */
    const struct wfs_catalog *catalog = writer->catalog;
    if (writer->tensors == NULL)
        sort_tensors(writer);
    size_t low = 0, high = writer->n_tensors;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (value_of(catalog, writer->tensors[middle]) < id)
            low = middle + 1;
        else
            high = middle;
    }
    const bool is_found = low < writer->n_tensors && value_of(catalog, writer->tensors[low]) == id;
    return is_found ? wfs_catalog_tensor(catalog, writer->tensors[low])->key : NULL;
}

static void catalog_writer_init(struct catalog_writer *writer, const struct wfs_catalog *catalog)
{
    *writer = (struct catalog_writer){.catalog = catalog};
    json_writer_init(&writer->json, &catalog->values.graph);
    writer->json.tensor_key = tensor_key;
}

static void catalog_writer_done(struct catalog_writer *writer)
{
    json_writer_done(&writer->json);
    free(writer->tensors);
}

int catalog_bound_values(struct wfs_catalog *catalog)
{
    enum { N_FREE = 16 << 20, N_TIMES = 4, N_SMALL = 1024 };
    cleanup(weighing_done) struct weighing weighing = {.graph = &catalog->values.graph};
    uint64_t n_left = N_FREE + N_TIMES * catalog->arena.n_bytes, weight;
    for (size_t i = 0; i < catalog->values.n; i++) {
        const uint32_t id = catalog->values.list[i].id;
        if (value_weigh(&weighing, id, &weight) < 0)
            return -ENOMEM;
        if (weight <= N_SMALL)
            continue;
        if (weight > n_left)
            graph_at(&catalog->values.graph, id)->marks |= MARK_CUT;
        else
            n_left -= weight;
    }
    return 0;
}

size_t wfs_catalog_n_values(const struct wfs_catalog *catalog)
{
    return catalog->values.n;
}

const char *wfs_catalog_value_name(const struct wfs_catalog *catalog, size_t i)
{
    return catalog->values.list[i].name;
}

/* Hands over the text, ended by a line feed and NUL. */
static int finish(struct json_writer *json, char **out, size_t *ret_n)
{
    struct strbuf *text = &json->text;
    if (text->has_failed || json->error < 0)
        return text->has_failed ? -ENOMEM : json->error;
    if (text->is_cut) { /* what is shared many times over can be longer than the file */
        strbuf_done(text);
        strbuf_puts(text, "{\"$cut\": \"too long to be shown\"}");
    }
    text->n_max = 0;
    strbuf_puts(text, "\n");
    if (text->is_cut)
        return -ENOMEM;
    *ret_n = text->n_bytes;
    *out = steal(&text->bytes);
    return 0;
}

int catalog_value_text(const struct wfs_catalog *catalog, uint32_t id, char **out, size_t *ret_n)
{
    cleanup(catalog_writer_done) struct catalog_writer writer;
    catalog_writer_init(&writer, catalog);
    json_write(&writer.json, id);
    return finish(&writer.json, out, ret_n);
}

int catalog_edit_value(struct wfs_catalog *catalog, uint32_t old, const char *file,
                       const char *text, size_t n_bytes, uint32_t *ret_id, struct wfs_error *err)
{
    cleanup(catalog_writer_done) struct catalog_writer writer;
    catalog_writer_init(&writer, catalog);
    if (old != 0)
        json_write(&writer.json, old);
    strbuf_puts(&writer.json.text, "\n");
    if (writer.json.text.has_failed)
        return wfs_fail_memory(err);
    if (writer.json.error < 0)
        return wfs_fail(err, -writer.json.error, "'%s': cannot read the old value",
                        wfs_quote(file).text);
    return value_edit(&catalog->values.graph, (struct value_old){old, &writer.json.text}, file,
                      text, n_bytes, ret_id, err);
}

int wfs_catalog_value_text(const struct wfs_catalog *catalog, size_t i, char **out,
                           size_t *ret_n_bytes)
{
    return catalog_value_text(catalog, catalog->values.list[i].id, out, ret_n_bytes);
}

/* The rest of a name behind a prefix and its dot; NULL when it is not below the prefix. */
static const char *below(const char *name, const char *prefix, size_t n_prefix)
{
    return strncmp(name, prefix, n_prefix) == 0 && name[n_prefix] == '.' ? name + n_prefix + 1
                                                                         : NULL;
}

/* Writes all values, or those below a prefix, as members of an object. */
static int write_all(const struct wfs_catalog *catalog, const char *prefix, char **out,
                     size_t *ret_n)
{
    cleanup(catalog_writer_done) struct catalog_writer writer;
    struct json_writer *json = &writer.json;
    bool has_any = false;
    catalog_writer_init(&writer, catalog);
    json_out_open(&json->out, NULL, '{', JSON_LINES);
    for (size_t i = 0; i < catalog->values.n; i++) {
        const struct catalog_value *value = &catalog->values.list[i];
        const char *name =
            prefix == NULL ? value->name : below(value->name, prefix, strlen(prefix));
        if (name == NULL)
            continue;
        json_out_name(&json->out, name, strlen(name));
        json_write(json, value->id);
        has_any = true;
    }
    json_out_close(&json->out);
    return !has_any && prefix != NULL ? -ENOENT : finish(json, out, ret_n);
}

/* The value of the longest key that the rest of a name begins with; the name moves on behind it. */
static uint32_t step_pairs(const struct graph *graph, const struct value *dict, const char **name)
{
    uint32_t found = 0;
    size_t n_found = 0;
    for (uint32_t i = 0; i + 1 < dict->n; i += 2) {
        autostrbuf struct strbuf key = {0};
        if (!value_add_key(&key, graph, value_items(dict)[i]) || key.is_cut ||
            key.n_bytes < n_found ||
            strncmp(*name, key.n_bytes == 0 ? "" : key.bytes, key.n_bytes) != 0 ||
            ((*name)[key.n_bytes] != '\0' && (*name)[key.n_bytes] != '.'))
            continue;
        found = value_items(dict)[i + 1];
        n_found = key.n_bytes;
    }
    *name += found == 0 ? 0 : n_found;
    return found;
}

static uint32_t step_items(const struct value *list, const char **name)
{
    char *end;
    const unsigned long i = strtoul(*name, &end, 10);
    if (**name < '0' || **name > '9' || (*end != '\0' && *end != '.') || i >= list->n)
        return 0;
    *name = end;
    return value_items(list)[i];
}

/* Returns a dict, or that of an object that has the items of one; else NULL. */
static const struct value *mapping_of(const struct graph *graph, uint32_t id)
{
    const struct value *value = id == 0 ? NULL : graph_at(graph, id);
    const uint32_t items = value == NULL ? 0 : value_part(graph, value, PART_ITEMS);
    if (items != 0)
        value = graph_at(graph, items);
    return value != NULL && value->kind == VALUE_DICT ? value : NULL;
}

static uint32_t step_mapping(const struct graph *graph, uint32_t id, const char **name)
{
    const struct value *dict = mapping_of(graph, id);
    return dict == NULL ? 0 : step_pairs(graph, dict, name);
}

/* Steps to an attribute of an object: in its states, each a dict or a pair of dicts, of which the
 * last one counts. */
static uint32_t step_attributes(const struct graph *graph, const struct value *call,
                                const char **name)
{
    const uint32_t states = value_part(graph, call, PART_STATES);
    uint32_t found = 0;
    for (uint32_t i = states == 0 ? 0 : graph_at(graph, states)->n; i-- > 0 && found == 0;) {
        const uint32_t id = value_items(graph_at(graph, states))[i];
        const struct value *state = graph_at(graph, id);
        found = step_mapping(graph, id, name);
        for (uint32_t k = 0; state->kind == VALUE_TUPLE && k < state->n && found == 0; k++)
            found = step_mapping(graph, value_items(state)[k], name);
    }
    return found;
}

/* Takes the word if it is the next component of the name. */
static bool take_word(const char **name, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(*name, word, n) != 0 || ((*name)[n] != '\0' && (*name)[n] != '.'))
        return false;
    *name += n;
    return true;
}

/* Steps to a part of an object under the name that its JSON has for it. */
static uint32_t step_part(const struct graph *graph, const struct value *call, const char **name)
{
    const uint32_t states = value_part(graph, call, PART_STATES);
    const bool has_kwargs = call->form == FORM_NEWOBJ_EX && call->call.args != 0 &&
                            graph_at(graph, call->call.args)->n == 2;
    const uint32_t *both = has_kwargs ? value_items(graph_at(graph, call->call.args)) : NULL;
    if (take_word(name, "args"))
        return call->form == FORM_EXTENSION ? 0 : has_kwargs ? both[0] : call->call.args;
    if (take_word(name, "kwargs"))
        return has_kwargs ? both[1] : 0;
    if (take_word(name, "items"))
        return value_part(graph, call, PART_ITEMS);
    if (take_word(name, "elements"))
        return value_part(graph, call, PART_ELEMENTS);
    if (take_word(name, "states"))
        return states;
    if (states != 0 && graph_at(graph, states)->n == 1 && take_word(name, "state"))
        return value_items(graph_at(graph, states))[0];
    return 0;
}

/* Items of an object come before its attributes, as in the listing, and its parts last. */
static uint32_t step_call(const struct graph *graph, uint32_t id, const char **name)
{
    const struct value *call = graph_at(graph, id);
    const uint32_t elements = value_part(graph, call, PART_ELEMENTS);
    uint32_t found = step_mapping(graph, id, name);
    if (found == 0 && elements != 0)
        found = step_items(graph_at(graph, elements), name);
    if (found == 0)
        found = step_attributes(graph, call, name);
    return found != 0 ? found : step_part(graph, call, name);
}

static uint32_t step(const struct graph *graph, uint32_t id, const char **name)
{
    const struct value *value = graph_at(graph, id);
    if (value->kind == VALUE_DICT)
        return step_pairs(graph, value, name);
    if (value_has_items(value))
        return step_items(value, name);
    return value->kind == VALUE_CALL ? step_call(graph, id, name) : 0;
}

/* Follows a name inside of a value as far as it means something. Returns whether all of it does;
 * *id is the last value reached, *name what is behind its own. */
static bool follow(const struct graph *graph, uint32_t *id, const char **name)
{
    const char *rest = *name;
    for (unsigned depth = 0; depth < MAX_DEPTH; depth++) {
        const uint32_t next = step(graph, *id, &rest);
        if (next == 0)
            return false;
        *id = next;
        *name = rest;
        if (*rest++ == '\0')
            return true;
    }
    return false;
}

/* Returns the value of a key; else 0, and the last value on the way to it, with the rest of the
 * key, where there is one. */
static uint32_t find_value(const struct wfs_catalog *catalog, const char *key, uint32_t *ret_last,
                           const char **ret_rest)
{
    *ret_last = 0;
    for (size_t i = 0; i < catalog->values.n; i++)
        if (strcmp(catalog->values.list[i].name, key) == 0)
            return catalog->values.list[i].id;
    for (size_t i = 0; i < catalog->values.n; i++) {
        const char *name = catalog->values.list[i].name;
        const char *rest = below(key, name, strlen(name));
        uint32_t id = catalog->values.list[i].id;
        if (rest == NULL)
            continue;
        if (follow(&catalog->values.graph, &id, &rest))
            return id;
        *ret_last = id;
        *ret_rest = rest;
    }
    return 0;
}

/* last, rest: as find_value gives them. */
static int fail_missing(const struct wfs_catalog *catalog, const char *key, uint32_t last,
                        const char *rest, struct wfs_error *err)
{
    autostrbuf struct strbuf names = {.n_max = 512};
    const struct value *dict = mapping_of(&catalog->values.graph, last);
    const size_t n_names = dict == NULL ? catalog->values.n : dict->n / 2;
    for (size_t i = 0; i < n_names && i < MAX_NAMED; i++) {
        autostrbuf struct strbuf name = {.n_max = 512};
        if (dict == NULL)
            strbuf_puts(&name, catalog->values.list[i].name);
        else if (!value_add_key(&name, &catalog->values.graph, value_items(dict)[2 * i]))
            continue;
        strbuf_printf(&names, "%s %s", names.n_bytes == 0 ? "" : ",",
                      wfs_quote_n(name.bytes, name.n_bytes).text);
    }
    if (catalog->values.n == 0)
        return wfs_fail(err, ENOENT, "there are no values beside the tensors");
    const int n_text = names.bytes == NULL ? 0 : (int)names.n_bytes;
    const char *text = names.bytes == NULL ? "" : names.bytes;
    const char *more = n_names > MAX_NAMED || names.is_cut ? ", ..." : "";
    if (dict == NULL || n_text == 0)
        return wfs_fail(err, ENOENT, "no value is called '%s'; there %s%.*s%s", wfs_quote(key).text,
                        n_names == 1 ? "is" : "are", n_text, text, more);
    const size_t n_place = strlen(key) - strlen(rest) - (*rest != '.');
    return wfs_fail(err, ENOENT, "no value is called '%s'; '%s' has%.*s%s", wfs_quote(key).text,
                    wfs_quote_n(key, n_place).text, n_text, text, more);
}

int wfs_catalog_config(const struct wfs_catalog *catalog, const char *key, char **out,
                       size_t *ret_n_bytes, struct wfs_error *err)
{
    const char *rest = "";
    uint32_t last = 0;
    const uint32_t id = key == NULL ? 0 : find_value(catalog, key, &last, &rest);
    const int code = id != 0 ? catalog_value_text(catalog, id, out, ret_n_bytes)
                             : write_all(catalog, key, out, ret_n_bytes);
    if (code == -ENOENT)
        return fail_missing(catalog, key, last, rest, err);
    if (code == -ENOMEM)
        return wfs_fail_memory(err);
    return code < 0 ? wfs_fail(err, -code, "cannot read the bytes of a value") : 0;
}

int catalog_index_values(const struct wfs_catalog *catalog, struct text_index *ret)
{
    uint32_t number;
    int code = text_index_reserve(ret, catalog->values.n);
    for (size_t i = 0; i < catalog->values.n && code == 0 && ret->n_texts == i; i++)
        code = text_index_add(ret, catalog->values.list[i].name,
                              strlen(catalog->values.list[i].name), &number);
    return code;
}

int catalog_config_by(const struct wfs_catalog *catalog, const struct text_index *names,
                      const char *key, char **out, size_t *ret_n, struct wfs_error *err)
{
    const uint32_t i = text_index_find(names, key, strlen(key));
    if (i == TEXT_INDEX_NONE)
        return wfs_catalog_config(catalog, key, out, ret_n, err);
    const int code = wfs_catalog_value_text(catalog, i, out, ret_n);
    return code == -ENOMEM ? wfs_fail_memory(err) : code;
}

/* ---- the digest of what a catalog says ---- */

/* Numbers go in with a fixed width and order of bytes, texts with the NUL behind them. */
static void add_number(struct hasher *hasher, uint64_t number)
{
    unsigned char bytes[8];
    store_le64(bytes, number);
    hasher_update(hasher, bytes, sizeof(bytes));
}

static void add_texts(struct hasher *hasher, const struct wfs_text *text)
{
    for (; text != NULL; text = text->next) {
        hasher_update(hasher, text->name, strlen(text->name) + 1);
        add_number(hasher, text->n_bytes);
        hasher_update(hasher, text->value, text->n_bytes);
    }
    hasher_update(hasher, "", 1); /* no name is empty: lists that follow each other are not one */
}

static void add_stored(struct hasher *hasher, const struct wfs_tensor *tensor)
{
    const struct wfs_stored *stored = &tensor->stored;
    add_number(hasher, stored->offset);
    add_number(hasher, stored->dtype);
    add_number(hasher, (stored->is_big_endian ? 1u : 0u) | (stored->is_conjugate ? 2u : 0u) |
                           (stored->is_negative ? 4u : 0u) | (stored->strides != NULL ? 8u : 0u));
    for (uint32_t i = 0; stored->strides != NULL && i < tensor->shape.rank; i++)
        add_number(hasher, stored->strides[i]);
}

void catalog_digest_add(struct hasher *hasher, const struct wfs_tensor *tensor)
{
    hasher_update(hasher, tensor->key, strlen(tensor->key) + 1);
    add_number(hasher, tensor->dtype);
    add_number(hasher, tensor->n_bytes);
    add_number(hasher, tensor->shape.rank);
    for (uint32_t i = 0; i < tensor->shape.rank; i++)
        add_number(hasher, tensor->shape.dims[i]);
    add_stored(hasher, tensor);
    add_texts(hasher, tensor->attrs);
}

/* A pickle that is a file of its own in an archive has a checksum there, which says the same. */
static int add_values(struct hasher *hasher, const struct wfs_catalog *catalog)
{
    add_number(hasher, catalog->values.pickle_crc);
    for (size_t i = 0; i < catalog->values.n && catalog->values.pickle_crc == 0; i++) {
        autofree char *text = NULL;
        size_t n_bytes;
        const int code = wfs_catalog_value_text(catalog, i, &text, &n_bytes);
        if (code < 0)
            return code;
        hasher_update(hasher, catalog->values.list[i].name,
                      strlen(catalog->values.list[i].name) + 1);
        hasher_update(hasher, text, n_bytes);
    }
    return 0;
}

struct hasher *catalog_digest_new(size_t n_tensors)
{
    struct hasher *hasher = hasher_new();
    if (hasher != NULL)
        add_number(hasher, n_tensors);
    return hasher;
}

int catalog_digest_end(struct hasher *hasher, const struct wfs_catalog *catalog, uint64_t *ret)
{
    add_texts(hasher, catalog->meta.first);
    const int code = add_values(hasher, catalog);
    if (code == 0)
        *ret = hasher_digest(hasher);
    return code;
}

int wfs_catalog_digest(const struct wfs_catalog *catalog, uint64_t *ret_digest)
{
    auto_hasher struct hasher *hasher = catalog_digest_new(catalog->n_tensors);
    if (hasher == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < catalog->n_tensors; i++)
        catalog_digest_add(hasher, wfs_catalog_tensor(catalog, i));
    return catalog_digest_end(hasher, catalog, ret_digest);
}
