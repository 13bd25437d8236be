/* Streams of frames without an index: MP3 and AAC (ADTS). Frames are found by the lengths in their
 * headers. */
#include "data/media/whole.h"
#include <string.h>

/* So many whole frames are read although the sound goes on behind them. Fewer are a file of which
 * next to nothing is there. */
enum { LEAST_FRAMES = 20 };

i64 id3_bytes(const u8 *bytes, i64 count)
{
    i64 at = 0;
    while (bytes_match(bytes, count, at, "ID3", 3) && at + 10 <= count) {
        const u8 *tag = bytes + at;
        at += 10 + (tag[6] << 21 | tag[7] << 14 | tag[8] << 7 | tag[9]) + (tag[5] & 0x10 ? 10 : 0);
    }
    return at;
}

/* ---- AAC: ISO/IEC 13818-7, 6.2 ---- */

/* A 12-bit sync word and a 13-bit length. 0: no frame; 7 if its header is cut. */
static i64 adts_bytes(const u8 *bytes, i64 count)
{
    if (count < 1 || bytes[0] != 0xff || (count > 1 && (bytes[1] & 0xf6) != 0xf0))
        return 0;
    i64 length = count >= 6 ? (i64)(big_endian(bytes + 3, 3) >> 5 & 0x1fff) : 7;
    return length < 7 ? 0 : length;
}

bool adts_begins(const u8 *bytes, i64 count)
{
    i64 length = count >= 7 ? adts_bytes(bytes, count) : 0;
    return length > 0 && (length == count || adts_bytes(bytes + length, count - length) > 0);
}

void adts_scan(struct frame_run *out, const u8 *bytes, i64 count)
{
    i64 at = id3_bytes(bytes, count), length = 0;
    *out = (struct frame_run){.begin = at};
    for (; at < count && (length = adts_bytes(bytes + at, count - at)) > 0 && length <= count - at; at += length)
        out->frames++;
    out->end = at;
    out->cut_bytes = at < count ? length : 0;
}

int check_adts(const u8 *bytes, i64 count, const char *origin)
{
    struct frame_run run;
    adts_scan(&run, bytes, count);
    return run.cut_bytes && run.frames < LEAST_FRAMES
               ? cut_short(origin, "an AAC frame", (u64)(run.end + run.cut_bytes), count)
               : 0;
}

/* ---- MP3 ---- */

struct mp3_frame {
    /* bytes: of the whole frame; side_bytes: of the side information after the header. */
    i64 bytes, side_bytes;
};

/* Parses a 32-bit header of Layer III: MPEG-1 (ISO/IEC 11172-3, 2.4.2.3), MPEG-2 and 2.5 (13818-3).
 * False if invalid. */
static bool mp3_frame(struct mp3_frame *out, const u8 *bytes, i64 count)
{
    static const int rates_kbit[2][15] = {{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
                                          {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320}};
    static const int rates_hz[3] = {44100, 48000, 32000};
    u32 header = count >= 4 ? (u32)big_endian(bytes, 4) : 0;
    u32 version = header >> 19 & 3, layer = header >> 17 & 3, rate = header >> 12 & 15, speed = header >> 10 & 3;
    if (header >> 21 != 0x7ff || version == 1 || layer != 1 || rate == 0 || rate == 15 || speed == 3)
        return false;
    bool first = version == 3, mono = (header >> 6 & 3) == 3;
    int hz = rates_hz[speed] >> (first ? 0 : version == 2 ? 1 : 2);
    out->bytes = (first ? 144000 : 72000) * rates_kbit[first][rate] / hz + (header >> 9 & 1);
    out->side_bytes = first ? (mono ? 17 : 32) : (mono ? 9 : 17);
    return true;
}

/* Number of frames stated in the first one, 0 if it states none. Encoders put an empty frame first
 * with "Xing" or "Info", flags and, if bit 0 is set, the count. */
static i64 mp3_frames_stated(const u8 *bytes, i64 count, const struct mp3_frame *frame)
{
    i64 at = 4 + frame->side_bytes;
    bool stated = bytes_match(bytes, count, at, "Xing", 4) || bytes_match(bytes, count, at, "Info", 4);
    return stated && at + 12 <= count && bytes[at + 7] & 1 ? (i64)big_endian(bytes + at + 8, 4) : 0;
}

i64 mp3_begin(const u8 *bytes, i64 count)
{
    enum { NEAR = 1 << 16, IN_A_ROW = 4 };
    const u32 same = 0xfffe0c00; /* version, layer and sample rate */
    struct mp3_frame frame;
    i64 begin = id3_bytes(bytes, count);
    for (i64 at = begin; at < count && at < begin + NEAR; at++) {
        i64 next = at, frames = 0;
        if (bytes[at] != 0xff)
            continue;
        while (frames < IN_A_ROW && next < count && mp3_frame(&frame, bytes + next, count - next) &&
               ((big_endian(bytes + next, 4) ^ big_endian(bytes + at, 4)) & same) == 0) {
            next += frame.bytes;
            frames++;
        }
        if (frames == IN_A_ROW)
            return at;
    }
    return -1;
}

void mp3_scan(struct frame_run *out, const u8 *bytes, i64 count)
{
    struct mp3_frame frame = {0};
    i64 at = max_i64(id3_bytes(bytes, count), mp3_begin(bytes, count));
    *out = (struct frame_run){.begin = at};
    for (; at < count && mp3_frame(&frame, bytes + at, count - at) && frame.bytes <= count - at; at += frame.bytes)
        if (out->frames++ == 0)
            out->stated = mp3_frames_stated(bytes + at, frame.bytes, &frame);
    out->end = at;
    out->cut_bytes = at < count && mp3_frame(&frame, bytes + at, count - at) ? frame.bytes : 0;
}

/* Number of stated frames that are not there. The frame that states the others is not one of
 * them. */
static i64 mp3_missing(const struct frame_run *run)
{
    return run->stated ? max_i64(0, run->stated + 1 - run->frames) : 0;
}

int check_mp3(const u8 *bytes, i64 count, const char *origin)
{
    struct frame_run run;
    mp3_scan(&run, bytes, count);
    if (run.begin >= count)
        return cut_short(origin, "the ID3 tag", (u64)run.begin, count);
    if (run.frames >= LEAST_FRAMES)
        return 0;
    if (mp3_missing(&run))
        return error_set("%s: cut short: %lld of the %lld MP3 frames that the first one states; copy it again", origin,
                         (long long)run.frames - 1, (long long)run.stated);
    return run.cut_bytes && !run.stated ? cut_short(origin, "an MP3 frame", (u64)(run.end + run.cut_bytes), count) : 0;
}

bool sound_ends_early(const void *bytes, i64 count)
{
    const struct file_kind *kind = file_kind_of(bytes, count);
    struct frame_run run;
    if (!kind || strcmp(kind->reader, "mp3") != 0)
        return false;
    mp3_scan(&run, bytes, count);
    return mp3_missing(&run) > 0;
}
