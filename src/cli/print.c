/* SPDX-License-Identifier: MIT */
/*
 * Error lines, escaped names, sizes, and the check that all output arrived.
 */
#include "cli/print.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/*
 * Escapes the characters at the front, few enough for wfs_quote not to cut them, and ends between
 * two characters. Returns how many bytes were taken.
 */
static size_t escape_some(const char *bytes, size_t n_bytes, struct wfs_quoted *ret)
{
    enum { N_MOST = 28 };
    size_t n = n_bytes < N_MOST ? n_bytes : N_MOST;
    while (n < n_bytes && n > N_MOST - 4 && ((unsigned char)bytes[n] & 0xc0) == 0x80)
        n--;
    *ret = wfs_quote_n(bytes, n);
    return n;
}

void print_escaped_n(FILE *out, const char *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes;) {
        struct wfs_quoted quoted;
        i += escape_some(bytes + i, n_bytes - i, &quoted);
        fputs(quoted.text, out);
    }
}

void print_escaped(FILE *out, const char *text)
{
    print_escaped_n(out, text, strlen(text));
}

size_t print_width(const char *text)
{
    const size_t n_bytes = strlen(text);
    size_t width = 0;
    for (size_t i = 0; i < n_bytes;) {
        struct wfs_quoted quoted;
        i += escape_some(text + i, n_bytes - i, &quoted);
        for (const char *c = quoted.text; *c != '\0'; c++)
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
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    putc('\n', stderr);
    return exit_code;
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
