/* tests: mirrors the folders of the program, so the tests of train/ are in tests/train/. This is
 * the folder's main header. In: a build. Out: exit statuses and messages of cmocka. A test that
 * writes files has a folder of scratch.h, which is removed at the end of its group.
 *
 * A test is TEST(name) { ... }. It registers itself: main calls tests_run, which runs the tests of
 * its file in the order in which they stand there.
 *
 * Where is what, to write a test:
 *   scratch.h           a folder, checks of status and error text; bad_input.h: damaged files
 *   device.h            the plain and the guarded CPU, values to and from a device
 *   toy.h               a small model, and random batches; toy_train.h: steps on them
 *   *_fixture.h         shards, streams, media, models and tokenizers to read
 *   ranks.h             several ranks; weft_process.h: the program as a process; http_server.h
 *   cases.h             cases as data: one a line of a file below cases/
 *   files.h             files of folders: to write, to compare
 *   golden.h            numbers of reference implementations in golden/; runner.c: one program
 *   emulator/, amx/     the emulated GPU and tiles; fuzz/: fuzz targets
 *
 * Two tiers of tests. The daily ones (scripts/test) must end within minutes; the nightly ones
 * (scripts/nightly, which sets WEFT_TESTS=nightly) run everything. A test that is too long for
 * daily runs calls nightly_only() first, or takes fewer sizes, orders or rounds unless
 * is_nightly(). */
#ifndef WEFT_TEST_H
#define WEFT_TEST_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __cplusplus
extern "C" {
#endif
#include <cmocka.h>
#ifdef __cplusplus
}
#endif

#include "tests/sanitized.h"

/* Time limit for anything that must end by itself, unless the limit itself is tested. Large enough
 * for a machine under heavy load. */
enum { TEST_SECONDS_MOST = 1800 };

static inline bool is_nightly(void)
{
    const char *tests = getenv("WEFT_TESTS");
    return tests && strcmp(tests, "nightly") == 0;
}

/* Skips the test unless this is a nightly run. */
static inline void nightly_only(void)
{
    if (!is_nightly()) {
        print_message("nightly only: set WEFT_TESTS=nightly to run it\n");
        skip();
    }
}

/* ---- The tests of a file ---- */

struct file_test {
    struct CMUnitTest test;
    int groups, line;
    struct file_test *next;
};
static struct file_test *file_tests; /* by line */

enum { TESTS_PLAIN = 1 }; /* the group of TEST and TEST_WITH */

static inline void file_test_add(struct file_test *test)
{
    struct file_test **at = &file_tests;
    while (*at && (*at)->line < test->line)
        at = &(*at)->next;
    test->next = *at;
    *at = test;
}

/* Opens the definition of a test, which may use `state` as any function of cmocka. */
#define TEST(name) TEST_REGISTERED(name, NULL, NULL, TESTS_PLAIN)
/* With a setup and a teardown of its own; NULL: none. */
#define TEST_WITH(name, setup, teardown) TEST_REGISTERED(name, setup, teardown, TESTS_PLAIN)
/* Of some groups alone: a sum of TESTS_PLAIN and of further bits that the file names. */
#define TEST_IN(groups, name) TEST_REGISTERED(name, NULL, NULL, groups)
#define TEST_REGISTERED(name, setup, teardown, groups)                                                                 \
    static void name(void **state);                                                                                    \
    static void __attribute__((constructor)) register_##name(void)                                                     \
    {                                                                                                                  \
        static struct file_test test = {{#name, name, setup, teardown, NULL}, groups, __LINE__, NULL};                 \
        file_test_add(&test);                                                                                          \
    }                                                                                                                  \
    static void name(void **state __attribute__((unused)))

/* Runs the tests that are in one of the groups, between the group's setup and teardown (NULL: none).
 * cmocka calls them `name`. Returns how many failed. */
static inline int tests_run_group(int groups, const char *name, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    size_t count = 0, most = 0;
    for (const struct file_test *t = file_tests; t; t = t->next)
        most++;
    struct CMUnitTest *tests = (struct CMUnitTest *)calloc(most + 1, sizeof *tests);
    for (const struct file_test *t = file_tests; t && tests; t = t->next)
        if (t->groups & groups)
            tests[count++] = t->test;
    if (count == 0)
        print_error("%s: no test has registered itself: write TEST(name) { ... }\n", name);
    int failed = count > 0 ? _cmocka_run_group_tests(name, tests, count, setup, teardown) : 1;
    free(tests);
    return failed;
}

/* The same for the group of TEST and TEST_WITH. */
static inline int tests_run_as(const char *name, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    return tests_run_group(TESTS_PLAIN, name, setup, teardown);
}

static inline int tests_run(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    return tests_run_as("tests", setup, teardown);
}

#endif
