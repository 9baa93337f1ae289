/* SPDX-License-Identifier: MIT */
/*
 * Rules: options of a view with their values parsed. A view keeps them in the order given; each
 * pass over a catalog takes those of its kind.
 */
#ifndef WFS_RULE_H
#define WFS_RULE_H

#include <weightfs/tensor.h>
#include <weightfs/view.h>

#include "view/condition.h"
#include "view/evidence/verdict.h"
#include "view/regex/regex.h"

enum rule_kind {
    RULE_JOIN,
    RULE_OVERLAY,
    RULE_DEQUANTIZE,
    RULE_AVERAGE,
    RULE_WEIGHT,
    RULE_ADD,
    RULE_MINUS,
    RULE_TASK,
    RULE_SLERP,
    RULE_LORA,
    RULE_LORA_REMAP,
    RULE_TOP_LEVEL_KEY,
    RULE_RENAME, /* of an option; the rule is a RULE_REMAP */
    RULE_REMAP,
    RULE_CONTIGUOUS_EXCEPT,
    RULE_INCLUDE,
    RULE_KEY,
    RULE_EXCLUDE,
    RULE_WHERE,
    RULE_DROP_VARIANTS,
    RULE_CLASS,
    RULE_TRANSPOSE,
    RULE_PERMUTE,
    RULE_SPLIT,
    RULE_FUSE,
    RULE_SLICE,
    RULE_CAST,
    RULE_KEEP,
};

enum { RULE_MAX_PARTS = 64 };

struct rule {
    struct rule *next;
    enum rule_kind kind;
    const char *name; /* of its option; static */
    size_t number;    /* among the rules of its view, from 0 */
    bool has_weight;
    double weight;       /* of those with a file, and of RULE_WEIGHT */
    bool is_negated;     /* of those with a file: it takes what does not match */
    bool has_backslash;  /* its replacement has \1, which is read as ${1} */
    char *text;          /* the value as typed */
    char *config;        /* URL of the configuration of an adapter that is a URL; NULL: none */
    struct regex *regex; /* the keys it is for; NULL: all */
    char *argument;      /* what follows the regex, or the value where there is none */
    const char *parts[RULE_MAX_PARTS]; /* of an argument that is a list, in `list` */
    uint32_t n_parts;
    char *list;
    uint32_t order[RULE_MAX_PARTS]; /* of a permutation; of a split, the size of each part */
    uint32_t n_order;               /* of a split: all sizes together */
    enum wfs_dtype dtype;           /* of a RULE_CAST */
    struct rule_join {
        enum join_way { JOIN_PRESET, JOIN_COPY, JOIN_FIRST, JOIN_DIM } way;
        uint32_t dim, n_pieces; /* each part has as many, which alternate with those of others */
    } join;                     /* of a RULE_JOIN */
    enum class class_;          /* of a RULE_CLASS */
    struct wfs_condition *condition;
};

enum contiguous { CONTIGUOUS_AUTO, CONTIGUOUS_ON, CONTIGUOUS_OFF };
enum direction { TO_BURN, TO_TORCH, TO_NONE, TO_UNSAID };
enum collision { COLLISION_ERROR, COLLISION_SUFFIX };

struct wfs_view {
    struct rule *rules, **end;
    size_t n_rules;
    enum contiguous contiguous;
    enum direction from, to;
    enum collision collision;
    bool is_partial, is_strict;
    bool is_widening; /* its casts are for blocks and floats narrower than F32 */
    char *like, *lora_part;
    double lora_alpha; /* NAN: not said */
    bool has_gptq_v2;
    unsigned n_files; /* rules files that are being read */
};

struct view_words {
    char text[128]; /* "a, b or c" */
};

/* Returns the next option, from *i on, that changes nothing, since none of those that it needs is
 * given; NULL: there is none. */
const char *view_idle_option(const struct wfs_view *view, size_t *i, struct view_words *ret_needs);

/* Parses the value of a rule. -EINVAL says what is wrong with it. */
int rule_new(const struct wfs_view_option *option, enum rule_kind kind, const char *value,
             struct rule **out, struct wfs_error *err);
void rule_free(struct rule *rule);

/* Returns 1 if the rule is for the key, else 0; -E2BIG of a regex. */
int rule_takes(const struct rule *rule, const char *key, struct wfs_error *err);

/* Returns whether another checkpoint, or an adapter, is the argument of rules of that kind. */
bool rule_has_file(enum rule_kind kind);

/* Reads a finite number, which is all of the text. */
bool rule_number(const char *text, double *ret);

/* Reads a whole regular file of at most 16 MiB; *ret is malloc'ed, with a NUL after its bytes.
 * what: its name in messages. */
int text_file_read(const char *what, const char *path, char **ret, size_t *ret_n,
                   struct wfs_error *err);

/* Returns the next rule of that kind, from `rule` on. */
const struct rule *rule_next(const struct rule *rule, enum rule_kind kind);

/* Loops over the rules of a kind. */
#define for_rules(rule, view, kind)                                                                \
    for (const struct rule *rule = rule_next((view)->rules, kind); rule != NULL;                   \
         rule = rule_next((rule)->next, kind))

#endif
