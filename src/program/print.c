/* SPDX-License-Identifier: MIT */
/*
 * Error lines, escaped names, sizes, and the check that all output arrived.
 */
#include "program/print.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* Returns the number of bytes at the front that are never escaped, which most are. */
static size_t count_plain(const char *bytes, size_t n_bytes)
{
    size_t n = 0;
    while (n < n_bytes && bytes[n] >= 0x20 && bytes[n] < 0x7f && bytes[n] != '\\')
        n++;
    return n;
}

static void put(FILE *out, enum wfs_escape how, const char *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes;) {
        char escaped[WFS_ESCAPE_MAX];
        const size_t n_plain = count_plain(bytes + i, n_bytes - i);
        fwrite(bytes + i, 1, n_plain, out);
        i += n_plain;
        if (i == n_bytes)
            break;
        i += wfs_escape(how, bytes + i, n_bytes - i, escaped);
        fputs(escaped, out);
    }
}

void print_escaped_n(FILE *out, const char *bytes, size_t n_bytes)
{
    put(out, WFS_ESCAPE_NAME, bytes, n_bytes);
}

void print_escaped(FILE *out, const char *text)
{
    put(out, WFS_ESCAPE_NAME, text, strlen(text));
}

void print_text(FILE *out, const char *text)
{
    put(out, WFS_ESCAPE_TEXT, text, strlen(text));
}

void print_line(FILE *out, const char *text)
{
    print_text(out, text);
    putc('\n', out);
}

void print_warning(const char *file, const char *about, const char *text)
{
    fputs("weightfs: ", stderr);
    print_escaped(stderr, file);
    fputs(": ", stderr);
    print_text(stderr, about);
    fputs(": ", stderr);
    print_line(stderr, text);
}

void print_json(FILE *out, const char *json, size_t n_bytes)
{
    put(out, WFS_ESCAPE_JSON, json, n_bytes);
}

size_t print_width(const char *text)
{
    const size_t n_bytes = strlen(text);
    size_t width = 0;
    for (size_t i = 0; i < n_bytes;) {
        char escaped[WFS_ESCAPE_MAX];
        i += wfs_escape(WFS_ESCAPE_NAME, text + i, n_bytes - i, escaped);
        for (const char *c = escaped; *c != '\0'; c++)
            width += ((unsigned char)*c & 0xc0) != 0x80;
    }
    return width;
}

enum exit_code print_error(enum exit_code exit_code, const char *file, const char *format, ...)
{
    fputs("weightfs: ", stderr);
    if (file != NULL) {
        print_escaped(stderr, file);
        fputs(": ", stderr);
    }
    char text[4 * WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    print_line(stderr, text);
    return exit_code;
}

const char *print_severity(enum wfs_severity severity)
{
    static const char *const names[] = {
        [WFS_INFO] = "info", [WFS_LOW] = "low", [WFS_MEDIUM] = "medium", [WFS_HIGH] = "high"};
    return names[severity];
}

void print_finding(FILE *out, const struct wfs_finding *finding)
{
    fprintf(out, "%s: ", print_severity(finding->severity));
    print_line(out, finding->text);
}

void print_shape(FILE *out, const struct wfs_shape *shape)
{
    putc('[', out);
    for (uint32_t i = 0; i < shape->rank; i++)
        fprintf(out, "%s%" PRIu64, i > 0 ? ", " : "", shape->dims[i]);
    putc(']', out);
}

void print_size(FILE *out, uint64_t n_bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (n_bytes < 1024) {
        fprintf(out, "%u B", (unsigned)n_bytes);
        return;
    }
    double size = (double)n_bytes / 1024;
    size_t i = 0;
    for (; size >= 1023.95 && i + 1 < sizeof(units) / sizeof(units[0]); i++)
        size /= 1024;
    fprintf(out, "%.1f %s", size, units[i]);
}

enum exit_code print_finish(enum exit_code exit_code)
{
    errno = 0;
    const bool has_failed = fflush(stdout) != 0;
    const int code = errno;
    if (!has_failed && !ferror(stdout))
        return exit_code;
    if (code == EPIPE)
        return EXIT_OUTPUT;
    return print_error(EXIT_OUTPUT, "standard output", "cannot write: %s",
                       code != 0 ? strerror(code) : "an earlier write failed");
}
