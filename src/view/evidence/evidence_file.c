/* SPDX-License-Identifier: MIT */
/*
 * Three passes: over the tensors to make groups, over the groups to describe them, and over the
 * groups again to count.
 */
#include "view/evidence/evidence_file.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text_index.h"
#include "view/regex/regex.h"

/*
 * ---- words ----
 *
 * A segment is cut into words at everything that is not a letter, and at capitals (`LayerNorm` is
 * layer norm, `RMSNorm` is rms norm, `fc1` is fc).
 */

/* Words with the same meaning, each between spaces. */
static const struct {
    uint32_t kind;
    const char *words;
} lists[] = {
    {WORD_NORM, " ln bn gn rms "},
    {WORD_SCALE, " affine scale actnorm grn gamma ls mix gain magnitude "},
    {WORD_ACT, " act activation prelu relu lrelu nonlinearity "},
    {WORD_TABLE, " embedding embeddings emb embs embed embeds embedder embedders codebook lookup "
                 "token tokens wte wpe "},
    {WORD_OF, " word words token tokens tok position positions positional pos type char segment "
              "class vocab relative wte wpe "},
    {WORD_LINEAR, " proj projs project projection projections projector mapper linear linears lin "
                  "lins dense fc qkv kv wqkv wkv router gate reduction merging modulation mqa lora "
                  "mlp ff ffn ffw feed "},
    {WORD_TIME, " time timestep timesteps step "},
    {WORD_HEAD, " head heads classifier score unembed unembedding logits "},
    {WORD_PERHAPS_HEAD, " decoder output generator "},
    {WORD_GENERIC, " layer layers default module base original net main model to out "},
    {WORD_PATCH, " patch embedder embedders "},
    {WORD_TO, " to cond conditioning "},
    {WORD_GATE, " gate router "},
    {WORD_BIAS, " bias "},
    {WORD_ACT_ITSELF, " act "},
    {WORD_VECTOR, " vec "},
};

enum { LONGEST = 16 }; /* bytes of a word above, and one more */

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

/* Returns true if "norm" is part of the word, in any case. */
static bool has_norm(const char *word, size_t n)
{
    for (size_t i = 0; i + 4 <= n; i++) {
        if (strncasecmp(word + i, "norm", 4) == 0)
            return true;
    }
    return false;
}

static uint32_t kinds_of(const char *word, size_t n)
{
    char spaced[LONGEST + 3] = " ";
    uint32_t kinds = 0;
    if (n <= LONGEST) {
        for (size_t i = 0; i < n; i++)
            spaced[i + 1] = (char)(word[i] | 0x20);
        spaced[n + 1] = ' ';
        for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
            kinds |= strstr(lists[i].words, spaced) != NULL ? lists[i].kind : 0;
    }
    if (has_norm(word, n) && !(n == 7 && strncasecmp(word, "actnorm", 7) == 0))
        kinds |= WORD_NORM;
    return kinds;
}

/* Returns the bytes of the next word at or after *at: capitals that no small letter follows, or
 * at most one capital and small letters. 0: none. */
static size_t next_word(const char *segment, size_t n_bytes, size_t *at)
{
    for (; *at < n_bytes; (*at)++) {
        const char *word = segment + *at;
        const size_t n_left = n_bytes - *at;
        size_t n_upper = 0, n = 0;
        while (n_upper < n_left && is_upper(word[n_upper]))
            n_upper++;
        const bool small_follows = n_upper < n_left && is_lower(word[n_upper]);
        if (n_upper > (small_follows ? 1u : 0u))
            return small_follows ? n_upper - 1 : n_upper;
        n = n_upper;
        while (n < n_left && is_lower(word[n]))
            n++;
        if (n > 0)
            return n;
    }
    return 0;
}

/* Reads the words of a segment and puts them before those read so far. A zeroed struct with
 * all_generic set has none. */
static void prepend_words(struct words *words, const char *segment, size_t n_bytes)
{
    uint32_t last_kinds = 0;
    size_t at = 0, n, n_words = 0;
    for (; (n = next_word(segment, n_bytes, &at)) > 0; at += n) {
        last_kinds = kinds_of(segment + at, n);
        words->kinds |= last_kinds;
        words->all_generic = words->all_generic && (last_kinds & WORD_GENERIC) != 0;
        n_words++;
    }
    if (words->n_words == 0)
        words->last_kinds = last_kinds;
    words->n_words += n_words;
}

/* ---- groups ---- */

/* Names that are the whole last segment of a matrix in a block of several. */
static const char part_pattern[] =
    "\\A(?:(to_)?(q|k|v|o|qk|kv|qkv|query|key|value|query_key|query_key_value|queries|keys|values"
    "|out|gate)|(w|W)_?(q|k|v|o|r|i|qkv|kv|in|out|up|down)(_?[a-z0-9]{1,2})?|w[0-9]"
    "|(in|up|down|input|output)(_[0-9])?|receptance)\\z";

/* Leaves that come with a quantized weight. */
static const char companion_pattern[] =
    "\\A(?:(weight_|input_)?(scale|scales|scale_inv|zero|zeros|zero_point|absmax|shape|format)"
    "|SCB|CB)\\z";

struct describing {
    struct evidence_file *file;
    struct regex *part, *companion;
    struct arena arena;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_number(const char *segment, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(segment[i]))
            return false;
    }
    return n > 0;
}

/* Returns the start of the segment that ends at `end`. */
static size_t segment_start(const char *name, size_t end)
{
    while (end > 0 && name[end - 1] != '.')
        end--;
    return end;
}

/* Copies the text with each number as one '#', in the arena. */
static char *fold(struct arena *arena, const char *text, size_t n, size_t *ret_n)
{
    char *folded = arena_chars(arena, n + 1);
    size_t n_folded = 0;
    for (size_t i = 0; i < n && folded != NULL; i++) {
        if (!is_digit(text[i]))
            folded[n_folded++] = text[i];
        else if (i == 0 || !is_digit(text[i - 1]))
            folded[n_folded++] = '#';
    }
    *ret_n = n_folded;
    return folded;
}

static int intern_folded(struct arena *arena, struct text_index *intern, const char *text, size_t n,
                         uint32_t *ret)
{
    size_t n_folded;
    const char *folded = fold(arena, text, n, &n_folded);
    return folded == NULL ? -ENOMEM : text_index_add(intern, folded, n_folded, ret);
}

/* Reads the words of the last segment that is not a number, and of those before it while all words
 * are generic. */
static void read_words(struct group *group, size_t end)
{
    group->words.all_generic = true;
    for (;;) {
        const size_t start = segment_start(group->name, end);
        if (!is_number(group->name + start, end - start))
            prepend_words(&group->words, group->name + start, end - start);
        if (!group->words.all_generic || start == 0)
            return;
        end = start - 1;
    }
}

/* Finds the last segment that is not a number; [0, 0) when all are. */
static void last_named(const struct group *group, size_t *ret_start, size_t *ret_end)
{
    size_t end = group->n_name;
    for (;;) {
        const size_t start = segment_start(group->name, end);
        *ret_start = start;
        *ret_end = end;
        if (!is_number(group->name + start, end - start))
            return;
        if (start == 0)
            break;
        end = start - 1;
    }
    *ret_start = *ret_end = 0;
}

static int describe(struct describing *d, struct group *group, struct wfs_error *err)
{
    struct evidence_file *file = d->file;
    size_t start, end;
    last_named(group, &start, &end);
    const size_t n_last = end - start;
    char *last = arena_copy(&d->arena, group->name + start, n_last);
    /* The parent precedes the name; where all segments are numbers, it is empty. */
    const size_t n_parent = start > 0 ? start - 1 : 0;
    if (last == NULL || text_index_add(&file->parents, group->name, n_parent, &group->parent) < 0 ||
        intern_folded(&d->arena, &file->folded, group->name, n_parent, &group->folded_parent) < 0 ||
        intern_folded(&d->arena, &file->labels, last, n_last, &group->label) < 0)
        return wfs_fail_memory(err);
    read_words(group, group->n_name);
    group->is_numbered = group->n_name > 0 && is_digit(group->name[group->n_name - 1]);
    group->is_shared = strcmp(last, "shared") == 0;
    group->is_output_head = strstr(last, "lm_head") != NULL || strcmp(last, "embed_out") == 0;
    const int is_part = regex_search(d->part, last, err);
    group->is_part = is_part > 0;
    return is_part < 0 ? is_part : 0;
}

/* Adds a leaf to its group. */
static int add_leaf(struct describing *d, struct group *group, const struct wfs_tensor *tensor,
                    const char *leaf, struct wfs_error *err)
{
    if (strcmp(leaf, "weight") == 0)
        group->weight = tensor;
    else if (strcmp(leaf, "bias") == 0)
        group->bias = tensor;
    else if (strcmp(leaf, "gamma") == 0)
        group->gamma = tensor;
    else if (strcmp(leaf, "beta") == 0)
        group->beta = tensor;
    else if (strcmp(leaf, "running_mean") == 0)
        group->has_running_mean = true;
    else if (strcmp(leaf, "running_var") == 0)
        group->has_running_var = true;
    else if (strcmp(leaf, "num_batches_tracked") != 0) {
        const int code = regex_search(d->companion, leaf, err);
        group->has_extra = true;
        group->has_companion = group->has_companion || code > 0;
        return code < 0 ? code : 0;
    }
    return 0;
}

static int make_groups(struct describing *d, const struct wfs_tensor *tensors,
                       struct wfs_error *err)
{
    struct evidence_file *file = d->file;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const char *dot = strrchr(tensors[i].key, '.');
        const size_t n_name = dot == NULL ? 0 : (size_t)(dot - tensors[i].key);
        if (text_index_add(&file->names, tensors[i].key, n_name, &file->group_of[i]) < 0)
            return wfs_fail_memory(err);
        file->has_no_norm =
            file->has_no_norm || strstr(tensors[i].key, "bottleneck.input.LayerNorm.") != NULL;
    }
    file->groups = calloc(file->names.n_texts + 1, sizeof(*file->groups));
    if (file->groups == NULL)
        return wfs_fail_memory(err);
    for (uint32_t i = 0; i < file->names.n_texts; i++) {
        file->groups[i].name = file->names.texts[i].bytes;
        file->groups[i].n_name = file->names.texts[i].n_bytes;
        const int code = describe(d, &file->groups[i], err);
        if (code < 0)
            return code;
    }
    for (size_t i = 0; i < file->n_tensors; i++) {
        const char *dot = strrchr(tensors[i].key, '.');
        const char *leaf = dot == NULL ? tensors[i].key : dot + 1;
        const int code = add_leaf(d, &file->groups[file->group_of[i]], &tensors[i], leaf, err);
        if (code < 0)
            return code;
    }
    return 0;
}

/* ---- statistics ---- */

int group_vote(const struct group *group)
{
    const struct wfs_tensor *w = group->weight, *b = group->bias;
    if (w == NULL || b == NULL || w->shape.rank != 2 || b->shape.rank != 1 ||
        w->shape.dims[0] == w->shape.dims[1])
        return -1;
    if (b->shape.dims[0] == w->shape.dims[0])
        return LAYOUT_TORCH;
    return b->shape.dims[0] == w->shape.dims[1] ? LAYOUT_BURN : -1;
}

static void count_vote(struct votes *votes, int layout)
{
    if (votes->n[0] == 0 && votes->n[1] == 0)
        votes->first = (uint8_t)layout;
    votes->n[layout]++;
}

static uint32_t rank_of(const struct wfs_tensor *tensor)
{
    return tensor == NULL ? 0 : tensor->shape.rank;
}

static void count_group(struct evidence_file *file, const struct group *group, size_t *n_gammas,
                        size_t *n_weights)
{
    const struct wfs_tensor *w = group->weight;
    const int vote = group_vote(group);
    const uint32_t rank = rank_of(w);
    if (vote >= 0) {
        count_vote(&file->votes, vote);
        count_vote(&file->by_label[group->label], vote);
        count_vote(&file->by_folded[group->folded_parent], vote);
    }
    for (uint32_t i = 0; i < rank && rank <= 2; i++)
        file->widths[file->n_widths++] = (struct width){w->shape.dims[i], group->label};
    if (group->has_extra && (rank == 1 || rank_of(group->gamma) == 1))
        file->is_odd[group->label] = true;
    if (rank == 2) {
        file->n_matrices[group->parent] += group->is_part;
        file->n_neighbours[group->parent] += group->is_part || group_has(group, WORD_LINEAR);
        if (group_is_table(group) && group_has(group, WORD_OF) && group->bias == NULL &&
            w->shape.dims[0] >= 1000)
            file->vocab[file->n_vocab++] = w->shape.dims[0];
    }
    *n_gammas += group_is_norm(group) && rank_of(group->gamma) == 1;
    *n_weights += group_is_norm(group) && rank == 1;
}

static int compare_widths(const void *a, const void *b)
{
    const struct width *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    return x->label < y->label ? -1 : x->label > y->label;
}

static int compare_sizes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void find_layout(struct evidence_file *file, enum wfs_convention convention, enum layout to,
                        bool weights, bool gammas)
{
    const uint32_t torch = file->votes.n[LAYOUT_TORCH], burn = file->votes.n[LAYOUT_BURN];
    const bool is_torch_named = weights && !gammas;
    file->is_sure = true;
    if (convention == WFS_CONVENTION_TORCH) {
        file->layout = LAYOUT_TORCH;
    } else if (convention == WFS_CONVENTION_BURN) {
        file->layout = torch > 0 && burn == 0 ? LAYOUT_TORCH : LAYOUT_BURN;
    } else if (is_torch_named && (torch > 0 || burn == 0)) {
        file->layout = LAYOUT_TORCH;
    } else if (torch != burn && !is_torch_named) {
        file->layout = torch > burn ? LAYOUT_TORCH : LAYOUT_BURN;
    } else {
        file->layout = to == LAYOUT_BURN ? LAYOUT_TORCH : LAYOUT_BURN;
        file->is_sure = false;
    }
}

static int count(struct evidence_file *file, enum wfs_convention convention, enum layout to,
                 struct wfs_error *err)
{
    const uint32_t n = file->names.n_texts;
    file->by_label = calloc(file->labels.n_texts + 1, sizeof(struct votes));
    file->by_folded = calloc(file->folded.n_texts + 1, sizeof(struct votes));
    file->is_odd = calloc(file->labels.n_texts + 1, sizeof(bool));
    file->n_matrices = calloc(file->parents.n_texts + 1, sizeof(uint32_t));
    file->n_neighbours = calloc(file->parents.n_texts + 1, sizeof(uint32_t));
    file->widths = calloc(2 * (size_t)n + 1, sizeof(struct width));
    file->vocab = calloc((size_t)n + 1, sizeof(uint64_t));
    if (file->by_label == NULL || file->by_folded == NULL || file->is_odd == NULL ||
        file->n_matrices == NULL || file->n_neighbours == NULL || file->widths == NULL ||
        file->vocab == NULL)
        return wfs_fail_memory(err);
    size_t n_gammas = 0, n_weights = 0, n_kept = 0;
    for (uint32_t i = 0; i < n; i++)
        count_group(file, &file->groups[i], &n_gammas, &n_weights);
    qsort(file->vocab, file->n_vocab, sizeof(uint64_t), compare_sizes);
    qsort(file->widths, file->n_widths, sizeof(struct width), compare_widths);
    for (size_t i = 0; i < file->n_widths; i++) {
        if (i == 0 || compare_widths(&file->widths[i], &file->widths[n_kept - 1]) != 0)
            file->widths[n_kept++] = file->widths[i];
    }
    file->n_widths = n_kept;
    find_layout(file, convention, to, n_weights > 0, n_gammas > 0);
    return 0;
}

/* Returns the index of the first width that is not below n. */
static size_t lower_bound(const struct evidence_file *file, uint64_t n)
{
    size_t low = 0, high = file->n_widths;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (file->widths[middle].n < n)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t evidence_width(const struct evidence_file *file, uint64_t n)
{
    const size_t end = n == UINT64_MAX ? file->n_widths : lower_bound(file, n + 1);
    return end - lower_bound(file, n);
}

bool evidence_is_vocab(const struct evidence_file *file, uint64_t n)
{
    return bsearch(&n, file->vocab, file->n_vocab, sizeof(n), compare_sizes) != NULL;
}

int evidence_file_init(struct evidence_file *file, const struct wfs_tensor *tensors,
                       size_t n_tensors, enum wfs_convention convention, enum layout to,
                       struct wfs_error *err)
{
    *file = (struct evidence_file){.n_tensors = n_tensors};
    struct describing d = {.file = file};
    file->group_of = calloc(n_tensors + 1, sizeof(*file->group_of));
    int code = file->group_of == NULL ? wfs_fail_memory(err) : 0;
    code = code < 0 ? code : regex_new(part_pattern, &d.part, err);
    code = code < 0 ? code : regex_new(companion_pattern, &d.companion, err);
    code = code < 0 ? code : make_groups(&d, tensors, err);
    code = code < 0 ? code : count(file, convention, to, err);
    regex_free(d.part);
    regex_free(d.companion);
    file->arena = d.arena;
    if (code < 0)
        evidence_file_done(file);
    return code;
}

void evidence_file_done(struct evidence_file *file)
{
    text_index_done(&file->names);
    text_index_done(&file->labels);
    text_index_done(&file->parents);
    text_index_done(&file->folded);
    free(file->groups);
    free(file->group_of);
    free(file->by_label);
    free(file->by_folded);
    free(file->is_odd);
    free(file->n_matrices);
    free(file->n_neighbours);
    free(file->widths);
    free(file->vocab);
    arena_done(&file->arena);
    *file = (struct evidence_file){0};
}
