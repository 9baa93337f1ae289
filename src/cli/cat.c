/* SPDX-License-Identifier: MIT */
/*
 * weightfs cat: the bytes of one tensor.
 */
#include "cli/verbs.h"

#include "cli/auto.h"
#include "cli/input.h"
#include "cli/print.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const struct args_option options[] = {
    {"npy", NULL, "write a .npy header before the data"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "cat",
    .operands = "SOURCE KEY",
    .text = "Writes the elements of a tensor to standard output: row-major, little-endian.\n"
            "Does not write to a terminal.",
    .n_min = 2,
    .n_max = 2,
    .has_source = true,
    .options = options,
};

enum { N_CHUNK = 1 << 20 };

/* All of it, or an errno. */
static int write_all(const char *bytes, size_t n_bytes)
{
    while (n_bytes > 0) {
        const ssize_t n = write(STDOUT_FILENO, bytes, n_bytes);
        if (n < 0 && errno != EINTR)
            return errno;
        if (n == 0)
            return EIO;
        if (n > 0) {
            bytes += n;
            n_bytes -= (size_t)n;
        }
    }
    return 0;
}

static enum exit_code write_out(const char *bytes, size_t n_bytes)
{
    const int code = write_all(bytes, n_bytes);
    if (code == 0)
        return EXIT_DONE;
    if (code == EPIPE)
        return EXIT_OUTPUT;
    return print_error(EXIT_OUTPUT, "standard output", "cannot write: %s", strerror(code));
}

static enum exit_code write_header(const struct wfs_tensor *tensor, const char *path)
{
    const size_t n_header = wfs_npy_header(tensor, NULL, 0);
    autofree char *header = malloc(n_header);
    if (header == NULL)
        return print_error(EXIT_UNSUPPORTED, path, "out of memory");
    wfs_npy_header(tensor, header, n_header);
    return write_out(header, n_header);
}

static enum exit_code write_content(const struct wfs_tensor *tensor, const char *path)
{
    autofree char *chunk = malloc(N_CHUNK);
    if (chunk == NULL)
        return print_error(EXIT_UNSUPPORTED, path, "out of memory");
    enum exit_code exit_code = EXIT_DONE;
    for (uint64_t offset = 0; offset < tensor->n_bytes && exit_code == EXIT_DONE;) {
        const ssize_t n = wfs_tensor_read(tensor, offset, chunk, N_CHUNK);
        if (n <= 0)
            return input_read_error(path, tensor, n < 0 ? (int)n : -EIO);
        exit_code = write_out(chunk, (size_t)n);
        offset += (uint64_t)n;
    }
    return exit_code;
}

int verb_cat(int argc, char **argv)
{
    int exit_code;
    auto_args struct args args;
    auto_catalog struct wfs_catalog *catalog = NULL;
    const struct wfs_tensor *tensor;
    if (!args_parse(&args, &usage, argc, argv, &exit_code))
        return exit_code;
    const char *path = args.operands[0];
    exit_code = input_load(&args, path, &catalog);
    if (exit_code == EXIT_DONE)
        exit_code = input_find(catalog, path, args.operands[1], &tensor);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (isatty(STDOUT_FILENO))
        return print_error(EXIT_USAGE, path,
                           "tensor bytes are not written to a terminal; "
                           "redirect them, or use 'weightfs show'");
    if (tensor->trouble != NULL)
        return input_read_error(path, tensor, -EIO);
    if (args_has(&args, "npy"))
        exit_code = write_header(tensor, path);
    if (exit_code == EXIT_DONE)
        exit_code = write_content(tensor, path);
    return exit_code;
}
