/* SPDX-License-Identifier: MIT */
/*
 * Findings as text and as JSON.
 */
#include "cli/findings.h"

#include "program/print.h"

#include <stdio.h>

static const char *const names[] = {
    [WFS_INFO] = "info", [WFS_LOW] = "low", [WFS_MEDIUM] = "medium", [WFS_HIGH] = "high"};

void findings_print(const struct wfs_finding *finding)
{
    printf("%s: ", names[finding->severity]);
    print_text(stdout, finding->text);
    putchar('\n');
}

void findings_json_item(struct jsonout *out, const struct wfs_finding *finding)
{
    jsonout_open_object(out, NULL);
    jsonout_text(out, "severity", names[finding->severity]);
    jsonout_text(out, "text", finding->text);
    jsonout_close_object(out);
}

void findings_json(struct jsonout *out, const struct wfs_catalog *catalog)
{
    jsonout_open_array(out, "findings");
    for (size_t i = 0; i < wfs_catalog_n_findings(catalog); i++)
        findings_json_item(out, wfs_catalog_finding(catalog, i));
    jsonout_close_array(out);
}
