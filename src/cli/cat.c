/* SPDX-License-Identifier: MIT */
/*
 * weightfs cat: the bytes of one tensor.
 */
#include "cli/verbs.h"

#include "cli/input.h"
#include "cli/pour.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/format.h>

#include <errno.h>
#include <unistd.h>

static const struct args_option options[] = {
    {"npy", NULL, "write a .npy header before the data"},
    {NULL, NULL, NULL},
};

static const struct args_usage usage = {
    .verb = "cat",
    .operands = "SOURCE KEY",
    .text = "Write the elements of a tensor to standard output, row-major and little-endian.\n"
            "The output must not be a terminal.",
    .n_min = 2,
    .n_max = 2,
    .has_source = true,
    .options = options,
};

static enum exit_code write_header(const struct wfs_tensor *tensor, const char *path)
{
    const size_t n_header = wfs_npy_header(tensor, NULL, 0);
    autofree char *header = malloc(n_header);
    if (header == NULL)
        return print_error(EXIT_UNSUPPORTED, path, "out of memory");
    wfs_npy_header(tensor, header, n_header);
    return pour_bytes(header, n_header);
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
        exit_code = pour_tensor(tensor, path);
    return exit_code;
}
