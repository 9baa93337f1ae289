/* SPDX-License-Identifier: MIT */
/*
 * Findings: what a loader finds odd about a file that it can read all the same.
 */
#ifndef WFS_FINDING_H
#define WFS_FINDING_H

/*
 * How much a finding matters: it never prevents reading. High: numbers are missing or not what was
 * stored. Medium: some readers get something else. Low: some readers refuse the file. All else is
 * information.
 */
enum wfs_severity { WFS_INFO, WFS_LOW, WFS_MEDIUM, WFS_HIGH };

/* What more is known of a finding. */
enum wfs_finding_flag {
    WFS_FINDING_CODE = 4, /* a name that may run code when another program loads the file */
    WFS_FINDING_LOSS = 8, /* something that was stored is not in the catalog, or elsewhere in it */
};

struct wfs_finding {
    enum wfs_severity severity;
    unsigned flags;   /* enum wfs_finding_flag */
    const char *text; /* one line, safe for a terminal */
};

#endif
