/* SPDX-License-Identifier: MIT */
/*
 * The report as JSON.
 */
#ifndef WFS_REPORT_JSON_H
#define WFS_REPORT_JSON_H

#include <stdio.h>

#include "view/report.h"

void report_put_json(const struct wfs_report *report, FILE *out);

#endif
