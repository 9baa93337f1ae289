/* SPDX-License-Identifier: MIT */
/*
 * Burn's records: recognising a file, unpacking it, and the steps of loading one.
 */
#include "format/records/records.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "archive/gzip.h"
#include "format/records/bincode.h"
#include "format/records/record_head.h"
#include "format/records/record_json.h"
#include "format/records/record_layout.h"
#include "format/records/record_listing.h"
#include "format/records/record_mpk.h"
#include "format/records/record_source.h"

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

/* ---- loading ---- */

static void note_gzip(struct record_load *load, const struct gzip_facts *facts)
{
    struct arena *arena = &load->catalog->arena;
    load->has_other_sum = facts->has_other_crc || facts->has_other_size;
    if (load->has_other_sum)
        tally_note(
            &load->tally, arena, WFS_FINDING_REC_CHECKSUM,
            "the gzip data has another %s than its trailer states, which Burn does not notice",
            facts->has_other_crc ? "checksum" : "length");
    if (facts->lacks_trailer)
        tally_note(&load->tally, arena, WFS_FINDING_REC_TAIL,
                   "the gzip data ends before its trailer: its checksum cannot be verified");
    if (facts->n_members > 1)
        tally_note(&load->tally, arena, WFS_FINDING_REC_MEMBERS,
                   "the gzip data has %s, of which Burn reads only the first",
                   wfs_count(facts->n_members, "member").text);
    if (facts->n_trailing > 0)
        tally_note(&load->tally, arena, WFS_FINDING_REC_TRAILING, "%s the gzip data",
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

/* With force, what there is of a record that was cut. */
static int keep_front(struct record_load *load, struct build *build, struct wfs_error *err)
{
    if (err->code != EBADMSG || !load->context->force || build->depth == 0)
        return wfs_fail(load->err, err->code, "%s", err->text);
    tally_note(&load->tally, &load->catalog->arena, WFS_FINDING_REC_SHORT, "%s", err->text);
    return build_abandon(build);
}

static int parse(struct record_load *load, enum record_form form)
{
    cleanup(build_done) struct build build;
    struct wfs_error first = {0}, *const err = load->err;
    uint64_t end = load->bytes->n_bytes;
    build_init(&build, load);
    load->err = &first;
    int code = form == FORM_JSON ? record_json_parse(&build, &end) : record_mpk_parse(&build, &end);
    load->err = err;
    if (code < 0)
        code = keep_front(load, &build, &first);
    else if (end < load->bytes->n_bytes)
        tally_note(&load->tally, &load->catalog->arena, WFS_FINDING_REC_TRAILING,
                   "%s the record, which Burn ignores",
                   wfs_count_as(load->bytes->n_bytes - end, "byte follows", "bytes follow").text);
    if (code < 0)
        return code;
    /* From now on the decoded source owns the content and the lists, the catalog owns that. */
    if (record_source_new(load->file, load->bytes, load->is_gzip, &load->lists, &load->decoded) < 0)
        return wfs_fail_memory(load->err);
    load->catalog->derived = load->decoded;
    return record_head_take(load, build.root);
}

static int run(struct record_load *load)
{
    static const enum wfs_container containers[][2] = {
        [FORM_MPK] = {WFS_CONTAINER_RECORD, WFS_CONTAINER_RECORD_GZIP},
        [FORM_JSON] = {WFS_CONTAINER_RECORD_JSON, WFS_CONTAINER_RECORD_JSON_GZIP}};
    enum record_form form;
    int code = open_bytes(load, &form);
    if (code == 0)
        code = parse(load, form);
    if (code == 0)
        code = record_listing_add(load);
    if (code < 0)
        return code;
    load->catalog->container = containers[form][load->is_gzip];
    load->catalog->root = load->item;
    return tally_report(&load->tally, load->catalog) < 0 ? record_fail_memory(load) : 0;
}

static int load_file(struct source *source, const struct load_context *context,
                     struct wfs_catalog *catalog, struct wfs_error *err)
{
    struct record_load load = {.file = source,
                               .context = context,
                               .catalog = catalog,
                               .graph = &catalog->graph,
                               .err = err};
    catalog->graph.arena = &catalog->arena;
    const int code = run(&load);
    if (load.is_gzip && load.decoded == NULL)
        source_free(load.bytes);
    record_lists_done(&load.lists);
    return code;
}

static const char *const extensions[] = {".mpk", NULL};

static const struct format_functions functions = {
    .probe = probe,
    .load = load_file,
    .stores = record_layout_stores,
    .check = record_layout_check,
    .plan = record_layout_plan,
};

const struct wfs_format format_records = {
    .id = WFS_FORMAT_RECORDS,
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
    .functions = &functions,
};
