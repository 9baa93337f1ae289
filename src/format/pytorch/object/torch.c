/* SPDX-License-Identifier: MIT */
/*
 * The state of a PyTorch reader: functions that every part of it needs, and that know neither
 * containers nor the meaning of values.
 */
#include "format/pytorch/object/torch.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "archive/derived.h"

int torch_read_pickle(struct torch *torch, const struct source *source, uint64_t *offset,
                      uint64_t end, uint32_t *ret_root)
{
    struct pickle_job job = {.graph = torch->graph,
                             .limits = torch->limits,
                             .budget = &torch->budget,
                             .source = source,
                             .offset = *offset,
                             .end = end};
    const int code = pickle_load(&job, ret_root, torch->err);
    torch->notes |= job.notes;
    *offset = job.offset;
    return code;
}

int torch_derived(struct torch *torch, struct source **ret)
{
    struct source **derived = &torch->catalog->own->derived;
    if (*derived == NULL && derived_new(torch->source, derived) < 0)
        return wfs_fail_memory(torch->err);
    *ret = *derived;
    return 0;
}

const char *torch_print(struct torch *torch, const char *format, ...)
{
    char text[WFS_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    wfs_format(text, sizeof(text), format, args);
    va_end(args);
    const char *copy = arena_copy(&torch->catalog->arena, text, strlen(text));
    torch->has_failed = torch->has_failed || copy == NULL;
    return copy == NULL ? "out of memory" : copy;
}

int torch_fail_read(struct torch *torch, int code, const char *what)
{
    switch (code) {
    case -ENOMEM:
        return wfs_fail_memory(torch->err);
    case -EBADMSG:
        return wfs_fail(torch->err, EBADMSG, "the compressed data of %s is damaged", what);
    default:
        return wfs_fail(torch->err, -code, "cannot read %s", what);
    }
}

int torch_fail_derived(struct wfs_error *err, int code)
{
    return code == -ENOMEM ? wfs_fail_memory(err)
                           : wfs_fail(err, E2BIG, "the file inflates to 2^63 bytes or more");
}
