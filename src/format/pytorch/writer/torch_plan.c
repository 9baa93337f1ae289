/* SPDX-License-Identifier: MIT */
/*
 * Values that all parts of a plan share, and loaded values that are changed.
 */
#include "format/pytorch/writer/torch_plan.h"

#include <string.h>

#include "format/pytorch/object/torch_storage.h"

static uint32_t number(struct torch_plan *plan, uint32_t id)
{
    if (id != 0)
        plan->first[plan->n_first++] = id;
    return id;
}

uint32_t torch_plan_text(struct torch_plan *plan, uint32_t *slot, const char *text)
{
    if (*slot == 0)
        *slot = number(plan, value_new_text(&plan->graph, text, strlen(text)));
    return *slot;
}

uint32_t torch_plan_global(struct torch_plan *plan, uint32_t *slot, const char *module,
                           const char *name)
{
    if (*slot == 0)
        *slot = number(plan,
                       value_new_global(&plan->graph, module, strlen(module), name, strlen(name)));
    return *slot;
}

uint32_t torch_plan_dict(struct torch_plan *plan)
{
    const uint32_t class =
        torch_plan_global(plan, &plan->ordered_dict, "collections", "OrderedDict");
    const uint32_t args = value_new(&plan->graph, VALUE_TUPLE);
    return class == 0 || args == 0 ? 0 : value_new_call(&plan->graph, FORM_REDUCE, class, args);
}

struct value *torch_plan_own(struct torch_plan *plan, uint32_t id)
{
    plan->is_changed = true;
    return graph_own(&plan->graph, id, plan->owned, plan->n_owned);
}

const struct catalog_storage *torch_plan_storage(const struct torch_plan *plan, uint32_t id)
{
    return torch_storage_at(plan->catalog, id);
}
