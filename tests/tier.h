/* tests: mirrors the folders of the program, so the tests of train/ are in tests/train/. This is
 * the folder's main header. In: a build. Out: exit statuses and messages of cmocka. A test that
 * writes files has a folder of scratch.h, which is removed at the end of its group.
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
#ifndef WEFT_TIER_H
#define WEFT_TIER_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

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

#endif
