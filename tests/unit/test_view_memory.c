/* SPDX-License-Identifier: MIT */
/*
 * Every allocation of a view (its options, all passes, the reports) fails once. Each time the
 * operation says -ENOMEM and leaves nothing behind (a sanitizer counts).
 */
#include "failing_each.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/view.h>

#include "catalog/catalog.h"

static const struct {
    const char *key;
    uint32_t rank;
    uint64_t dims[3];
} tensors[] = {
    {"model.layers.0.attn.qkv.weight", 2, {6, 4}},
    {"model.layers.0.attn.qkv.bias", 1, {6}},
    {"model.layers.3.norm.weight", 1, {4}},
    {"model.layers.3.norm.bias", 1, {4}},
    {"model.embed.weight", 2, {5, 4}},
    {"model.conv.BaseConv.weight", 3, {2, 3, 2}},
    {"model.head.weight", 2, {2, 4}},
    {"other.weight", 1, {2}},
};

static const char *const *options;

static int make_catalog(struct wfs_catalog **out)
{
    struct wfs_catalog *catalog = NULL;
    if (catalog_new(&catalog) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < sizeof(tensors) / sizeof(*tensors); i++) {
        struct wfs_tensor *tensor = catalog_add(catalog);
        if (tensor == NULL) {
            wfs_catalog_free(catalog);
            return -ENOMEM;
        }
        tensor->key = tensors[i].key;
        tensor->dtype = tensor->stored.dtype = WFS_F32;
        tensor->shape = (struct wfs_shape){tensors[i].rank, tensors[i].dims};
        check_int(wfs_shape_bytes(&tensor->shape, WFS_F32, &tensor->n_bytes), 0);
    }
    catalog->format = wfs_format_by_name("pytorch");
    *out = catalog;
    return 0;
}

static int add_options(struct wfs_view *view, struct wfs_error *err)
{
    for (size_t i = 0; options[i] != NULL; i++) {
        const int code = wfs_view_add(view, options[i], err);
        if (code < 0)
            return code;
        check_int(code, 1);
    }
    return 0;
}

static int write_reports(struct wfs_report *report)
{
    const struct wfs_report_commit commit = {.output = "out", .n_tensors = 1};
    int code = wfs_report_commit(report, &commit);
    code = code == 0 ? wfs_report_leave_out(report, "value", "epoch", "has no room") : code;
    for (int form = WFS_REPORT_TEXT; code == 0 && form <= WFS_REPORT_NULL; form++) {
        char *text = NULL;
        size_t n;
        code = wfs_report_write(report, (enum wfs_report_form)form, &text, &n);
        free(text);
    }
    return code;
}

static int load_other(void *ctx, const char *path, struct wfs_catalog **out, struct wfs_error *err)
{
    return make_catalog(out) < 0 ? wfs_fail_memory(err) : 0;
}

static const struct wfs_view_loader loader = {.load = load_other};

static int view(struct wfs_error *err)
{
    struct wfs_view *view = NULL;
    struct wfs_catalog *catalog = NULL;
    struct wfs_report *report = NULL;
    int code = wfs_view_new(&view);
    code = code == 0 ? add_options(view, err) : code;
    code = code == 0 ? make_catalog(&catalog) : code;
    code = code == 0 ? wfs_view_apply(view, catalog, &loader, &report, err) : code;
    code = code == 0 ? write_reports(report) : code;
    if (code == -ENOMEM && err->code == 0)
        wfs_fail_memory(err);
    wfs_report_free(report);
    wfs_catalog_free(catalog);
    wfs_view_free(view);
    return code;
}

static void check_options(const char *const *with)
{
    options = with;
    check_each_allocation(view);
}

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void keys_are_renamed_and_filtered(void)
{
    check_options(OPTIONS("top_level_key=model", "remap=^layers\\.(?P<n>\\d+)=>l${n}",
                          "contiguous=on", "contiguous_except=^x", "exclude=other",
                          "include=weight|bias", "where=rank<3 && leaf=~\"w|b\"",
                          "drop_variants=auto"));
}

static void modules_are_judged(void)
{
    check_options(OPTIONS("to=burn", "class=head=>Linear", "keep=embed"));
}

static void dimensions_and_dtypes_change(void)
{
    check_options(OPTIONS("transpose=embed", "permute=conv=>2,0,1", "split=qkv=>q,k,v", "cast=BF16",
                          "cast=[[:alpha:]&&[^a-z]]=>F16", "on_collision=suffix",
                          "remap=other=>model.head"));
}

static void another_checkpoint_is_the_module(void)
{
    check_options(OPTIONS("like=x", "partial", "remap=head=>haed", "to=burn"));
}

/* Patterns whose translation grows past what was first allocated, piece by piece: a piece that is
 * lost must never leave a shorter pattern that compiles. */
static void long_patterns_are_translated(void)
{
    char repeated[1200] = "include=", nested[1200] = "include=", *end;
    end = repeated + strlen(repeated);
    while (end < repeated + sizeof(repeated) - 40)
        end = stpcpy(end, "(?:x++|weight|\\<y)?");
    end = nested + strlen(nested);
    while (end < nested + sizeof(nested) - 80)
        end = stpcpy(end, "[^a-z&&[^[:digit:]~~[\\u{61}_]]]?(?:weight)?");
    check_options(OPTIONS(repeated));
    check_options(OPTIONS(nested));
    check_options(OPTIONS("remap=a|e|i|o=>${0}................................................"
                          "................................................................",
                          "split=qkv.weight$=>\\1q,k,v"));
}

static void a_rules_file_is_read(void)
{
    char path[] = "/tmp/test_view_memory.XXXXXX", option[64];
    static const char rules[] = "[{\"remap\": [\"^model\", \"m\"]}, {\"contiguous\": \"on\"}]";
    const int fd = mkstemp(path);
    check(fd >= 0 && write(fd, rules, sizeof(rules) - 1) == (ssize_t)sizeof(rules) - 1);
    close(fd);
    snprintf(option, sizeof(option), "rules=%s", path);
    check_options(OPTIONS(option));
    unlink(path);
}

int main(void)
{
    check_run(long_patterns_are_translated);
    check_run(a_rules_file_is_read);
    check_run(keys_are_renamed_and_filtered);
    check_run(modules_are_judged);
    check_run(dimensions_and_dtypes_change);
    check_run(another_checkpoint_is_the_module);
    return check_done();
}
