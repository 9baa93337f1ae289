/* SPDX-License-Identifier: MIT */
/*
 * The types of values and of tensors: their numbers in a file, and what they are here.
 */
#include "format/gguf/gguf_load.h"

static const struct {
    const char *name;
    unsigned n_bytes;
} types[GGUF_N_TYPES] = {
    [GGUF_U8] = {"U8", 1},       [GGUF_I8] = {"I8", 1},     [GGUF_U16] = {"U16", 2},
    [GGUF_I16] = {"I16", 2},     [GGUF_U32] = {"U32", 4},   [GGUF_I32] = {"I32", 4},
    [GGUF_F32] = {"F32", 4},     [GGUF_BOOL] = {"BOOL", 1}, [GGUF_TEXT] = {"STRING", 0},
    [GGUF_U64] = {"U64", 8},     [GGUF_I64] = {"I64", 8},   [GGUF_F64] = {"F64", 8},
    [GGUF_ARRAY] = {"ARRAY", 0},
};

unsigned gguf_type_bytes(enum gguf_type type)
{
    return types[type].n_bytes;
}

const char *gguf_type_name(enum gguf_type type)
{
    return types[type].name;
}

/* Floats of 32 bits are marked as in all formats. */
enum { TAG_FIRST = 16 };

void gguf_type_keep(struct value *value, enum gguf_type type)
{
    const bool is_narrow = type == GGUF_F32 && value->kind == VALUE_FLOAT;
    value->tag = (uint8_t)(is_narrow ? VALUE_NARROW : TAG_FIRST + (unsigned)type);
}

enum gguf_type gguf_type_of(const struct value *value)
{
    if (value->kind == VALUE_FLOAT && value->tag == VALUE_NARROW)
        return GGUF_F32;
    return value->kind != VALUE_GLOBAL && value->tag >= TAG_FIRST &&
                   value->tag < TAG_FIRST + GGUF_N_TYPES
               ? (enum gguf_type)(value->tag - TAG_FIRST)
               : GGUF_NONE;
}

/* The numbers of dtypes, in rising order. Those without a dtype were removed. */
static const struct {
    uint8_t number, dtype;
    const char *removed;
} dtypes[] = {
    {0, WFS_F32, NULL},      {1, WFS_F16, NULL},      {2, WFS_Q4_0, NULL},
    {3, WFS_Q4_1, NULL},     {4, 0, "Q4_2"},          {5, 0, "Q4_3"},
    {6, WFS_Q5_0, NULL},     {7, WFS_Q5_1, NULL},     {8, WFS_Q8_0, NULL},
    {9, WFS_Q8_1, NULL},     {10, WFS_Q2_K, NULL},    {11, WFS_Q3_K, NULL},
    {12, WFS_Q4_K, NULL},    {13, WFS_Q5_K, NULL},    {14, WFS_Q6_K, NULL},
    {15, WFS_Q8_K, NULL},    {16, WFS_IQ2_XXS, NULL}, {17, WFS_IQ2_XS, NULL},
    {18, WFS_IQ3_XXS, NULL}, {19, WFS_IQ1_S, NULL},   {20, WFS_IQ4_NL, NULL},
    {21, WFS_IQ3_S, NULL},   {22, WFS_IQ2_S, NULL},   {23, WFS_IQ4_XS, NULL},
    {24, WFS_I8, NULL},      {25, WFS_I16, NULL},     {26, WFS_I32, NULL},
    {27, WFS_I64, NULL},     {28, WFS_F64, NULL},     {29, WFS_IQ1_M, NULL},
    {30, WFS_BF16, NULL},    {31, 0, "Q4_0_4_4"},     {32, 0, "Q4_0_4_8"},
    {33, 0, "Q4_0_8_8"},     {34, WFS_TQ1_0, NULL},   {35, WFS_TQ2_0, NULL},
    {36, 0, "IQ4_NL_4_4"},   {37, 0, "IQ4_NL_4_8"},   {38, 0, "IQ4_NL_8_8"},
    {39, WFS_MXFP4, NULL},   {40, WFS_NVFP4, NULL},   {41, WFS_Q1_0, NULL},
    {42, WFS_Q2_0, NULL},
};

enum { N_DTYPES = sizeof(dtypes) / sizeof(*dtypes) };

bool gguf_dtype_of(uint64_t number, enum wfs_dtype *ret, const char **ret_removed)
{
    *ret_removed = number < N_DTYPES ? dtypes[number].removed : NULL;
    if (number >= N_DTYPES || *ret_removed != NULL)
        return false;
    *ret = (enum wfs_dtype)dtypes[number].dtype;
    return true;
}

int gguf_dtype_number(enum wfs_dtype dtype)
{
    for (int i = 0; i < N_DTYPES; i++) {
        if (dtypes[i].removed == NULL && dtypes[i].dtype == dtype)
            return dtypes[i].number;
    }
    return -1;
}
