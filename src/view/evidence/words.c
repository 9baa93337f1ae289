/* SPDX-License-Identifier: MIT */
/*
 * The lists of words, and finding words in segments.
 */
#include "view/evidence/verdict.h"

#include <string.h>
#include <strings.h>

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

void words_prepend(struct words *words, const char *segment, size_t n_bytes)
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
