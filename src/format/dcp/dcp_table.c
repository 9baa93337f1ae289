/* SPDX-License-Identifier: MIT */
/*
 * From the metadata to the tables: files, items, keys, tensors, and their parts. A part finds its
 * item by key and offset. The metadata of several ranks is united: a key that two of them have is
 * one tensor with the chunks of both.
 *
 * A path is checked as text before the kernel sees it, so that the message names what is wrong. The
 * items of a key are side by side, in the order of their offsets, which is that of its chunks. No
 * two may share bytes: an item that is used for two chunks, and one that reaches into the next, are
 * seen when all are in the order of their places.
 */
#include "format/dcp/dcp_reading.h"

#include <weightfs/array.h>
#include <weightfs/cleanup.h>
#include <weightfs/output.h>
#include <weightfs/url.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/dcp/dcp_item.h"
#include "format/pytorch/object/torch_call.h"
#include "remote/remote_source.h"

/* ---- files ---- */

/* Returns whether a path stays below the directory: parts with names, none of them "." or "..". */
static bool is_below(const char *path, size_t n_bytes)
{
    if (n_bytes == 0 || strlen(path) != n_bytes)
        return false;
    for (const char *part = path;; part++) {
        const size_t n = strcspn(part, "/");
        if (n == 0 || (n <= 2 && strncmp(part, "..", n) == 0))
            return false;
        part += n;
        if (*part == '\0')
            return true;
    }
}

/* Makes the table of files, one for each path of the metadata. */
static int make_files(struct dcp_reading *r)
{
    const struct text_index *paths = &r->metadata->paths;
    struct dcp_tables *tables = &r->tables;
    tables->files = calloc(paths->n_texts + 1, sizeof(*tables->files)); /* one for DCP_COMPANION */
    if (tables->files == NULL)
        return wfs_fail_memory(r->err);
    for (; tables->n_files < paths->n_texts; tables->n_files++) {
        const struct text_slice *path = &paths->texts[tables->n_files];
        struct dcp_file *file = &tables->files[tables->n_files];
        file->name = arena_copy(&tables->arena, path->bytes, path->n_bytes);
        const bool is_good = is_below(path->bytes, path->n_bytes);
        if (!is_good)
            file->trouble = arena_print(&tables->arena, "the path '%s' leads out of the directory",
                                        wfs_quote_n(path->bytes, path->n_bytes).text);
        if (file->name == NULL || (file->trouble == NULL && !is_good))
            return wfs_fail_memory(r->err);
    }
    return 0;
}

/* Begins to open the files of a URL that come soon: each is a round trip. */
static void open_early(struct dcp_reading *r, uint32_t number)
{
    enum { N_AHEAD = 32 };
    const struct dcp_tables *tables = &r->tables;
    for (; r->n_early < tables->n_files && r->n_early < number + N_AHEAD; r->n_early++) {
        autofree char *url = NULL;
        if (tables->files[r->n_early].trouble == NULL &&
            url_below(r->url, tables->files[r->n_early].name, &url, NULL) == 0)
            remote_source_open_early(r->context->remote, url);
    }
}

static int open_source(struct dcp_reading *r, uint32_t number, struct wfs_error *err)
{
    struct dcp_file *file = &r->tables.files[number];
    autofree char *path = NULL;
    char temporary[WFS_OUTPUT_NAME_MAX];
    if (r->url != NULL) {
        const int code = url_below(r->url, file->name, &path, err);
        if (code < 0)
            return code;
        open_early(r, number);
        return format_open(r->context, path, &file->source, err);
    }
    wfs_output_temporary(file->name, temporary);
    const char *name = r->is_new ? temporary : file->name;
    return asprintf(&path, "%s%s", r->folder, name) < 0
               ? -ENOMEM
               : source_open_beneath(r->directory, name, path, &file->source, err);
}

/* Makes the file beside the checkpoint one more of its files, with one item. One that a server does
 * not show is none. */
static int add_companion(struct dcp_reading *r)
{
    struct dcp_tables *tables = &r->tables;
    struct dcp_file *file = &tables->files[tables->n_files];
    struct wfs_error err = {0};
    file->name = DCP_COMPANION;
    int code = open_source(r, tables->n_files, &err);
    if (code == -ENOENT && r->is_new) /* it is kept as it was */
        code = source_open_beneath(r->directory, file->name, file->name, &file->source, NULL);
    if (code == -ENOENT || (code == -EACCES && r->url != NULL))
        return 0;
    if (code < 0)
        return code == -ENOMEM
                   ? wfs_fail_memory(r->err)
                   : catalog_add_finding(r->catalog, WFS_HIGH | WFS_FINDING_LOSS,
                                         "'" DCP_COMPANION "' cannot be read: %s", err.text);
    if (catalog_adopt_source(r->catalog, file->source) < 0)
        return wfs_fail_memory(r->err);
    file->source->is_part = true;
    tables->items[tables->n_items] =
        (struct dcp_item){.file = tables->n_files++, .n_bytes = file->source->n_bytes};
    r->companion = ++tables->n_items;
    return 0;
}

/* Opens a file once; what prevents that becomes its trouble. */
static int open_file(struct dcp_reading *r, uint32_t number)
{
    struct dcp_file *file = &r->tables.files[number];
    struct wfs_error err = {0};
    if (file->source != NULL || file->trouble != NULL)
        return 0;
    if (r->catalog->sources.n > r->context->limits.files)
        return wfs_fail(r->err, E2BIG, "it is in more than %s (limit files)",
                        wfs_count(r->context->limits.files, "file").text);
    const int code = open_source(r, number, &err);
    if (code == -EMFILE || code == -ENFILE)
        return wfs_fail(r->err, EMFILE,
                        "cannot open its files after %zu of them: the hard limit of open files "
                        "(ulimit -Hn) is too low",
                        r->catalog->sources.n);
    if (code == -ENOMEM)
        return wfs_fail_memory(r->err);
    if (code == 0) {
        file->source->is_part = true;
        return catalog_adopt_source(r->catalog, file->source) < 0 ? wfs_fail_memory(r->err) : 0;
    }
    file->source = NULL;
    file->trouble = arena_print(&r->tables.arena, "'%s': %s", wfs_quote(file->name).text, err.text);
    return file->trouble == NULL ? wfs_fail_memory(r->err) : 0;
}

/* Notes what is wrong with an item; NULL: there was no memory to say so. */
static int spoil(const struct dcp_reading *r, struct dcp_item *item, const char *trouble)
{
    item->trouble = trouble;
    return trouble == NULL ? wfs_fail_memory(r->err) : 0;
}

/* Opens the file of an item that is needed, beneath the directory and nowhere else, and checks that
 * the item is inside of it; else the item has a trouble. -E2BIG above the limit of files, -EMFILE,
 * -ENOMEM. */
static int open_item(struct dcp_reading *r, uint32_t number)
{
    struct dcp_item *item = &r->tables.items[number];
    if (item->trouble != NULL)
        return 0;
    const int code = open_file(r, item->file);
    const struct dcp_file *file = &r->tables.files[item->file];
    if (code < 0)
        return code;
    if (file->trouble != NULL) {
        item->trouble = file->trouble;
        return 0;
    }
    const uint64_t n_bytes = file->source->n_bytes;
    if (item->n_bytes > 0 && item->offset <= n_bytes && item->n_bytes <= n_bytes - item->offset)
        return 0;
    return spoil(r, item,
                 arena_print(&r->tables.arena,
                             "its %s at byte %" PRIu64 " cannot be in '%s', which has %s",
                             wfs_count(item->n_bytes, "byte").text, item->offset,
                             wfs_quote(file->name).text, wfs_count(n_bytes, "byte").text));
}

static void items_done(struct dcp_items *items)
{
    const int saved = errno;
    free(items->claims);
    free(items->starts);
    *items = (struct dcp_items){0};
    errno = saved;
}

/* ---- who has which item ---- */

static int compare_offsets(const int64_t *a, uint32_t a_rank, const int64_t *b, uint32_t b_rank)
{
    if (a_rank != b_rank)
        return a_rank < b_rank ? -1 : 1;
    for (uint32_t i = 0; a_rank != DCP_NO_OFFSET && i < a_rank; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* Those for the same thing by their order. */
static int compare_claims(const void *a, const void *b, void *ctx)
{
    const struct dcp_claim *x = a, *y = b;
    const int64_t *numbers = ctx;
    const int code = compare_offsets(numbers + x->offset, x->rank, numbers + y->offset, y->rank);
    return code != 0 ? code : x->item < y->item ? -1 : x->item > y->item;
}

/* Sorts the claims of a key. The last one counts of those that are for the same thing. */
static void sort_claims(int64_t *numbers, struct dcp_claim *claims, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        if (compare_claims(&claims[i - 1], &claims[i], numbers) > 0) {
            qsort_r(claims, n, sizeof(*claims), compare_claims, numbers);
            break;
        }
    }
    for (uint32_t i = n; i-- > 1;) {
        struct dcp_claim *one = &claims[i - 1], *next = &claims[i];
        if (compare_offsets(numbers + one->offset, one->rank, numbers + next->offset, next->rank) ==
            0)
            one->item = next->item;
    }
}

/* Finds the item of a chunk at an offset, or (rank DCP_NO_OFFSET) that of a value. It is found at
 * once where it is the n_before-th of the key. */
static bool find_item(const struct dcp_reading *r, uint32_t key, const int64_t *offset,
                      uint32_t rank, uint32_t n_before, uint32_t *ret)
{
    uint32_t low = r->items.starts[key], high = r->items.starts[key + 1];
    uint32_t middle = n_before < high - low ? low + n_before : low;
    while (low < high) {
        const struct dcp_claim *claim = &r->items.claims[middle];
        const int code =
            compare_offsets(r->metadata->numbers + claim->offset, claim->rank, offset, rank);
        if (code == 0) {
            *ret = claim->item;
            return true;
        }
        if (code < 0)
            low = middle + 1;
        else
            high = middle;
        middle = low + (high - low) / 2;
    }
    return false;
}

/* ---- places ---- */

/* Sets where the item is; one that is not described as it should be gets a trouble. */
static int set_place(struct dcp_reading *r, uint32_t storage, struct dcp_item *item)
{
    const struct dcp_storage *row = dcp_storage_of(r->metadata, storage);
    *item = (struct dcp_item){0};
    if (row == NULL)
        return spoil(r, item, "its entry in storage_data is not a path, an offset and a length");
    const bool is_range = row->offset >= 0 && row->length >= 0;
    item->file = row->path;
    item->offset = (uint64_t)row->offset;
    item->n_bytes = is_range ? (uint64_t)row->length : 0;
    if (is_range && !row->is_transformed)
        return 0;
    const struct wfs_quoted name = wfs_quote(r->tables.files[item->file].name);
    if (!is_range)
        return spoil(r, item,
                     arena_print(&r->tables.arena,
                                 "its offset %" PRId64 " and its length %" PRId64
                                 " in '%s' are not a range",
                                 row->offset, row->length, name.text));
    return spoil(r, item,
                 arena_print(&r->tables.arena,
                             "it is compressed or otherwise transformed in '%s', which weightfs "
                             "does not read: 'python3 -m torch.distributed.checkpoint.format_utils "
                             "dcp_to_torch DIR FILE.pth' makes a file of it",
                             name.text));
}

/* ---- shared bytes ---- */

static int compare_places(const void *a, const void *b, void *ctx)
{
    const struct dcp_item *items = ctx;
    const struct dcp_item *x = &items[*(const uint32_t *)a], *y = &items[*(const uint32_t *)b];
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Numbers of all used items that have bytes, in the order of their places. */
static uint32_t *sort_places(struct dcp_tables *tables, uint32_t *ret_n)
{
    uint32_t *order = malloc(((size_t)tables->n_items + 1) * sizeof(*order));
    bool is_sorted = true;
    uint32_t n = 0;
    for (uint32_t i = 0; order != NULL && i < tables->n_items; i++) {
        if (!tables->items[i].is_used || tables->items[i].n_bytes == 0)
            continue;
        order[n++] = i;
        is_sorted = is_sorted &&
                    (n == 1 || compare_places(&order[n - 2], &order[n - 1], tables->items) <= 0);
    }
    if (order != NULL && !is_sorted)
        qsort_r(order, n, sizeof(*order), compare_places, tables->items);
    *ret_n = n;
    return order;
}

static int spoil_shared(struct dcp_reading *r, struct dcp_item *item)
{
    if (item->trouble != NULL)
        return 0;
    return spoil(r, item,
                 arena_print(&r->tables.arena,
                             "the range of its %s at byte %" PRIu64
                             " of '%s' is used for something else too",
                             wfs_count(item->n_bytes, "byte").text, item->offset,
                             wfs_quote(r->tables.files[item->file].name).text));
}

/* Items with the same offset are right where a safetensors file begins there. 1, 0, or an error. */
static int is_window(struct dcp_reading *r, const struct dcp_item *a, const struct dcp_item *b)
{
    const struct dcp_file *file = &r->tables.files[a->file];
    if (a->offset != b->offset)
        return 0;
    const int code = open_file(r, a->file);
    return code < 0 || file->source == NULL ? code : dcp_window_probe(file->source, a->offset) > 0;
}

/* Gives a trouble to items that are used and share bytes of a file. */
static int check_items(struct dcp_reading *r)
{
    struct dcp_item *items = r->tables.items;
    uint32_t n;
    autofree uint32_t *order = sort_places(&r->tables, &n);
    struct dcp_item *farthest = NULL; /* of those before: the one that ends last */
    if (order == NULL)
        return wfs_fail_memory(r->err);
    for (uint32_t i = 0; i < n; i++) {
        struct dcp_item *item = &items[order[i]];
        if (farthest != NULL && farthest->file == item->file &&
            item->offset - farthest->offset < farthest->n_bytes) {
            int code = is_window(r, farthest, item);
            if (code == 0)
                code = spoil_shared(r, farthest);
            if (code == 0)
                code = spoil_shared(r, item);
            if (code < 0)
                return code;
        }
        if (farthest == NULL || farthest->file != item->file ||
            farthest->offset + farthest->n_bytes < item->offset + item->n_bytes)
            farthest = item;
    }
    return 0;
}

/* ---- all items ---- */

static const struct value *storage_data(const struct dcp_metadata *m, size_t root)
{
    return graph_at(&m->graph, dcp_field(&m->graph, m->roots[root], "storage_data"));
}

/* Adds the items of all files of metadata, and counts those of each key that anybody may ask for;
 * or, when there is room for claims, puts the claims of each key where its start is, and moves
 * that on. */
static int go_through(struct dcp_reading *r, const uint32_t *keys)
{
    struct dcp_items *items = &r->items;
    uint32_t n = 0;
    for (size_t i = 0; i < r->metadata->n_roots; i++) {
        const struct value *dict = storage_data(r->metadata, i);
        for (uint32_t k = 0; k + 1 < dict->n; k += 2, n++) {
            const struct dcp_index *index = dcp_index_of(r->metadata, value_items(dict)[k]);
            if (index == NULL)
                return wfs_fail(r->err, EBADMSG,
                                "a key of its storage_data is not a MetadataIndex");
            const uint32_t key = keys[index->key];
            if (key != TEXT_INDEX_NONE && items->claims != NULL)
                items->claims[items->starts[key]++] =
                    (struct dcp_claim){n, index->rank, index->offset};
            else if (key != TEXT_INDEX_NONE)
                items->starts[key + 1]++;
            if (items->claims == NULL &&
                set_place(r, value_items(dict)[k + 1], &r->tables.items[n]) < 0)
                return -ENOMEM;
        }
    }
    r->tables.n_items = n;
    return 0;
}

/* Puts the claims of each key side by side. */
static int gather_claims(struct dcp_reading *r, const uint32_t *keys)
{
    uint32_t *starts = r->items.starts;
    for (size_t i = 0; i < r->n_keys; i++)
        starts[i + 1] += starts[i];
    r->items.claims = malloc(((size_t)starts[r->n_keys] + 1) * sizeof(*r->items.claims));
    if (r->items.claims == NULL)
        return wfs_fail_memory(r->err);
    const int code = go_through(r, keys);
    /* Each start has become the next one. */
    memmove(starts + 1, starts, r->n_keys * sizeof(*starts));
    starts[0] = 0;
    for (size_t i = 0; i < r->n_keys; i++)
        sort_claims(r->metadata->numbers, &r->items.claims[starts[i]], starts[i + 1] - starts[i]);
    return code;
}

static uint64_t chunk_limit(const struct dcp_reading *r)
{
    return limits_own(&r->context->limits, &dcp_limits[DCP_LIMIT_CHUNKS]);
}

static int add_items(struct dcp_reading *r)
{
    const struct text_index *names = &r->metadata->names;
    uint64_t n_all = 0;
    for (size_t i = 0; i < r->metadata->n_roots; i++)
        n_all += storage_data(r->metadata, i)->n / 2;
    if (n_all > UINT32_MAX - 1 || n_all > chunk_limit(r) + r->context->limits.tensors)
        return wfs_fail(r->err, E2BIG, "%s in storage_data (limit chunks)",
                        wfs_count(n_all, "entry").text);
    r->items.starts = calloc(r->n_keys + 1, sizeof(*r->items.starts));
    r->tables.items = malloc((n_all + 1) * sizeof(*r->tables.items)); /* one for DCP_COMPANION */
    /* By name of the metadata: the number of its key. */
    autofree uint32_t *keys = malloc((names->n_texts + 1) * sizeof(*keys));
    if (r->items.starts == NULL || r->tables.items == NULL || keys == NULL)
        return wfs_fail_memory(r->err);
    for (size_t i = 0; i < names->n_texts; i++)
        keys[i] = text_index_find(&r->names, names->texts[i].bytes, names->texts[i].n_bytes);
    int code = make_files(r);
    if (code == 0)
        code = go_through(r, keys);
    return code < 0 ? code : gather_claims(r, keys);
}

void dcp_reading_done(struct dcp_reading *reading)
{
    const int saved = errno;
    dcp_tables_done(&reading->tables);
    items_done(&reading->items);
    free(reading->keys);
    text_index_done(&reading->names);
    errno = saved;
}

/* ---- keys ---- */

static int add_key(struct dcp_reading *r, uint32_t name, uint32_t described)
{
    const struct value *text = graph_at(&r->metadata->graph, name);
    const enum dcp_class class = dcp_class_of(&r->metadata->graph, described);
    uint32_t number;
    if (text->kind != VALUE_TEXT)
        return wfs_fail(r->err, EBADMSG, "a key of its state_dict_metadata is not a text");
    if (class != DCP_TENSOR && class != DCP_BYTES)
        return wfs_fail(r->err, EBADMSG, "'%s' is described as neither a tensor nor a value",
                        wfs_quote_n(text->text, text->n).text);
    if (r->n_keys >= r->context->limits.tensors)
        return wfs_fail(r->err, E2BIG, "more than %s (limit tensors)",
                        wfs_count(r->context->limits.tensors, "key").text);
    if (text->n > r->context->limits.key)
        return wfs_fail(r->err, E2BIG, "a key has %s, above the limit of %" PRIu64 " (limit key)",
                        wfs_count(text->n, "byte").text, r->context->limits.key);
    const uint32_t n_before = (uint32_t)r->names.n_texts;
    if (text_index_add(&r->names, text->text, text->n, &number) < 0 ||
        array_reserve(&r->keys, sizeof(*r->keys), r->n_keys, 1, &r->n_key_room) < 0)
        return wfs_fail_memory(r->err);
    if (number != n_before)
        return 0;
    struct dcp_key *key = &r->keys[r->n_keys++];
    *key = (struct dcp_key){.n_name = text->n, .is_tensor = class == DCP_TENSOR};
    key->name = arena_copy(&r->tables.arena, text->text, text->n);
    key->number = key->is_tensor ? r->tables.n_tensors++ : 0;
    return key->name == NULL ? wfs_fail_memory(r->err) : 0;
}

/* Calls a function for each key of each file of metadata, and what describes it. */
static int each_key(struct dcp_reading *r,
                    int (*call)(struct dcp_reading *r, uint32_t name, uint32_t described))
{
    const struct graph *graph = &r->metadata->graph;
    for (size_t i = 0; i < r->metadata->n_roots; i++) {
        const struct value *dict =
            graph_at(graph, dcp_field(graph, r->metadata->roots[i], "state_dict_metadata"));
        for (uint32_t k = 0; k + 1 < dict->n; k += 2) {
            const int code = call(r, value_items(dict)[k], value_items(dict)[k + 1]);
            if (code < 0)
                return code;
        }
    }
    return 0;
}

static struct dcp_key *key_at(const struct dcp_reading *r, uint32_t name)
{
    const struct value *text = graph_at(&r->metadata->graph, name);
    return &r->keys[text_index_find(&r->names, text->text, text->n)];
}

/* ---- tensors ---- */

/* Spoils a tensor by the trouble of the item of one of its chunks; NULL: it has no item. */
static int spoil_chunk(struct dcp_reading *r, struct dcp_tensor *tensor, const int64_t *at,
                       const char *trouble)
{
    autostrbuf struct strbuf text = {.n_max = 500};
    if (tensor->trouble != NULL)
        return 0;
    strbuf_puts(&text, "its chunk at ");
    dcp_print_numbers(&text, at, tensor->rank);
    strbuf_puts(&text, trouble == NULL ? " has no entry in storage_data" : ": ");
    strbuf_puts(&text, trouble == NULL ? "" : trouble);
    tensor->trouble =
        text.bytes == NULL ? NULL : arena_copy(&r->tables.arena, text.bytes, text.n_bytes);
    return tensor->trouble == NULL ? wfs_fail_memory(r->err) : 0;
}

/* Reads (dtype, layout, ...), the state of the properties. */
static const char *read_dtype(struct dcp_reading *r, uint32_t properties, struct dcp_tensor *tensor)
{
    struct graph *graph = &r->metadata->graph;
    const uint32_t state =
        dcp_class_of(graph, properties) == DCP_PROPERTIES ? dcp_state_of(graph, properties) : 0;
    const uint32_t first = torch_arg(graph, state, 0);
    const struct torch_global *dtype = torch_global_of(graph, first);
    if (first == 0)
        return "its properties do not have a dtype";
    if (dtype == NULL || dtype->what != WHAT_DTYPE ||
        (wfs_dtype_bits(dtype->dtype) < 8 && dtype->dtype != WFS_F4)) {
        const char *text = arena_print(&r->tables.arena, "its dtype %s is not supported",
                                       graph_at(graph, first)->kind == VALUE_GLOBAL
                                           ? wfs_quote(graph_at(graph, first)->global->name).text
                                           : "?");
        return text == NULL ? "its dtype is not supported" : text;
    }
    tensor->dtype = dtype->dtype;
    tensor->n_elem = wfs_dtype_bits(dtype->dtype) < 8 ? 1 : wfs_dtype_bits(dtype->dtype) / 8;
    return NULL;
}

static const char *read_size(struct dcp_reading *r, const int64_t *numbers,
                             struct dcp_tensor *tensor)
{
    if (tensor->rank > r->context->limits.rank)
        return "its number of dimensions is above the limit (limit rank)";
    tensor->dims = arena_calloc(&r->tables.arena, (size_t)tensor->rank + 1, sizeof(*tensor->dims));
    if (tensor->dims == NULL)
        return NULL; /* the caller sees it */
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (numbers[i] < 0)
            return "its size is negative";
        tensor->dims[i] = (uint64_t)numbers[i];
    }
    return dcp_tensor_measure(tensor);
}

/* Reads what all chunks have in common. */
static int read_tensor(struct dcp_reading *r, const struct dcp_key *key, uint32_t described)
{
    struct dcp_tensor *tensor = &r->tables.tensors[key->number];
    struct dcp_metadata *m = r->metadata;
    uint32_t first;
    tensor->key = key->name;
    tensor->dtype = WFS_OPAQUE;
    tensor->n_elem = 1;
    dcp_tensor_spoil(tensor, read_dtype(r, dcp_field(&m->graph, described, "properties"), tensor));
    const int code =
        dcp_metadata_numbers(m, dcp_field(&m->graph, described, "size"), &first, &tensor->rank);
    if (code < 0)
        return code == -E2BIG ? wfs_fail(r->err, E2BIG,
                                         "its shapes have more numbers than the limit index_memory "
                                         "allows")
                              : wfs_fail_memory(r->err);
    if (code == 0) {
        tensor->rank = 0;
        dcp_tensor_spoil(tensor, "its size is not a tuple of integers of 64 bits");
    } else {
        const char *trouble = read_size(r, &m->numbers[first], tensor);
        if (tensor->dims == NULL && trouble == NULL)
            return wfs_fail_memory(r->err);
        tensor->rank = tensor->dims == NULL ? 0 : tensor->rank;
        dcp_tensor_spoil(tensor, trouble);
    }
    return 0;
}

/* Returns the tensor that one file describes; NULL: there, or in the first file, it is a value. */
static struct dcp_tensor *tensor_of(struct dcp_reading *r, uint32_t name, uint32_t described)
{
    const struct dcp_key *key = key_at(r, name);
    return key->is_tensor && dcp_class_of(&r->metadata->graph, described) == DCP_TENSOR
               ? &r->tables.tensors[key->number]
               : NULL;
}

/* Counts the chunks of a tensor, and reads the rest at its first file. */
static int count_chunks(struct dcp_reading *r, uint32_t name, uint32_t described)
{
    const struct graph *graph = &r->metadata->graph;
    struct dcp_tensor *tensor = tensor_of(r, name, described);
    if (tensor == NULL)
        return 0;
    int code = tensor->key == NULL ? read_tensor(r, key_at(r, name), described) : 0;
    const uint32_t n = torch_n_args(graph, dcp_field(graph, described, "chunks"));
    r->tables.n_parts += n;
    tensor->n_parts += n;
    if (code == 0 && (n > chunk_limit(r) || r->tables.n_parts > chunk_limit(r)))
        code = wfs_fail(r->err, E2BIG, "more than %s (limit chunks)",
                        wfs_count(chunk_limit(r), "chunk").text);
    return code;
}

/* ---- parts ---- */

/* Adds one chunk as a part, with its item. */
static int add_part(struct dcp_reading *r, struct dcp_tensor *tensor, uint32_t key, uint32_t id)
{
    const struct dcp_chunk *chunk = dcp_chunk_of(r->metadata, id);
    uint32_t item;
    if (chunk == NULL) {
        dcp_tensor_spoil(
            tensor, "a chunk is not described by offsets and sizes that are integers of 64 bits");
        return 0;
    }
    if (chunk->rank != tensor->rank) {
        dcp_tensor_spoil(tensor, "a chunk has another number of dimensions");
        return 0;
    }
    const int64_t *box = &r->metadata->numbers[chunk->box];
    if (dcp_box_is_empty(box + chunk->rank, chunk->rank))
        return 0;
    if (!find_item(r, key, box, chunk->rank, tensor->n_parts, &item))
        return spoil_chunk(r, tensor, box, NULL);
    r->tables.items[item].is_used = true;
    const int code = open_item(r, item);
    if (code < 0)
        return code;
    if (r->tables.items[item].trouble != NULL)
        return spoil_chunk(r, tensor, box, r->tables.items[item].trouble);
    struct dcp_part *part = &tensor->parts[tensor->n_parts++];
    part->box = box;
    part->item = item;
    return 0;
}

/* Adds the chunks that one file has of a tensor. */
static int add_parts(struct dcp_reading *r, uint32_t name, uint32_t described)
{
    const struct graph *graph = &r->metadata->graph;
    struct dcp_tensor *tensor = tensor_of(r, name, described);
    const uint32_t key = (uint32_t)(key_at(r, name) - r->keys);
    const uint32_t chunks = tensor == NULL ? 0 : dcp_field(graph, described, "chunks");
    int code = 0;
    for (uint32_t i = 0; i < torch_n_args(graph, chunks) && code == 0; i++)
        code = add_part(r, tensor, key, torch_arg(graph, chunks, i));
    return code;
}

static int make_parts(struct dcp_reading *r)
{
    struct dcp_tables *tables = &r->tables;
    tables->parts = calloc((size_t)tables->n_parts + 1, sizeof(*tables->parts));
    if (tables->parts == NULL)
        return wfs_fail_memory(r->err);
    dcp_tables_divide(tables);
    const int code = each_key(r, add_parts);
    if (code < 0)
        return code;
    return dcp_tables_check(tables) < 0 ? wfs_fail_memory(r->err) : 0;
}

/* ---- values ---- */

static int find_values(struct dcp_reading *r)
{
    int code = 0;
    for (size_t i = 0; i < r->n_keys && code == 0; i++) {
        struct dcp_key *key = &r->keys[i];
        if (key->is_tensor)
            continue;
        if (!find_item(r, (uint32_t)i, NULL, DCP_NO_OFFSET, 0, &key->number)) {
            key->trouble = "it has no entry in storage_data";
            continue;
        }
        r->tables.items[key->number].is_used = true;
        code = open_item(r, key->number);
    }
    return code;
}

/* Spoils the tensors with parts whose items have a trouble by now, and sets those of values. */
static int spread_troubles(struct dcp_reading *r)
{
    int code = 0;
    for (uint32_t i = 0; i < r->tables.n_tensors && code == 0; i++) {
        struct dcp_tensor *tensor = &r->tables.tensors[i];
        for (uint32_t k = 0; k < tensor->n_parts && tensor->trouble == NULL && code == 0; k++) {
            const struct dcp_part *part = &tensor->parts[k];
            if (r->tables.items[part->item].trouble != NULL)
                code = spoil_chunk(r, tensor, part->box, r->tables.items[part->item].trouble);
        }
    }
    for (size_t i = 0; i < r->n_keys; i++) {
        struct dcp_key *key = &r->keys[i];
        if (!key->is_tensor && key->trouble == NULL)
            key->trouble = r->tables.items[key->number].trouble;
    }
    return code;
}

int dcp_table_fill(struct dcp_reading *r)
{
    r->tables.arena.limit = r->context->limits.index_memory;
    r->tables.limits = r->context->limits;
    int code = each_key(r, add_key);
    if (code < 0)
        return code;
    r->tables.tensors = calloc((size_t)r->tables.n_tensors + 1, sizeof(*r->tables.tensors));
    if (r->tables.tensors == NULL)
        return wfs_fail_memory(r->err);
    if ((code = each_key(r, count_chunks)) < 0 || (code = add_items(r)) < 0 ||
        (code = make_parts(r)) < 0 || (code = find_values(r)) < 0 ||
        (code = add_companion(r)) < 0 || (code = check_items(r)) < 0 ||
        (code = spread_troubles(r)) < 0)
        return code;
    items_done(&r->items);
    r->tables.numbers = r->metadata->numbers;
    r->metadata->numbers = NULL;
    return 0;
}
