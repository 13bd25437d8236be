/* Checks that a file's end is present, by the lengths and counts in its own bytes. Decoders do not
 * report a missing end: most return the part they found. It uses no libav. */
#include "data/media/whole.h"
#include <string.h>

int cut_short(const char *origin, const char *what, u64 wanted_bytes, i64 count)
{
    return error_set("%s: cut short: %s extends to byte %llu, the file ends at byte %lld; copy it again", origin, what,
                     (unsigned long long)wanted_bytes, (long long)count);
}

int check_alone(const u8 *bytes, i64 count, i64 end, const char *origin)
{
    const struct file_kind *first = file_kind_of(bytes, count);
    const struct file_kind *next = end > 0 && end < count ? file_kind_of(bytes + end, count - end) : NULL;
    if (!first || !next || strcmp(first->reader, next->reader) != 0)
        return 0;
    return error_set("%s: two files in one: behind %s another one begins at byte %lld; split them", origin, first->name,
                     (long long)end);
}

/* PNG: chunks of a length, a type, data and a checksum, up to IEND. No chunk may be longer than the
 * file, because libpng allocates a chunk before reading it. */
static int check_png(const u8 *bytes, i64 count, const char *origin)
{
    for (i64 at = 8; at + 12 <= count;) {
        i64 chunk_bytes = 12 + (i64)big_endian(bytes + at, 4);
        if (chunk_bytes > count - at)
            return cut_short(origin, "a PNG chunk", (u64)(at + chunk_bytes), count);
        if (memcmp(bytes + at + 4, "IEND", 4) == 0)
            return 0;
        at += chunk_bytes;
    }
    return error_set("%s: cut short: no IEND chunk in the %lld %s of a PNG picture; copy it again", origin,
                     (long long)count, plural(count, "byte", "bytes"));
}

/* True if a length was left open, as programs that write to a pipe do: 0 or nearly the largest
 * number. */
static bool riff_open_length(u64 length_bytes)
{
    return length_bytes == 0 || length_bytes >= 0x7fff0000u;
}

/* RIFF: a list of chunks. Data after the RIFF chunk (ID3v1) is not a chunk; a long AVI file
 * continues with more RIFF chunks. RF64 (EBU Tech 3306) leaves the lengths open and states them in
 * its first chunk with 64 bits: RIFF's, then the data's. A chunk behind a sound's data may be cut,
 * because it holds no sound. */
static int check_riff(const u8 *bytes, i64 count, const char *origin)
{
    u64 (*number)(const u8 *number_bytes, int length) = bytes[3] == 'X' ? big_endian : little_endian;
    bool wide = bytes_match(bytes, count, 0, "RF64", 4) && bytes_match(bytes, count, 12, "ds64", 4) && count >= 36;
    u64 size_bytes = number(bytes + 4, 4);
    i64 end = riff_open_length(size_bytes) ? count : 8 + (i64)size_bytes;
    bool heard = false;
    for (i64 at = 12; at + 8 <= count && (at < end || bytes_match(bytes, count, at, "RIFF", 4));) {
        u64 chunk_bytes = number(bytes + at + 4, 4);
        bool data = memcmp(bytes + at, "data", 4) == 0;
        if (data && wide && chunk_bytes == 0xffffffffu)
            chunk_bytes = little_endian(bytes + 28, 8);
        else if (data && riff_open_length(chunk_bytes))
            return 0;
        if (chunk_bytes > (u64)(count - at - 8))
            return heard && at < end && !riff_open_length(size_bytes)
                       ? 0
                       : cut_short(origin, data ? "the sound's data" : "a RIFF chunk", (u64)at + 8 + chunk_bytes,
                                   count);
        if (data && heard)
            return error_set(
                "%s: a WAV sound whose samples are in two chunks, the second at byte %lld, of which readers "
                "take the first alone: write it again",
                origin, (long long)at);
        heard |= data;
        at += 8 + (i64)chunk_bytes + (i64)(chunk_bytes & 1);
    }
    return heard ? check_alone(bytes, count, end + (end & 1), origin) : 0;
}

/* Sony's W64: chunks of a GUID of 16 bytes, a size of 64 bits that counts these 24 too, and data, up
 * to a multiple of 8. */
static int check_w64(const u8 *bytes, i64 count, const char *origin)
{
    for (i64 at = 40; at + 24 <= count;) {
        u64 chunk_bytes = little_endian(bytes + at + 16, 8);
        bool data = memcmp(bytes + at, "data", 4) == 0;
        if (data && (chunk_bytes <= 24 || chunk_bytes > INT64_MAX / 2))
            return 0; /* left open */
        if (chunk_bytes < 24 || chunk_bytes > (u64)(count - at))
            return cut_short(origin, data ? "the sound's data" : "a W64 chunk", (u64)at + chunk_bytes, count);
        if (memcmp(bytes + at, "riff", 4) == 0)
            return check_alone(bytes, count, at, origin);
        at += (i64)((chunk_bytes + 7) & ~(u64)7);
    }
    return 0;
}

/* Apple's CAF: chunks of a type, a size of 64 bits and data. The size of the sound's data is -1 if
 * it goes on to the end of the file. */
static int check_caf(const u8 *bytes, i64 count, const char *origin)
{
    for (i64 at = 8; at + 12 <= count;) {
        u64 chunk_bytes = big_endian(bytes + at + 4, 8);
        bool data = memcmp(bytes + at, "data", 4) == 0;
        if (data && chunk_bytes == UINT64_MAX)
            return 0;
        if (chunk_bytes > (u64)(count - at - 12))
            return check_alone(bytes, count, at, origin) < 0
                       ? -1
                       : cut_short(origin, data ? "the sound's data" : "a CAF chunk", (u64)at + 12 + chunk_bytes,
                                   count);
        at += 12 + (i64)chunk_bytes;
    }
    return 0;
}

/* Parses an EBML number (RFC 8794): the leading zeros of the first byte count the bytes that
 * follow. Returns its length in bytes, 0 if cut. */
static int ebml_number(u64 *value, bool *unknown, const u8 *bytes, i64 count)
{
    int length = count > 0 && bytes[0] ? __builtin_clz(bytes[0]) - 23 : 9;
    if (length > 8 || length > count)
        return 0;
    u64 mask = ((u64)1 << (7 * length)) - 1;
    *value = big_endian(bytes, length) & mask;
    *unknown = *value == mask;
    return length;
}

/* Checks that the children of a segment or cluster of unknown size are whole, up to the file's
 * end. */
static int check_elements(const u8 *bytes, i64 count, i64 at, const char *origin)
{
    while (at < count) {
        u64 id, size_bytes;
        bool unknown;
        if (check_alone(bytes, count, at, origin) < 0)
            return -1;
        int id_length = ebml_number(&id, &unknown, bytes + at, count - at);
        int length = id_length ? ebml_number(&size_bytes, &unknown, bytes + at + id_length, count - at - id_length) : 0;
        i64 begin = at + id_length + length;
        if (!length || (!unknown && size_bytes > (u64)(count - begin)))
            return cut_short(origin, "a Matroska element", (u64)begin + (length ? size_bytes : 1), count);
        at = unknown ? begin : begin + (i64)size_bytes;
    }
    return 0;
}

/* Matroska: an EBML header and one segment. Live recordings leave the segment's size unknown. */
static int check_segment(const u8 *bytes, i64 count, const char *origin)
{
    u64 size_bytes;
    bool unknown;
    int length = ebml_number(&size_bytes, &unknown, bytes + 4, count - 4);
    if (!length || size_bytes > (u64)count)
        return cut_short(origin, "the EBML header", 4 + (u64)length + (length ? size_bytes : 8), count);
    i64 at = 4 + length + (i64)size_bytes;
    if (!bytes_match(bytes, count, at, "\x18\x53\x80\x67", 4))
        return error_set("%s: no Matroska segment at byte %lld; the file is cut short or damaged", origin,
                         (long long)at);
    length = ebml_number(&size_bytes, &unknown, bytes + at + 4, count - at - 4);
    if (length && unknown)
        return check_elements(bytes, count, at + 4 + length, origin);
    if (!length || size_bytes > (u64)(count - at - 4 - length))
        return cut_short(origin, "the Matroska segment", (u64)at + 4 + (u64)length + (length ? size_bytes : 8), count);
    return check_alone(bytes, count, at + 4 + length + (i64)size_bytes, origin);
}

/* ITU-T T.81, annex B: segments of a marker and a length. In the coded data of a scan, 0xff is
 * followed by 0 (a data byte) or by d0..d7 (a restart). A thumbnail's end marker is inside a
 * segment and so is skipped. */
static int check_jpeg(const u8 *bytes, i64 count, const char *origin)
{
    for (i64 at = 2; at + 2 <= count;) {
        u8 marker = bytes[at + 1];
        bool alone = marker <= 1 || (marker >= 0xd0 && marker <= 0xd8);
        if (bytes[at] != 0xff || marker == 0xff)
            at++;
        else if (marker == 0xd9)
            return 0;
        else
            at += alone || at + 4 > count ? 2 : 2 + (i64)big_endian(bytes + at + 2, 2);
    }
    return error_set("%s: cut short: no end marker behind the %lld %s of a JPEG picture; copy it again", origin,
                     (long long)count, plural(count, "byte", "bytes"));
}

static i64 gif_table_bytes(u8 flags)
{
    return flags & 0x80 ? 3 << ((flags & 7) + 1) : 0;
}

/* GIF89a: a header, colour tables, then extensions and images that end in runs of sub-blocks of up
 * to 255 bytes, and 0x3b. */
static int check_gif(const u8 *bytes, i64 count, const char *origin)
{
    for (i64 at = count > 13 ? 13 + gif_table_bytes(bytes[10]) : count; at < count;) {
        bool image = bytes[at] == 0x2c;
        if (!image && bytes[at] != 0x21)
            return 0; /* the trailer, or a block unknown to decoders */
        if (image && at + 10 > count)
            break;
        at += image ? 11 + gif_table_bytes(bytes[at + 9]) : 2;
        while (at < count && bytes[at])
            at += 1 + bytes[at];
        at++;
    }
    return error_set("%s: cut short: no end behind the %lld %s of a GIF animation; copy it again", origin,
                     (long long)count, plural(count, "byte", "bytes"));
}

/* TIFF 6.0: a directory of entries of 12 bytes; in BigTIFF all lengths have 64 bits and entries 20
 * bytes. Decoders bound strips by StripByteCounts and tiles by TileByteCounts; a file with neither
 * is refused, since its end cannot be checked. */
static int check_tiff(const u8 *bytes, i64 count, const char *origin)
{
    u64 (*number)(const u8 *bytes, int length) = bytes[0] == 'I' ? little_endian : big_endian;
    enum { STRIP_BYTES = 279, TILE_BYTES = 325 };
    bool big = number(bytes + 2, 2) == 43;
    int length = big ? 8 : 4, entry_bytes = big ? 20 : 12, count_bytes = big ? 8 : 2;
    u64 at = count >= (big ? 16 : 8) ? number(bytes + (big ? 8 : 4), length) : (u64)count;
    if (at > (u64)(count - count_bytes))
        return cut_short(origin, "the TIFF header", at + (u64)count_bytes, count);
    u64 entries = number(bytes + at, count_bytes);
    at += (u64)count_bytes;
    if (entries > ((u64)count - at) / (u64)entry_bytes)
        return cut_short(origin, "the TIFF directory", at + (u64)entry_bytes, count);
    for (; entries > 0; entries--, at += (u64)entry_bytes)
        if (number(bytes + at, 2) == STRIP_BYTES || number(bytes + at, 2) == TILE_BYTES)
            return 0;
    return error_set("%s: a TIFF picture that does not state the lengths of its strips (StripByteCounts), so that "
                     "truncation cannot be detected; write it again",
                     origin);
}

/* FLV: a header and tags. A tag states the length of its data in front and its own length
 * behind. */
static int check_flv(const u8 *bytes, i64 count, const char *origin)
{
    i64 at = count >= 9 ? (i64)big_endian(bytes + 5, 4) + 4 : count;
    while (at < count) {
        i64 end = at + 11 + (at + 4 <= count ? (i64)big_endian(bytes + at + 1, 3) : 0);
        if (end > count)
            return check_alone(bytes, count, at, origin) < 0 ? -1 : cut_short(origin, "an FLV tag", (u64)end, count);
        at = end + 4;
    }
    return 0;
}

/* ASF (WMV, WMA): a header of objects, each an identifier of 16 bytes and a size. The one of the
 * file's properties states the length of the file, unless it was sent live. */
static int check_asf(const u8 *bytes, i64 count, const char *origin)
{
    enum { LIVE = 1 };
    static const char properties[] = "\xa1\xdc\xab\x8c\x47\xa9\xcf\x11\x8e\xe4\x00\xc0\x0c\x20\x53\x65";
    u64 end = count >= 30 ? little_endian(bytes + 16, 8) : 30;
    for (i64 at = 30, size; end <= (u64)count && at + 92 <= (i64)end; at += size) {
        size = (i64)little_endian(bytes + at + 16, 8);
        if (memcmp(bytes + at, properties, 16) == 0 && !(little_endian(bytes + at + 88, 4) & LIVE))
            end = little_endian(bytes + at + 40, 8);
        if (size < 24 || size > count - at)
            break;
    }
    return end > (u64)count ? cut_short(origin, "the ASF header", end, count)
                            : check_alone(bytes, count, (i64)end, origin);
}

/* Sun's .snd: offset and length of the data; a length of all ones is unknown. */
static int check_au(const u8 *bytes, i64 count, const char *origin)
{
    u64 length_bytes = count >= 12 ? big_endian(bytes + 8, 4) : 0xffffffffu;
    u64 end = length_bytes == 0xffffffffu ? 0 : big_endian(bytes + 4, 4) + length_bytes;
    return end > (u64)count ? cut_short(origin, "the AU header", end, count)
                            : check_alone(bytes, count, (i64)end, origin);
}

/* AIFF: chunks of a type, a length and data. COMM states the number of frames, which SSND holds behind
 * 8 bytes; of packed samples it counts packets. */
static int check_aiff(const u8 *bytes, i64 count, const char *origin)
{
    u64 end = 8 + (count >= 8 ? big_endian(bytes + 4, 4) : 0), frames = 0, frame_bytes = 0;
    if (end > (u64)count)
        return cut_short(origin, "the AIFF header", end, count);
    for (i64 at = 12, length; at + 8 <= (i64)end; at += 8 + length + (length & 1)) {
        length = (i64)big_endian(bytes + at + 4, 4);
        bool plain = bytes_match(bytes, count, 8, "AIFF", 4) || bytes_match(bytes, count, at + 26, "NONE", 4) ||
                     bytes_match(bytes, count, at + 26, "sowt", 4) || bytes_match(bytes, count, at + 26, "twos", 4);
        if (bytes_match(bytes, count, at, "COMM", 4) && plain && at + 26 <= count) {
            frames = big_endian(bytes + at + 10, 4);
            frame_bytes = big_endian(bytes + at + 8, 2) * ((big_endian(bytes + at + 14, 2) + 7) / 8);
        }
        if (bytes_match(bytes, count, at, "SSND", 4) && frames * frame_bytes + 8 > (u64)length)
            return cut_short(origin, "the sound that an AIFF file states", (u64)at + 16 + frames * frame_bytes, count);
    }
    return check_alone(bytes, count, (i64)(end + (end & 1)), origin);
}

int file_check_whole(const struct file_kind *kind, const void *bytes, i64 count, const char *origin)
{
    static const struct {
        const char *reader;
        int (*check)(const u8 *bytes, i64 count, const char *origin);
    } checks[] = {{"png", check_png},   {"apng", check_png},         {"mjpeg", check_jpeg}, {"webp", check_riff},
                  {"tiff", check_tiff}, {"gif", check_gif},          {"mov", check_boxes},  {"heif", check_boxes},
                  {"avi", check_riff},  {"matroska", check_segment}, {"ogg", check_ogg},    {"flv", check_flv},
                  {"wav", check_riff},  {"aiff", check_aiff},        {"au", check_au},      {"w64", check_w64},
                  {"caf", check_caf},   {"asf", check_asf},          {"aac", check_adts},   {"mp3", check_mp3}};
    for (i64 i = 0; i < COUNT_OF(checks); i++)
        if (strcmp(checks[i].reader, kind->reader) == 0)
            return checks[i].check(bytes, count, origin);
    return 0;
}
