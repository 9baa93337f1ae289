/* SPDX-License-Identifier: MIT */
/*
 * Does random things to a file and to a copy of it in memory: reads, writes, mapped reads and
 * writes, truncation, fallocate, copies inside of it, close and open. Stops at the first byte that
 * differs. At the end the file has its first size again, and the copy is written to MODEL.
 *
 * Usage: exercise FILE MODEL N_OPERATIONS SEED
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_MAX = 256 << 10, N_AT_ONCE = 16 << 10, N_BETWEEN_LOOKS = 2000, PAGE = 4096 };

struct exercise {
    const char *path;
    int fd;
    uint8_t model[N_MAX], buffer[N_MAX];
    size_t n_bytes; /* of the model */
    uint64_t random;
    uint64_t n_done;
    const char *name; /* of the operation that runs */
    size_t offset, n;
};

static _Noreturn void fail(const struct exercise *x, const char *what, size_t at)
{
    fprintf(stderr, "exercise: operation %llu, %s of %zu bytes at %zu: %s %zu (%s)\n",
            (unsigned long long)x->n_done, x->name, x->n, x->offset, what, at, strerror(errno));
    exit(1);
}

static size_t random_below(struct exercise *x, size_t n)
{
    x->random ^= x->random << 13;
    x->random ^= x->random >> 7;
    x->random ^= x->random << 17;
    return n == 0 ? 0 : (size_t)((x->random >> 11) % n);
}

/* A range that ends before `end`; it may be empty. */
static void choose(struct exercise *x, size_t end)
{
    x->offset = random_below(x, end);
    const size_t n_left = end - x->offset;
    x->n = random_below(x, (n_left < N_AT_ONCE ? n_left : N_AT_ONCE) + 1);
}

static void fill_buffer(struct exercise *x)
{
    const uint64_t base = x->random;
    for (size_t i = 0; i < x->n; i++)
        x->buffer[i] = (uint8_t)(base >> (i % 8 * 8)) ^ (uint8_t)i;
}

static void grow(struct exercise *x, size_t n_bytes)
{
    if (n_bytes > x->n_bytes) {
        memset(x->model + x->n_bytes, 0, n_bytes - x->n_bytes);
        x->n_bytes = n_bytes;
    }
}

static void compare(const struct exercise *x, const uint8_t *got, size_t offset, size_t n)
{
    if (n == 0 || memcmp(got, x->model + offset, n) == 0)
        return;
    size_t i = 0;
    while (got[i] == x->model[offset + i])
        i++;
    errno = 0;
    fail(x, "another byte than was written at", offset + i);
}

/* ---- operations ---- */

static void do_read(struct exercise *x)
{
    choose(x, x->n_bytes);
    const ssize_t n = pread(x->fd, x->buffer, x->n, (off_t)x->offset);
    if (n != (ssize_t)x->n)
        fail(x, "bytes that were read:", (size_t)n);
    compare(x, x->buffer, x->offset, x->n);
}

static void do_write(struct exercise *x)
{
    choose(x, N_MAX);
    fill_buffer(x);
    const ssize_t n = pwrite(x->fd, x->buffer, x->n, (off_t)x->offset);
    if (n != (ssize_t)x->n)
        fail(x, "bytes that were written:", (size_t)n);
    if (x->n == 0)
        return;
    grow(x, x->offset + x->n);
    memcpy(x->model + x->offset, x->buffer, x->n);
}

static uint8_t *map(struct exercise *x, int protection, size_t *ret_front)
{
    *ret_front = x->offset % PAGE;
    uint8_t *at = mmap(NULL, x->n + *ret_front, protection, MAP_SHARED, x->fd,
                       (off_t)(x->offset - *ret_front));
    if (at == MAP_FAILED)
        fail(x, "no mapping at", x->offset - *ret_front);
    return at;
}

static void do_mapped_read(struct exercise *x)
{
    size_t front;
    choose(x, x->n_bytes);
    if (x->n == 0)
        return;
    uint8_t *at = map(x, PROT_READ, &front);
    compare(x, at + front, x->offset, x->n);
    munmap(at, x->n + front);
}

static void do_mapped_write(struct exercise *x)
{
    size_t front;
    choose(x, x->n_bytes);
    if (x->n == 0)
        return;
    fill_buffer(x);
    uint8_t *at = map(x, PROT_READ | PROT_WRITE, &front);
    memcpy(at + front, x->buffer, x->n);
    if (random_below(x, 64) == 0 && msync(at, x->n + front, MS_SYNC) < 0)
        fail(x, "msync fails at", x->offset);
    munmap(at, x->n + front);
    memcpy(x->model + x->offset, x->buffer, x->n);
}

static void set_size(struct exercise *x, size_t n_bytes)
{
    x->offset = n_bytes;
    x->n = 0;
    if (ftruncate(x->fd, (off_t)n_bytes) < 0)
        fail(x, "no truncation to", n_bytes);
    grow(x, n_bytes);
    x->n_bytes = n_bytes;
}

static void do_truncate(struct exercise *x)
{
    set_size(x, random_below(x, N_MAX + 1));
}

/* Refusing is allowed; then nothing may have changed. */
static void allocate(struct exercise *x, int mode)
{
    choose(x, N_MAX);
    if (x->n == 0)
        return;
    if (fallocate(x->fd, mode, (off_t)x->offset, (off_t)x->n) < 0) {
        if (errno != EOPNOTSUPP)
            fail(x, "fallocate fails at", x->offset);
        return;
    }
    if ((mode & FALLOC_FL_KEEP_SIZE) == 0)
        grow(x, x->offset + x->n);
    if ((mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0 && x->offset < x->n_bytes) {
        const size_t n_left = x->n_bytes - x->offset;
        memset(x->model + x->offset, 0, x->n < n_left ? x->n : n_left);
    }
}

static void do_allocate(struct exercise *x)
{
    allocate(x, 0);
}

static void do_reserve(struct exercise *x)
{
    allocate(x, FALLOC_FL_KEEP_SIZE);
}

static void do_punch(struct exercise *x)
{
    allocate(x, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
}

static void do_zero(struct exercise *x)
{
    allocate(x, FALLOC_FL_ZERO_RANGE);
}

static void do_copy(struct exercise *x)
{
    choose(x, x->n_bytes);
    off_t from = (off_t)x->offset, to = (off_t)random_below(x, N_MAX - x->n);
    const off_t gap = from > to ? from - to : to - from;
    if (x->n == 0 || (size_t)gap < x->n)
        return;
    const size_t start = x->offset, target = (size_t)to;
    const ssize_t n = copy_file_range(x->fd, &from, x->fd, &to, x->n, 0);
    if (n <= 0)
        fail(x, "bytes that were copied:", (size_t)n);
    grow(x, target + (size_t)n);
    memcpy(x->model + target, x->model + start, (size_t)n);
}

static void look_at_all(struct exercise *x)
{
    struct stat st;
    if (fstat(x->fd, &st) < 0 || (size_t)st.st_size != x->n_bytes)
        fail(x, "the size is", (size_t)st.st_size);
    const ssize_t n = pread(x->fd, x->buffer, N_MAX, 0);
    if (n != (ssize_t)x->n_bytes)
        fail(x, "bytes of all:", (size_t)n);
    compare(x, x->buffer, 0, x->n_bytes);
}

static void do_reopen(struct exercise *x)
{
    x->n = 0;
    if (close(x->fd) < 0)
        fail(x, "close fails", 0);
    x->fd = open(x->path, O_RDWR | O_CLOEXEC);
    if (x->fd < 0)
        fail(x, "open fails", 0);
    look_at_all(x);
}

static const struct {
    const char *name;
    void (*run)(struct exercise *x);
    unsigned weight;
} operations[] = {
    {"read", do_read, 25},
    {"write", do_write, 25},
    {"mapped read", do_mapped_read, 12},
    {"mapped write", do_mapped_write, 12},
    {"truncation", do_truncate, 8},
    {"allocation", do_allocate, 3},
    {"reservation", do_reserve, 2},
    {"hole", do_punch, 4},
    {"zeroing", do_zero, 3},
    {"copy", do_copy, 5},
    {"reopening", do_reopen, 1},
};

static void run_one(struct exercise *x)
{
    size_t at = random_below(x, 100), i = 0;
    while (at >= operations[i].weight)
        at -= operations[i++].weight;
    x->name = operations[i].name;
    operations[i].run(x);
    x->n_done++;
    if (x->n_done % N_BETWEEN_LOOKS == 0)
        look_at_all(x);
}

static bool write_model(const struct exercise *x, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return false;
    const bool is_written = fwrite(x->model, 1, x->n_bytes, file) == x->n_bytes;
    return fclose(file) == 0 && is_written;
}

int main(int argc, char **argv)
{
    static struct exercise x = {.name = "start"};
    if (argc != 5) {
        fputs("usage: exercise FILE MODEL N_OPERATIONS SEED\n", stderr);
        return 2;
    }
    x.path = argv[1];
    x.random = strtoull(argv[4], NULL, 10) * 0x9e3779b97f4a7c15u + 1;
    x.fd = open(x.path, O_RDWR | O_CLOEXEC);
    const ssize_t n_first = x.fd < 0 ? -1 : read(x.fd, x.model, N_MAX);
    if (n_first < 0)
        fail(&x, "cannot be read", 0);
    x.n_bytes = (size_t)n_first;
    for (uint64_t n = strtoull(argv[3], NULL, 10); n > 0; n--)
        run_one(&x);
    set_size(&x, (size_t)n_first);
    look_at_all(&x);
    return close(x.fd) == 0 && write_model(&x, argv[2]) ? 0 : 1;
}
