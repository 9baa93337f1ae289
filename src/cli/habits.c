/* SPDX-License-Identifier: MIT */
/*
 * Two tables. The line for a verb is a template:
 *
 *   {*}       all words, else FILE
 *   {F}       the first operand that is a file, else the first one, else FILE
 *   {D}       the first operand that is a dtype, else DTYPE
 *   {1:TEXT}  the first of the other operands, else the text, in which a '*' stands for the
 * extension of {F}; {2:TEXT} the next
 */
#include "cli/habits.h"

#include <weightfs/tensor.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Options that change nothing here; a number may follow. */
static const char ignored[] = " -n -q -v -1 -a -r -R --quiet --silent --verbose --recursive --all "
                              "--progress --safe-serialization --hist --histogram --stats ";

static bool is_among(const char *names, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = names; n > 0 && (at = strstr(at, name)) != NULL; at++) {
        if (at > names && at[-1] == ' ' && at[n] == ' ')
            return true;
    }
    return false;
}

static void pass_number(char *const **word)
{
    const char *next = (*word)[1];
    if (next != NULL && *next != '\0' && next[strspn(next, "0123456789")] == '\0')
        ++*word;
}

/* ---- verbs ---- */

static const struct {
    const char *names; /* with a blank before and after each */
    size_t n_least;    /* operands, at least */
    const char *line;
} verbs[] = {
    {" rename mv move ", 0, "edit --rename {1:OLD} {2:NEW} {F} {3:edited*}"},
    {" rm remove delete del drop ", 0, "edit --remove {1:KEY} {F} {2:edited*}"},
    {" cp copy save export write to ", 2, "convert {*}"},
    {" cp copy save export write to ", 0, "convert {F} {1:copy*}"},
    {" cast dtype quantize ", 0, "convert --cast {D} {F} {1:cast*}"},
    {" merge join combine ", 3, "convert --overlay {1:FILE} {F} {2:merged*}"},
    {" merge join combine consolidate ", 0, "convert {*}"},
    {" split shard ", 0, "convert --max-shard-size 5GB {F} {1:shards/}"},
    {" stats stat hist histogram head describe print summarize ", 0, "show {*}"},
    {" inspect summary params size count du metadata meta ", 0, "info {*}"},
    {" list ", 1, "ls {*}"},
    {" keys tensors dir ", 0, "ls {*}"},
    {" tree ", 0, "ls --tree {*}"},
    {" list mounts ", 0, "status"},
    {" verify validate test lint ", 0, "check {*}"},
    {" nan nans ", 0, "check --values {*}"},
    {" hash checksum digest sha256 sha256sum md5sum ", 0, "sum {*}"},
    {" compare cmp ", 0, "diff {*}"},
    {" grep search ", 0, "find {*}"},
    {" unpack explode untar ", 0, "extract {F} -d {1:tensors}"},
    {" unmount eject fusermount fusermount3 ", 0, "umount {*}"},
    {" sync ", 0, "commit {*}"},
    {" undo revert reset ", 0, "discard {*}"},
    {" version ", 0, "--version"},
};

/* Adds a word as a shell takes it. */
static void add_word(struct strbuf *line, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./:=,@%+-";
    const bool is_plain = *word != '\0' && word[strspn(word, plain)] == '\0';
    strbuf_puts(line, is_plain ? "" : "\"");
    for (const char *at = word; *at != '\0'; at++) {
        if (strchr("\"\\$`", *at) != NULL)
            strbuf_puts(line, "\\");
        strbuf_escape(line, at, 1);
    }
    strbuf_puts(line, is_plain ? "" : "\"");
}

static bool is_operand(const char *word)
{
    return word[0] != '-';
}

static bool is_dtype(const char *word)
{
    enum wfs_dtype dtype;
    return wfs_dtype_spelled(word, strlen(word), &dtype);
}

/* Returns the n-th operand that is not the file, from 1 on, or the file for 0; NULL: there is none.
 * has_dtype: those that are dtypes do not count. */
static const char *operand_at(char *const *words, size_t n, bool has_dtype)
{
    const char *file = NULL;
    for (char *const *word = words; *word != NULL && file == NULL; word++) {
        if (is_operand(*word) && (access(*word, F_OK) == 0 || strstr(*word, "://") != NULL))
            file = *word;
    }
    for (char *const *word = words; *word != NULL; word++) {
        if (!is_operand(*word) || (has_dtype && is_dtype(*word)))
            continue;
        file = file == NULL ? *word : file;
        if (*word != file && n > 0 && --n == 0)
            return *word;
    }
    return n == 0 ? file : NULL;
}

/* Adds what a part in braces is about. */
static void add_part(struct strbuf *line, const char *part, char *const *words, bool has_dtype)
{
    const char *file = operand_at(words, 0, has_dtype);
    const char *dot = file == NULL ? NULL : strrchr(file, '.');
    if (*part == '*') {
        const char *between = "";
        for (char *const *word = words; *word != NULL; word++) {
            if (is_among(ignored, *word)) {
                pass_number(&word);
                continue;
            }
            strbuf_puts(line, between);
            add_word(line, *word);
            between = " ";
        }
        strbuf_puts(line, *between == '\0' ? "FILE" : "");
        return;
    }
    const char *word = file;
    if (*part == 'D')
        for (word = *words; word != NULL && !is_dtype(word); word = *words)
            words++;
    else if (*part != 'F')
        word = operand_at(words, (size_t)(*part - '0'), has_dtype);
    if (word != NULL) {
        add_word(line, word);
        return;
    }
    const char *text = *part == 'F' ? "FILE" : *part == 'D' ? "DTYPE" : part + 2;
    const size_t n = strcspn(text, "*}");
    strbuf_add(line, text, n);
    if (text[n] == '*')
        add_word(line, dot != NULL && strchr(dot, '/') == NULL ? dot : "/");
}

bool habits_add_verb(const struct habits_words *typed, struct strbuf *line)
{
    char *const *words = typed->words;
    const char *verb = typed->verb;
    size_t n = 0, i = 0;
    if (strcmp(verb, "list") == 0 && *words != NULL && strcmp(*words, "mounts") == 0)
        verb = "mounts";
    for (char *const *word = words; *word != NULL; word++)
        n += is_operand(*word);
    while (i < sizeof(verbs) / sizeof(verbs[0]) &&
           (n < verbs[i].n_least || !is_among(verbs[i].names, verb)))
        i++;
    if (i == sizeof(verbs) / sizeof(verbs[0]))
        return false;
    strbuf_puts(line, "weightfs ");
    for (const char *at = verbs[i].line; *at != '\0'; at++) {
        if (*at != '{') {
            strbuf_add(line, at, 1);
            continue;
        }
        add_part(line, at + 1, words, strstr(verbs[i].line, "{D}") != NULL);
        at = strchr(at, '}');
    }
    return true;
}

/* ---- options ---- */

enum part {
    OPTION_ALONE,
    OPTION_WITH_VALUE,
    OPTION_LAST /* its value is the last operand */,
    OPTION_OUTPUT /* and that is an output */
};

/* A row is of the verbs that have what is meant; nothing is, for all. */
static const struct {
    const char *names;
    enum part part;
    const char *meant; /* its value follows */
} options[] = {
    {" -o --output --out --outfile ", OPTION_OUTPUT, NULL},
    {" -o --output --out --outdir --dir -C ", OPTION_WITH_VALUE, "--directory"},
    {" -name --name ", OPTION_LAST, NULL},
    {" --dtype --to-dtype --torch-dtype --precision --type ", OPTION_WITH_VALUE, "--cast"},
    {" --bf16 --bfloat16 ", OPTION_ALONE, "--cast=bf16"},
    {" --fp16 --f16 --float16 --half ", OPTION_ALONE, "--cast=f16"},
    {" --fp32 --f32 --float32 --float ", OPTION_ALONE, "--cast=f32"},
    {" -R -r --recursive ", OPTION_ALONE, "--tree"},
    {" -S --size --by-size ", OPTION_ALONE, "--sort=size"},
    {" -j ", OPTION_ALONE, "--json"},
    {" -H --human-readable ", OPTION_ALONE, "--human"},
    {" -f -y --yes --clobber ", OPTION_ALONE, "--overwrite"},
    {" --filter --match --pattern --regex --only ", OPTION_WITH_VALUE, "--include"},
    {" --skip --ignore ", OPTION_WITH_VALUE, "--exclude"},
    {" --sed --replace-keys ", OPTION_WITH_VALUE, "--remap"},
    {" --shard-size --max-size --split-size ", OPTION_WITH_VALUE, "--max-shard-size"},
    {" --metadata --meta ", OPTION_WITH_VALUE, "--set-metadata"},
    {" --delete --rm ", OPTION_WITH_VALUE, "--remove"},
    {" --nan --finite --deep ", OPTION_ALONE, "--values"},
    {" --no-color --nocolor ", OPTION_ALONE, "--color=never"},
    {" --device --map-location ", OPTION_WITH_VALUE, NULL},
    {" --json ", OPTION_ALONE, NULL}, /* of a verb that prints nothing else, or elements */
    {ignored, OPTION_ALONE, NULL},
};

enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };

/* Finds the row of an option that the verb does not have; false: there is none. */
static bool find_row(const struct habits_words *words, const char *option, size_t *ret)
{
    char name[32];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(option, "="), option);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const char *meant = options[i].meant;
        const bool is_output = options[i].part == OPTION_OUTPUT;
        if (is_among(options[i].names, name) && (!is_output || words->has_output) &&
            (meant == NULL || words->takes(words->ctx, meant))) {
            *ret = i;
            return true;
        }
    }
    return false;
}

/* "-lS": letters, each of which is known or is a habit. */
static bool is_letters(const struct habits_words *words, const char *word)
{
    size_t row;
    if (is_operand(word) || word[1] == '-' || strlen(word) < 3 || find_row(words, word, &row))
        return false;
    for (const char *at = word + 1; *at != '\0'; at++) {
        const char one[] = {'-', *at, '\0'};
        if (!words->takes(words->ctx, one) && !find_row(words, one, &row))
            return false;
    }
    return true;
}

/* Adds what a word is here; a value that follows is passed over, and kept if it comes last. */
static void add_option(const struct habits_words *typed, const char *text, char *const **word,
                       struct strbuf *line, const char **last)
{
    size_t row;
    if (is_operand(text) || typed->takes(typed->ctx, text) || !find_row(typed, text, &row)) {
        strbuf_puts(line, " ");
        add_word(line, text);
        return;
    }
    const char *value = NULL, *sign = strchr(text, '=');
    if (options[row].part == OPTION_ALONE)
        pass_number(word);
    else
        value = sign != NULL ? sign + 1 : (*word)[1] != NULL ? *++*word : NULL;
    if (options[row].meant != NULL)
        strbuf_printf(line, " %s", options[row].meant);
    if (options[row].part == OPTION_LAST || options[row].part == OPTION_OUTPUT)
        *last = value;
    else if (options[row].meant != NULL && value != NULL) {
        strbuf_puts(line, " ");
        add_word(line, value);
    }
}

bool habits_add_option(const struct habits_words *typed, const char *option, struct strbuf *line)
{
    const char *last = NULL;
    size_t row;
    if (!find_row(typed, option, &row) && !is_letters(typed, option))
        return false;
    strbuf_printf(line, "weightfs %s", typed->verb);
    for (char *const *word = typed->words; *word != NULL; word++) {
        if (!is_letters(typed, *word)) {
            add_option(typed, *word, &word, line, &last);
            continue;
        }
        for (const char *at = *word + 1; *at != '\0'; at++) {
            const char one[] = {'-', *at, '\0'};
            if (!is_among(ignored, one))
                add_option(typed, one, &word, line, &last);
        }
    }
    if (last != NULL) {
        strbuf_puts(line, " ");
        add_word(line, last);
    }
    return true;
}
