/* SPDX-License-Identifier: MIT */
/*
 * weightfs diff: which tensors of two checkpoints differ, and by how much. The order of tensors
 * does not matter; metadata, values and hidden bytes are compared on request.
 */
#include "cli/args.h"
#include "cli/diff_tables.h"
#include "cli/input.h"
#include "cli/mounted.h"
#include "program/threads.h"
#include "cli/progress.h"
#include "program/print.h"
#include "program/terminal.h"

#include <weightfs/catalog.h>
#include <weightfs/cleanup.h>
#include <weightfs/format.h>
#include <weightfs/json_out.h>
#include <weightfs/patch.h>
#include <weightfs/value.h>
#include <weightfs/view.h>
#include <weightfs/workload.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct diff {
    struct pool pool; /* first: its functions are given that */
    const char *paths[2];
    char *made[2];       /* paths in a mount, malloc'ed */
    const char **edited; /* keys that edits of the mount made or changed, in order; malloc'ed */
    size_t n_edited;
    bool knows_edits;                 /* tensors with all other keys are the same in A and B */
    struct wfs_patch_rename *renames; /* of them; malloc'ed */
    size_t n_renames;
    struct wfs_catalog *patch_file;
    struct wfs_patch *patch; /* which has the keys */
    struct wfs_catalog *catalogs[2];
    struct diff_row *rows; /* of the tensors of A, then of those that only B has; malloc'ed */
    size_t n_rows;
    struct wfs_workload *workload; /* of the rows */
    struct json_out *json;         /* NULL: lines of text */
    bool has_table;                /* is printed at the end, in place of lines */
    bool is_screen;                /* of a terminal */
    struct comparison_options options;
    struct progress progress;
    uint64_t n_only[2], n_renamed, n_changed, n_equal, n_other;
    enum exit_code exit_code; /* of tensors that cannot be read */
};

/* ---- what tensors do not show ---- */

enum kind { METADATA, VALUE, STORAGE };

/* A metadata text; a value, whose text is made when it is compared; bytes of a storage. */
struct part {
    const char *name; /* of a storage: a tensor that shows other bytes of it, or NULL. Names of
                         storages are numbers that change with the order of the tensors. */
    const struct wfs_text *text;
    const struct wfs_hidden *hidden;
    size_t value;
    uint64_t digest; /* of hidden bytes */
};

struct parts {
    const struct wfs_catalog *catalog;
    struct part *parts;
    size_t n_parts;
};

/* Parts without a name precede all others. */
static int compare_names(const struct part *x, const struct part *y)
{
    if (x->name == NULL || y->name == NULL)
        return (x->name != NULL) - (y->name != NULL);
    return strcmp(x->name, y->name);
}

static int compare_parts(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    const int order = compare_names(x, y);
    return order != 0 ? order : x->digest < y->digest ? -1 : x->digest > y->digest;
}

/* Collects the parts of a kind, in order; they are the caller's in any case. */
static int collect(const struct wfs_catalog *catalog, enum kind kind, struct parts *ret)
{
    const struct wfs_text *text = kind == METADATA ? wfs_catalog_meta(catalog) : NULL;
    size_t n = kind == VALUE     ? wfs_catalog_n_values(catalog)
               : kind == STORAGE ? wfs_catalog_n_hidden(catalog)
                                 : 0;
    for (const struct wfs_text *at = text; at != NULL; at = at->next)
        n++;
    *ret = (struct parts){catalog, calloc(n + 1, sizeof(*ret->parts)), n};
    if (ret->parts == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        struct part *part = &ret->parts[i];
        part->value = i;
        if (kind == METADATA) {
            part->name = text->name;
            part->text = text;
            text = text->next;
        } else if (kind == VALUE) {
            part->name = wfs_catalog_value_name(catalog, i);
        } else {
            part->hidden = wfs_catalog_hidden(catalog, i);
            part->name = part->hidden->key;
            const int code = wfs_catalog_hidden_digest(catalog, i, &part->digest);
            if (code < 0)
                return code;
        }
    }
    qsort(ret->parts, n, sizeof(*ret->parts), compare_parts);
    return 0;
}

/* Of two parts with the same name, and the same hash if they have one. */
static int is_equal(const struct parts *a, const struct part *x, const struct parts *b,
                    const struct part *y)
{
    if (x->hidden != NULL)
        return 1;
    if (x->text != NULL)
        return x->text->n_bytes == y->text->n_bytes &&
               memcmp(x->text->value, y->text->value, x->text->n_bytes) == 0;
    autofree char *one = NULL, *other = NULL;
    size_t n_one, n_other;
    int code = wfs_catalog_value_text(a->catalog, x->value, &one, &n_one);
    if (code == 0)
        code = wfs_catalog_value_text(b->catalog, y->value, &other, &n_other);
    if (code < 0)
        return code;
    return n_one == n_other && memcmp(one, other, n_one) == 0;
}

static void print_part(const struct part *part, enum kind kind, const char *change)
{
    const struct wfs_hidden *hidden = part->hidden;
    if (kind == STORAGE)
        printf("storage %s: '%s', %s that no tensor shows%s", change,
               wfs_quote(hidden->storage).text, wfs_count(hidden->n_bytes, "byte").text,
               part->name != NULL ? ", beside " : "");
    else
        printf("%s %s: ", kind == METADATA ? "metadata" : "value", change);
    print_escaped(stdout, part->name != NULL ? part->name : "");
    putchar('\n');
}

static void put_part(struct json_out *json, const struct part *part, enum kind kind,
                     const char *change)
{
    json_out_open_object(json, NULL);
    if (kind == STORAGE) {
        json_out_text(json, "storage", part->hidden->storage);
        json_out_text(json, "key", part->name);
        json_out_u64(json, "bytes", part->hidden->n_bytes);
    } else {
        json_out_text(json, "kind", kind == METADATA ? "metadata" : "value");
        json_out_text(json, "name", part->name);
    }
    json_out_text(json, "change", change);
    json_out_close(json);
}

/* Both are in order. Parts with one name that are not equal have changed. */
static int walk(struct diff *diff, enum kind kind, const struct parts *a, const struct parts *b)
{
    for (size_t i = 0, j = 0; i < a->n_parts || j < b->n_parts;) {
        const struct part *x = &a->parts[i], *y = &b->parts[j];
        const bool has_both = i < a->n_parts && j < b->n_parts;
        const bool is_pair = has_both && x->name != NULL && compare_names(x, y) == 0;
        const int order = i == a->n_parts ? 1 : j == b->n_parts ? -1 : compare_parts(x, y);
        const int same = order == 0 ? is_equal(a, x, b, y) : 0;
        if (same < 0)
            return same;
        if (same == 0) {
            const struct part *part = is_pair || order < 0 ? x : y;
            const char *change = is_pair ? "changed" : order < 0 ? "only in A" : "only in B";
            diff->n_other++;
            if (diff->json != NULL)
                put_part(diff->json, part, kind, change);
            else
                print_part(part, kind, change);
        }
        i += order <= 0 || is_pair;
        j += order >= 0 || is_pair;
    }
    return 0;
}

static enum exit_code compare_rest(struct diff *diff, enum kind kind)
{
    struct parts parts[2] = {0};
    size_t which = 0;
    int code = 0;
    for (size_t i = 0; i < 2 && code == 0; i++) {
        which = i;
        code = collect(diff->catalogs[i], kind, &parts[i]);
    }
    if (code == 0)
        code = walk(diff, kind, &parts[0], &parts[1]);
    free(parts[0].parts);
    free(parts[1].parts);
    if (code == -ENOMEM)
        return print_memory(diff->paths[which]);
    return code == 0 ? EXIT_DONE
                     : print_error(EXIT_DAMAGED, diff->paths[which],
                                   "cannot read bytes of a storage that no tensor shows: %s",
                                   strerror(-code));
}

static enum exit_code print_rest(struct diff *diff)
{
    if (diff->json != NULL)
        json_out_open_array(diff->json, "texts");
    enum exit_code exit_code = compare_rest(diff, METADATA);
    if (exit_code == EXIT_DONE)
        exit_code = compare_rest(diff, VALUE);
    if (diff->json != NULL)
        json_out_close(diff->json);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (diff->json != NULL)
        json_out_open_array(diff->json, "hidden");
    exit_code = compare_rest(diff, STORAGE);
    if (diff->json != NULL)
        json_out_close(diff->json);
    return exit_code;
}

/* ---- a row ---- */

static void print_kind(const struct wfs_tensor *tensor)
{
    screen_paint(stdout, COLOUR_DTYPE, wfs_dtype_name((enum wfs_dtype)tensor->dtype));
    putchar(' ');
    print_shape(stdout, &tensor->shape);
}

/* What is only in one. */
static void report_only(const struct diff *diff, size_t which, const struct wfs_tensor *tensor)
{
    if (diff->json != NULL) {
        comparison_put_tensor(diff->json, NULL, tensor);
        return;
    }
    screen_paint(stdout, which == 0 ? COLOUR_REMOVED : COLOUR_ADDED,
                 which == 0 ? "only in A:" : "only in B:");
    putchar(' ');
    print_escaped(stdout, tensor->key);
    putchar(' ');
    print_kind(tensor);
    putchar('\n');
}

static void print_change(const struct diff_row *row)
{
    const struct comparison *comparison = &row->comparison;
    const struct wfs_tensor *a = row->a, *b = row->b;
    fputs(screen_on(STDOUT_FILENO, COLOUR_CHANGED), stdout);
    print_escaped(stdout, a->key);
    fputs(screen_off(STDOUT_FILENO, COLOUR_CHANGED), stdout);
    printf(": ");
    print_kind(a);
    if (!comparison_is_alike(a, b)) {
        printf(" -> ");
        print_kind(b);
    }
    if (!comparison_is_one_quantization(a, b))
        printf(", quantized differently");
    if (a->n_bytes != b->n_bytes && a->dtype == b->dtype)
        printf(", %" PRIu64 " -> %s", a->n_bytes, wfs_count(b->n_bytes, "byte").text);
    if (!comparison->has_content || comparison->n_changed == 0) {
        putchar('\n');
        return;
    }
    printf(", %" PRIu64 " of %s %s", comparison->n_changed,
           wfs_count(comparison->n_elems, comparison->has_numbers ? "element" : "byte").text,
           comparison->n_changed == 1 ? "differs" : "differ");
    if (comparison->n_nan > 0)
        printf(", %s NaN in only one", wfs_count_as(comparison->n_nan, "is", "are").text);
    if (comparison->has_numbers && comparison->n_changed > comparison->n_nan)
        printf(", by at most %.6g, relative %.6g", comparison->max_abs, comparison->max_rel);
    putchar('\n');
}

/* ---- all rows ---- */

static int compare_edited(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Leaves the rows that the operands after A and B choose; prints a line if one of these chooses
 * none. */
static enum exit_code choose_rows(struct diff *diff, const struct args *args)
{
    size_t n_kept = 0;
    autofree bool *is_kept = calloc(diff->n_rows + 1, sizeof(*is_kept));
    if (is_kept == NULL)
        return print_memory(NULL);
    for (size_t j = 2; j < args->n_operands; j++) {
        cleanup(glob_done) struct glob glob = glob_of(args->operands[j]);
        for (size_t i = 0; i < diff->n_rows; i++) {
            const struct diff_row *row = &diff->rows[i];
            is_kept[i] |= glob_matches(&glob, row->a != NULL ? row->a->key : row->b->key);
        }
        if (!glob.has_matched)
            return input_unmatched(diff->catalogs[0], diff->paths[0], args->operands[j]);
    }
    for (size_t i = 0; i < diff->n_rows && args->n_operands > 2; i++) {
        if (is_kept[i])
            diff->rows[n_kept++] = diff->rows[i];
    }
    diff->n_rows = args->n_operands > 2 ? n_kept : diff->n_rows;
    return EXIT_DONE;
}

/* Names the side of a tensor that cannot be read. */
static enum exit_code read_error(const struct diff *diff, const struct wfs_tensor *tensor, int code)
{
    const struct wfs_tensor *first = wfs_catalog_tensor(diff->catalogs[0], 0);
    const bool is_of_a =
        tensor >= first && tensor < first + wfs_catalog_n_tensors(diff->catalogs[0]);
    return input_read_error(diff->paths[is_of_a ? 0 : 1], tensor, code);
}

/* Finds out what there is to read, before anything is printed. */
static enum exit_code prepare(struct diff *diff, const struct args *args)
{
    const char *path = diff->paths[0];
    if (diff_rows_make(diff->catalogs[0], diff->catalogs[1], &diff->rows, &diff->n_rows) < 0)
        return print_memory(path);
    const enum exit_code exit_code = choose_rows(diff, args);
    if (exit_code != EXIT_DONE)
        return exit_code;
    const struct wfs_tensor *failed;
    const int code =
        diff_rows_pair(diff->rows, &diff->n_rows, diff->renames, diff->n_renames, &failed);
    if (code < 0)
        return failed == NULL ? print_memory(path) : read_error(diff, failed, code);
    autofree struct wfs_work *works = calloc(diff->n_rows + 1, sizeof(*works));
    for (size_t i = 0; i < diff->n_rows && works != NULL; i++) {
        const struct diff_row *row = &diff->rows[i];
        if (row->a != NULL && row->b != NULL && comparison_has_content(row->a, row->b))
            works[i] = (struct wfs_work){row->a, row->b};
    }
    return input_workload(path, works, diff->n_rows, args_has(args, "large"), INPUT_CHOOSE_FEWER,
                          &diff->workload);
}

static void print_only_in(struct diff *diff, size_t which)
{
    const bool is_list = diff->json != NULL && !diff->has_table;
    if (is_list)
        json_out_open_array(diff->json, which == 0 ? "only_a" : "only_b");
    for (size_t i = 0; i < diff->n_rows && !ferror(stdout); i++) {
        const struct diff_row *row = &diff->rows[i];
        if ((which == 0 ? row->b : row->a) != NULL)
            continue;
        diff->n_only[which]++;
        if (!diff->has_table)
            report_only(diff, which, which == 0 ? row->a : row->b);
    }
    if (is_list)
        json_out_close(diff->json);
}

/* Returns whether the mount shows the tensor of its source. */
static bool is_unedited(const struct diff *diff, const struct diff_row *row)
{
    return diff->knows_edits && comparison_has_content(row->a, row->b) &&
           bsearch(&row->a->key, diff->edited, diff->n_edited, sizeof(*diff->edited),
                   compare_edited) == NULL;
}

static int make_comparison(struct pool *pool, size_t i, void *result)
{
    struct diff *diff = (struct diff *)pool;
    struct diff_row *row = &diff->rows[i];
    struct comparison *comparison = result;
    int code = 0;
    if (row->a == NULL || row->b == NULL)
        return 0;
    if (is_unedited(diff, row))
        *comparison = (struct comparison){.has_content = true};
    else
        code = comparison_make(&pool->io, row->a, row->b, diff->options, comparison, &row->failed);
    progress_add(&diff->progress, input_add(row->a->n_bytes, row->b->n_bytes));
    return code;
}

static int report_comparison(struct pool *pool, size_t i, const void *result)
{
    struct diff *diff = (struct diff *)pool;
    struct diff_row *row = &diff->rows[i];
    if (row->a == NULL || row->b == NULL)
        return 0;
    row->comparison = *(const struct comparison *)result;
    const bool is_same = comparison_is_alike(row->a, row->b) && row->comparison.has_content &&
                         row->comparison.n_changed == 0;
    row->is_equal = is_same && !diff_row_is_renamed(row);
    diff->n_equal += row->is_equal;
    diff->n_renamed += is_same && !row->is_equal;
    diff->n_changed += !is_same;
    if (diff->has_table || is_same)
        return 0;
    if (diff->json != NULL)
        comparison_put(diff->json, row->a, row->b, &row->comparison, diff->options.has_measures);
    else
        print_change(row);
    return ferror(stdout) ? -EPIPE : 0;
}

static int skip(struct pool *pool, size_t i, int code)
{
    struct diff *diff = (struct diff *)pool;
    return input_skip_row(diff->paths, &diff->rows[i], code, &diff->exit_code);
}

static enum exit_code print_changed(struct diff *diff)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < diff->n_rows; i++) {
        const struct diff_row *row = &diff->rows[i];
        if (row->a != NULL && row->b != NULL)
            n_bytes = input_add(n_bytes, input_add(row->a->n_bytes, row->b->n_bytes));
    }
    const bool is_list = diff->json != NULL && !diff->has_table;
    diff->pool = (struct pool){.workload = diff->workload,
                               .n = diff->n_rows,
                               .n_result = sizeof(struct comparison),
                               .make = make_comparison,
                               .visit = report_comparison,
                               .fail = skip};
    progress_start(&diff->progress, "comparing", n_bytes);
    if (is_list)
        json_out_open_array(diff->json, "changed");
    const int code = pool_run(&diff->pool);
    progress_end(&diff->progress);
    if (is_list)
        json_out_close(diff->json);
    return code == -ENOMEM      ? print_memory(diff->paths[0])
           : code == -ECANCELED ? diff->exit_code
                                : EXIT_DONE; /* the line about the output comes at the end */
}

static void print_renamed(const struct diff *diff)
{
    if (diff->json != NULL)
        json_out_open_array(diff->json, "renamed");
    for (size_t i = 0; i < diff->n_rows && !ferror(stdout); i++) {
        const struct diff_row *row = &diff->rows[i];
        if (!diff_row_is_renamed(row))
            continue;
        if (diff->json != NULL) {
            json_out_open_object(diff->json, NULL);
            json_out_text(diff->json, "key", row->a->key);
            json_out_text(diff->json, "new_key", row->b->key);
            json_out_close(diff->json);
            continue;
        }
        screen_paint(stdout, COLOUR_CHANGED, "renamed:");
        putchar(' ');
        print_escaped(stdout, row->a->key);
        fputs(" -> ", stdout);
        print_escaped(stdout, row->b->key);
        putchar('\n');
    }
    if (diff->json != NULL)
        json_out_close(diff->json);
}

static bool is_different(const struct diff *diff)
{
    return diff->n_only[0] + diff->n_only[1] + diff->n_renamed + diff->n_changed + diff->n_other >
               0 ||
           diff->exit_code != EXIT_DONE;
}

static void put_counts(const struct diff *diff)
{
    json_out_u64(diff->json, "n_only_a", diff->n_only[0]);
    json_out_u64(diff->json, "n_only_b", diff->n_only[1]);
    json_out_u64(diff->json, "n_renamed", diff->n_renamed);
    json_out_u64(diff->json, "n_changed", diff->n_changed);
    json_out_u64(diff->json, "n_equal", diff->n_equal);
    json_out_bool(diff->json, "is_equal", !is_different(diff));
}

/* People read of which files, too. */
static void print_counts(const struct diff *diff)
{
    char renamed[48] = "";
    if (diff->is_screen) {
        fputs("A ", stdout);
        print_escaped(stdout, diff->paths[0]);
        fputs(", B ", stdout);
        print_escaped(stdout, diff->paths[1]);
        fputs(": ", stdout);
    } else if (!is_different(diff)) {
        return;
    }
    if (diff->n_renamed > 0)
        snprintf(renamed, sizeof(renamed), "%" PRIu64 " renamed, ", diff->n_renamed);
    printf("%" PRIu64 " only in A, %" PRIu64 " only in B, %s%" PRIu64 " changed, %" PRIu64
           " equal\n",
           diff->n_only[0], diff->n_only[1], renamed, diff->n_changed, diff->n_equal);
}

/* Numbers of codes were compared as they are stored: what they stand for may differ otherwise. */
static enum exit_code print_scales(const struct diff *diff, size_t which)
{
    const struct wfs_catalog *catalog = diff->catalogs[which];
    autofree struct wfs_companion *companions = NULL;
    char text[WFS_ERROR_TEXT_MAX];
    if (wfs_catalog_companions(catalog, &companions) < 0)
        return print_memory(diff->paths[which]);
    const struct wfs_tensor *start = wfs_catalog_tensor(catalog, 0);
    for (size_t i = 0; i < diff->n_rows; i++) {
        const struct diff_row *row = &diff->rows[i];
        if (row->a == NULL || row->b == NULL || row->is_equal || !row->comparison.has_numbers)
            continue;
        const struct wfs_tensor *tensor = which == 0 ? row->a : row->b;
        const uint32_t found = companions[tensor - start].scale;
        if (found == 0)
            continue;
        snprintf(text, sizeof(text),
                 "compared as stored: its scales, in '%s', are not applied, nor are others",
                 wfs_quote(wfs_catalog_tensor(catalog, found - 1)->key).text);
        print_warning(diff->paths[which], tensor->key, text);
        break;
    }
    return EXIT_DONE;
}

/* ---- a mount ---- */

/* A tree that cannot be committed makes no file; the trial of a commit prints why. */
static bool can_make(const struct mounted *mounted, const char *path)
{
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 || !mounted->is_writable;
}

/* Finds the two files that a mount makes of itself: its source, and what was edited of that. */
static enum exit_code find_made(const char *mountpoint, char *paths[2])
{
    static const char *const names[] = {"source", "model"};
    auto_mounted struct mounted mounted = {.fd = -1};
    struct stat st;
    if (stat(mountpoint, &st) == 0 && !S_ISDIR(st.st_mode))
        return print_error(EXIT_USAGE, NULL, "missing B; usage: weightfs diff A B");
    const enum exit_code exit_code = mounted_open(&mounted, mountpoint);
    const struct wfs_format *format;
    if (exit_code != EXIT_DONE)
        return exit_code;
    for (size_t i = 0; (format = wfs_format_at(i)) != NULL; i++) {
        if (format->extensions[0] == NULL)
            continue;
        for (size_t j = 0; j < 2; j++) {
            free(paths[j]);
            if (asprintf(&paths[j], "%s/" WFS_CONTROL_NAME "/" WFS_OUT_NAME "/%s%s", mountpoint,
                         names[j], format->extensions[0]) < 0) {
                paths[j] = NULL;
                return print_memory(mountpoint);
            }
        }
        if (access(paths[0], F_OK) == 0)
            return can_make(&mounted, paths[1]) ? EXIT_DONE : mounted_try(&mounted, NULL);
    }
    return print_error(EXIT_MOUNT, mountpoint, "cannot read the source of the mount: %s",
                       strerror(errno));
}

/*
 * Reads which tensors were edited: the mount has all others from its source, and their bytes need
 * not be compared. Where that is not known, or is not enough, they are.
 */
static void find_edited(struct diff *diff, const struct args *args)
{
    struct wfs_error err = {0};
    const struct wfs_load_options load = {0};
    const struct wfs_view_option *view;
    autofree char *path = NULL;
    bool has_view = false;
    for (size_t i = 0; (view = wfs_view_option(i)) != NULL; i++)
        has_view |= args_has(args, view->name);
    if (has_view || diff->options.has_measures ||
        asprintf(&path, "%s/" WFS_CONTROL_NAME "/" WFS_OUT_NAME "/" WFS_PATCH_NAME,
                 args->operands[0]) < 0)
        return;
    if (wfs_load(path, &load, &diff->patch_file, &err) < 0 ||
        wfs_patch_parse(diff->patch_file, &diff->patch, &err) < 0)
        return;
    diff->edited = wfs_patch_keys(diff->patch, &diff->n_edited);
    diff->renames = wfs_patch_renames(diff->patch, &diff->n_renames);
    diff->knows_edits = diff->edited != NULL && diff->renames != NULL;
}

/* ---- the verb ---- */

static enum exit_code open_sides(struct diff *diff, const struct args *args)
{
    const bool is_mount = args->n_operands == 1;
    enum exit_code exit_code = is_mount ? find_made(args->operands[0], diff->made) : EXIT_DONE;
    for (size_t i = 0; i < 2 && exit_code == EXIT_DONE; i++) {
        diff->paths[i] = is_mount ? diff->made[i] : args->operands[i];
        exit_code = input_load(args, diff->paths[i], &diff->catalogs[i]);
    }
    if (is_mount && exit_code == EXIT_DONE)
        find_edited(diff, args); /* after the edits that B has */
    return exit_code;
}

/* People get a table; --json is one only of modules. */
static bool has_table(const struct args *args)
{
    if (args_has(args, "json"))
        return args_has(args, "stat");
    return args_has(args, "long") || args_has(args, "stat") || args_has(args, "csv") ||
           screen_width(STDOUT_FILENO) > 0;
}

static enum exit_code check_options(const struct args *args)
{
    const bool is_json = args_has(args, "json"), has_stat = args_has(args, "stat");
    if (args_has(args, "csv") && (is_json || args_has(args, "all")))
        return print_error(EXIT_USAGE, NULL, "--csv cannot be combined with --json or --all");
    if (has_stat && (args_has(args, "long") || (is_json && args_has(args, "all"))))
        return print_error(EXIT_USAGE, NULL, "--stat cannot be combined with %s",
                           args_has(args, "long") ? "--long" : "--json and --all");
    if (args_has(args, "sort") && !has_table(args))
        return print_error(EXIT_USAGE, NULL, "--sort needs the table of --long, --stat or --csv");
    return diff_tables_check(args);
}

static enum exit_code print_table(struct diff *diff, const struct args *args)
{
    if (diff->json != NULL)
        json_out_open_array(diff->json, "modules");
    const int code = diff_tables_print(diff->rows, diff->n_rows, args, diff->json);
    if (diff->json != NULL)
        json_out_close(diff->json);
    return code < 0 ? print_memory(diff->paths[0]) : EXIT_DONE;
}

static enum exit_code run(struct diff *diff, const struct args *args)
{
    enum exit_code exit_code = open_sides(diff, args);
    if (exit_code == EXIT_DONE)
        exit_code = prepare(diff, args);
    if (exit_code != EXIT_DONE)
        return exit_code;
    if (diff->json != NULL)
        print_json_start(diff->json);
    print_only_in(diff, 0);
    print_only_in(diff, 1);
    exit_code = print_changed(diff);
    if (exit_code == EXIT_DONE && diff->has_table)
        exit_code = print_table(diff, args);
    else if (exit_code == EXIT_DONE)
        print_renamed(diff);
    for (size_t i = 0; i < 2 && exit_code == EXIT_DONE; i++)
        exit_code = print_scales(diff, i);
    if (exit_code == EXIT_DONE && args_has(args, "all"))
        exit_code = print_rest(diff);
    if (diff->json != NULL) {
        put_counts(diff);
        json_out_close(diff->json);
    } else if (!args_has(args, "csv")) {
        print_counts(diff);
    }
    return exit_code != EXIT_DONE         ? exit_code
           : diff->exit_code != EXIT_DONE ? diff->exit_code
           : is_different(diff)           ? EXIT_FOUND
                                          : EXIT_DONE;
}

static void diff_done(struct diff *diff)
{
    wfs_workload_free(diff->workload);
    free(diff->rows);
    free(diff->edited);
    free(diff->renames);
    wfs_patch_free(diff->patch);
    wfs_catalog_free(diff->patch_file);
    for (size_t i = 0; i < 2; i++) {
        wfs_catalog_free(diff->catalogs[i]);
        free(diff->made[i]);
    }
}

static enum exit_code run_diff(const struct args *args)
{
    const enum exit_code exit_code = check_options(args);
    if (exit_code != EXIT_DONE)
        return exit_code;
    struct json_out json = {.file = stdout, .spelling = JSON_ASCII};
    const bool is_json = args_has(args, "json");
    cleanup(diff_done) struct diff diff = {
        .json = is_json ? &json : NULL,
        .has_table = has_table(args),
        .is_screen = screen_width(STDOUT_FILENO) > 0,
        .options = {args_has(args, "exact"), has_table(args) || args_has(args, "long")}};
    return run(&diff, args);
}

const struct verb verb_diff = {
    .operands = "A|MOUNTPOINT [B] [GLOB...]",
    .text = "Compare two checkpoints tensor by tensor. Reports tensors that only one of them\n"
            "has, and tensors that differ in dtype, shape or content, with the largest\n"
            "absolute and relative difference. The exit code is 1 if there are differences.\n"
            "A tensor that B has with the same content under another key is renamed. On a\n"
            "terminal the result is the table of --long. There, 'relative' is the L2 norm of\n"
            "the difference divided by that of A, 'cosine' the angle between A and B;\n"
            "elements that are not finite in both are left out.\n"
            "View options apply to both A and B. With GLOBs or names of modules, only the\n"
            "tensors that these choose are compared. For a mount, A is its source as it is\n"
            "shown, and B what a commit would write.",
    .has_source = true,
    .options = {{"all", NULL, "also metadata, values and bytes no tensor shows"},
                {"csv", NULL, "print the table of --long or --stat as CSV"},
                {"exact", NULL, "compare tensors of the same dtype bit for bit"},
                {"json", NULL, "print JSON, as docs/json.md describes it"},
                {"large", NULL, INPUT_LARGE_HELP},
                {"long", NULL, "-l: a table with L2, cosine, most changed first"},
                {"sort", "ORDER", "of --long and --stat: change or key"},
                {"stat", NULL, "a line with a bar for each module that differs"}},
    .run = run_diff,
};
