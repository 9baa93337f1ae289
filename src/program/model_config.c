/* SPDX-License-Identifier: MIT */
/*
 * The config.json that libraries put beside the weights of a model. What does not have the members
 * of one is none; nothing here is an error.
 */
#include "program/model_config.h"

#include "program/print.h"

#include <weightfs/cleanup.h>

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_FILE_MAX = 1 << 20 };

/* Returns the file beside path as JSON, or NULL. */
static json_t *load_beside(const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t n_folder = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    autofree char *name = NULL;
    struct stat st;
    if (asprintf(&name, "%.*sconfig.json", (int)n_folder, path) < 0) {
        name = NULL;
        return NULL;
    }
    autoclose int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > N_FILE_MAX)
        return NULL;
    autofree char *text = malloc((size_t)st.st_size + 1);
    const ssize_t n = text != NULL ? read(fd, text, (size_t)st.st_size) : -1;
    return n < 0 ? NULL : json_loadb(text, (size_t)n, 0, NULL);
}

/* Returns the first of the members that is a number above 0, there or in the part about the text;
 * 0: none is. */
static uint64_t number_of(const json_t *config, const char *const names[], size_t n)
{
    const json_t *parts[] = {config, json_object_get(config, "text_config")};
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < n; k++) {
            const json_int_t number = json_integer_value(json_object_get(parts[i], names[k]));
            if (number > 0)
                return (uint64_t)number;
        }
    }
    return 0;
}

void model_config_put(struct json_out *json, const struct wfs_catalog *catalog)
{
    static const char *const hidden[] = {"hidden_size", "d_model", "n_embd", "dim"};
    static const char *const layers[] = {"num_hidden_layers", "n_layer", "num_layers", "n_layers"};
    json_t *config = wfs_catalog_n_sources(catalog) > 0
                         ? load_beside(wfs_catalog_source_path(catalog, 0))
                         : NULL;
    const uint64_t n_hidden = number_of(config, hidden, 4), n_layers = number_of(config, layers, 4);
    const char *name =
        json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
    if (name == NULL)
        name = json_string_value(json_object_get(config, "_class_name"));
    if (name == NULL)
        name = json_string_value(json_object_get(config, "model_type"));
    if (name != NULL && json != NULL) {
        json_out_open_object(json, "model");
        json_out_text(json, "architecture", name);
        if (n_hidden > 0)
            json_out_u64(json, "hidden_size", n_hidden);
        if (n_layers > 0)
            json_out_u64(json, "n_layers", n_layers);
        json_out_close(json);
    } else if (name != NULL) {
        fputs("model:      ", stdout);
        print_escaped(stdout, name);
        if (n_hidden > 0)
            printf(", hidden size %" PRIu64, n_hidden);
        if (n_layers > 0)
            printf(", %s", wfs_count(n_layers, "layer").text);
        puts(" (config.json)");
    }
    json_decref(config);
}
