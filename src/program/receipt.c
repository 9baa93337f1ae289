/* SPDX-License-Identifier: MIT */
/*
 * The object is kept until the end, so that a verb which fails before it has done anything prints
 * none.
 */
#include "program/receipt.h"

#include <weightfs/cleanup.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void receipt_notice(struct receipt *receipt, const char *format, ...)
{
    char *line;
    va_list args;
    va_start(args, format);
    const int n = vasprintf(&line, format, args);
    va_end(args);
    if (n < 0) {
        strbuf_fail(&receipt->text);
        return;
    }
    if (!receipt->is_json)
        print_line(stdout, line);
    else if (receipt_json(receipt) != NULL)
        strbuf_add(&receipt->notices, line, (size_t)n + 1);
    free(line);
}

struct json_out *receipt_json(struct receipt *receipt)
{
    if (receipt->is_json && receipt->json.depth == 0) {
        receipt->json = (struct json_out){.text = &receipt->text, .spelling = JSON_ASCII};
        print_json_start(&receipt->json);
    }
    return receipt->is_json ? &receipt->json : NULL;
}

void receipt_text(struct receipt *receipt, const char *name, const char *text)
{
    if (receipt->is_json)
        json_out_text(receipt_json(receipt), name, text);
}

void receipt_count(struct receipt *receipt, const char *name, uint64_t n)
{
    if (receipt->is_json)
        json_out_u64(receipt_json(receipt), name, n);
}

void receipt_raw(struct receipt *receipt, const char *name, const char *json)
{
    const size_t n = strlen(json);
    if (!receipt->is_json)
        return;
    json_out_raw(receipt_json(receipt), name, "");
    strbuf_add(&receipt->text, json, n > 0 && json[n - 1] == '\n' ? n - 1 : n);
}

void receipt_sources(struct receipt *receipt, const char *const *paths, size_t n)
{
    struct json_out *json = receipt_json(receipt);
    if (json == NULL)
        return;
    json_out_open_array(json, "sources");
    for (size_t i = 0; i < n; i++) {
        json_out_open_object(json, NULL);
        json_out_text(json, "file", paths[i]);
        json_out_close(json);
    }
    json_out_close(json);
}

void receipt_output(struct receipt *receipt, const char *path, uint64_t n_tensors, uint64_t n_files,
                    uint64_t n_bytes)
{
    receipt_text(receipt, "output", path);
    receipt_count(receipt, "n_tensors", n_tensors);
    receipt_count(receipt, "n_files", n_files);
    receipt_count(receipt, "n_bytes", n_bytes);
}

enum exit_code receipt_end(struct receipt *receipt, enum exit_code exit_code)
{
    struct json_out *json = &receipt->json;
    struct strbuf *text = &receipt->text, *notices = &receipt->notices;
    while (json->depth > 1)
        json_out_close(json);
    if (json->depth > 0) {
        json_out_open_array(json, "notices");
        for (size_t i = 0; i < notices->n_bytes; i += strlen(notices->bytes + i) + 1)
            json_out_text(json, NULL, notices->bytes + i);
        json_out_close(json);
        json_out_close(json);
    }
    const bool has_failed = text->has_failed || notices->has_failed;
    if (!has_failed && text->n_bytes > 0)
        print_json(stdout, text->bytes, text->n_bytes);
    strbuf_done(text);
    strbuf_done(notices);
    return has_failed ? print_memory(NULL) : exit_code;
}
