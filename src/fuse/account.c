/* SPDX-License-Identifier: MIT */
/*
 * Names are in the report only: the line goes to logs too, and has to be short.
 */
#include "fuse/account.h"

#include "fuse/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void account_report(struct driver *driver, const struct wfs_report_commit *commit,
                    const struct wfs_fit *fit)
{
    int rc = wfs_report_commit(driver->report, commit);
    for (size_t i = 0; rc == 0 && i < fit->n_items; i++)
        rc = wfs_report_leave_out(driver->report, fit->items[i].kind, fit->items[i].name,
                                  fit->items[i].why);
    if (rc < 0)
        log_warning("the report of this commit is not complete: %s", strerror(-rc));
}

static void add_count(char text[COMMIT_TEXT_MAX], const char *before, uint64_t n, const char *what)
{
    const size_t n_text = strlen(text);
    snprintf(text + n_text, COMMIT_TEXT_MAX - n_text, "%s%" PRIu64 " %s%s", before, n, what,
             n == 1 ? "" : "s");
}

static void add_left_out(char text[COMMIT_TEXT_MAX], const struct wfs_fit *fit)
{
    static const struct {
        const char *kind, *what;
    } kinds[] = {{"value", "value"},
                 {"metadata", "metadata text"},
                 {"tie", "tied name"},
                 {"param_id", "parameter id"}};
    const char *before = "; left out: ";
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        uint64_t n = 0;
        for (size_t j = 0; j < fit->n_items; j++)
            n += strcmp(fit->items[j].kind, kinds[i].kind) == 0;
        if (n == 0)
            continue;
        add_count(text, before, n, kinds[i].what);
        before = ", ";
    }
    if (fit->n_stored > 0)
        add_count(text, "; in metadata: ", fit->n_stored, "value");
}

void account_tell(const struct wfs_report_commit *commit, const struct wfs_fit *fit,
                  char text[COMMIT_TEXT_MAX])
{
    text[0] = '\0';
    add_count(text, "", commit->n_edits, "edit");
    add_count(text, ": ", commit->n_tensors, "tensor");
    add_count(text, ", ", commit->n_bytes, "byte");
    if (commit->n_files > 1)
        add_count(text, " in ", commit->n_files, "file");
    add_left_out(text, fit);
}
