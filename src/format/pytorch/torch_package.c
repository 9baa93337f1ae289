/* SPDX-License-Identifier: MIT */
/*
 * A pickle of a package can refer to a module of TorchScript by the number of a pickle in
 * .data/ts_code, or to an object that a function makes from the package. Both become calls, whose
 * content is then listed like that of any other.
 */
#include "format/pytorch/torch_containers.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/pytorch/object/torch_call.h"
#include "format/pytorch/object/torch_listing.h"

#define SCRIPTS ".data/ts_code/"

static const char *const folders[] = {".data/", NULL};

/* A record that was read as a pickle. */
struct pickle {
    struct zip_entry *entry;
    uint32_t root; /* value */
    bool is_used;  /* another one refers to it */
};

struct package {
    struct torch *torch;
    const struct torch_records *records;
    struct pickle *scripts; /* modules of TorchScript: .data/ts_code/NUMBER/data.pkl */
    struct pickle *others;
    uint32_t n_scripts, n_others; /* both in the order of the zip */
};

/* Every package has a list of the modules that it does not contain; a checkpoint may have only the
 * version in that folder. */
bool torch_package_is(struct torch_records *records, const struct zip_entry *pickle)
{
    static const char *const names[] = {".data/extern_modules", ".data/version"};
    for (unsigned i = 0; i < 2; i++) {
        const struct zip_entry *entry = torch_records_search(records->zip, names[i]);
        if (entry == NULL)
            continue;
        torch_records_set_root(records, entry, names[i]);
        const bool is_inside = pickle != NULL && torch_records_is_in(records, pickle, "");
        if (pickle == NULL ||
            (is_inside && (i == 0 || pickle->n_name > records->n_root + strlen("data.pkl"))))
            return true;
    }
    return false;
}

/* Returns whether the content begins and ends like a pickle. Its record can have any name. */
static bool is_pickle(const struct package *package, struct zip_entry *entry)
{
    struct torch *torch = package->torch;
    struct wfs_error unwanted = {0};
    uint8_t head[2], last;
    return entry->method == ZIP_STORED && entry->n_bytes > sizeof(head) &&
           zip_locate(package->records->zip, entry, &unwanted) == 0 &&
           source_read(torch->source, entry->data, head, sizeof(head)) == 0 &&
           source_read(torch->source, entry->data + entry->n_bytes - 1, &last, 1) == 0 &&
           head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 && last == '.';
}

static bool is_named_pickle(const struct zip_entry *entry)
{
    return torch_records_has_suffix(entry, ".pkl");
}

static bool is_candidate(const struct package *package, struct zip_entry *entry)
{
    return torch_records_is_in(package->records, entry, "") &&
           !torch_records_is_in(package->records, entry, ".data/") &&
           (is_named_pickle(entry) || is_pickle(package, entry));
}

/* Returns the length of a name without one of these endings. */
static size_t n_without(const struct zip_entry *entry, const char *ending)
{
    return entry->n_name - (torch_records_has_suffix(entry, ending) ? strlen(ending) : 0);
}

/* Lists a pickle under the path of its record, which ends before n_name, in a folder. */
static int list(struct package *package, const char *folder, const struct zip_entry *entry,
                size_t n_name, uint32_t root)
{
    char prefix[TORCH_RECORD_NAME_MAX];
    const size_t n_before = package->records->n_root + strlen(folder);
    const size_t n = n_name - n_before < sizeof(prefix) ? n_name - n_before : sizeof(prefix) - 1;
    memcpy(prefix, entry->name + n_before, n);
    prefix[n] = '\0';
    for (char *at = prefix; *at != '\0'; at++)
        *at = *at == '/' ? '.' : *at;
    return torch_listing_add(package->torch, root, prefix);
}

/* Reads the modules of TorchScript, to which the other pickles refer. */
static int read_scripts(struct package *package)
{
    int code = 0;
    for (uint32_t i = 0; i < package->records->zip->n_entries && code == 0; i++) {
        struct zip_entry *entry = &package->records->zip->entries[i];
        if (!torch_records_is_in(package->records, entry, SCRIPTS) ||
            !torch_records_has_suffix(entry, "/data.pkl"))
            continue;
        struct pickle *script = &package->scripts[package->n_scripts++];
        script->entry = entry;
        code = torch_records_read_pickle(package->torch, package->records, entry, &script->root);
    }
    return code;
}

static int compare_entries(const void *a, const void *b)
{
    const struct pickle *one = a, *other = b;
    return one->entry < other->entry ? -1 : one->entry > other->entry;
}

/* Finds the module of TorchScript with a number, which is a text. NULL: it is missing. */
static struct pickle *find_script(const struct package *package, uint32_t number)
{
    const struct value *text = number == 0 ? NULL : graph_at(package->torch->graph, number);
    char name[64];
    if (text == NULL || text->kind != VALUE_TEXT)
        return NULL;
    const int n = snprintf(name, sizeof(name), SCRIPTS "%s/data.pkl", text->text);
    const struct pickle wanted = {
        .entry = n < (int)sizeof(name) ? torch_records_find(package->records, name) : NULL};
    return wanted.entry == NULL ? NULL
                                : bsearch(&wanted, package->scripts, package->n_scripts,
                                          sizeof(wanted), compare_entries);
}

/* Replaces ('reduce_package', number, function, arguments) by the call of the function, and the
 * number of a module of TorchScript by the module. */
static int resolve(struct package *package, uint32_t id)
{
    struct graph *graph = package->torch->graph;
    struct value *value = graph_at(graph, id);
    if (value->kind != VALUE_PERSISTENT ||
        !value_is_text(graph, torch_arg(graph, value->id, 0), "reduce_package") ||
        torch_n_args(graph, value->id) != 4)
        return 0;
    const uint32_t function = torch_arg(graph, value->id, 2);
    uint32_t args = torch_arg(graph, value->id, 3);
    *value = (struct value){
        .kind = VALUE_CALL, .form = FORM_REDUCE, .call = {.callable = function, .args = args}};
    struct pickle *script = torch_what_of(graph, value) == WHAT_SEQUENCE
                                ? find_script(package, torch_arg(graph, args, 0))
                                : NULL;
    if (script == NULL)
        return 0;
    script->is_used = true;
    args = value_new_items(graph, VALUE_TUPLE, &script->root, 1);
    if (args == 0)
        return wfs_fail_memory(package->torch->err);
    graph_at(graph, id)->call.args = args;
    return 0;
}

/* Reads a pickle. Returns 1 when it is not one: only its bytes look like one. */
static int read_pickle(struct package *package, struct zip_entry *entry, uint32_t *ret_root)
{
    struct torch *torch = package->torch;
    const uint32_t n_before = torch->graph->n_values;
    struct wfs_error *err = torch->err, other = {0};
    torch->err = is_named_pickle(entry) ? err : &other;
    int code = torch_records_read_pickle(torch, package->records, entry, ret_root);
    torch->err = err;
    if (code < 0 && !is_named_pickle(entry))
        return torch_is_trouble(code) ? 1 : wfs_fail(err, -code, "%s", other.text);
    for (uint32_t id = n_before + 1; id <= torch->graph->n_values && code == 0; id++)
        code = resolve(package, id);
    return code;
}

static int read_pickles(struct package *package)
{
    int code = 0;
    for (uint32_t i = 0; i < package->records->zip->n_entries && code >= 0; i++) {
        struct zip_entry *entry = &package->records->zip->entries[i];
        if (!is_candidate(package, entry))
            continue;
        struct pickle *pickle = &package->others[package->n_others];
        pickle->entry = entry;
        code = read_pickle(package, entry, &pickle->root);
        package->n_others += code == 0;
    }
    return code < 0 ? code : 0;
}

static int list_pickles(struct package *package)
{
    int code = 0;
    if (package->n_others == 1) {
        package->torch->catalog->values.root = package->others[0].root;
        return torch_listing_add(package->torch, package->others[0].root, "");
    }
    for (uint32_t i = 0; i < package->n_others && code == 0; i++) {
        const struct pickle *pickle = &package->others[i];
        code = list(package, "", pickle->entry, n_without(pickle->entry, ".pkl"), pickle->root);
    }
    return code;
}

/* Lists modules of TorchScript that no pickle refers to, and the constants of all. */
static int list_scripts(struct package *package)
{
    struct zip *zip = package->records->zip;
    int code = 0;
    for (uint32_t i = 0; i < package->n_scripts && code == 0; i++) {
        const struct pickle *script = &package->scripts[i];
        if (!script->is_used)
            code = list(package, ".data/", script->entry, n_without(script->entry, "/data.pkl"),
                        script->root);
    }
    for (uint32_t i = 0; i < zip->n_entries && code == 0; i++) {
        struct zip_entry *entry = &zip->entries[i];
        uint32_t root;
        if (!torch_records_is_in(package->records, entry, SCRIPTS) ||
            !torch_records_has_suffix(entry, "/constants.pkl"))
            continue;
        code = torch_records_read_pickle(package->torch, package->records, entry, &root);
        if (code == 0)
            code = list(package, ".data/", entry, n_without(entry, ".pkl"), root);
    }
    return code;
}

int torch_package_load(struct torch *torch, struct torch_records *records)
{
    static const struct wfs_container container = {.name = "torch.package"};
    const size_t n_room = (size_t)records->zip->n_entries + 1;
    autofree struct pickle *scripts = calloc(n_room, sizeof(*scripts));
    autofree struct pickle *others = calloc(n_room, sizeof(*others));
    struct package package = {
        .torch = torch, .records = records, .scripts = scripts, .others = others};
    if (scripts == NULL || others == NULL)
        return wfs_fail_memory(torch->err);
    torch->catalog->container = &container;
    records->folders = folders;
    records->suffix = ".storage";
    int code = torch_records_report_strays(torch, records);
    if (code == 0)
        code = torch_records_read_byteorder(torch, records);
    if (code == 0)
        code = read_scripts(&package);
    if (code == 0)
        code = read_pickles(&package);
    if (code == 0)
        code = list_pickles(&package);
    if (code == 0)
        code = list_scripts(&package);
    return code < 0 ? code : torch_hidden_find_records(torch, records);
}
