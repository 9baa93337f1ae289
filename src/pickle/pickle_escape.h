/* SPDX-License-Identifier: MIT */
/*
 * The escapes of Python's string literals, which protocol 0 writes.
 */
#ifndef WFS_PICKLE_ESCAPE_H
#define WFS_PICKLE_ESCAPE_H

#include <stddef.h>
#include <sys/types.h>

/* Decodes the inside of a quoted byte string into buf (n bytes of room). Returns the number of
 * bytes; -1 when an escape is malformed. */
ssize_t escape_undo(const char *text, size_t n, char *buf);

/* Decodes the text of the opcode UNICODE into UTF-8 (2 n bytes of room): \uXXXX and \UXXXXXXXX
 * are characters, every other byte is a character of Latin-1. Returns as escape_undo. */
ssize_t escape_undo_unicode(const char *text, size_t n, char *buf);

#endif
