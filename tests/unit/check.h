/* SPDX-License-Identifier: MIT */
/*
 * Checks for unit tests, with TAP output. Not assert: they stay in release builds, and a failed one
 * does not end the program. A test is a function; each is one line of TAP.
 */
#ifndef WFS_CHECK_H
#define WFS_CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static struct {
    unsigned n_tests, n_failed_tests;
    unsigned n_failed; /* checks of the running test */
} check_state;

static inline bool check_at(const char *file, int line, bool is_ok, const char *text)
{
    if (!is_ok) {
        check_state.n_failed++;
        printf("# %s:%d: %s\n", file, line, text);
    }
    return is_ok;
}

static inline bool check_int_at(const char *file, int line, int64_t got, int64_t want,
                                const char *text)
{
    char message[256];
    snprintf(message, sizeof(message), "%.150s: got %" PRId64 ", want %" PRId64, text, got, want);
    return check_at(file, line, got == want, message);
}

static inline bool check_uint_at(const char *file, int line, uint64_t got, uint64_t want,
                                 const char *text)
{
    char message[256];
    snprintf(message, sizeof(message), "%.150s: got %" PRIu64 ", want %" PRIu64, text, got, want);
    return check_at(file, line, got == want, message);
}

static inline bool check_str_at(const char *file, int line, const char *got, const char *want,
                                const char *text)
{
    char message[1024];
    snprintf(message, sizeof(message), "%.100s: got \"%.400s\", want \"%.400s\"", text,
             got ? got : "(null)", want);
    return check_at(file, line, got != NULL && strcmp(got, want) == 0, message);
}

static inline bool check_bytes_at(const char *file, int line, const void *got, const void *want,
                                  size_t n_bytes, const char *text)
{
    const uint8_t *a = got, *b = want;
    size_t i = 0;
    while (i < n_bytes && a[i] == b[i])
        i++;
    char message[256];
    snprintf(message, sizeof(message), "%.150s: byte %zu of %zu differs", text, i, n_bytes);
    return check_at(file, line, i == n_bytes, message);
}

/* Each is true when it held. */
#define check(condition) check_at(__FILE__, __LINE__, (condition), #condition)
#define check_int(got, want) check_int_at(__FILE__, __LINE__, (got), (want), #got)
#define check_uint(got, want) check_uint_at(__FILE__, __LINE__, (got), (want), #got)
#define check_str(got, want) check_str_at(__FILE__, __LINE__, (got), (want), #got)
#define check_bytes(got, want, n_bytes)                                                            \
    check_bytes_at(__FILE__, __LINE__, (got), (want), (n_bytes), #got)

static inline void check_run_named(const char *name, void (*test)(void))
{
    check_state.n_failed = 0;
    test();
    check_state.n_tests++;
    const bool is_ok = check_state.n_failed == 0;
    check_state.n_failed_tests += is_ok ? 0 : 1;
    printf("%s %u - %s\n", is_ok ? "ok" : "not ok", check_state.n_tests, name);
    fflush(stdout);
}

#define check_run(test) check_run_named(#test, test)

/* Prints the plan; the exit code of main. */
static inline int check_done(void)
{
    printf("1..%u\n", check_state.n_tests);
    return check_state.n_failed_tests == 0 ? 0 : 1;
}

#endif
