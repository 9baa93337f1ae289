# SPDX-License-Identifier: MIT
"""Writes the C source of the module's binary part: native.py HEADER TARGET. cffi compiles what weightfs.h declares, and a little of ours."""
import re
import sys

import cffi

# What C does better than Python: callbacks that rarely reach it, and capsules of DLPack.
HELPERS = r'''
#include <stdlib.h>
#include <time.h>
#include <weightfs.h>

/* Python is asked every 100 ms, and at the end: who waits for its lock does not read. */
struct weightfs_asking {
    int64_t next_ms;
    void *call;
};

static int weightfs_progress(void *call, uint64_t n_done, uint64_t n_total);

static int weightfs_ask(void *ctx, uint64_t n_done, uint64_t n_total)
{
    struct weightfs_asking *asking = ctx;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    const int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (now_ms < asking->next_ms && (n_total == 0 || n_done != n_total))
        return 0;
    asking->next_ms = now_ms + 100;
    return weightfs_progress(asking->call, n_done, n_total);
}

static void weightfs_notice(void *call, const char *text);

static void weightfs_tell(void *ctx, const char *text)
{
    weightfs_notice(((struct weightfs_asking *)ctx)->call, text);
}

/* DLPack, version 0: the struct that its consumers know. */
struct dl_tensor {
    struct {
        void *data;
        struct { int32_t type, id; } device;
        int32_t rank;
        struct { uint8_t code, bits; uint16_t lanes; } dtype;
        int64_t *shape, *strides;
        uint64_t offset;
    } tensor;
    void *owner;
    void (*deleter)(struct dl_tensor *);
};

static void dl_free(struct dl_tensor *dl)
{
    free(dl->tensor.data);
    free(dl);
}

/* Makes one with memory for the elements, aligned to 64 bytes; NULL: no memory. */
static struct dl_tensor *weightfs_dl_new(uint64_t n_bytes, int code, int bits, size_t rank, const uint64_t *dims)
{
    struct dl_tensor *dl = calloc(1, sizeof(*dl) + rank * sizeof(int64_t));
    if (dl == NULL || posix_memalign(&dl->tensor.data, 64, n_bytes + 1) != 0) {
        free(dl);
        return NULL;
    }
    dl->tensor.device.type = 1; /* kDLCPU */
    dl->tensor.rank = (int32_t)rank;
    dl->tensor.dtype.code = (uint8_t)code;
    dl->tensor.dtype.bits = (uint8_t)bits;
    dl->tensor.dtype.lanes = 1;
    dl->tensor.shape = (int64_t *)(dl + 1);
    for (size_t i = 0; i < rank; i++)
        dl->tensor.shape[i] = (int64_t)dims[i];
    dl->deleter = dl_free;
    return dl;
}

static void *weightfs_dl_data(struct dl_tensor *dl)
{
    return dl->tensor.data;
}

/* A consumer renames the capsule, and calls the deleter itself. */
static void capsule_free(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        dl_free(PyCapsule_GetPointer(capsule, "dltensor"));
}

static void *weightfs_dl_capsule_free(void)
{
    return (void *)(uintptr_t)capsule_free;
}

static void weightfs_dl_free(struct dl_tensor *dl)
{
    dl_free(dl);
}
'''

DECLARATIONS = '''
struct weightfs_asking {
    int64_t next_ms;
    void *call;
};
int weightfs_ask(void *ctx, uint64_t n_done, uint64_t n_total);
void weightfs_tell(void *ctx, const char *text);
extern "Python" {
    int weightfs_progress(void *call, uint64_t n_done, uint64_t n_total);
    void weightfs_notice(void *call, const char *text);
}
struct dl_tensor;
struct dl_tensor *weightfs_dl_new(uint64_t n_bytes, int code, int bits, size_t rank, const uint64_t *dims);
void *weightfs_dl_data(struct dl_tensor *dl);
void *weightfs_dl_capsule_free(void);
void weightfs_dl_free(struct dl_tensor *dl);
'''


def declarations(header):
    """Returns what cffi reads of the header: it has no preprocessor, but knows constants."""
    text = re.sub(r'/\*.*?\*/', '', header, flags=re.S)
    text = re.sub(r'#ifdef __cplusplus.*?#endif', '', text, flags=re.S)
    return re.sub(r'^#(?!define \w+ \d+$).*$', '', text, flags=re.M)


def main(header, target):
    with open(header, encoding='utf-8') as file:
        text = declarations(file.read())
    ffi = cffi.FFI()
    ffi.cdef(text + DECLARATIONS)
    ffi.set_source('weightfs._native', HELPERS)
    ffi.emit_c_code(target)


if __name__ == '__main__':
    main(*sys.argv[1:])
