/* SPDX-License-Identifier: MIT */
/*
 * src/format/pickle: each of the 68 opcodes, in pickles as Python writes them and by hand, compared
 * as JSON; what stays apart, what is shared, and what is refused.
 */
#include "check.h"

#include <errno.h>
#include <stdlib.h>

#include "format/pytorch/object/python_json.h"
#include "pickle/pickle.h"
#include "catalog/catalog.h"
#include "value/value_json.h"

struct parsed {
    struct wfs_catalog *catalog;
    struct source *source;
    struct wfs_error err;
    struct pickle_job job;
    uint32_t root;
    int code;
};

static void parse(struct parsed *p, const void *bytes, size_t n)
{
    static struct limits limits;
    struct pickle_budget budget;
    limits_init(&limits);
    budget = pickle_budget_of(&limits);
    *p = (struct parsed){0};
    check_int(catalog_new(&p->catalog), 0);
    p->catalog->values.graph.arena = &p->catalog->arena;
    p->catalog->values.graph.notation = &python_notation;
    check_int(source_new_memory("x", bytes, n, &p->source), 0);
    p->job = (struct pickle_job){.graph = &p->catalog->values.graph,
                                 .limits = &limits,
                                 .budget = &budget,
                                 .source = p->source,
                                 .end = n};
    p->code = pickle_load(&p->job, &p->root, &p->err);
}

static void parsed_done(struct parsed *p)
{
    wfs_catalog_free(p->catalog);
    source_free(p->source);
}

/* One line of JSON: line feeds and indentation become one space. */
static void flatten(char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0';) {
        if (*at != '\n') {
            *to++ = *at++;
            continue;
        }
        *to++ = ' ';
        at += 1 + strspn(at + 1, " ");
    }
    *to = '\0';
}

static void check_pickle(const void *bytes, size_t n, const char *want)
{
    struct parsed p;
    parse(&p, bytes, n);
    if (check_int(p.code, 0)) {
        struct json_writer writer;
        json_writer_init(&writer, &p.catalog->values.graph);
        json_write(&writer, p.root);
        flatten(writer.text.bytes);
        check_str(writer.text.bytes, want);
        check_uint(p.job.offset, n);
        json_writer_done(&writer);
    }
    parsed_done(&p);
}

/* Bytes of a string literal, without its NUL. */
#define CHECK(bytes, want) check_pickle(bytes, sizeof(bytes) - 1, want)

static void constants_and_numbers(void)
{
    CHECK("N.", "null");
    CHECK("\x80\x02\x88.", "true");
    CHECK("\x80\x02\x89.", "false");
    CHECK("I01\n.", "true");
    CHECK("I00\n.", "false");
    CHECK("I-12345678901234567890\n.", "-12345678901234567890");
    CHECK("I18446744073709551616\n.", "18446744073709551616");
    CHECK("I999999999999999999\n.", "999999999999999999");
    CHECK("L0L\n.", "0");
    CHECK("L-9223372036854775808L\n.", "-9223372036854775808");
    CHECK("J\xff\xff\xff\xff.", "-1");
    CHECK("K\xff.", "255");
    CHECK("M\x01\x02.", "513");
    CHECK("\x8a\x00.", "0");
    CHECK("\x8a\x01\x80.", "-128");
    CHECK("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00.", "9223372036854775808");
    CHECK("\x8b\x02\x00\x00\x00\xff\x7f.", "32767");
    CHECK("F1.5\n.", "1.5");
    CHECK("Finf\n.", "{\"$float\": \"inf\"}");
    CHECK("F1e400\n.", "{\"$float\": \"inf\"}");
    CHECK("G\x3f\xb9\x99\x99\x99\x99\x99\x9a.", "0.1");
}

static void texts_and_bytes(void)
{
    CHECK("S'a\\n\\x41\\'\\\\\\101'\n.", "\"a\\nA'\\\\A\"");
    CHECK("S\"it's\"\n.", "\"it's\"");
    CHECK("T\x03\x00\x00\x00"
          "abc.",
          "\"abc\"");
    CHECK("U\x01\xff.", "{\"$bytes\": \"/w==\"}");
    CHECK("Va\\u00e9\\U0001f600\\\\ \xe9\n.", "\"a\xc3\xa9\xf0\x9f\x98\x80\\\\\\\\ \xc3\xa9\"");
    CHECK("X\x02\x00\x00\x00\xc3\xa9.", "\"\xc3\xa9\"");
    CHECK("\x8c\x01x.", "\"x\"");
    CHECK("\x8d\x01\x00\x00\x00\x00\x00\x00\x00x.", "\"x\"");
    CHECK("B\x02\x00\x00\x00\x00\xff.", "{\"$bytes\": \"AP8=\"}");
    CHECK("C\x00.", "{\"$bytes\": \"\"}");
    CHECK("\x8e\x01\x00\x00\x00\x00\x00\x00\x00x.", "{\"$bytes\": \"eA==\"}");
    CHECK("\x96\x01\x00\x00\x00\x00\x00\x00\x00x.", "{\"$bytearray\": \"eA==\"}");
    CHECK("\x96\x01\x00\x00\x00\x00\x00\x00\x00x\x98.", "{\"$bytearray\": \"eA==\"}");
}

static void containers(void)
{
    CHECK(").", "[]");
    CHECK("].", "[]");
    CHECK("}.", "{}");
    CHECK("\x8f.", "{\"$set\": []}");
    CHECK("(K\1K\2t.", "[1, 2]");
    CHECK("K\1\x85.", "[1]");
    CHECK("K\1K\2\x86.", "[1, 2]");
    CHECK("K\1K\2K\3\x87.", "[1, 2, 3]");
    CHECK("(K\1K\2l.", "[1, 2]");
    CHECK("(K\1K\2K\3K\4d.", "{ \"1\": 2, \"3\": 4 }");
    CHECK("(K\1\x91.", "{\"$frozenset\": [1]}");
    CHECK("]K\1a.", "[1]");
    CHECK("](K\1K\2e(K\3e.", "[1, 2, 3]");
    CHECK("}X\1\0\0\0aK\1s.", "{ \"a\": 1 }");
    CHECK("}(X\1\0\0\0aK\1X\1\0\0\0bK\2u.", "{ \"a\": 1, \"b\": 2 }");
    CHECK("\x8f(K\1K\2\x90.", "{\"$set\": [1, 2]}");
    CHECK("(lK\1a.", "[1]");
    CHECK("(K\1K\2lK\3a.", "[1, 2, 3]");
}

static void the_stack(void)
{
    CHECK("NK\1"
          "0.",
          "null");
    CHECK("N(0.", "null");
    CHECK("N(K\1K\2"
          "1.",
          "null");
    CHECK("K\1"
          "2\x86.",
          "[1, 1]");
    CHECK("\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N.", "null");
    CHECK("\x80\x05\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", "null");
}

static void the_memo(void)
{
    CHECK("]p5\nK\1ag5\n\x86.", "[ [1], [1] ]");
    CHECK("]q\5K\1ah\5\x86.", "[ [1], [1] ]");
    CHECK("]r\x40\x42\x0f\x7fK\1aj\x40\x42\x0f\x7f\x86.", "[ [1], [1] ]");
    CHECK("]\x94K\1ah\0\x86.", "[ [1], [1] ]");
    CHECK("K\1q\1K\2q\1\x86h\1\x86.", "[ [1, 2], 2 ]");
    /* A container is shared while it is filled. */
    CHECK("]q\0h\0\x86h\0K\1a0.", "[ [1], [1] ]");
    /* MEMOIZE counts entries, not opcodes. */
    CHECK("K\1q\0K\2\x94h\1\x87.", "[1, 2, 2]");
}

static void objects(void)
{
    CHECK("cos\nsystem\n.", "{\"$python\": \"os.system\"}");
    CHECK("\x8c\1a\x8c\3b.c\x93.", "{\"$python\": \"a.b.c\"}");
    CHECK("ca\nb\n(K\1tR.", "{ \"$python\": \"a.b\", \"args\": [1] }");
    CHECK("ca\nb\n)\x81}X\1\0\0\0xK\1sb.", "{ \"$python\": \"a.b\", \"state\": { \"x\": 1 } }");
    CHECK("ca\nb\n(K\1t}X\1\0\0\0xK\2s\x92.",
          "{ \"$python\": \"a.b\", \"args\": [1], \"kwargs\": { \"x\": 2 } }");
    CHECK("(K\1ia\nb\n.", "{ \"$python\": \"a.b\", \"args\": [1] }");
    CHECK("(ca\nb\nK\1o.", "{ \"$python\": \"a.b\", \"args\": [1] }");
    CHECK("ca\nb\n)RK\1a(K\2K\3eK\4K\5s.",
          "{ \"$python\": \"a.b\", \"items\": { \"4\": 5 }, \"elements\": [1, 2, 3] }");
    CHECK("ccollections\nOrderedDict\n)RK\1K\2s.", "{ \"1\": 2 }");
    CHECK("\x82\5.", "{ \"$python\": \"extension 5\" }");
    CHECK("\x83\0\1.", "{ \"$python\": \"extension 256\" }");
    CHECK("\x84\1\0\0\0.", "{ \"$python\": \"extension 1\" }");
    CHECK("K\5Q.", "{\"$persistent\": 5}");
    CHECK("P17\n.", "{\"$persistent\": \"17\"}");
    CHECK("P('storage', <class 'torch.FloatStorage'>, '0', 'cpu', -2, None)\n.",
          "{\"$persistent\": [ \"storage\", {\"$python\": \"torch.FloatStorage\"}, \"0\", \"cpu\", "
          "-2, null ]}");
    CHECK("P('a', (1, \"b\\n\"))\n.", "{\"$persistent\": [ \"a\", [1, \"b\\n\"] ]}");
    CHECK("P('a', nonsense)\n.", "{\"$persistent\": \"('a', nonsense)\"}");
    CHECK("c_codecs\nencode\n(X\2\0\0\0\xc3\xbfX\6\0\0\0latin1tR.", "{\"$bytes\": \"/w==\"}");
    CHECK("c__builtin__\nset\n(](K\1etR.", "{\"$set\": [1]}");
    CHECK("c__builtin__\ncomplex\n(K\1K\2tR.", "{\"$complex\": [1, 2]}");
    CHECK("c__builtin__\nxrange\n.", "{\"$python\": \"builtins.range\"}");
}

static void sharing_and_order_are_kept(void)
{
    static const char bytes[] = "]q\0(h\0ca\nb\n(K\1tRq\1h\1e.";
    struct parsed p;
    parse(&p, bytes, sizeof(bytes) - 1);
    if (check_int(p.code, 0)) {
        const struct graph *graph = &p.catalog->values.graph;
        const struct value *list = graph_at(graph, p.root);
        check_uint(list->n, 3);
        check_uint(value_items(list)[0], p.root);
        check_uint(value_items(list)[1], value_items(list)[2]);
        check_uint(graph_at(graph, value_items(list)[1])->form, FORM_REDUCE);
    }
    parsed_done(&p);
}

static void bytes_stay_in_the_file(void)
{
    static const char bytes[] = "\x80\3C\4abcd\x85.";
    struct parsed p;
    parse(&p, bytes, sizeof(bytes) - 1);
    if (check_int(p.code, 0)) {
        const struct graph *graph = &p.catalog->values.graph;
        const struct value *value = graph_at(graph, value_items(graph_at(graph, p.root))[0]);
        check_uint(value->kind, VALUE_BYTES);
        check_uint(value->bytes->offset, 4);
        check_uint(value->bytes->n_bytes, 4);
        check(value->bytes->source == p.source);
    }
    check_uint(p.catalog->values.graph.protocol, 3);
    parsed_done(&p);
}

/* Only 68 bytes begin something: all others are refused, and so is every pickle that is cut. */
static void there_are_68_opcodes(void)
{
    unsigned n_known = 0;
    for (unsigned opcode = 0; opcode < 256; opcode++) {
        const uint8_t byte = (uint8_t)opcode;
        struct parsed p;
        parse(&p, &byte, 1);
        check(p.code < 0);
        n_known += strstr(p.err.text, "unknown opcode") == NULL;
        parsed_done(&p);
    }
    check_uint(n_known, 68);
}

static void a_cut_pickle_is_refused_everywhere(void)
{
    static const char bytes[] =
        "\x80\5\x95\0\0\0\0\0\0\0\0}\x94(\x8c\1a\x94K\1\x8c\1b\x94](G\0\0\0\0\0\0\0\0M\1\2"
        "J\1\2\3\4\x8a\2\1\2e\x8c\1c\x94"
        "B\1\0\0\0xX\1\0\0\0yI12\nL5L\nF1.5\nS'x'\nVy\nU\1z"
        "T\1\0\0\0zca\nb\n)\x81}bNu.";
    for (size_t n = 0; n < sizeof(bytes) - 2; n++) {
        struct parsed p;
        char *copy = malloc(n + 1);
        memcpy(copy, bytes, n);
        parse(&p, copy, n);
        check_int(p.code, -EBADMSG);
        check((p.job.notes & PICKLE_SHORT) != 0);
        parsed_done(&p);
        free(copy);
    }
}

static void long_lines_cross_the_window(void)
{
    enum { N = 300000 };
    char *bytes = malloc(N + 4);
    bytes[0] = 'V';
    memset(bytes + 1, 'x', N);
    memcpy(bytes + 1 + N, "\n.", 2);
    struct parsed p;
    parse(&p, bytes, N + 3);
    if (check_int(p.code, 0))
        check_uint(graph_at(&p.catalog->values.graph, p.root)->n, N);
    parsed_done(&p);
    free(bytes);
}

static bool probe(const char *head, size_t n)
{
    return pickle_probe(head, n, n);
}

static void only_pickles_look_like_pickles(void)
{
    check(probe("\x80\2}q\0.", 6));
    check(probe("(dp0\n.", 6));
    check(probe("L119547037146038801333356L\n.", 28));
    check(probe("\x80\4\x95", 3));
    check(!probe("import os\n", 10));
    check(!probe("{\"a\": 1}", 8));
    check(!probe("hello world", 11));
    check(!probe("\x80\2\0\0\0\0\0\0{", 9));
    check(!probe("", 0));
    check(!probe(".", 1));
    check(!probe("version https://git-lfs", 23));
    check(!probe("<html>", 6));
    check(!probe("\x89PNG\r\n\x1a\n\0\0\0\r", 12));
    check(pickle_probe("(dp0\nS'abc", 10, 5000));
    check(!pickle_probe("(dp0\nS'abc", 10, 10));
}

int main(void)
{
    check_run(constants_and_numbers);
    check_run(texts_and_bytes);
    check_run(containers);
    check_run(the_stack);
    check_run(the_memo);
    check_run(objects);
    check_run(sharing_and_order_are_kept);
    check_run(bytes_stay_in_the_file);
    check_run(there_are_68_opcodes);
    check_run(a_cut_pickle_is_refused_everywhere);
    check_run(long_lines_cross_the_window);
    check_run(only_pickles_look_like_pickles);
    return check_done();
}
