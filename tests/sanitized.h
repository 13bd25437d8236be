/* True if the address or the thread sanitizer instruments
 * this program: it uses extra memory and is slow. */
#ifndef WEFT_SANITIZED_H
#define WEFT_SANITIZED_H
#include <stdbool.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
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

#endif
