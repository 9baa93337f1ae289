/* SPDX-License-Identifier: MIT */
/*
 * Module types by evidence: rows of the table on small checkpoints. With "--lines" it is a filter
 * instead, for comparing with another implementation: a line "CONTAINER TO", then lines
 * "KEY<TAB>DTYPE<TAB>DIMS" up to an empty one; answers "ACTION<TAB>CERTAINTY<TAB>ROW" for each.
 */
#include <weightfs/cleanup.h>

#include "check.h"

#include <stdlib.h>

#include "base/arena.h"
#include "view/evidence/verdict.h"

static const char actions[] = {
    [ACTION_NONE] = '-', [ACTION_TRANSPOSE] = 'T', [ACTION_RENAME] = 'R'};

struct checkpoint {
    struct arena arena;
    struct wfs_tensor *tensors;
    size_t n_tensors, n_room;
};

static void add(struct checkpoint *checkpoint, char *line)
{
    if (checkpoint->n_tensors == checkpoint->n_room) {
        checkpoint->n_room = checkpoint->n_room == 0 ? 64 : checkpoint->n_room * 2;
        checkpoint->tensors =
            reallocarray(checkpoint->tensors, checkpoint->n_room, sizeof(struct wfs_tensor));
    }
    char *rest = line;
    const char *key = strsep(&rest, "\t"), *name = strsep(&rest, "\t");
    enum wfs_dtype dtype = WFS_OPAQUE;
    check(wfs_dtype_parse(name, strlen(name), &dtype));
    uint64_t dims[32];
    uint32_t rank = 0;
    for (const char *dim; rank < 32 && (dim = strsep(&rest, " ")) != NULL && *dim != '\0';)
        dims[rank++] = strtoull(dim, NULL, 10);
    uint64_t *copy = arena_calloc(&checkpoint->arena, rank + 1, sizeof(*copy));
    memcpy(copy, dims, rank * sizeof(*copy));
    checkpoint->tensors[checkpoint->n_tensors++] =
        (struct wfs_tensor){.key = arena_copy(&checkpoint->arena, key, strlen(key)),
                            .shape = {rank, copy},
                            .dtype = (uint8_t)dtype};
}

static void checkpoint_done(struct checkpoint *checkpoint)
{
    arena_done(&checkpoint->arena);
    free(checkpoint->tensors);
    *checkpoint = (struct checkpoint){0};
}

static enum wfs_convention convention_of(const char *name)
{
    if (strcmp(name, "pth") == 0)
        return WFS_CONVENTION_TORCH;
    return strcmp(name, "bpk") == 0 ? WFS_CONVENTION_BURN : WFS_CONVENTION_ANY;
}

static int answer(const struct checkpoint *checkpoint, const char *container, const char *to)
{
    const size_t n = checkpoint->n_tensors;
    autofree struct verdict *verdicts = calloc(n + 1, sizeof(*verdicts));
    struct wfs_error err = {0};
    enum layout layout;
    const struct evidence_question question = {.convention = convention_of(container),
                                               .to = strcmp(to, "torch") == 0 ? LAYOUT_TORCH
                                                                              : LAYOUT_BURN};
    if (evidence_decide(checkpoint->tensors, n, &question, verdicts, &layout, &err) < 0)
        return 1;
    for (size_t i = 0; i < n; i++)
        printf("%c\t%s\t%s\n", actions[verdicts[i].action], certainty_name(verdicts[i].certainty),
               verdicts[i].row);
    return 0;
}

static int filter(void)
{
    autofree char *line = NULL;
    size_t n_room = 0;
    char container[16], to[16];
    while (getline(&line, &n_room, stdin) > 0) {
        struct checkpoint checkpoint = {0};
        if (sscanf(line, "%15s %15s", container, to) != 2)
            return 2;
        while (getline(&line, &n_room, stdin) > 1) {
            line[strcspn(line, "\n")] = '\0';
            add(&checkpoint, line);
        }
        const int code = answer(&checkpoint, container, to);
        checkpoint_done(&checkpoint);
        if (code != 0)
            return code;
    }
    return 0;
}

/* Lines of "KEY|DTYPE|DIMS" and what is wanted for each: action, certainty, start of the row. */
struct case_row {
    const char *tensor;
    char action;
    const char *certainty, *row;
};

static void check_case(const struct evidence_question *question, const struct case_row *rows,
                       size_t n)
{
    struct checkpoint checkpoint = {0};
    for (size_t i = 0; i < n; i++) {
        autofree char *line = strdup(rows[i].tensor);
        for (char *at = line; *at != '\0'; at++)
            *at = *at == '|' ? '\t' : *at;
        add(&checkpoint, line);
    }
    autofree struct verdict *verdicts = calloc(n, sizeof(*verdicts));
    enum layout layout;
    check_int(evidence_decide(checkpoint.tensors, n, question, verdicts, &layout, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        const int n_ok = check_int(actions[verdicts[i].action], rows[i].action) +
                         check_str(certainty_name(verdicts[i].certainty), rows[i].certainty) +
                         check(strncmp(verdicts[i].row, rows[i].row, strlen(rows[i].row)) == 0);
        if (n_ok < 3)
            printf("# %s: row %s\n", rows[i].tensor, verdicts[i].row);
    }
    checkpoint_done(&checkpoint);
}

#define check_rows(question, rows) check_case(&question, rows, sizeof(rows) / sizeof(*(rows)))

static const struct evidence_question torch_to_burn = {.convention = WFS_CONVENTION_TORCH,
                                                       .to = LAYOUT_BURN},
                                      burn_to_torch = {.convention = WFS_CONVENTION_BURN,
                                                       .to = LAYOUT_TORCH},
                                      burn_to_burn = {.convention = WFS_CONVENTION_BURN,
                                                      .to = LAYOUT_BURN};

static void test_a_torch_file_to_burn(void)
{
    static const struct case_row rows[] = {
        {"fc.weight|F32|30 20", 'T', "certain", "5 "},
        {"fc.bias|F32|30", '-', "certain", "5 "},
        {"bn.weight|F32|8", 'R', "certain", "1 "},
        {"bn.bias|F32|8", 'R', "certain", "1 "},
        {"bn.running_mean|F32|8", '-', "certain", "1 "},
        {"bn.running_var|F32|8", '-', "certain", "1 "},
        {"ln_1.weight|F32|8", 'R', "certain", "21 "},
        {"conv.weight|F32|8 4 3 3", '-', "certain", "4 "},
        {"emb.weight|I8|100 4", '-', "certain", "3 "},
        {"word_embeddings.weight|F32|100 20", '-', "certain", "12 "},
        {"lm_head.weight|F16|100 20", 'T', "certain", "8 "},
        {"act.weight|F32|1", '-', "likely", "20 "},
        {"weight|F32|5", '-', "unknown", "24 "},
        {"in_proj_weight|F32|60 20", '-', "certain", "24 "},
        {"strange.weight|F32|7 9", '-', "unknown", "19 "},
    };
    check_rows(torch_to_burn, rows);
}

static void test_a_burn_file_to_torch(void)
{
    static const struct case_row rows[] = {
        {"fc.weight|F32|20 30", 'T', "certain", "5 "}, {"fc.bias|F32|30", '-', "certain", "5 "},
        {"norm.gamma|F32|8", 'R', "certain", "2 "},    {"norm.beta|F32|8", 'R', "certain", "2 "},
        {"scale.gamma|F32|8", '-', "unknown", "2 "},
    };
    check_rows(burn_to_torch, rows);
}

static void test_nothing_to_do(void)
{
    static const struct case_row rows[] = {
        {"fc.weight|F32|20 30", '-', "certain", "0 "},
        {"strange.weight|F32|20 30", '-', "certain", "0 "},
        {"norm.gamma|F32|20", '-', "certain", "0 "},
    };
    check_rows(burn_to_burn, rows);
}

static void test_a_burn_file_without_evidence_is_a_guess(void)
{
    static const struct case_row as_it_is[] = {
        {"fc.weight|F32|20 30", '-', "likely", "9 "},
        {"conv.weight|F32|8 4 3 3", '-', "certain", "4 "},
    };
    static const struct case_row turned[] = {{"fc.weight|F32|20 30", 'T', "likely", "9 "}};
    check_rows(burn_to_burn, as_it_is);
    check_rows(burn_to_torch, turned);
}

/* Norms are known by their names, by running statistics, or by a weight and a bias of one length.
 */
static void test_a_burn_file_with_names_of_torch(void)
{
    static const struct case_row named[] = {{"norm.weight|F32|6", 'R', "certain", "21 "},
                                            {"fc.weight|F32|2 6", 'T', "certain", "9 "}};
    static const struct case_row with_statistics[] = {
        {"down.1.weight|F32|4", 'R', "certain", "1 "},
        {"down.1.bias|F32|4", 'R', "certain", "1 "},
        {"down.1.running_mean|F32|4", '-', "certain", "1 "},
        {"down.1.running_var|F32|4", '-', "certain", "1 "},
        {"proj.weight|F32|2 6", 'T', "certain", "9 "},
    };
    static const struct case_row pair[] = {{"1.weight|F32|4", 'R', "likely", "22 "},
                                           {"1.bias|F32|4", 'R', "likely", "22 "},
                                           {"fc.weight|F32|2 6", 'T', "likely", "9 "}};
    static const struct case_row right[] = {{"norm.weight|F32|6", '-', "certain", "0 "},
                                            {"fc.weight|F32|2 6", '-', "certain", "0 "}};
    check_rows(burn_to_burn, named);
    check_rows(burn_to_burn, with_statistics);
    check_rows(burn_to_burn, pair);
    check_rows(burn_to_torch, right);
}

static void test_norms_of_burn_outweigh_one_of_torch(void)
{
    static const struct case_row rows[] = {
        {"a.norm.gamma|F32|6", '-', "certain", "0 "},
        {"b.norm.weight|F32|6", '-', "certain", "0 "},
        {"fc.weight|F32|2 6", '-', "certain", "0 "},
    };
    static const struct case_row unnamed[] = {{"1.gamma|F32|6", '-', "certain", "0 "},
                                              {"1.beta|F32|6", '-', "certain", "0 "}};
    check_rows(burn_to_burn, rows);
    check_rows(burn_to_burn, unnamed);
}

static void test_a_stated_layout_outweighs_all(void)
{
    static const struct case_row right[] = {{"fc.weight|F32|20 30", '-', "certain", "0 "}};
    static const struct case_row turned[] = {{"fc.weight|F32|20 30", 'T', "certain", "9 "}};
    struct evidence_question question = burn_to_burn;
    question.stated = WFS_CONVENTION_TORCH;
    check_rows(question, turned);
    question.to = LAYOUT_TORCH;
    check_rows(question, right);
    question = torch_to_burn;
    question.stated = WFS_CONVENTION_BURN;
    check_rows(question, right);
}

static void test_no_tensors(void)
{
    enum layout layout;
    check_int(evidence_decide(NULL, 0, &torch_to_burn, NULL, &layout, NULL), 0);
    check_int(layout, LAYOUT_TORCH);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--lines") == 0)
        return filter();
    check_run(test_a_torch_file_to_burn);
    check_run(test_a_burn_file_to_torch);
    check_run(test_nothing_to_do);
    check_run(test_a_burn_file_without_evidence_is_a_guess);
    check_run(test_a_burn_file_with_names_of_torch);
    check_run(test_norms_of_burn_outweigh_one_of_torch);
    check_run(test_a_stated_layout_outweighs_all);
    check_run(test_no_tensors);
    return check_done();
}
