/* SPDX-License-Identifier: MIT */
/*
 * Options of a view: each line of the input is one. Those that name files are left out.
 */
#include "view.h"

static bool names_a_file(const char *option)
{
    static const char *const names[] = {"rules=", "like=", "overlay="};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strncmp(option, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct wfs_view *view;
    char *text = strndup((const char *)data, n_bytes), *rest = text;
    demand(text != NULL && wfs_view_new(&view) == 0);
    for (const char *line; (line = strsep(&rest, "\n")) != NULL;) {
        struct wfs_error err = {0};
        const int code = names_a_file(line) ? 0 : wfs_view_add(view, line, &err);
        demand(code < 0 ? err.code == -code && err.text[0] != '\0' : err.code == 0);
    }
    fuzz_apply(view);
    wfs_view_free(view);
    free(text);
    return 0;
}
