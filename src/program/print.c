/* SPDX-License-Identifier: MIT */
/*
 * Exit codes, error lines, escaped names, sizes, and the check that all output arrived.
 */
#include "program/print.h"

#include "program/terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

static const struct {
    int code;
    enum exit_code exit_code;
} exits[] = {
    {EINVAL, EXIT_USAGE},
    {EMEDIUMTYPE, EXIT_FOREIGN},
    {EBADMSG, EXIT_DAMAGED},
    {EIO, EXIT_DAMAGED},
    {EOPNOTSUPP, EXIT_UNSUPPORTED},
    {E2BIG, EXIT_UNSUPPORTED},
    {ENOMEM, EXIT_UNSUPPORTED},
    /* Reads of network filesystems and of disks keep their errno. */
    {ESTALE, EXIT_DAMAGED},
    {ETIMEDOUT, EXIT_DAMAGED},
    {EREMOTEIO, EXIT_DAMAGED},
};

enum exit_code exit_of_errno(int code)
{
    for (size_t i = 0; i < sizeof(exits) / sizeof(exits[0]); i++) {
        if (exits[i].code == code)
            return exits[i].exit_code;
    }
    return EXIT_SOURCE;
}

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

/* Begins a line on stderr, which end_line ends. */
static void begin_line(enum screen_colour colour)
{
    wrapping_pause();
    screen_paint(stderr, colour, "weightfs:");
    putc(' ', stderr);
}

static void end_line(const char *text)
{
    print_line(stderr, text);
    wrapping_resume();
}

void print_warning(const char *file, const char *about, const char *text)
{
    begin_line(COLOUR_WARNING);
    print_escaped(stderr, file);
    fputs(": ", stderr);
    if (about != NULL) {
        print_text(stderr, about);
        fputs(": ", stderr);
    }
    end_line(text);
}

void print_json(FILE *out, const char *json, size_t n_bytes)
{
    put(out, WFS_ESCAPE_JSON, json, n_bytes);
}

enum exit_code print_error(enum exit_code exit_code, const char *file, const char *format, ...)
{
    begin_line(COLOUR_ERROR);
    if (file != NULL) {
        print_escaped(stderr, file);
        fputs(": ", stderr);
    }
    char text[4 * WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    end_line(text);
    return exit_code;
}

enum exit_code print_memory(const char *file)
{
    return print_error(EXIT_UNSUPPORTED, file, "out of memory");
}

void print_json_start(struct json_out *out)
{
    json_out_open_object(out, NULL);
    json_out_u64(out, "schema", 1);
}

void print_json_tensor(struct json_out *out, const struct wfs_tensor *tensor)
{
    json_out_text(out, "key", tensor->key);
    json_out_text(out, "dtype", wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    json_out_u64s(out, "shape", tensor->shape.dims, tensor->shape.rank);
    json_out_u64(out, "bytes", tensor->n_bytes);
}

void print_add_shape(struct strbuf *out, const struct wfs_shape *shape)
{
    strbuf_puts(out, "[");
    for (uint32_t i = 0; i < shape->rank; i++)
        strbuf_printf(out, "%s%" PRIu64, i > 0 ? ", " : "", shape->dims[i]);
    strbuf_puts(out, "]");
}

void print_shape(FILE *out, const struct wfs_shape *shape)
{
    putc('[', out);
    for (uint32_t i = 0; i < shape->rank; i++)
        fprintf(out, "%s%" PRIu64, i > 0 ? ", " : "", shape->dims[i]);
    putc(']', out);
}

/* Divides by the step until a number is below the limit, which is what the next unit is for.
 * Returns the number of the unit. */
static size_t scale(double *number, double step, double limit)
{
    size_t i = 0;
    for (*number /= step; *number >= limit; i++)
        *number /= step;
    return i;
}

struct amount amount_of_bytes(uint64_t n_bytes)
{
    static const char units[] = "KMGTPE";
    struct amount amount;
    double size = (double)n_bytes;
    if (n_bytes < 1024)
        snprintf(amount.text, sizeof(amount.text), "%u B", (unsigned)n_bytes);
    else {
        const size_t i = scale(&size, 1024, 1023.95);
        snprintf(amount.text, sizeof(amount.text), "%.1f %ciB", size, units[i]);
    }
    return amount;
}

struct amount amount_of_count(uint64_t n)
{
    static const char units[] = "kMBTPE"; /* B: billions, as parameters are counted */
    struct amount amount;
    double count = (double)n;
    if (n < 1000)
        snprintf(amount.text, sizeof(amount.text), "%u", (unsigned)n);
    else {
        const size_t i = scale(&count, 1000, 999.5);
        const int n_decimals = count < 9.995 ? 2 : count < 99.95 ? 1 : 0;
        snprintf(amount.text, sizeof(amount.text), "%.*f %c", n_decimals, count, units[i]);
    }
    return amount;
}

enum exit_code print_finish(enum exit_code exit_code)
{
    const int code = -wrapping_finish();
    if (code == 0)
        return exit_code;
    if (code == EPIPE)
        return EXIT_OUTPUT;
    return print_error(EXIT_OUTPUT, "standard output", "cannot write: %s", strerror(code));
}
