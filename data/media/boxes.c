/* Checks that an MP4, QuickTime or HEIF file (ISO/IEC 14496-12) holds all samples that it lists.
 * Bytes behind the last box are allowed. */
#include "data/media/whole.h"
#include <string.h>

struct box {
    const u8 *data; /* behind the header */
    i64 bytes;
};

/* Finds the first box of a type at or after *at, and moves *at behind it. */
static bool find_box(struct box *out, const struct box *in, i64 *at, const char *type)
{
    while (in->bytes - *at >= 8) {
        i64 begin = *at + 8, end = *at + (i64)big_endian(in->data + *at, 4);
        if (end < begin || end > in->bytes)
            return false;
        *at = end;
        if (memcmp(in->data + begin - 4, type, 4) == 0) {
            *out = (struct box){in->data + begin, end - begin};
            return true;
        }
    }
    return false;
}

static bool find_first(struct box *out, const struct box *in, const char *type)
{
    i64 at = 0;
    return find_box(out, in, &at, type);
}

/* Opens a table of entries: version and flags, `before` bytes, the count, the entries. Returns the
 * count, or -1 if the box is too short. */
static i64 open_table(const struct box *box, i64 before, i64 entry_bytes)
{
    i64 count = box->bytes >= 8 + before ? (i64)big_endian(box->data + 4 + before, 4) : -1;
    return count * entry_bytes <= box->bytes - 8 - before ? count : -1;
}

/* Where the last byte of a track's samples ends. -1 if the tables do not tell. */
static i64 track_end(const struct box *tables)
{
    struct box runs, sizes, chunks;
    bool wide = find_first(&chunks, tables, "co64");
    if ((!wide && !find_first(&chunks, tables, "stco")) || !find_first(&runs, tables, "stsc") ||
        !find_first(&sizes, tables, "stsz") || sizes.bytes < 12)
        return -1;
    i64 each = (i64)big_endian(sizes.data + 4, 4), offset_bytes = wide ? 8 : 4;
    i64 samples = open_table(&sizes, 4, each ? 0 : 4), count = open_table(&chunks, 0, offset_bytes);
    i64 run_count = open_table(&runs, 0, 12), run = 0, end = 0;
    if (samples < 0 || count < 0 || run_count < (count > 0))
        return -1;
    for (i64 i = 0, sample = 0; i < count; i++) {
        while (run + 1 < run_count && (i64)big_endian(runs.data + 8 + 12 * (run + 1), 4) <= i + 1)
            run++;
        i64 past = sample + (i64)big_endian(runs.data + 8 + 12 * run + 4, 4);
        u64 at = big_endian(chunks.data + 8 + offset_bytes * i, (int)offset_bytes);
        if (past > samples || at > INT64_MAX / 2)
            return -1;
        if (each)
            at += (u64)each * (u64)(past - sample);
        for (; sample < past && !each; sample++)
            at += big_endian(sizes.data + 12 + 4 * sample, 4);
        if (at > INT64_MAX / 2)
            return -1;
        sample = past;
        end = max_i64(end, (i64)at);
    }
    return end;
}

/* Where the last byte of all samples in a movie's index ends. -1 if it lists none, or the tables do
 * not tell. */
static i64 samples_end(const struct box *movie)
{
    struct box track, media, info, tables;
    i64 last = 0;
    for (i64 at = 0; find_box(&track, movie, &at, "trak");) {
        if (!find_first(&media, &track, "mdia") || !find_first(&info, &media, "minf") ||
            !find_first(&tables, &info, "stbl"))
            return -1;
        i64 end = track_end(&tables);
        if (end < 0)
            return -1;
        last = max_i64(last, end);
    }
    return last > 0 ? last : -1;
}

/* True if bytes can begin a box of media or of their index. Of a header that is cut, only the size
 * may be there: smaller than 256 MB. */
static bool begins_box(const u8 *bytes, i64 count)
{
    static const char types[][5] = {"moov", "moof", "mdat", "meta", "ftyp", "styp", "sidx", "free",
                                    "skip", "wide", "uuid", "mfra", "udta", "emsg", "prft"};
    if (count <= 4)
        return bytes[0] < 16;
    for (i64 i = 0; i < COUNT_OF(types); i++)
        if (memcmp(bytes + 4, types[i], (size_t)min_i64(4, count - 4)) == 0)
            return true;
    return false;
}

/* Boxes have a 32-bit size; 1: a 64-bit size follows the type; 0: up to the end of the file. What
 * does not parse as a box is cut short, unless the samples that the index lists are all there.
 * Indexes of fragments and stills list no samples here: these may be followed by anything that does
 * not look like a further box. */
int check_boxes(const u8 *bytes, i64 count, const char *origin)
{
    struct box movie = {0};
    bool listed = false, media = false;
    for (i64 at = 0; at < count;) {
        i64 left = count - at;
        u64 box_bytes = left >= 8 ? big_endian(bytes + at, 4) : 8, header_bytes = 8;
        if (box_bytes == 1 && left >= 16) {
            box_bytes = big_endian(bytes + at + 8, 8);
            header_bytes = 16;
        }
        if (box_bytes == 0)
            return 0;
        if (box_bytes < header_bytes || box_bytes > (u64)left) {
            i64 end = movie.bytes ? samples_end(&movie) : -1;
            if (end >= 0 ? end <= count : listed && media && !begins_box(bytes + at, left))
                return 0;
            return box_bytes < header_bytes ? error_set("%s: damaged: the MP4 box at byte %lld says it has %llu bytes",
                                                        origin, (long long)at, (unsigned long long)box_bytes)
                                            : cut_short(origin, "an MP4 box", (u64)at + box_bytes, count);
        }
        const char *type = (const char *)bytes + at + 4;
        if (listed && memcmp(type, "ftyp", 4) == 0)
            return check_alone(bytes, count, at, origin);
        if (memcmp(type, "moov", 4) == 0)
            movie = (struct box){bytes + at + header_bytes, (i64)(box_bytes - header_bytes)};
        listed |= memcmp(type, "moov", 4) == 0 || memcmp(type, "meta", 4) == 0;
        media |= memcmp(type, "mdat", 4) == 0;
        at += (i64)box_bytes;
    }
    return 0;
}

/* ---- Transparency beside the pictures ---- */

/* Whether an hvcC box (ISO/IEC 14496-15, 8.3.3) has a note of alpha_channel_info (SEI 165). */
static bool notes_alpha(const struct box *config)
{
    enum { HEAD = 23, PREFIX_SEI = 39, ALPHA = 165 };
    i64 arrays = config->bytes >= HEAD ? config->data[HEAD - 1] : 0, at = HEAD;
    for (; arrays > 0 && at + 3 <= config->bytes; arrays--) {
        int type = config->data[at] & 63;
        i64 units = (i64)big_endian(config->data + at + 1, 2);
        for (at += 3; units > 0 && at + 2 <= config->bytes; units--) {
            i64 bytes = (i64)big_endian(config->data + at, 2);
            if (type == PREFIX_SEI && bytes > 3 && at + 5 <= config->bytes && config->data[at + 4] == ALPHA)
                return true;
            at += 2 + bytes;
        }
    }
    return false;
}

static bool layers_alpha(const struct box *track)
{
    enum { ENTRY = 16 + 78 }; /* version and count of the table, then a box with fields of pictures */
    struct box media, info, tables, entries, config;
    if (!find_first(&media, track, "mdia") || !find_first(&info, &media, "minf") ||
        !find_first(&tables, &info, "stbl") || !find_first(&entries, &tables, "stsd") || entries.bytes < ENTRY)
        return false;
    struct box fields = {entries.data + ENTRY, entries.bytes - ENTRY};
    return find_first(&config, &fields, "hvcC") && notes_alpha(&config);
}

/* Finds the index of a file, behind boxes of any size. */
static bool find_movie(struct box *movie, const u8 *bytes, i64 count)
{
    for (i64 at = 0, header, length; count - at >= 16; at += length) {
        length = (i64)big_endian(bytes + at, 4);
        header = length == 1 ? 16 : 8;
        if (length == 1)
            length = (i64)(big_endian(bytes + at + 8, 8) & INT64_MAX);
        if (length < header || length > count - at)
            return false;
        *movie = (struct box){bytes + at + header, length - header};
        if (memcmp(bytes + at + 4, "moov", 4) == 0)
            return true;
    }
    return false;
}

bool boxes_hide_transparency(const u8 *bytes, i64 count)
{
    struct box movie, track, others, of;
    if (!find_movie(&movie, bytes, count))
        return false;
    for (i64 at = 0; find_box(&track, &movie, &at, "trak");)
        if ((find_first(&others, &track, "tref") && find_first(&of, &others, "auxl")) || layers_alpha(&track))
            return true;
    return false;
}
