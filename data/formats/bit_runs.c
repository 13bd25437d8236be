/* Decodes bit-packed integers of any width: Parquet's levels, dictionary indices and
 * differences. */
#include "data/formats/parquet_inside.h"

#include <string.h>

static bool varint(const u8 **at, const u8 *end, u64 *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        u8 byte = *(*at)++;
        *out |= (u64)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

/* Reads `width` <= 64 bits at `bit`. Bits beyond `end` read as 0. */
static u64 bits_at(const u8 *begin, const u8 *end, i64 bit, int width)
{
    const u8 *at = begin + bit / 8;
    int shift = (int)(bit & 7);
    u64 low = 0;
    if (end - at >= 8)
        memcpy(&low, at, 8);
    else if (at < end)
        memcpy(&low, at, (size_t)(end - at));
    low >>= shift;
    if (shift + width > 64 && end - at > 8)
        low |= (u64)at[8] << (64 - shift);
    return width == 64 ? low : low & (((u64)1 << width) - 1);
}

/* ---- Runs ---- */

void bit_runs_open(struct bit_runs *r, const u8 *at, const u8 *end, int width)
{
    *r = (struct bit_runs){.at = at, .end = end, .width = width};
}

/* Begins the next run. The last packed run may be cut off by the end of the page within its last
 * group of 8. */
static bool begin_run(struct bit_runs *r)
{
    u64 head;
    if (!varint(&r->at, r->end, &head) || head >> 1 > INT64_MAX / 64)
        return false;
    i64 room = r->end - r->at, bytes = (r->width + 7) / 8;
    r->packed = NULL;
    r->bit = 0;
    if (head & 1) {
        i64 groups = (i64)(head >> 1);
        r->packed = r->at;
        r->left = groups * 8;
        if (r->width)
            r->left = min_i64(r->left, room * 8 / r->width);
        r->at += min_i64(room, groups * r->width);
        return r->left > 0;
    }
    if (bytes > room)
        return false;
    r->left = (i64)(head >> 1);
    r->value = 0;
    memcpy(&r->value, r->at, (size_t)bytes);
    r->at += bytes;
    return r->left > 0;
}

bool bit_runs_next(struct bit_runs *r, u32 *out)
{
    if (r->left == 0 && !begin_run(r))
        return false;
    r->left--;
    if (r->packed) {
        r->value = (u32)bits_at(r->packed, r->end, r->bit, r->width);
        r->bit += r->width;
    }
    *out = r->value;
    return true;
}

/* ---- Differences ---- */

static u64 unzigzag(u64 value)
{
    return value >> 1 ^ -(value & 1);
}

bool deltas_open(struct delta_runs *d, const u8 *at, const u8 *end)
{
    u64 block, minis, count, first;
    *d = (struct delta_runs){.at = at, .end = end};
    if (!varint(&d->at, end, &block) || !varint(&d->at, end, &minis) || !varint(&d->at, end, &count) ||
        !varint(&d->at, end, &first))
        return false;
    if (block == 0 || block > 1 << 20 || minis == 0 || block % (32 * minis) || count > INT32_MAX)
        return false;
    d->left = (i64)count;
    d->minis = (i64)minis;
    d->per_mini = (i64)(block / minis);
    d->value = unzigzag(first);
    d->mini = d->minis;
    return true;
}

static bool begin_block(struct delta_runs *d)
{
    u64 least;
    if (!varint(&d->at, d->end, &least) || d->end - d->at < d->minis)
        return false;
    d->least = unzigzag(least);
    d->widths = d->at;
    d->at += d->minis;
    d->mini = 0;
    return true;
}

/* Begins the next miniblock. Miniblocks after the last value have a width but no data. */
static bool begin_mini(struct delta_runs *d)
{
    if (d->mini == d->minis && !begin_block(d))
        return false;
    i64 bytes = d->per_mini * d->widths[d->mini] / 8;
    if (d->widths[d->mini] > 64 || bytes > d->end - d->at)
        return false;
    d->bit = 0;
    d->in_mini = d->per_mini;
    return true;
}

static void end_mini(struct delta_runs *d)
{
    d->at += d->per_mini * d->widths[d->mini] / 8;
    d->mini++;
}

bool deltas_next(struct delta_runs *d, u64 *out)
{
    if (d->left == 0)
        return false;
    d->left--;
    if (d->begun) {
        if (d->in_mini == 0 && !begin_mini(d))
            return false;
        int width = d->widths[d->mini];
        d->value += d->least + bits_at(d->at, d->end, d->bit, width);
        d->bit += width;
        if (--d->in_mini == 0)
            end_mini(d);
    }
    d->begun = true;
    *out = d->value;
    return true;
}

const u8 *deltas_end(struct delta_runs *d)
{
    i64 left = d->left - 1;
    for (; left > 0; left -= d->per_mini) {
        if (!begin_mini(d))
            return NULL;
        end_mini(d);
    }
    return d->at;
}
