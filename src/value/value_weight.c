/* SPDX-License-Identifier: MIT */
/*
 * A walk over the graph, each value once, with a stack of its own. A value that is in itself has
 * the largest weight: what its text is depends on where it begins.
 */
#include "value/value_weight.h"

#include <errno.h>
#include <stdlib.h>
#include <weightfs/array.h>

enum { N_SMALLEST = 16 };

#define OPEN UINT64_MAX

struct weighing_step {
    uint32_t id, next;
    uint64_t sum;
};

/* Without what is in it. */
static uint64_t own_weight(const struct value *value)
{
    if (value->kind == VALUE_TEXT || value->kind == VALUE_BIG)
        return N_SMALLEST + (uint64_t)value->n;
    if (value->kind == VALUE_GLOBAL)
        return N_SMALLEST + (uint64_t)value->global->n_module + value->global->n_name;
    if (value->kind == VALUE_BYTES && value->bytes->n_bytes <= VALUE_COPIED_MAX)
        return N_SMALLEST + value->bytes->n_bytes * 4 / 3;
    return N_SMALLEST;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return a + b < WEIGHT_MAX ? a + b : WEIGHT_MAX;
}

static int enter(struct weighing *weighing, uint32_t id)
{
    if (array_reserve(&weighing->steps, sizeof(*weighing->steps), weighing->n_steps, 1,
                      &weighing->n_step_room) < 0)
        return -ENOMEM;
    weighing->weights[id] = OPEN;
    weighing->steps[weighing->n_steps++] =
        (struct weighing_step){id, 0, own_weight(graph_at(weighing->graph, id))};
    return 0;
}

static int walk(struct weighing *weighing)
{
    uint64_t *weights = weighing->weights;
    while (weighing->n_steps > 0) {
        struct weighing_step *step = &weighing->steps[weighing->n_steps - 1];
        const uint32_t child = value_child(weighing->graph, step->id, step->next);
        if (child == 0) {
            weights[step->id] = step->sum;
            weighing->n_steps--;
        } else if (weights[child] == 0) {
            if (enter(weighing, child) < 0)
                return -ENOMEM;
        } else {
            step->sum = add(step->sum, weights[child] == OPEN ? WEIGHT_MAX : weights[child]);
            step->next++;
        }
    }
    return 0;
}

int value_weigh(struct weighing *weighing, uint32_t id, uint64_t *ret)
{
    if (weighing->weights == NULL)
        weighing->weights =
            calloc((size_t)weighing->graph->n_values + 1, sizeof(*weighing->weights));
    if (weighing->weights == NULL)
        return -ENOMEM;
    if (weighing->weights[id] == 0 && (enter(weighing, id) < 0 || walk(weighing) < 0))
        return -ENOMEM;
    *ret = weighing->weights[id];
    return 0;
}

void weighing_done(struct weighing *weighing)
{
    free(weighing->weights);
    free(weighing->steps);
    *weighing = (struct weighing){0};
}
