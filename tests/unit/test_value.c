/* SPDX-License-Identifier: MIT */
/*
 * src/tensor/value: containers that grow, keys as Python compares and prints them, JSON of plain
 * values, of cycles and of what is shared many times over.
 */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weightfs/value.h>

#include "format/pytorch/object/python_json.h"
#include "catalog/catalog.h"
#include "value/value_json.h"
#include "value/value_leaf.h"

/* A graph of its own for each test. */
static struct wfs_catalog *catalog;
static struct graph *graph;

static void begin(void)
{
    check_int(catalog_new(&catalog), 0);
    graph = &catalog->values.graph;
    graph->arena = &catalog->arena;
    graph->notation = &python_notation;
}

static void end(void)
{
    wfs_catalog_free(catalog);
}

static uint32_t text(const char *bytes)
{
    return value_new_text(graph, bytes, strlen(bytes));
}

static uint32_t real(double number)
{
    const uint32_t id = value_new(graph, VALUE_FLOAT);
    graph_at(graph, id)->real = number;
    return id;
}

static uint32_t boolean(bool is_true)
{
    const uint32_t id = value_new(graph, VALUE_BOOL);
    graph_at(graph, id)->integer = is_true;
    return id;
}

static uint32_t big(const char *bytes, uint32_t n)
{
    const uint32_t id = value_new(graph, VALUE_BIG);
    graph_at(graph, id)->text = bytes;
    graph_at(graph, id)->n = n;
    return id;
}

static uint32_t dict(uint32_t n, const uint32_t *items)
{
    const uint32_t id = value_new(graph, VALUE_DICT);
    check_int(value_append(graph, id, items, n), 0);
    return id;
}

static void check_json(uint32_t id, const char *want)
{
    struct json_writer writer;
    json_writer_init(&writer, graph);
    json_write(&writer, id);
    check_str(writer.text.bytes, want);
    json_writer_done(&writer);
}

static void containers_grow(void)
{
    begin();
    for (uint32_t n_step = 1; n_step < 6; n_step++) {
        const uint32_t list = value_new(graph, VALUE_LIST);
        uint32_t n = 0;
        while (n < 3000) {
            uint32_t items[6];
            for (uint32_t i = 0; i < n_step; i++)
                items[i] = value_new_integer(graph, n + i);
            check_int(value_append(graph, list, items, n_step), 0);
            n += n_step;
        }
        const struct value *value = graph_at(graph, list);
        check_uint(value->n, n);
        bool is_same = true;
        for (uint32_t i = 0; i < n; i++)
            is_same = is_same && graph_at(graph, value_items(value)[i])->integer == i;
        check(is_same);
    }
    end();
}

static void containers_made_of_items_grow_too(void)
{
    begin();
    uint32_t items[9];
    for (uint32_t i = 0; i < 9; i++)
        items[i] = value_new_integer(graph, i);
    for (uint32_t n = 0; n <= 9; n++) {
        const uint32_t list = value_new_items(graph, VALUE_LIST, items, n);
        const uint32_t other = value_new_items(graph, VALUE_LIST, items, n);
        check_int(value_append(graph, list, items, 3), 0);
        const struct value *value = graph_at(graph, list);
        check_uint(value->n, n + 3);
        check_bytes(value_items(value), items, n * sizeof(items[0]));
        check_bytes(value_items(value) + n, items, 3 * sizeof(items[0]));
        check_bytes(value_items(graph_at(graph, other)), items, n * sizeof(items[0]));
    }
    end();
}

static void calls_have_parts(void)
{
    begin();
    const uint32_t name = value_new_global(graph, "m", 1, "C", 1);
    const uint32_t call = value_new_call(graph, FORM_REDUCE, name, value_new(graph, VALUE_TUPLE));
    const uint32_t pair[2] = {text("k"), value_new_integer(graph, 5)};
    check_uint(value_part(graph, graph_at(graph, call), PART_ITEMS), 0);
    check_int(value_append_part(graph, call, PART_ITEMS, pair, 2), 0);
    check_int(value_append_part(graph, call, PART_ELEMENTS, &pair[1], 1), 0);
    check_int(value_append_part(graph, call, PART_STATES, &pair[0], 1), 0);
    check_uint(value_get(graph, call, "k"), pair[1]);
    check_uint(value_get(graph, call, "l"), 0);
    uint32_t n = 0;
    while (value_child(graph, call, n) != 0)
        n++;
    check_uint(n, 3); /* callable, arguments, parts */
    check_json(call, "{\n  \"$python\": \"m.C\",\n  \"items\": {\n    \"k\": 5\n  },\n"
                     "  \"elements\": [5],\n  \"state\": \"k\"\n}");
    end();
}

static void keys_are_equal_as_in_python(void)
{
    begin();
    const uint32_t one = value_new_integer(graph, 1), two = value_new_integer(graph, 2);
    const uint32_t a[2] = {one, text("x")}, b[2] = {real(1.0), text("x")}, c[2] = {one, two};
    check(value_is_same_key(graph, one, boolean(true)));
    check(value_is_same_key(graph, one, real(1.0)));
    check(!value_is_same_key(graph, one, two));
    check(!value_is_same_key(graph, one, text("1")));
    check(!value_is_same_key(graph, one, real(1.5)));
    check(!value_is_same_key(graph, value_new_integer(graph, (1LL << 60) + 1),
                             value_new_integer(graph, 1LL << 60)));
    check(value_is_same_key(graph, value_new(graph, VALUE_NONE), value_new(graph, VALUE_NONE)));
    check(value_is_same_key(graph, value_new_items(graph, VALUE_TUPLE, a, 2),
                            value_new_items(graph, VALUE_TUPLE, b, 2)));
    check(!value_is_same_key(graph, value_new_items(graph, VALUE_TUPLE, a, 2),
                             value_new_items(graph, VALUE_TUPLE, c, 2)));
    check(!value_is_same_key(graph, value_new(graph, VALUE_LIST), value_new(graph, VALUE_LIST)));
    end();
}

static void the_last_twin_takes_the_first_place(void)
{
    begin();
    const uint32_t v[4] = {value_new_integer(graph, 10), value_new_integer(graph, 11),
                           value_new_integer(graph, 12), value_new_integer(graph, 13)};
    const uint32_t items[] = {
        text("a"), v[0], value_new_integer(graph, 1), v[1], text("a"), v[2], boolean(true), v[3]};
    const uint32_t id = dict(8, items);
    check_int(value_drop_twins(graph, id), 2);
    check_uint(graph_at(graph, id)->n, 4);
    check_uint(value_get(graph, id, "a"), v[2]);
    check_uint(value_items(graph_at(graph, id))[3], v[3]);
    const uint32_t only = dict(4, (const uint32_t[]){items[0], v[0], items[4], v[1]});
    check_int(value_drop_twins(graph, only), 1);
    check_uint(graph_at(graph, only)->n, 2);
    check_uint(value_get(graph, only, "a"), v[1]);
    check_int(value_append(graph, only, items, 8), 0);
    check_uint(graph_at(graph, only)->n, 10);
    end();
}

static void floats_are_printed_as_python_does(void)
{
    static const struct {
        double real;
        const char *text;
    } cases[] = {
        {0, "0.0"},
        {-0.0, "-0.0"},
        {1, "1.0"},
        {0.1, "0.1"},
        {1.5, "1.5"},
        {-2.25, "-2.25"},
        {100, "100.0"},
        {1e15, "1000000000000000.0"},
        {1e16, "1e+16"},
        {123456789012345680, "1.2345678901234568e+17"},
        {1e-4, "0.0001"},
        {1e-5, "1e-05"},
        {1.5e-8, "1.5e-08"},
        {9.045084971874737e-05, "9.045084971874737e-05"},
        {0.0009045084971874736, "0.0009045084971874736"},
        {1e300, "1e+300"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {INFINITY, "inf"},
        {-INFINITY, "-inf"},
        {NAN, "nan"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char buf[VALUE_FLOAT_MAX];
        check_uint(value_print_float(cases[i].real, buf), strlen(cases[i].text));
        check_str(buf, cases[i].text);
    }
}

static void check_integer(uint32_t id, const char *want)
{
    char *got = value_print_integer(graph_at(graph, id));
    check_str(got, want);
    free(got);
}

static void integers_of_any_size_are_printed(void)
{
    static const char power_70[9] = "\0\0\0\0\0\0\0\0\x40";
    static const char minus_power_70[9] = "\0\0\0\0\0\0\0\0\xc0";
    static const char ten_9[9] = "\0\0\0\0\0\0\0\0\1";
    begin();
    check_integer(value_new_integer(graph, INT64_MIN), "-9223372036854775808");
    check_integer(big(power_70, 9), "1180591620717411303424");
    check_integer(big(minus_power_70, 9), "-1180591620717411303424");
    check_integer(big(ten_9, 9), "18446744073709551616");
    char ones[1024];
    memset(ones, 0x11, sizeof(ones));
    char *long_one = value_print_integer(graph_at(graph, big(ones, sizeof(ones))));
    check(long_one != NULL && strlen(long_one) == 2465);
    free(long_one);
    end();
}

static void check_key(uint32_t id, const char *want)
{
    struct strbuf key = {0};
    check(value_add_key(&key, graph, id) == (want != NULL));
    strbuf_puts(&key, "");
    check_str(key.bytes, want == NULL ? "" : want);
    strbuf_done(&key);
}

static void keys_have_names(void)
{
    begin();
    const uint32_t pair[3] = {value_new_integer(graph, 1), text("a'b"), real(2.5)};
    check_key(text("a.b"), "a.b");
    check_key(text(""), "");
    check_key(text("\xff"), "\xc3\xbf");
    check_key(text("\xed\xa0\x80x"), "\xed\xa0\x80x");
    check_key(value_new_integer(graph, -7), "-7");
    check_key(boolean(true), "True");
    check_key(value_new(graph, VALUE_NONE), "None");
    check_key(real(2.5), "2.5");
    check_key(value_new_items(graph, VALUE_TUPLE, pair, 1), "(1,)");
    check_key(value_new_items(graph, VALUE_TUPLE, pair, 3), "(1, \"a'b\", 2.5)");
    check_key(value_new(graph, VALUE_TUPLE), "()");
    check_key(value_new(graph, VALUE_LIST), NULL);
    check_key(value_new_global(graph, "a", 1, "b", 1), NULL);
    end();
}

static void plain_values_are_json(void)
{
    begin();
    const uint32_t items[4] = {value_new_integer(graph, 1), real(0.5), text("x"), boolean(false)};
    check_json(value_new_items(graph, VALUE_LIST, items, 4), "[1, 0.5, \"x\", false]");
    check_json(value_new_items(graph, VALUE_TUPLE, items, 1), "[1]");
    check_json(value_new_items(graph, VALUE_SET, items, 1), "{\"$set\": [1]}");
    check_json(value_new(graph, VALUE_DICT), "{}");
    check_json(real(NAN), "{\"$float\": \"nan\"}");
    check_json(text("a\"\\\n\x01\x7f\xc3\xa9\xed\xa0\x81"),
               "\"a\\\"\\\\\\n\\u0001\x7f\xc3\xa9\\ud801\"");
    check_json(text("\xff\xfe"), "{\"$bytes\": \"//4=\"}");
    const uint32_t one[2] = {text("$x"), value_new_integer(graph, 1)};
    check_json(dict(2, one), "{\n  \"$$x\": 1\n}");
    const uint32_t mixed[4] = {text("1"), items[0], items[0], items[0]};
    check_json(dict(4, mixed), "{\"$dict\": [\n  [\"1\", 1],\n  [1, 1]\n]}");
    const uint32_t numbers[4] = {items[0], items[0], value_new_integer(graph, 2), items[0]};
    check_json(dict(4, numbers), "{\n  \"1\": 1,\n  \"2\": 1\n}");
    end();
}

static void cycles_end(void)
{
    begin();
    const uint32_t list = value_new(graph, VALUE_LIST);
    const uint32_t inner = value_new_items(graph, VALUE_TUPLE, &list, 1);
    check_int(value_append(graph, list, &inner, 1), 0);
    check_json(list, "[\n  [\n    {\"$cycle\": 2}\n  ]\n]");
    end();
}

static void sharing_does_not_multiply(void)
{
    begin();
    uint32_t id = text("leaf");
    for (unsigned i = 0; i < 60; i++) {
        const uint32_t two[2] = {id, id};
        id = value_new_items(graph, VALUE_TUPLE, two, 2);
    }
    struct json_writer writer;
    json_writer_init(&writer, graph);
    json_write(&writer, id);
    check(writer.text.n_bytes < 1 << 20);
    check(strstr(writer.text.bytes, "used many times over") != NULL);
    json_writer_done(&writer);
    uint32_t deep = text("leaf");
    for (unsigned i = 0; i < 400; i++)
        deep = value_new_items(graph, VALUE_TUPLE, &deep, 1);
    json_writer_init(&writer, graph);
    json_write(&writer, deep);
    check(strstr(writer.text.bytes, "nested too deeply") != NULL);
    json_writer_done(&writer);
    end();
}

/* A file that changed or failed must not look like a value that is too large to be shown. */
static void bytes_that_cannot_be_read_are_an_error(void)
{
    struct source *source;
    char *json;
    size_t n;
    begin();
    check_int(source_new_memory("x", "abc", 3, &source), 0);
    check_int(catalog_adopt_source(catalog, source), 0);
    const uint32_t id = value_new_bytes(graph, source, 0, 3);
    check_json(id, "{\"$bytes\": \"YWJj\"}");
    check_int(catalog_add_value(catalog, "x", id, 0), 0);
    source_close(source);
    check_int(wfs_catalog_value_text(catalog, 0, &json, &n), -EIO);
    struct wfs_error err = {0};
    check_int(wfs_catalog_config(catalog, NULL, &json, &n, &err), -EIO);
    check_str(err.text, "cannot read the bytes of a value");
    end();
}

/* With a lookup, the same is found: of twins the last, nothing of other kinds, and what has been
 * added since. */
static void large_dicts_are_looked_up(void)
{
    enum { N = 400 };
    uint32_t items[2 * N];
    struct value_lookup lookup = {0};
    begin();
    for (uint32_t i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%u", i % 300);
        items[2 * i] = i % 3 == 0 ? value_new_bytes(graph, NULL, 0, 0)
                                  : value_new_text(graph, name, strlen(name));
        items[2 * i + 1] = value_new_integer(graph, i);
    }
    const uint32_t dict = value_new_items(graph, VALUE_DICT, items, 2 * N);
    const uint32_t small = value_new_items(graph, VALUE_DICT, items, 4);
    for (unsigned round = 0; round < 3; round++) {
        graph->lookup = round == 0 ? NULL : &lookup;
        check_uint(value_get(graph, dict, "5"), items[2 * 305 + 1]);
        check_uint(value_get(graph, dict, "101"), items[2 * 101 + 1]);
        check_uint(value_get(graph, dict, "3"), 0);
        check_uint(value_get(graph, dict, "400"), 0);
        check_uint(value_get(graph, dict, ""), 0);
        check_uint(value_get(graph, small, "1"), items[3]);
    }
    const uint32_t more[] = {value_new_text(graph, "400", 3), value_new_integer(graph, 7)};
    check_int(value_append(graph, dict, more, 2), 0);
    check_uint(value_get(graph, dict, "400"), more[1]);
    check_uint(value_get(graph, dict, "5"), items[2 * 305 + 1]);
    graph->lookup = NULL;
    value_lookup_done(&lookup);
    end();
}

int main(void)
{
    check_run(large_dicts_are_looked_up);
    check_run(containers_grow);
    check_run(containers_made_of_items_grow_too);
    check_run(calls_have_parts);
    check_run(keys_are_equal_as_in_python);
    check_run(the_last_twin_takes_the_first_place);
    check_run(floats_are_printed_as_python_does);
    check_run(integers_of_any_size_are_printed);
    check_run(keys_have_names);
    check_run(plain_values_are_json);
    check_run(cycles_end);
    check_run(sharing_does_not_multiply);
    check_run(bytes_that_cannot_be_read_are_an_error);
    return check_done();
}
