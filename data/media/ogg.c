/* Checks that the end of an Ogg file (RFC 3533) is there. */
#include "data/media/whole.h"
#include <pthread.h>
#include <string.h>

enum { FIRST = 2, LAST = 4 }; /* flags of a page */
struct ogg_page {
    i64 at, end;
    i64 granule; /* time at its end, in units of the codec; -1: no packet ends here */
    u32 serial;  /* number of its stream */
    u8 flags;
    i64 packets;     /* packets that end here */
    bool ends_whole; /* the last packet does */
};

/* Parses the page at `at`. Its end lies beyond `count` if the page is cut. */
static bool ogg_page(struct ogg_page *out, const u8 *bytes, i64 count, i64 at)
{
    if (!bytes_match(bytes, count, at, "OggS", 4))
        return false;
    i64 segments = at + 27 <= count ? bytes[at + 26] : 0;
    *out = (struct ogg_page){.at = at, .end = at + 27 + segments};
    if (out->end > count)
        return true;
    for (i64 i = 0; i < segments; i++) {
        u8 length = bytes[at + 27 + i];
        out->end += length;
        out->packets += length < 255;
        out->ends_whole = length < 255;
    }
    out->flags = bytes[at + 5];
    out->granule = (i64)little_endian(bytes + at + 6, 8);
    out->serial = (u32)little_endian(bytes + at + 14, 4);
    return true;
}

enum ogg_codec { OGG_OTHER, OGG_OPUS, OGG_VORBIS, OGG_FLAC, OGG_THEORA };
struct ogg_stream {
    enum ogg_codec codec;
    /* Samples. Vorbis: of short and of long blocks; FLAC: of each; 0: not all are of one size. */
    i64 blocks[2];
    i64 block;  /* Vorbis: of the packet before; 0: none */
    int shift;  /* Theora: times are the key frame's, shifted, plus frames since */
    u8 head[2]; /* of a packet that goes on */
    bool goes_on;
    i64 time;            /* at the end of the pages so far */
    i64 packets, length; /* the least of the pages so far */
};

/* Reads the first packet of a stream. */
static struct ogg_stream begin_stream(const u8 *bytes, i64 count)
{
    struct ogg_stream stream = {.packets = INT64_MAX, .length = INT64_MAX};
    if (bytes_match(bytes, count, 0, "OpusHead", 8))
        stream.codec = OGG_OPUS;
    if (bytes_match(bytes, count, 0, "\1vorbis", 7) && count > 28) {
        stream.codec = OGG_VORBIS;
        stream.blocks[0] = (i64)1 << (bytes[28] & 15);
        stream.blocks[1] = (i64)1 << (bytes[28] >> 4);
    }
    if (bytes_match(bytes, count, 0, "\177FLAC", 5) && count > 20) {
        stream.codec = OGG_FLAC;
        stream.blocks[0] = memcmp(bytes + 17, bytes + 19, 2) == 0 ? (i64)big_endian(bytes + 17, 2) : 0;
    }
    if (bytes_match(bytes, count, 0, "\200theora", 7) && count > 41) {
        stream.codec = OGG_THEORA;
        stream.shift = (bytes[40] & 3) << 3 | bytes[41] >> 5;
    }
    return stream;
}

/* Samples of a packet by its first bytes; 0 if it is a header or they do not tell. */
static i64 packet_samples(struct ogg_stream *stream, const u8 head[2])
{
    static const i64 opus[32] = {480, 960, 1920, 2880, 480, 960, 1920, 2880, 480, 960, 1920, 2880, 480, 960, 480, 960,
                                 120, 240, 480,  960,  120, 240, 480,  960,  120, 240, 480,  960,  120, 240, 480, 960};
    i64 before = stream->block;
    switch (stream->codec) {
    case OGG_OPUS: /* RFC 6716, 3.1 and 3.2 */
        return opus[head[0] >> 3] * ((head[0] & 3) == 3 ? head[1] & 63 : (head[0] & 3) ? 2 : 1);
    case OGG_VORBIS: /* Vorbis I, 4.3; mode 0 is for short blocks and mode 1 for long ones */
        if (head[0] & 1)
            return 0;
        stream->block = stream->blocks[head[0] >> 1 & 1];
        return before ? (before + stream->block) / 4 : 0;
    case OGG_FLAC:
        return head[0] == 0xff ? stream->blocks[0] : 0;
    default:
        return 0;
    }
}

/* Samples of the packets that end on a page. */
static i64 page_samples(struct ogg_stream *stream, const u8 *page)
{
    const u8 *data = page + 27 + page[26];
    i64 samples = 0;
    for (i64 i = 0; i < page[26]; data += page[27 + i++]) {
        u8 length = page[27 + i];
        if (!stream->goes_on) {
            stream->head[0] = length > 0 ? data[0] : 1;
            stream->head[1] = length > 1 ? data[1] : 0;
        }
        stream->goes_on = length == 255;
        if (!stream->goes_on)
            samples += packet_samples(stream, stream->head);
    }
    return samples;
}

/* Takes the next page of a stream. True if its writer may have ended the stream with it: the end is
 * trimmed to the last sample, or the page is smaller than any in front of it, because writers begin
 * a new page when one is full. */
static bool take_page(struct ogg_stream *stream, const u8 *bytes, const struct ogg_page *page)
{
    i64 samples = page_samples(stream, bytes + page->at), mask = ((i64)1 << stream->shift) - 1;
    if (page->granule <= 0) /* headers, or the middle of a packet */
        return false;
    i64 time = (page->granule >> stream->shift) + (stream->shift ? page->granule & mask : 0);
    i64 length = time - stream->time;
    bool any = stream->packets < INT64_MAX;
    bool smaller = any && page->packets < stream->packets && length < stream->length;
    stream->packets = min_i64(stream->packets, page->packets);
    stream->length = min_i64(stream->length, length);
    stream->time = time;
    return page->ends_whole && (length < samples || smaller);
}

/* Finds the last page of the stream that begins at page `first`, and returns whether its writer may
 * have ended the stream there. */
static bool stream_end(struct ogg_page *last, const u8 *bytes, i64 count, const struct ogg_page *first)
{
    i64 begin = first->at + 27 + bytes[first->at + 26];
    struct ogg_stream stream = begin_stream(bytes + begin, first->end - begin);
    bool ended = false;
    *last = *first;
    for (struct ogg_page page = *first; ogg_page(&page, bytes, count, page.end);)
        if (page.serial == first->serial && page.flags & FIRST)
            break; /* another stream with the same number */
        else if (page.serial == first->serial) {
            ended = take_page(&stream, bytes, &page);
            *last = page;
        }
    return ended;
}

/* Walks all pages to the last. */
static void walk(struct ogg_page *last, const u8 *bytes, i64 count)
{
    *last = (struct ogg_page){0};
    for (struct ogg_page page; last->end <= count && ogg_page(&page, bytes, count, last->end);)
        *last = page;
}

/* True if all streams were ended, one or more of them without a mark. `out`: the last page of one
 * of these. */
static bool ended_unmarked(struct ogg_page *out, const u8 *bytes, i64 count)
{
    struct ogg_page page = {0}, last;
    bool any = false;
    while (ogg_page(&page, bytes, count, page.end)) {
        if (!(page.flags & FIRST))
            continue;
        bool ended = stream_end(&last, bytes, count, &page), marked = last.flags & LAST;
        if (!ended && !marked)
            return false;
        if (!marked)
            *out = last;
        any |= !marked;
    }
    return any;
}

/* Where a second group of streams begins behind the first one, if that is more than one sound;
 * 0: nowhere. libav goes on with a lone sound and loses the others. */
static i64 second_film(const u8 *bytes, i64 count)
{
    i64 streams = 0;
    bool begun = false, film = false;
    for (struct ogg_page page = {0}; ogg_page(&page, bytes, count, page.end) && page.end <= count;) {
        if (!(page.flags & FIRST)) {
            begun = true;
            continue;
        }
        if (begun)
            return film || streams > 1 ? page.at : 0;
        i64 begin = page.at + 27 + bytes[page.at + 26];
        film |= begin_stream(bytes + begin, page.end - begin).codec == OGG_THEORA;
        streams++;
    }
    return 0;
}

int check_ogg(const u8 *bytes, i64 count, const char *origin)
{
    struct ogg_page last, unmarked;
    if (check_alone(bytes, count, second_film(bytes, count), origin) < 0)
        return -1;
    walk(&last, bytes, count);
    if (last.end > count)
        return cut_short(origin, "an Ogg page", (u64)last.end, count);
    i64 left = count - last.end;
    bool cut = left > 0 && left < 4 && memcmp(bytes + last.end, "OggS", (size_t)left) == 0;
    if (last.flags & LAST || (!cut && ended_unmarked(&unmarked, bytes, count)))
        return 0;
    return error_set("%s: cut short: the last page of an Ogg stream is missing behind byte %lld; copy it again", origin,
                     (long long)last.end);
}

/* ---- Checksums ---- */

static u32 sums[256];

static void fill_sums(void)
{
    for (u32 i = 0; i < 256; i++) {
        sums[i] = i << 24;
        for (int bit = 0; bit < 8; bit++)
            sums[i] = sums[i] << 1 ^ (sums[i] >> 31 ? 0x04c11db7u : 0);
    }
}

/* Goes on with a CRC-32 of 0x04c11db7, not reflected, from 0. */
static u32 sum_of(u32 sum, const u8 *bytes, i64 count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_sums);
    for (i64 i = 0; i < count; i++)
        sum = sum << 8 ^ sums[sum >> 24 ^ bytes[i]];
    return sum;
}

static bool is_page_whole(const u8 *bytes, const struct ogg_page *page)
{
    static const u8 zeros[4];
    const u8 *at = bytes + page->at;
    u32 sum = sum_of(sum_of(sum_of(0, at, 22), zeros, 4), at + 26, page->end - page->at - 26);
    return sum == (u32)little_endian(at + 22, 4);
}

/* Takes a page that begins a sound. False for other content, and for one of several streams of a film. */
static bool begin_sound(struct ogg_sounds *out, const u8 *bytes, const struct ogg_page *page, i64 first_end)
{
    i64 begin = page->at + 27 + bytes[page->at + 26];
    enum ogg_codec codec = begin_stream(bytes + begin, page->end - begin).codec;
    if ((codec != OGG_VORBIS && codec != OGG_OPUS) || page->at == first_end || out->count == OGG_SOUNDS_MOST)
        return false;
    out->begins[out->count++] = page->at;
    return true;
}

void ogg_sounds_find(struct ogg_sounds *out, const u8 *bytes, i64 count)
{
    u32 serial = 0;
    i64 end = 0, first_end = -1;
    *out = (struct ogg_sounds){0};
    for (struct ogg_page page = {0}; ogg_page(&page, bytes, count, page.end); end = page.end) {
        bool first = page.flags & FIRST, whole = page.end <= count && is_page_whole(bytes, &page);
        if (!whole || (first ? !begin_sound(out, bytes, &page, first_end) : page.serial != serial)) {
            out->count = 0;
            return;
        }
        serial = page.serial;
        first_end = first ? page.end : first_end;
    }
    out->begins[out->count] = end;
}

i64 ogg_opus_head(u8 page[OGG_HEAD_MOST], const u8 *bytes, i64 count)
{
    struct ogg_page first;
    bool known = ogg_page(&first, bytes, count, 0) && first.end <= min_i64(count, OGG_HEAD_MOST);
    i64 begin = known ? 27 + bytes[26] : 0;
    if (!known || first.end - begin < 19 || begin_stream(bytes + begin, first.end - begin).codec != OGG_OPUS)
        return 0;
    memcpy(page, bytes, (size_t)first.end);
    for (int i = 0; i < 4; i++)
        page[begin + 12 + i] = (u8)(48000 >> 8 * i);
    memset(page + 22, 0, 4);
    u32 sum = sum_of(0, page, first.end);
    for (int i = 0; i < 4; i++)
        page[22 + i] = (u8)(sum >> 8 * i);
    return first.end;
}

struct ogg_mark ogg_mark_end(const u8 *bytes, i64 count)
{
    struct ogg_page last, unmarked;
    struct ogg_mark mark = {.at = -1};
    walk(&last, bytes, count);
    if (last.end > count || last.flags & LAST || !ended_unmarked(&unmarked, bytes, count))
        return mark;
    mark.at = unmarked.at;
    memcpy(mark.header, bytes + unmarked.at, sizeof mark.header);
    mark.header[5] |= LAST;
    memset(mark.header + 22, 0, 4);
    u32 sum = sum_of(sum_of(0, mark.header, 26), bytes + unmarked.at + 26, unmarked.end - unmarked.at - 26);
    for (int i = 0; i < 4; i++)
        mark.header[22 + i] = (u8)(sum >> 8 * i);
    return mark;
}
