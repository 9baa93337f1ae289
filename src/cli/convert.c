/* SPDX-License-Identifier: MIT */
/*
 * weightfs convert: writes a checkpoint to a new file or set, in any format that can be written.
 */
#include "cli/verbs.h"

#include "cli/conversion.h"

static const struct args_usage usage = {
    .verb = "convert",
    .operands = "SOURCE TARGET",
    .text = "Write the tensors and metadata of SOURCE to TARGET, atomically. Reports anything\n"
            "the target format cannot store. The format is inferred from the extension of\n"
            "TARGET. If TARGET is a directory or NAME.index.json, writes shards and an index;\n"
            "a missing directory is created if the name ends with a slash. With --format=dcp,\n"
            "TARGET is a directory: a distributed checkpoint of one rank.",
    .n_min = 2,
    .n_max = 2,
    .has_source = true,
    .has_output = true,
};

int verb_convert(int argc, char **argv)
{
    int exit_code;
    auto_args struct args args;
    if (!args_parse(&args, &usage, argc, argv, &exit_code))
        return exit_code;
    const struct conversion_request request = {
        .args = &args, .source = args.operands[0], .target = args.operands[1]};
    return conversion_run(&request);
}
