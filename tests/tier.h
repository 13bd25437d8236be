/* Two tiers of tests. The daily ones (scripts/test) must end within minutes; the nightly ones (scripts/nightly, which
 * sets WEFT_TESTS=nightly) run everything. A test that is too long for every day calls nightly_only() first, or takes
 * fewer sizes, orders or rounds unless is_nightly(). */
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

/* The limit of everything that must end by itself and is not itself about a limit: long enough for a machine that has
 * a hundred other things to do. */
enum { TEST_SECONDS_MOST = 1800 };

/* Built for a sanitizer: what only repeats plain code at large shapes is left out. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED
#endif
#endif

static inline bool is_sanitized(void)
{
#ifdef SANITIZED
    return true;
#else
    return false;
#endif
}

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
