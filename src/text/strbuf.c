/* SPDX-License-Identifier: MIT */
/*
 * Growing text and cells of tables.
 */
#include <weightfs/strbuf.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <weightfs/array.h>
#include <weightfs/error.h>

/* Makes room for n_bytes more and a NUL. */
static bool make_room(struct strbuf *text, size_t n_bytes)
{
    enum { N_FIRST = 128 };
    if (text->is_cut || (text->n_max != 0 && n_bytes > text->n_max - text->n_bytes)) {
        text->is_cut = true;
        return false;
    }
    const size_t n_more = n_bytes >= N_FIRST || text->n_room > 0 ? n_bytes : N_FIRST - 1;
    if (n_more == SIZE_MAX ||
        array_reserve(&text->bytes, 1, text->n_bytes, n_more + 1, &text->n_room) < 0) {
        strbuf_fail(text);
        return false;
    }
    return true;
}

void strbuf_fail(struct strbuf *text)
{
    text->is_cut = text->has_failed = true;
}

void strbuf_add(struct strbuf *text, const char *bytes, size_t n_bytes)
{
    if (!make_room(text, n_bytes))
        return;
    if (n_bytes > 0)
        memcpy(text->bytes + text->n_bytes, bytes, n_bytes);
    text->n_bytes += n_bytes;
    text->bytes[text->n_bytes] = '\0';
}

void strbuf_puts(struct strbuf *text, const char *string)
{
    strbuf_add(text, string, strlen(string));
}

void strbuf_printf(struct strbuf *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        strbuf_fail(text);
    } else if (make_room(text, (size_t)n)) {
        vsnprintf(text->bytes + text->n_bytes, (size_t)n + 1, format, again);
        text->n_bytes += (size_t)n;
    }
    va_end(again);
}

/* Returns true for a field that a spreadsheet would take for a formula, or for a guarded field. */
static bool needs_guard(const char *field)
{
    /* The last four are the wide forms of the first ones. */
    static const char *const starts[] = {"=",
                                         "+",
                                         "-",
                                         "@",
                                         "\t",
                                         "\r",
                                         "\n",
                                         "'",
                                         "\xef\xbc\x9d",
                                         "\xef\xbc\x8b",
                                         "\xef\xbc\x8d",
                                         "\xef\xbc\xa0"};
    field += strspn(field, " ");
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
        if (strncmp(field, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

void strbuf_escape(struct strbuf *text, const char *name, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes;) {
        char escaped[WFS_ESCAPE_MAX];
        i += wfs_escape(WFS_ESCAPE_NAME, name + i, n_bytes - i, escaped);
        strbuf_puts(text, escaped);
    }
}

void strbuf_cell(struct strbuf *text, const char *field, char separator)
{
    const char *guard = needs_guard(field) ? "'" : "";
    if (field[strcspn(field, "\"\r\n")] == '\0' && strchr(field, separator) == NULL) {
        strbuf_puts(text, guard);
        strbuf_puts(text, field);
        return;
    }
    strbuf_puts(text, "\"");
    strbuf_puts(text, guard);
    for (const char *quote; (quote = strchr(field, '"')) != NULL; field = quote + 1) {
        strbuf_add(text, field, (size_t)(quote - field));
        strbuf_puts(text, "\"\"");
    }
    strbuf_puts(text, field);
    strbuf_puts(text, "\"");
}

void strbuf_done(struct strbuf *text)
{
    const int saved = errno;
    free(text->bytes);
    *text = (struct strbuf){0};
    errno = saved;
}
