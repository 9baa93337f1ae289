/* SPDX-License-Identifier: MIT */
/*
 * What Burn demands of a record as a whole: five texts of metadata, an item, and since 0.12 `_b`,
 * which is empty or null.
 */
#include "format/records/record_head.h"

#include <errno.h>
#include <string.h>

#include "format/records/record_dtype.h"
#include "format/records/record_version.h"

enum { MINOR_WITH_MARKER = 12 };

static const char *const texts[] = {"float", "int", "format", "version", "settings"};

enum { N_TEXTS = sizeof(texts) / sizeof(texts[0]) };

static int fail(const struct record_load *load, const char *what)
{
    return wfs_fail(load->err, EBADMSG, "is not a record of Burn: %s", what);
}

/* Reports what is wrong, unless force is given. */
static int note(struct record_load *load, const char *what)
{
    if (!load->context->force)
        return wfs_fail(load->err, EBADMSG, "%s, which Burn refuses", what);
    tally_note(&load->tally, &load->catalog->arena, WFS_FINDING_REC_FORM, "%s", what);
    return 0;
}

static int add_text(struct record_load *load, const char *name, uint32_t id)
{
    const struct value *value = id == 0 ? NULL : graph_at(load->graph, id);
    if (value == NULL || value->kind != VALUE_TEXT)
        return wfs_fail(load->err, EBADMSG,
                        "is not a record of Burn: its metadata has no text called '%s'", name);
    return catalog_add_meta_bytes(load->catalog, name, value->text, value->n) < 0
               ? record_fail_memory(load)
               : 0;
}

static enum wfs_dtype dtype_of(const struct record_load *load, uint32_t metadata, const char *name)
{
    const struct value *value = graph_at(load->graph, value_get(load->graph, metadata, name));
    return record_dtype_of_rust(value->text, value->n);
}

/* Burn ignores them; somebody has added them. */
static int add_other_texts(struct record_load *load, const struct value *map)
{
    int code = 0;
    for (uint32_t i = 0; i + 1 < map->n && code == 0; i += 2) {
        const uint32_t key = value_items(map)[i], value = value_items(map)[i + 1];
        size_t j = 0;
        while (j < N_TEXTS && !value_is_text(load->graph, key, texts[j]))
            j++;
        if (j == N_TEXTS && graph_at(load->graph, value)->kind == VALUE_TEXT)
            code = add_text(load, graph_at(load->graph, key)->text, value);
    }
    return code;
}

static int take_metadata(struct record_load *load, uint32_t id)
{
    int code = 0;
    if (id == 0 || graph_at(load->graph, id)->kind != VALUE_DICT)
        return fail(load, "it has no map called 'metadata'");
    for (size_t i = 0; i < N_TEXTS && code == 0; i++)
        code = add_text(load, texts[i], value_get(load->graph, id, texts[i]));
    if (code < 0)
        return code;
    load->float_dtype = (uint8_t)dtype_of(load, id, "float");
    load->int_dtype = (uint8_t)dtype_of(load, id, "int");
    load->minor =
        record_version_minor(graph_at(load->graph, value_get(load->graph, id, "version"))->text);
    return add_other_texts(load, graph_at(load->graph, id));
}

static int check_marker(struct record_load *load, uint32_t id)
{
    if (id == 0)
        return load->minor > 0 && load->minor < MINOR_WITH_MARKER
                   ? 0
                   : note(load, "the record has no field '_b'");
    const struct value *value = graph_at(load->graph, id);
    return value->kind == VALUE_NONE || (value->kind == VALUE_LIST && value->n == 0)
               ? 0
               : note(load, "the field '_b' of the record is not empty");
}

static void note_others(struct record_load *load, const struct value *map)
{
    for (uint32_t i = 0; i + 1 < map->n; i += 2) {
        const uint32_t id = value_items(map)[i];
        const struct value *key = graph_at(load->graph, id);
        if (!value_is_text(load->graph, id, "metadata") &&
            !value_is_text(load->graph, id, "item") && !value_is_text(load->graph, id, "_b"))
            tally_note(&load->tally, &load->catalog->arena, WFS_FINDING_REC_FIELD,
                       "the record has a field '%s', which is ignored",
                       wfs_quote_n(key->text, key->n).text);
    }
}

int record_head_take(struct record_load *load, uint32_t root)
{
    const struct value *map = graph_at(load->graph, root);
    if (map->kind == VALUE_LIST)
        return wfs_fail(load->err, EOPNOTSUPP,
                        "is a list instead of a map: a record whose fields have no names cannot be "
                        "read; save it with NamedMpkFileRecorder");
    if (map->kind != VALUE_DICT)
        return fail(load, "it is not a map");
    int code = take_metadata(load, value_get(load->graph, root, "metadata"));
    if (code < 0)
        return code;
    load->item = value_get(load->graph, root, "item");
    if (load->item == 0)
        return fail(load, "it has no field 'item'");
    note_others(load, map);
    return check_marker(load, value_get(load->graph, root, "_b"));
}
