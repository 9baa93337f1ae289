/* SPDX-License-Identifier: MIT */
/*
 * Runs a fuzz target over the files and folders that are given, so that every input ever kept is an
 * ordinary test. libFuzzer brings a main of its own.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static int run_file(const char *path, size_t n_bytes)
{
    FILE *file = fopen(path, "rb");
    /* Of just the size, so that a sanitizer sees a look beyond the end. */
    uint8_t *bytes = malloc(n_bytes > 0 ? n_bytes : 1);
    if (file == NULL || bytes == NULL || fread(bytes, 1, n_bytes, file) != n_bytes) {
        fprintf(stderr, "cannot read %s\n", path);
        return 1;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, n_bytes);
    free(bytes);
    return 0;
}

static int run(const char *path, unsigned *n_files)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        perror(path);
        return 1;
    }
    if (!S_ISDIR(st.st_mode)) {
        ++*n_files;
        return run_file(path, (size_t)st.st_size);
    }
    DIR *dir = opendir(path);
    int failed = dir == NULL;
    for (const struct dirent *entry; !failed && (entry = readdir(dir)) != NULL;) {
        char below[4096];
        snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            failed = run(below, n_files);
    }
    if (dir != NULL)
        closedir(dir);
    return failed;
}

int main(int argc, char **argv)
{
    unsigned n_files = 0;
    for (int i = 1; i < argc; i++) {
        if (run(argv[i], &n_files) != 0)
            return 1;
    }
    printf("%u inputs\n", n_files);
    return n_files == 0;
}
