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

static const char *const rows[] = {
    [ROW_NONE] = "",
    [ROW_CLASS_OPTION] = "class=",
    [ROW_KEEP_OPTION] = "keep=",
    [ROW_SAME_LAYOUT] = "0 nothing to do",
    [ROW_RUNNING_STATISTICS] = "1 running statistics",
    [ROW_GAMMA] = "2 gamma",
    [ROW_QUANTIZED] = "3 integers or companions",
    [ROW_HIGH_RANK] = "4 rank 3 or more",
    [ROW_WIDE_NORM] = "4 norm of several dimensions",
    [ROW_WIDE_SCALE] = "4 scale",
    [ROW_MATRIX_AND_BIAS] = "5 matrix and bias",
    [ROW_SQUARE_AND_BIAS] = "6 square matrix and bias",
    [ROW_ODD_BIAS] = "7 matrix and odd bias",
    [ROW_OUTPUT_HEAD] = "8 output head",
    [ROW_LINEAR_NAME] = "9 linear name",
    [ROW_LINEAR_NAME_ODD_SHAPE] = "9 linear name, odd shape",
    [ROW_LINEAR_AND_TABLE_NAME] = "10 linear and table name",
    [ROW_PERHAPS_A_HEAD] = "10 perhaps a head",
    [ROW_PATCHES] = "11 patches",
    [ROW_TABLE_NAME] = "12 table name",
    [ROW_DOUBTFUL_TABLE] = "13 doubtful table",
    [ROW_PERHAPS_A_TABLE] = "13 perhaps a table",
    [ROW_POSITION_BIAS] = "14 position bias",
    [ROW_PART_OF_A_BLOCK] = "15 part of a block",
    [ROW_NAMESAKE_WITH_BIAS] = "16 namesake with bias",
    [ROW_BESIDE_LINEARS] = "17 beside linears",
    [ROW_TALL] = "18 tall",
    [ROW_NO_EVIDENCE] = "19 nothing",
    [ROW_SCALE_AND_NORM_NAME] = "20 scale and norm name",
    [ROW_ACTIVATION] = "20 act",
    [ROW_SCALE] = "20 scale",
    [ROW_ODD_NORM] = "21 odd norm",
    [ROW_NORM_NAME] = "21 norm name",
    [ROW_TWO_VECTORS] = "22 two vectors of one length",
    [ROW_ONE_ELEMENT] = "23 one element",
    [ROW_VECTOR] = "24 vector",
    [ROW_NO_WEIGHT] = "25 no weight",
};

const char *class_name(uint8_t class_)
{
    return classes[class_];
}

const char *certainty_name(uint8_t certainty)
{
    return certainties[certainty];
}

const char *row_name(uint8_t row)
{
    return rows[row];
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
