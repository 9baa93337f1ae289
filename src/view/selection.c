/* SPDX-License-Identifier: MIT */
/*
 * A condition on all tensors of a catalog, as they are shown.
 */
#include "view/condition.h"

#include <weightfs/cleanup.h>

#include <stdlib.h>

#include "view/evidence/evidence.h"
#include "view/pass.h"

int wfs_condition_select(const struct wfs_condition *condition, const struct wfs_catalog *catalog,
                         bool *marks, struct wfs_error *err)
{
    enum layout layout;
    int code = 0;
    autofree struct verdict *verdicts = calloc(catalog->n_tensors + 1, sizeof(*verdicts));
    if (verdicts == NULL)
        return wfs_fail_memory(err);
    if (condition_uses_class(condition))
        code = evidence_decide(catalog->tensors, catalog->n_tensors, catalog_convention(catalog),
                               LAYOUT_BURN, verdicts, &layout, err);
    for (size_t i = 0; code == 0 && i < catalog->n_tensors; i++) {
        if (!marks[i])
            continue;
        const int fits =
            condition_test(condition, &catalog->tensors[i], class_name(verdicts[i].class_), err);
        marks[i] = fits > 0;
        code = fits < 0 ? fits : 0;
    }
    return code;
}
