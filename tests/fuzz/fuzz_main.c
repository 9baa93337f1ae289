/* SPDX-License-Identifier: MIT */
/*
 * Runs a fuzz target over the files and folders that are given, so that every input ever kept is an
 * ordinary test. With --damage each is cut at every length and has each byte changed, near its
 * ends. libFuzzer brings a main of its own.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static bool is_damaging;
static unsigned long n_inputs;

/* Of just the size, so that a sanitizer sees a look beyond the end. */
static void run_copy(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    if (copy == NULL)
        abort();
    memcpy(copy, bytes, n_bytes);
    LLVMFuzzerTestOneInput(copy, n_bytes);
    free(copy);
    n_inputs++;
}

static void run_damaged(uint8_t *bytes, size_t n_bytes)
{
    enum { N_NEAR = 4096 };
    for (size_t i = 0; i < n_bytes; i++) {
        if (i >= N_NEAR && n_bytes - i > N_NEAR)
            i = n_bytes - N_NEAR;
        const uint8_t byte = bytes[i];
        const uint8_t others[] = {
            0, 0xff, byte ^ 1, byte ^ 0x80, (uint8_t)(byte + 1), (uint8_t)(byte - 1)};
        run_copy(bytes, i);
        for (size_t j = 0; j < sizeof(others); j++) {
            bytes[i] = others[j];
            run_copy(bytes, n_bytes);
        }
        bytes[i] = byte;
    }
}

static int run_file(const char *path, size_t n_bytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(n_bytes + 1);
    if (file == NULL || bytes == NULL || fread(bytes, 1, n_bytes, file) != n_bytes) {
        fprintf(stderr, "cannot read %s\n", path);
        return 1;
    }
    fclose(file);
    run_copy(bytes, n_bytes);
    if (is_damaging)
        run_damaged(bytes, n_bytes);
    free(bytes);
    return 0;
}

static int run(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        perror(path);
        return 1;
    }
    if (!S_ISDIR(st.st_mode))
        return run_file(path, (size_t)st.st_size);
    DIR *dir = opendir(path);
    int failed = dir == NULL;
    for (const struct dirent *entry; !failed && (entry = readdir(dir)) != NULL;) {
        char below[4096];
        snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            failed = run(below);
    }
    if (dir != NULL)
        closedir(dir);
    return failed;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--damage") == 0)
            is_damaging = true;
        else if (run(argv[i]) != 0)
            return 1;
    }
    printf("%lu inputs\n", n_inputs);
    return n_inputs == 0;
}
