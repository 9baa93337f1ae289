/* SPDX-License-Identifier: MIT */
/*
 * The table of types.
 */
#include "view/class.h"

#include <stdbool.h>
#include <string.h>

static const struct class classes[] = {
    {"Linear", CLASS_LINEAR},         {"LayerNorm", CLASS_NORM},
    {"BatchNorm", CLASS_NORM},        {"GroupNorm", CLASS_NORM},
    {"RmsNorm", CLASS_NORM},          {"InstanceNorm", CLASS_NORM},
    {"PRelu", CLASS_PRELU},           {"Embedding", CLASS_OTHER},
    {"Conv1d", CLASS_OTHER},          {"Conv2d", CLASS_OTHER},
    {"Conv3d", CLASS_OTHER},          {"ConvTranspose1d", CLASS_OTHER},
    {"ConvTranspose2d", CLASS_OTHER}, {"ConvTranspose3d", CLASS_OTHER},
    {"DeformConv2d", CLASS_OTHER},    {"Other", CLASS_OTHER},
};

static const struct class untouched = {"Other", CLASS_OTHER};

const char class_names_text[] =
    "Linear, LayerNorm, BatchNorm, GroupNorm, RmsNorm, InstanceNorm, PRelu, Embedding, Conv1d, "
    "Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, DeformConv2d, Other";

const struct class *class_find(const char *name)
{
    static const char prefix[] = "Struct:";
    const size_t n_prefix = strlen(prefix);
    const bool is_literal = strncmp(name, prefix, n_prefix) == 0;
    if (is_literal)
        name += n_prefix;
    if (is_literal && (strcmp(name, "InstanceNorm") == 0 || strcmp(name, "PRelu") == 0))
        return &untouched;
    for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++) {
        if (strcasecmp(classes[i].name, name) == 0)
            return &classes[i];
    }
    return NULL;
}
