/* SPDX-License-Identifier: MIT */
/*
 * The tables of names.
 */
#include "view/evidence/verdict.h"

#include <string.h>

static const char *const classes[] = {
    [CLASS_NONE] = "",
    [CLASS_LINEAR] = "linear",
    [CLASS_NORM] = "norm",
    [CLASS_BATCH_NORM] = "batchnorm",
    [CLASS_EMBEDDING] = "embedding",
    [CLASS_CONVOLUTION] = "conv",
    [CLASS_QUANTIZED] = "quantized",
    [CLASS_PRELU] = "prelu",
    [CLASS_OTHER] = "other",
    [CLASS_UNKNOWN] = "unknown",
    [CLASS_KEPT] = "kept",
    [TYPE_LINEAR] = "Linear",
    [TYPE_LAYER_NORM] = "LayerNorm",
    [TYPE_BATCH_NORM] = "BatchNorm",
    [TYPE_GROUP_NORM] = "GroupNorm",
    [TYPE_RMS_NORM] = "RmsNorm",
    [TYPE_INSTANCE_NORM] = "InstanceNorm",
    [TYPE_PRELU] = "PRelu",
    [TYPE_EMBEDDING] = "Embedding",
    [TYPE_CONV1D] = "Conv1d",
    [TYPE_CONV2D] = "Conv2d",
    [TYPE_CONV3D] = "Conv3d",
    [TYPE_CONV_TRANSPOSE1D] = "ConvTranspose1d",
    [TYPE_CONV_TRANSPOSE2D] = "ConvTranspose2d",
    [TYPE_CONV_TRANSPOSE3D] = "ConvTranspose3d",
    [TYPE_DEFORM_CONV2D] = "DeformConv2d",
    [TYPE_OTHER] = "Other",
};

const char class_names[] =
    "Linear, LayerNorm, BatchNorm, GroupNorm, RmsNorm, InstanceNorm, PRelu, Embedding, Conv1d, "
    "Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, DeformConv2d, Other";

static const char *const certainties[] = {
    [TOLD] = "told", [CERTAIN] = "certain", [LIKELY] = "likely", [UNDECIDED] = "unknown"};

const char *class_name(uint8_t class_)
{
    return classes[class_];
}

const char *certainty_name(uint8_t certainty)
{
    return certainties[certainty];
}

bool class_is_name(const char *name)
{
    for (int i = CLASS_NONE + 1; i <= TYPE_OTHER; i++) {
        if (strcasecmp(classes[i], name) == 0)
            return true;
    }
    return false;
}

bool class_find(const char *name, enum class *ret)
{
    static const char prefix[] = "Struct:";
    const size_t n_prefix = sizeof(prefix) - 1;
    const bool is_literal = strncmp(name, prefix, n_prefix) == 0;
    if (is_literal)
        name += n_prefix;
    for (int i = TYPE_LINEAR; i <= TYPE_OTHER; i++) {
        if (strcasecmp(classes[i], name) != 0)
            continue;
        /* Burn compares these two names with its own case. */
        const bool is_untouched = is_literal && (i == TYPE_INSTANCE_NORM || i == TYPE_PRELU) &&
                                  strcmp(classes[i], name) == 0;
        *ret = is_untouched ? TYPE_OTHER : (enum class)i;
        return true;
    }
    return false;
}
