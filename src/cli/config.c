/* SPDX-License-Identifier: MIT */
/*
 * weightfs config: the non-tensor contents of a checkpoint as JSON.
 */
#include "cli/args.h"
#include "cli/input.h"
#include "program/print.h"

#include <weightfs/cleanup.h>
#include <weightfs/value.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum exit_code run_config(const struct args *args)
{
    auto_catalog struct wfs_catalog *catalog = NULL;
    autofree char *text = NULL;
    size_t n_bytes;
    struct wfs_error err = {0};
    const char *path = args->operands[0];
    enum exit_code exit_code = input_load(args, path, &catalog);
    if (exit_code != EXIT_DONE)
        return exit_code;
    const char *key = args->n_operands > 1 ? args->operands[1] : NULL;
    int code = wfs_catalog_config(catalog, key, &text, &n_bytes, &err);
    autofree char *unescaped = code == -ENOENT ? input_unescape(key) : NULL;
    if (unescaped != NULL && strcmp(unescaped, key) != 0)
        code = wfs_catalog_config(catalog, unescaped, &text, &n_bytes, &err);
    if (code < 0)
        return print_error(code == -ENOENT ? EXIT_NO_MATCH : exit_of_errno(-code), path, "%s",
                           err.text);
    print_json(stdout, text, n_bytes);
    return EXIT_DONE;
}

const struct verb verb_config = {
    .operands = "SOURCE [KEY]",
    .text = "Print the non-tensor contents of a checkpoint as JSON: all of them, or those at\n"
            "the dotted KEY. Python objects are shown as {\"$python\": \"module.Class\", ...};\n"
            "they are never constructed.",
    .has_source = true,
    .is_json = true,
    .run = run_config,
};
