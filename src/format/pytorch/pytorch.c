/* SPDX-License-Identifier: MIT */
/*
 * The PyTorch format: chooses the container of a file, and adds the findings about the file as a
 * whole.
 */
#include "format/pytorch/pytorch.h"

#include <weightfs/cleanup.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "archive/tar.h"
#include "format/pytorch/object/python_json.h"
#include "format/pytorch/object/torch_storage.h"
#include "format/pytorch/object/torch_dangers.h"
#include "format/pytorch/object/torch_listing.h"
#include "format/pytorch/object/torch_tensor.h"
#include "format/pytorch/torch_containers.h"
#include "format/pytorch/writer/torch_checkpoint.h"

enum { N_HEAD = 4096 };

static bool is_zip(const uint8_t *head, size_t n_head)
{
    return n_head >= 4 && memcmp(head, "PK\3\4", 4) == 0;
}

static bool is_preview(const uint8_t *head, size_t n_head)
{
    return n_head >= 8 && memcmp(head, "PYTORCH1", 8) == 0;
}

static bool is_flatbuffer(const uint8_t *head, size_t n_head)
{
    return n_head >= 8 && memcmp(head + 4, "PTMF", 4) == 0;
}

static bool probe(const uint8_t *head, size_t n_head, uint64_t n_bytes)
{
    return is_zip(head, n_head) || is_preview(head, n_head) || is_flatbuffer(head, n_head) ||
           tar_probe(head, n_head) || pickle_probe(head, n_head, n_bytes);
}

/* The directory of a zip is at its end. */
static bool foresee(const uint8_t *head, size_t n_head, uint64_t n_bytes, uint64_t *ret_offset,
                    uint64_t *ret_n_bytes)
{
    enum { TAIL = 16 << 10 };
    *ret_n_bytes = TAIL;
    *ret_offset = n_bytes < TAIL ? 0 : n_bytes - TAIL;
    return is_zip(head, n_head);
}

static int no_storage(struct torch *torch, const struct torch_storage_id *id,
                      struct torch_storage *ret)
{
    ret->trouble = "a bare pickle has no storages";
    return 0;
}

/* Lists the root of a pickle or stream, which ends at an offset. */
static int list_root(struct torch *torch, uint32_t root, uint64_t offset, const char *what)
{
    const uint64_t end = torch->source->n_bytes;
    torch->catalog->values.root = root;
    if (offset < end &&
        catalog_add_finding(torch->catalog, WFS_INFO, "%s the %s",
                            wfs_count_as((end - offset), "byte follows", "bytes follow").text,
                            what) < 0)
        return wfs_fail_memory(torch->err);
    int code = torch_listing_add(torch, root, "");
    if (code == 0)
        code = torch_storage_list(torch);
    return code < 0 ? code : torch_hidden_find(torch);
}

static int load_stream(struct torch *torch)
{
    static const struct wfs_container legacy_stream = {.name = "legacy stream"};
    cleanup(torch_stream_done) struct torch_stream stream = {0};
    uint64_t offset = 0;
    uint32_t root;
    torch->catalog->container = &legacy_stream;
    torch->find = torch_stream_find;
    torch->container = &stream;
    const int code =
        torch_stream_read(torch, torch->source, &offset, torch->source->n_bytes, &stream, &root);
    return code < 0 ? code : list_root(torch, root, offset, "stream");
}

/* Loads a bare pickle, or a stream, whose first pickle is a magic number. */
static int load_pickle(struct torch *torch)
{
    static const struct wfs_container bare_pickle = {.name = "pickle"};
    uint64_t offset = 0;
    uint32_t root;
    const int code =
        torch_read_pickle(torch, torch->source, &offset, torch->source->n_bytes, &root);
    if (code < 0)
        return code;
    if (torch_stream_is_magic(torch->graph, root))
        return load_stream(torch);
    torch->catalog->container = &bare_pickle;
    torch->find = no_storage;
    return list_root(torch, root, offset, "pickle");
}

static int load_container(struct torch *torch, const uint8_t *head, size_t n_head)
{
    if (is_zip(head, n_head))
        return torch_zip_load(torch, 0, torch->source->n_bytes, 0);
    if (is_preview(head, n_head))
        return wfs_fail(torch->err, EOPNOTSUPP,
                        "is in a preview format (PYTORCH1) that no release of PyTorch reads");
    if (is_flatbuffer(head, n_head))
        return wfs_fail(torch->err, EOPNOTSUPP,
                        "is a flatbuffer model for mobile devices, which is not supported: save it "
                        "with torch.save, or torch.jit.save");
    if (tar_probe(head, n_head))
        return torch_tar_load(torch);
    if (!pickle_probe(head, n_head, torch->source->n_bytes))
        return wfs_fail(torch->err, EMEDIUMTYPE,
                        "is not a PyTorch file: neither a zip nor a pickle, it begins with %s",
                        wfs_quote_n((const char *)head, n_head < 8 ? n_head : 8).text);
    return load_pickle(torch);
}

/* Adds one finding for each kind of oddity. */
static int report_notes(struct torch *torch)
{
    struct wfs_catalog *catalog = torch->catalog;
    int code = 0;
    if ((torch->notes & PICKLE_LEFTOVERS) != 0)
        code = catalog_add_finding(catalog, WFS_LOW,
                                   "the pickle leaves more than one value on its stack");
    if (code == 0 && (torch->notes & PICKLE_EXTENSION) != 0)
        code = catalog_add_finding(
            catalog, WFS_LOW,
            "the pickle refers to objects by numbers of a private registry (EXT opcodes)");
    if (code == 0 && (torch->notes & PICKLE_BAD_TEXT) != 0)
        code = catalog_add_finding(catalog, WFS_LOW, "the pickle has text that is not UTF-8");
    if (code == 0 && torch->n_long > 0)
        code = catalog_add_finding(catalog, WFS_LOW, "%s longer than declared",
                                   wfs_count_as(torch->n_long, "tensor is in a storage that is",
                                                "tensors are in storages that are")
                                       .text);
    if (code == 0 && torch->n_mixed > torch->n_mixed_empty)
        code = catalog_add_finding(catalog, WFS_MEDIUM,
                                   "storages are used with two different types (%s)",
                                   wfs_count(torch->n_mixed - torch->n_mixed_empty, "time").text);
    const uint64_t n_clashes = torch->names.n_clashes + torch->value_names.n_clashes;
    if (code == 0 && n_clashes > 0)
        code =
            catalog_add_finding(catalog, WFS_LOW, "%s ~2, ~3 ... appended",
                                wfs_count_as(n_clashes, "key is spelled like another one and has",
                                             "keys are spelled like another one and have")
                                    .text);
    return code;
}

static int report_troubles(struct torch *torch)
{
    struct wfs_catalog *catalog = torch->catalog;
    const struct wfs_tensor *first = NULL;
    size_t n_troubles = 0, n_absent = 0;
    int code = 0;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct wfs_tensor *tensor = &catalog->tensors[i];
        const bool is_absent = tensor->trouble == torch_tensor_absent;
        n_absent += is_absent;
        if (tensor->trouble == NULL || is_absent)
            continue;
        n_troubles++;
        first = first == NULL ? tensor : first;
    }
    if (n_troubles > 0)
        code = catalog_add_finding(catalog, WFS_HIGH,
                                   "%zu of %s cannot be read; the first is '%s': %s", n_troubles,
                                   wfs_count(catalog->n_tensors, "tensor").text,
                                   wfs_quote(first->key).text, first->trouble);
    if (code == 0 && n_absent > 0)
        code = catalog_add_finding(catalog, WFS_INFO, "%s saved without data",
                                   wfs_count_as(n_absent, "tensor was", "tensors were").text);
    return code;
}

static void done(struct torch *torch)
{
    const int saved = errno;
    torch_cache_done(torch);
    names_done(&torch->names);
    names_done(&torch->value_names);
    free(torch->scratch);
    errno = saved;
}

static int load_from(struct torch *torch)
{
    uint8_t head[N_HEAD];
    const struct source *source = torch->source;
    const size_t n_head = source->n_bytes < N_HEAD ? (size_t)source->n_bytes : N_HEAD;
    int code = source_read(source, 0, head, n_head);
    if (code < 0)
        return wfs_fail(torch->err, -code, "cannot read its first %s",
                        wfs_count(n_head, "byte").text);
    if ((code = load_container(torch, head, n_head)) < 0)
        return code;
    torch_dangers_report(torch);
    return torch->has_failed || report_notes(torch) < 0 || report_troubles(torch) < 0
               ? wfs_fail_memory(torch->err)
               : 0;
}

static int load(struct source *source, const struct load_context *context,
                struct wfs_catalog *catalog, struct wfs_error *err)
{
    struct wfs_error first = {0};
    catalog->values.graph = (struct graph){.notation = &python_notation, .arena = &catalog->arena};
    cleanup(torch_dangers_done) struct torch_dangers dangers = {0};
    cleanup(done) struct torch torch = {.catalog = catalog,
                                        .graph = &catalog->values.graph,
                                        .limits = &context->limits,
                                        .err = &first,
                                        .source = source,
                                        .dangers = &dangers,
                                        .budget = pickle_budget_of(&context->limits),
                                        .is_forced = context->force,
                                        .escapes_nul = context->escapes_nul};
    const int code = load_from(&torch);
    /* Most callers of the arena report its limit as a lack of memory. */
    if (code == -ENOMEM)
        return catalog_fail_memory(catalog, err);
    return code < 0 ? wfs_fail(err, -code, "%s", first.text) : 0;
}

static const char *const extensions[] = {".pth", ".pt",  ".bin", ".ckpt", ".pkl",
                                         ".ptl", ".pt2", ".jit", NULL};

static const struct format_functions functions = {
    .probe = probe,
    .foresee = foresee,
    .load = load,
    .verify = torch_zip_verify,
    .stores = torch_record_stores,
    .check = torch_record_check,
    .purge = torch_purge,
    .plan = torch_checkpoint_plan,
};

const struct wfs_format format_pytorch = {
    .name = "pytorch",
    .title = "PyTorch",
    .extensions = extensions,
    .n_usual = 4,
    .set_name = "pytorch_model.bin",
    .convention = WFS_CONVENTION_TORCH,
    .values = WFS_VALUES_ANY,
    .keeps_ties = true,
    .functions = &functions,
};
