/* SPDX-License-Identifier: MIT */
/*
 * Burn's records: recognising a file, unpacking it, and the steps of loading one. Those of Burn's
 * binary recorders have neither names nor types, so that only the program that wrote one can read
 * it; what they say about themselves is enough to name them. What Burn demands of a record as a
 * whole: five texts of metadata, an item, and since 0.12 `_b`, which is empty or null.
 */
#include "format/records/records.h"

#include <weightfs/cleanup.h>
#include <weightfs/error.h>
#include <weightfs/strbuf.h>
#include "archive/gzip.h"
#include "base/bytes.h"
#include "base/text_index.h"
#include "format/core/format.h"
#include "format/core/keys.h"
#include "format/core/tally.h"
#include "format/records/record_write.h"
#include "format/records/record_list.h"
#include "format/records/record_load.h"
#include "format/records/record_names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- records in bincode: five texts, each a length and its bytes ---- */

enum { N_TEXTS = 5, N_TYPE_MAX = 100, N_LENGTH_MAX = 250 };

enum { TEXT_FLOAT, TEXT_INT, TEXT_FORMAT, TEXT_VERSION, TEXT_SETTINGS };

struct text {
    const char *bytes;
    size_t n_bytes;
};

/* A length takes one byte up to 250; longer texts have not been seen, for names of recorders with
 * two bytes more. */
static bool take_text(struct cursor *cursor, struct text *ret)
{
    const uint8_t *bytes;
    uint8_t length;
    uint16_t n;
    if (!cursor_u8(cursor, &length))
        return false;
    n = length;
    if (length > N_LENGTH_MAX && (length != N_LENGTH_MAX + 1 || !cursor_le16(cursor, &n)))
        return false;
    if (!cursor_take(cursor, n, &bytes))
        return false;
    *ret = (struct text){(const char *)bytes, n};
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] < 0x20 || bytes[i] > 0x7e)
            return false;
    }
    return n > 0;
}

static bool take_texts(const uint8_t *head, size_t n_head, struct text texts[N_TEXTS])
{
    struct cursor cursor = cursor_of(head, n_head);
    for (int i = 0; i < N_TEXTS; i++) {
        if (!take_text(&cursor, &texts[i]))
            return false;
    }
    return texts[TEXT_FLOAT].n_bytes <= N_TYPE_MAX && texts[TEXT_INT].n_bytes <= N_TYPE_MAX;
}

/* Returns whether the head is that of such a record. */
static bool bincode_probe(const uint8_t *head, size_t n_head)
{
    static const char module[] = "burn_core::record::";
    struct text texts[N_TEXTS];
    return take_texts(head, n_head, texts) &&
           memmem(texts[TEXT_FORMAT].bytes, texts[TEXT_FORMAT].n_bytes, module,
                  sizeof(module) - 1) != NULL;
}

/* The last component of a path of Rust without its parameters. */
static struct text name_of(struct text path)
{
    const char *end = memchr(path.bytes, '<', path.n_bytes);
    const size_t n = end == NULL ? path.n_bytes : (size_t)(end - path.bytes);
    size_t start = n;
    while (start > 0 && path.bytes[start - 1] != ':')
        start--;
    return (struct text){path.bytes + start, n - start};
}

/* Refuses it by the name of its recorder, version and settings. -EOPNOTSUPP. */
static int bincode_refuse(const uint8_t *head, size_t n_head, struct wfs_error *err)
{
    struct text texts[N_TEXTS];
    if (!take_texts(head, n_head, texts))
        return wfs_fail(err, EMEDIUMTYPE, "is not a record of Burn");
    const struct text name = name_of(texts[TEXT_FORMAT]);
    return wfs_fail(
        err, EOPNOTSUPP,
        "is a file of Burn's %s (Burn %s, %s), which has no names and no types: load it with that "
        "Burn and save it with NamedMpkFileRecorder",
        wfs_quote_n(name.bytes, name.n_bytes).text,
        wfs_quote_n(texts[TEXT_VERSION].bytes, texts[TEXT_VERSION].n_bytes).text,
        wfs_quote_n(texts[TEXT_SETTINGS].bytes, texts[TEXT_SETTINGS].n_bytes).text);
}

/* ---- recognising ---- */

enum record_form { FORM_UNKNOWN, FORM_MPK, FORM_JSON, FORM_BINCODE };

static bool contains(const uint8_t *head, size_t n_head, const char *word)
{
    return head != NULL && memmem(head, n_head, word, strlen(word)) != NULL;
}

/* A key of MessagePack, a text or bytes, in any of the forms of its length. */
static bool is_key(const uint8_t *at, size_t n_left, const char *word)
{
    const size_t n = strlen(word);
    const uint8_t first = n_left > 0 ? at[0] : 0;
    size_t n_head = 1;
    if (first == 0xd9 || first == 0xc4)
        n_head = 2;
    else if (first == 0xda || first == 0xc5)
        n_head = 3;
    else if (first == 0xdb || first == 0xc6)
        n_head = 5;
    else if (first != (0xa0 | n))
        return false;
    return n_left >= n_head + n && at[n_head - 1] == (n_head == 1 ? first : n) &&
           memcmp(at + n_head, word, n) == 0;
}

/* A map whose first key is one of a record's. */
static bool is_mpk(const uint8_t *head, size_t n_head)
{
    const size_t n_map = n_head == 0 ? 0 : head[0] == 0xde ? 3 : head[0] == 0xdf ? 5 : 1;
    if (n_head <= n_map || (n_map == 1 && (head[0] & 0xf0) != 0x80))
        return false;
    const uint8_t *key = head + n_map;
    const size_t n_left = n_head - n_map;
    return is_key(key, n_left, "metadata") || is_key(key, n_left, "item") ||
           is_key(key, n_left, "_b");
}

/* An object that begins with the metadata of a record, and not that of something else. */
static bool is_json(const uint8_t *head, size_t n_head)
{
    static const char key[] = "\"metadata\"";
    size_t i = 1;
    if (n_head == 0 || head[0] != '{')
        return false;
    while (i < n_head && strchr(" \t\r\n", head[i]) != NULL && head[i] != '\0')
        i++;
    return n_head - i >= sizeof(key) - 1 && memcmp(head + i, key, sizeof(key) - 1) == 0 &&
           contains(head, n_head, "\"float\"") && contains(head, n_head, "\"settings\"");
}

static enum record_form form_of(const uint8_t *head, size_t n_head)
{
    if (is_mpk(head, n_head))
        return FORM_MPK;
    if (is_json(head, n_head))
        return FORM_JSON;
    return bincode_probe(head, n_head) ? FORM_BINCODE : FORM_UNKNOWN;
}

/* Looks into gzip data. *ret is not touched when there is none. */
static size_t peek(const uint8_t *head, size_t n_head, uint8_t content[FORMAT_HEAD],
                   const uint8_t **ret)
{
    if (!gzip_probe(head, n_head))
        return n_head;
    *ret = content;
    return gzip_peek(head, n_head, content, FORMAT_HEAD);
}

static bool probe(const uint8_t *head, size_t n_head, uint64_t n_bytes)
{
    uint8_t content[FORMAT_HEAD];
    const uint8_t *at = head;
    const size_t n = peek(head, n_head, content, &at);
    return form_of(at, n) != FORM_UNKNOWN;
}

/* ---- the outermost map ---- */

enum { MINOR_WITH_MARKER = 12 };

static const char *const names[N_TEXTS] = {"float", "int", "format", "version", "settings"};

static int fail(const struct record_load *load, const char *what)
{
    return wfs_fail(load->err, EBADMSG, "is not a record of Burn: %s", what);
}

/* Reports what is wrong, unless force is given. */
static int note(struct record_load *load, const char *what)
{
    if (!load->context->force)
        return wfs_fail(load->err, EBADMSG, "%s, which Burn refuses", what);
    tally_note(&load->tally, &load->catalog->arena, WFS_LOW, REC_FORM, "%s", what);
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
        while (j < N_TEXTS && !value_is_text(load->graph, key, names[j]))
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
        code = add_text(load, names[i], value_get(load->graph, id, names[i]));
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
            tally_note(&load->tally, &load->catalog->arena, WFS_INFO, REC_FIELD,
                       "the record has a field '%s', which is ignored",
                       wfs_quote_n(key->text, key->n).text);
    }
}

/* Checks the root of the graph, adds the metadata to the catalog and finds the item. -EBADMSG. */
static int take_root(struct record_load *load, uint32_t root)
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

/* ---- loading ---- */

static void note_gzip(struct record_load *load, const struct gzip_facts *facts)
{
    struct arena *arena = &load->catalog->arena;
    load->has_other_sum = facts->has_other_crc || facts->has_other_size;
    if (load->has_other_sum)
        tally_note(
            &load->tally, arena, WFS_HIGH, REC_CHECKSUM,
            "the gzip data has another %s than its trailer states, which Burn does not notice",
            facts->has_other_crc ? "checksum" : "length");
    if (facts->lacks_trailer)
        tally_note(&load->tally, arena, WFS_MEDIUM, REC_TAIL,
                   "the gzip data ends before its trailer: its checksum cannot be verified");
    if (facts->n_members > 1)
        tally_note(&load->tally, arena, WFS_LOW, REC_MEMBERS,
                   "the gzip data has %s, of which Burn reads only the first",
                   wfs_count(facts->n_members, "member").text);
    if (facts->n_trailing > 0)
        tally_note(&load->tally, arena, WFS_LOW, REC_TRAILING, "%s the gzip data",
                   wfs_count_as(facts->n_trailing, "byte follows", "bytes follow").text);
}

/* Finds the text of the record: the file, or a new source of what its gzip data holds. */
static int open_bytes(struct record_load *load, enum record_form *ret)
{
    uint8_t head[FORMAT_HEAD];
    struct gzip_facts facts;
    size_t n_head = load->file->n_bytes < FORMAT_HEAD ? (size_t)load->file->n_bytes : FORMAT_HEAD;
    if (source_read(load->file, 0, head, n_head) < 0)
        return wfs_fail(load->err, EIO, "cannot read its first %s", wfs_count(n_head, "byte").text);
    load->bytes = load->file;
    if (gzip_probe(head, n_head)) {
        struct source *content = NULL;
        const int code = gzip_open(load->file, &content, &facts, load->err);
        if (code < 0)
            return code;
        load->bytes = content;
        load->is_gzip = true;
        note_gzip(load, &facts);
        n_head = content->n_bytes < FORMAT_HEAD ? (size_t)content->n_bytes : FORMAT_HEAD;
        const int read = source_read(content, 0, head, n_head);
        if (read < 0)
            return record_fail_read(load, read);
    }
    *ret = form_of(head, n_head);
    if (*ret == FORM_BINCODE)
        return bincode_refuse(head, n_head, load->err);
    /* By its name it is one: the parser says what is wrong. */
    *ret = *ret == FORM_UNKNOWN ? FORM_MPK : *ret;
    return 0;
}

#define READ_ONLY                                                                                  \
    "a record in gzip or JSON, because records are written as plain .mpk; use output=NAME.mpk"

static int run(struct record_load *load)
{
    static const struct wfs_container containers[][2] = {
        [FORM_MPK] = {{.name = "record of Burn"},
                      {.name = "record of Burn in gzip", .read_only = READ_ONLY}},
        [FORM_JSON] = {{.name = "record of Burn in JSON", .read_only = READ_ONLY},
                       {.name = "record of Burn in JSON and gzip", .read_only = READ_ONLY}}};
    enum record_form form;
    uint32_t root;
    int code = open_bytes(load, &form);
    if (code < 0)
        return code;
    load->lists.encoding = form == FORM_JSON ? RECORD_JSON : RECORD_MPK;
    code = record_read(load, &root);
    if (code < 0)
        return code;
    /* From now on the decoded source owns the content and the lists, the catalog owns that. */
    if (record_source_new(load->file, load->bytes, load->is_gzip, &load->lists, &load->decoded) < 0)
        return wfs_fail_memory(load->err);
    load->catalog->own->derived = load->decoded;
    code = take_root(load, root);
    if (code == 0)
        code = record_listing_add(load);
    if (code < 0)
        return code;
    load->catalog->container = &containers[form][load->is_gzip];
    load->catalog->values.root = load->item;
    return tally_report(&load->tally, load->catalog) < 0 ? record_fail_memory(load) : 0;
}

static int load_file(struct source *source, const struct load_context *context,
                     struct wfs_catalog *catalog, struct wfs_error *err)
{
    struct record_load load = {.file = source,
                               .context = context,
                               .catalog = catalog,
                               .graph = &catalog->values.graph,
                               .err = err};
    catalog->values.graph.arena = &catalog->arena;
    const int code = run(&load);
    if (load.is_gzip && load.decoded == NULL)
        source_free(load.bytes);
    record_lists_done(&load.lists);
    return code;
}

static const struct wfs_option options[] = {{RECORD_VERSION_OPTION, "0.N",
                                             "the Burn, 0.8 to 0.21, that is to read a .mpk",
                                             record_version_check},
                                            {0}};

static const char *const extensions[] = {".mpk", NULL};

static const struct format_functions functions = {
    .probe = probe,
    .load = load_file,
    .stores = record_layout_stores,
    .check = record_layout_check,
    .plan = record_layout_plan,
};

const struct wfs_format format_records = {
    .name = "mpk",
    .title = "a record of Burn",
    .extensions = extensions,
    .set_name = "model.mpk",
    .convention = WFS_CONVENTION_BURN,
    .values = WFS_VALUES_ANY,
    .state_names = WFS_STATE_NAMES_NESTED,
    .needs_utf8 = true,
    .keeps_metadata = true,
    .keeps_param_ids = true,
    .has_fillers = true,
    .limits = record_limits,
    .options = options,
    .functions = &functions,
};
