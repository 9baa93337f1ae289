/* SPDX-License-Identifier: MIT */
/*
 * What the config.json beside a checkpoint says of its model.
 */
#ifndef WFS_MODEL_CONFIG_H
#define WFS_MODEL_CONFIG_H

#include <weightfs/catalog.h>
#include <weightfs/json_out.h>

/* Puts architecture and sizes of the model as the member "model", or prints them as a line of text
 * where json is NULL; nothing where there is no such file. */
void model_config_put(struct json_out *json, const struct wfs_catalog *catalog);

#endif
