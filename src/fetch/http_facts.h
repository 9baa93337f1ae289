/* SPDX-License-Identifier: MIT */
/*
 * What the first answer says of an object.
 */
#ifndef WFS_HTTP_FACTS_H
#define WFS_HTTP_FACTS_H

#include <stdbool.h>
#include <stdint.h>

/* What later answers are compared with, so that bytes of two versions are never mixed. */
enum http_validator {
    HTTP_BY_ETAG, /* strong */
    HTTP_BY_DATE, /* Last-Modified, and the size */
    HTTP_BY_SIZE, /* the server offers nothing better */
};

/* Borrowed until the object is freed. */
struct http_facts {
    const char *name; /* of the object, as http_object_open takes it: with the path that was found,
                         for "hf://OWNER/NAME" */
    uint64_t n_bytes;
    enum http_validator kind;
    const char *validator; /* the header's text; "" by size only */
    bool is_whole; /* the server has no ranges: the first request delivers all bytes, and http_get
                      transfers all of them again */
};

#endif
