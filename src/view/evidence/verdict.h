/* SPDX-License-Identifier: MIT */
/*
 * The evidence: infers the class of the module of each tensor from names, shapes and dtypes of the
 * whole checkpoint, which stores no types. The verdict is the class, how certain that is, which row
 * of the evidence table decided, and what an adapter has to do. This room knows nothing of rules
 * and changes no tensor.
 */
#ifndef WFS_VERDICT_H
#define WFS_VERDICT_H

#include <weightfs/tensor.h>
#include <weightfs/traits.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Whose conventions: of a Linear's weight [out, in] or [in, out], of a norm's weight or gamma. */
enum layout { LAYOUT_TORCH, LAYOUT_BURN };

enum action { ACTION_NONE, ACTION_TRANSPOSE, ACTION_RENAME };

/* Ordered: what is LIKELY or above is refused by `strict`. */
enum certainty { TOLD, CERTAIN, LIKELY, UNDECIDED };

enum class {
    CLASS_NONE, /* not examined */
    /* Found by evidence. */
    CLASS_LINEAR,
    CLASS_NORM,
    CLASS_BATCH_NORM,
    CLASS_EMBEDDING,
    CLASS_CONVOLUTION,
    CLASS_QUANTIZED,
    CLASS_PRELU,
    CLASS_OTHER,
    CLASS_UNKNOWN,
    /* Named by a `keep` or `class` option. */
    CLASS_KEPT,
    TYPE_LINEAR,
    TYPE_LAYER_NORM,
    TYPE_BATCH_NORM,
    TYPE_GROUP_NORM,
    TYPE_RMS_NORM,
    TYPE_INSTANCE_NORM,
    TYPE_PRELU,
    TYPE_EMBEDDING,
    TYPE_CONV1D,
    TYPE_CONV2D,
    TYPE_CONV3D,
    TYPE_CONV_TRANSPOSE1D,
    TYPE_CONV_TRANSPOSE2D,
    TYPE_CONV_TRANSPOSE3D,
    TYPE_DEFORM_CONV2D,
    TYPE_OTHER,
};

struct verdict {
    uint8_t action, certainty, class_; /* of the enums above */
    const char *row; /* of the evidence table, by number and name: docs/view.md; static. NULL: not
                        examined */
};

/* Returns the convention of a format; NULL: none is known. */
static inline enum wfs_convention evidence_convention(const struct wfs_format *format)
{
    return format != NULL ? format->convention : WFS_CONVENTION_ANY;
}

/* What is known of a checkpoint, and what its tensors are to become. */
struct evidence_question {
    enum wfs_convention convention; /* of its format */
    enum wfs_convention stated;     /* of its tensors, as the user says */
    enum layout to;                 /* the layout to adapt to */
};

/*
 * Writes a verdict for each tensor to ret, unless that is NULL, and the layout that the file has or
 * is assumed to have. -ENOMEM.
 */
int evidence_decide(const struct wfs_tensor *tensors, size_t n_tensors,
                    const struct evidence_question *question, struct verdict *ret,
                    enum layout *ret_layout, struct wfs_error *err);

/* Returns the last segment of a key. */
static inline const char *key_leaf(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot == NULL ? key : dot + 1;
}

/* Each returns static text: "" for CLASS_NONE. */
const char *class_name(uint8_t class_);
const char *certainty_name(uint8_t certainty);

/* Returns true if a class has this name, in any case. */
bool class_is_name(const char *name);

/*
 * Finds the type that a `class` option names: "Linear", "Struct:Linear", in any case. With
 * "Struct:" it is treated exactly as Burn does, which leaves InstanceNorm and PRelu alone. Returns
 * false when no type has that name.
 */
bool class_find(const char *name, enum class *ret);

/* The names that class_find knows, separated by commas. */
extern const char class_names[];

/*
 * The words of a segment of a key. It is cut at everything that is not a letter, and at capitals
 * (`LayerNorm` is layer norm, `RMSNorm` is rms norm, `fc1` is fc).
 */

/* What the words in the last segment of the path of a module indicate about its type. */
enum word_kind {
    WORD_NORM = 1 << 0,
    WORD_SCALE = 1 << 1,
    WORD_ACT = 1 << 2,
    WORD_TABLE = 1 << 3,
    WORD_OF = 1 << 4, /* what tables hold */
    WORD_LINEAR = 1 << 5,
    WORD_TIME = 1 << 6,
    WORD_HEAD = 1 << 7,
    WORD_PERHAPS_HEAD = 1 << 8,
    WORD_GENERIC = 1 << 9, /* indicates nothing */
    WORD_PATCH = 1 << 10,
    WORD_TO = 1 << 11,
    WORD_GATE = 1 << 12,
    WORD_BIAS = 1 << 13,
    WORD_ACT_ITSELF = 1 << 14,
    WORD_VECTOR = 1 << 15,
};

struct words {
    uint32_t kinds;      /* of all words together */
    uint32_t last_kinds; /* of the last word */
    size_t n_words;
    bool all_generic;
};

/* Reads the words of a segment and puts them before those read so far. A zeroed struct with
 * all_generic set has none. */
void words_prepend(struct words *words, const char *segment, size_t n_bytes);

#endif
