/* Writes tar archives into a text buffer. */
#ifndef WEFT_TESTS_TAR_TEXT_H
#define WEFT_TESTS_TAR_TEXT_H
#include "core/core.h"

#include <stdio.h>
#include <string.h>

static inline void tar_member_of(struct buffer *out, const char *name, const char *bytes, i64 count)
{
    char header[512] = {0};
    u32 sum = 0;
    snprintf(header, 100, "%s", name);
    memcpy(header + 100, "0000444\0000000000\0000000000", 23);
    snprintf(header + 124, 12, "%011llo", (unsigned long long)count);
    memcpy(header + 136, "00000000000", 11);
    memset(header + 148, ' ', 8);
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    for (i64 i = 0; i < 512; i++)
        sum += (u8)header[i];
    snprintf(header + 148, 8, "%06o", sum);
    buffer_append(out, header, 512);
    buffer_append(out, bytes, count);
    memset(header, 0, 512);
    buffer_append(out, header, round_up(count, 512) - count);
}

static inline void tar_member(struct buffer *out, const char *name, const char *bytes)
{
    tar_member_of(out, name, bytes, (i64)strlen(bytes));
}

static inline void tar_end(struct buffer *out)
{
    static const char zeros[1024];
    buffer_append(out, zeros, sizeof zeros);
}
#endif
