/* SPDX-License-Identifier: MIT */
/*
 * The JSON is checked in full; members of an entry other than its offsets are passed over.
 */
#include "format/dcp/dcp_sharding.h"

#include <weightfs/array.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/json.h"

static const char text_name[] = "DCP_SHARDING_INFO";

/* Reads one number, which may be negative; false: it is not an integer of 64 bits. */
static bool take_integer(struct json *json, int64_t *ret)
{
    if (json_kind(json) != JSON_KIND_NUMBER) {
        json_skip(json);
        return false;
    }
    const char *start = json->at;
    char *end;
    json_skip(json);
    errno = 0;
    *ret = strtoll(start, &end, 10);
    return errno == 0 && end == json->at;
}

static int add_number(struct dcp_sharding *s, int64_t number)
{
    if (array_reserve(&s->numbers, sizeof(*s->numbers), s->n_numbers, 1, &s->n_number_room) < 0)
        return -ENOMEM;
    s->numbers[s->n_numbers++] = number;
    return 0;
}

static int read_offsets(struct dcp_sharding *s, struct json *json,
                        struct dcp_sharding_offsets *offsets)
{
    if (json_kind(json) != JSON_KIND_ARRAY) {
        json_skip(json);
        return 0;
    }
    offsets->first = (uint32_t)s->n_numbers;
    offsets->rank = 0;
    offsets->is_bad = false;
    json_open_array(json);
    while (json_next_item(json)) {
        int64_t number = 0;
        offsets->is_bad = !take_integer(json, &number) || offsets->is_bad;
        offsets->rank++;
        if (add_number(s, number) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int read_entry(struct dcp_sharding *s, struct json *json)
{
    static const char name[] = "saved_offsets";
    struct dcp_sharding_offsets offsets = {.is_bad = true};
    struct json_text member;
    int code = 0;
    if (json_kind(json) != JSON_KIND_OBJECT)
        json_skip(json);
    else if (json_open_object(json)) {
        while (code == 0 && json_next_key(json, &member)) {
            if (member.n_bytes == sizeof(name) - 1 &&
                memcmp(member.bytes, name, sizeof(name) - 1) == 0)
                code = read_offsets(s, json, &offsets);
            else
                json_skip(json);
        }
    }
    if (code < 0 ||
        array_reserve(&s->offsets, sizeof(*s->offsets), s->n_offsets, 1, &s->n_offset_room) < 0)
        return -ENOMEM;
    s->offsets[s->n_offsets++] = offsets;
    return 0;
}

static int read_all(struct dcp_sharding *s, size_t n_bytes, struct wfs_error *err)
{
    struct json json = json_of(s->text, n_bytes);
    struct json_text key;
    json_open_object(&json);
    while (json.error == NULL && json_next_key(&json, &key)) {
        uint32_t number;
        const size_t n_before = s->keys.n_texts;
        if (text_index_add(&s->keys, key.bytes, key.n_bytes, &number) < 0)
            return wfs_fail_memory(err);
        if (number != n_before)
            return wfs_fail(err, EBADMSG, "%s: duplicate key '%s'", text_name,
                            wfs_quote_n(key.bytes, key.n_bytes).text);
        if (read_entry(s, &json) < 0)
            return wfs_fail_memory(err);
    }
    if (json.error != NULL || !json_end(&json))
        return wfs_fail(err, EBADMSG, "%s is not a JSON object: %s at byte %zu", text_name,
                        json.error, json_offset(&json));
    return 1;
}

int dcp_sharding_read(struct dcp_sharding *s, const struct wfs_catalog *catalog,
                      struct wfs_error *err)
{
    const struct wfs_text *text = catalog->meta;
    *s = (struct dcp_sharding){0};
    while (text != NULL && strcmp(text->name, text_name) != 0)
        text = text->next;
    if (text == NULL)
        return 0;
    s->text = malloc(text->n_bytes + 1);
    if (s->text == NULL)
        return wfs_fail_memory(err);
    memcpy(s->text, text->value, text->n_bytes);
    s->text[text->n_bytes] = '\0';
    if (utf8_valid(s->text, text->n_bytes) != text->n_bytes)
        return wfs_fail(err, EBADMSG, "%s is not valid UTF-8", text_name);
    return read_all(s, text->n_bytes, err);
}

const struct dcp_sharding_offsets *dcp_sharding_find(const struct dcp_sharding *s, const char *key)
{
    const uint32_t number = text_index_find(&s->keys, key, strlen(key));
    return number == TEXT_INDEX_NONE ? NULL : &s->offsets[number];
}

void dcp_sharding_done(struct dcp_sharding *s)
{
    const int saved = errno;
    free(s->text);
    free(s->offsets);
    free(s->numbers);
    text_index_done(&s->keys);
    *s = (struct dcp_sharding){0};
    errno = saved;
}
