/* What a file is, from its first bytes, and whether its end is there. No libav: these bytes are looked at before any
 * decoder is. */
#include "data/form.h"
#include <string.h>

struct magic {
    i64 at; /* where `bytes` stand */
    const char *bytes;
    i64 length;
    const char *also; /* four bytes at 8, or NULL: RIFF and FORM files say there what they hold */
    struct form form;
};
#define MAGIC(at, text, also, ...)                                                                                     \
    {                                                                                                                  \
        at, text, sizeof(text) - 1, also,                                                                              \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

static const struct magic magics[] = {
    MAGIC(0, "\x89PNG\r\n\x1a\n", NULL, "a PNG picture", FORM_PNG, NULL),
    MAGIC(0, "\xff\xd8\xff", NULL, "a JPEG picture", FORM_STILL, "mjpeg"),
    MAGIC(0, "RIFF", "WEBP", "a WebP picture", FORM_STILL, "webp"),
    MAGIC(0, "BM", NULL, "a BMP picture", FORM_STILL, "bmp"),
    MAGIC(0, "II*\0", NULL, "a TIFF picture", FORM_STILL, "tiff"),
    MAGIC(0, "MM\0*", NULL, "a TIFF picture", FORM_STILL, "tiff"),
    MAGIC(0, "GIF87a", NULL, "a GIF animation", FORM_CONTAINER, "gif"),
    MAGIC(0, "GIF89a", NULL, "a GIF animation", FORM_CONTAINER, "gif"),
    MAGIC(4, "ftyp", NULL, "an MP4 file", FORM_CONTAINER, "mov"),
    MAGIC(4, "moov", NULL, "a QuickTime file", FORM_CONTAINER, "mov"),
    MAGIC(4, "mdat", NULL, "a QuickTime file", FORM_CONTAINER, "mov"),
    MAGIC(4, "wide", NULL, "a QuickTime file", FORM_CONTAINER, "mov"),
    MAGIC(4, "free", NULL, "a QuickTime file", FORM_CONTAINER, "mov"),
    MAGIC(4, "skip", NULL, "a QuickTime file", FORM_CONTAINER, "mov"),
    MAGIC(0, "\x1a\x45\xdf\xa3", NULL, "a Matroska or WebM file", FORM_CONTAINER, "matroska"),
    MAGIC(0, "RIFF", "AVI ", "an AVI file", FORM_CONTAINER, "avi"),
    MAGIC(0, "OggS", NULL, "an Ogg file", FORM_CONTAINER, "ogg"),
    MAGIC(0, "FLV\x01", NULL, "an FLV file", FORM_CONTAINER, "flv"),
    MAGIC(0, "\0\0\x01\xba", NULL, "an MPEG programme stream", FORM_CONTAINER, "mpeg"),
    MAGIC(0, "RIFF", "WAVE", "a WAV sound", FORM_SOUND, "wav"),
    MAGIC(0, "RF64", "WAVE", "a WAV sound", FORM_SOUND, "wav"),
    MAGIC(0, "fLaC", NULL, "a FLAC sound", FORM_SOUND, "flac"),
    MAGIC(0, "FORM", "AIFF", "an AIFF sound", FORM_SOUND, "aiff"),
    MAGIC(0, "FORM", "AIFC", "an AIFF sound", FORM_SOUND, "aiff"),
    MAGIC(0, ".snd", NULL, "an AU sound", FORM_SOUND, "au"),
    MAGIC(0, "ID3", NULL, "an MP3 sound", FORM_SOUND, "mp3"),
};
static const struct form mpeg_ts = {"an MPEG transport stream", FORM_CONTAINER, "mpegts"};
static const struct form mp3 = {"an MP3 sound", FORM_SOUND, "mp3"};
static const struct form adts = {"an AAC sound", FORM_SOUND, "aac"};

static bool holds(const u8 *bytes, i64 count, i64 at, const char *wanted, i64 length)
{
    return at + length <= count && memcmp(bytes + at, wanted, (size_t)length) == 0;
}

const struct form *form_of(const void *data, i64 count)
{
    const u8 *bytes = data;
    for (i64 i = 0; i < COUNT_OF(magics); i++) {
        const struct magic *magic = &magics[i];
        if (holds(bytes, count, magic->at, magic->bytes, magic->length) &&
            (!magic->also || holds(bytes, count, 8, magic->also, 4)))
            return &magic->form;
    }
    /* Streams without a header begin with a packet's sync word. */
    if (count >= 189 && bytes[0] == 0x47 && bytes[188] == 0x47)
        return &mpeg_ts;
    if (count >= 4 && bytes[0] == 0xff && (bytes[1] & 0xf6) == 0xf0)
        return &adts;
    if (count >= 4 && bytes[0] == 0xff && (bytes[1] & 0xe6) == 0xe2)
        return &mp3;
    return NULL;
}

const char *form_describe(const void *data, i64 count)
{
    const u8 *bytes = data;
    if (count == 0)
        return "an empty file";
    const struct form *form = form_of(bytes, count);
    if (form)
        return form->name;
    i64 looked_at = min_i64(count, 512);
    for (i64 i = 0; i < looked_at; i++)
        if (bytes[i] < 9 || (bytes[i] > 13 && bytes[i] < 32))
            return "unknown bytes";
    return "text";
}

static u64 big_endian(const u8 *bytes, int length)
{
    u64 value = 0;
    for (int i = 0; i < length; i++)
        value = value << 8 | bytes[i];
    return value;
}

static u64 little_endian_u32(const u8 *bytes)
{
    return bytes[0] | (u64)bytes[1] << 8 | (u64)bytes[2] << 16 | (u64)bytes[3] << 24;
}

static int cut_short(const char *origin, const char *what, u64 wanted_bytes, i64 count)
{
    return error_set("%s: cut short: %s says that it reaches to byte %llu, the file ends at byte %lld; copy it again",
                     origin, what, (unsigned long long)wanted_bytes, (long long)count);
}

/* Chunks of a length, a type, data and a checksum, up to IEND. libpng makes room for a chunk before it reads it: no
 * chunk may be longer than the file. */
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
    return error_set("%s: cut short: no IEND chunk in the %lld bytes of a PNG picture; copy it again", origin,
                     (long long)count);
}

/* ISO/IEC 14496-12: boxes of a 32-bit size, 1 for a 64-bit size behind the type, 0 for "to the end". */
static int check_boxes(const u8 *bytes, i64 count, const char *origin)
{
    for (i64 at = 0; at < count;) {
        if (count - at < 8)
            return cut_short(origin, "an MP4 box", (u64)at + 8, count);
        u64 box_bytes = big_endian(bytes + at, 4), header_bytes = 8;
        if (box_bytes == 1 && count - at >= 16) {
            box_bytes = big_endian(bytes + at + 8, 8);
            header_bytes = 16;
        }
        if (box_bytes == 0)
            return 0;
        if (box_bytes < header_bytes)
            return error_set("%s: damaged: the MP4 box at byte %lld says it has %llu bytes", origin, (long long)at,
                             (unsigned long long)box_bytes);
        if (box_bytes > (u64)(count - at))
            return cut_short(origin, "an MP4 box", (u64)at + box_bytes, count);
        at += (i64)box_bytes;
    }
    return 0;
}

/* Programs that write to a pipe leave the length of the last chunk open: 0 or nearly the largest number. */
static bool riff_open_length(u64 length_bytes)
{
    return length_bytes == 0 || length_bytes >= 0x7fff0000u;
}

/* What programs put behind the RIFF chunk (ID3v1) is no chunk; a long AVI file goes on with more of RIFF. */
static int check_riff(const u8 *bytes, i64 count, const char *origin)
{
    u64 size_bytes = little_endian_u32(bytes + 4);
    i64 end = riff_open_length(size_bytes) ? count : 8 + (i64)size_bytes;
    for (i64 at = 12; at + 8 <= count && (at < end || holds(bytes, count, at, "RIFF", 4));) {
        u64 chunk_bytes = little_endian_u32(bytes + at + 4);
        bool data = memcmp(bytes + at, "data", 4) == 0;
        if (data && riff_open_length(chunk_bytes))
            return 0;
        if (chunk_bytes > (u64)(count - at - 8))
            return cut_short(origin, data ? "the sound's data" : "a RIFF chunk", (u64)at + 8 + chunk_bytes, count);
        at += 8 + (i64)chunk_bytes + (i64)(chunk_bytes & 1);
    }
    return 0;
}

/* An EBML number (RFC 8794): leading zeros of the first byte say how many bytes follow. Returns its length, 0 if cut.
 */
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

/* A Matroska file is an EBML header and one segment; a live recording leaves the segment's size unknown. */
static int check_segment(const u8 *bytes, i64 count, const char *origin)
{
    u64 size_bytes;
    bool unknown;
    int length = ebml_number(&size_bytes, &unknown, bytes + 4, count - 4);
    if (!length || size_bytes > (u64)count)
        return cut_short(origin, "the EBML header", 4 + (u64)length + (length ? size_bytes : 8), count);
    i64 at = 4 + length + (i64)size_bytes;
    if (!holds(bytes, count, at, "\x18\x53\x80\x67", 4))
        return error_set("%s: no Matroska segment at byte %lld; the file is cut short or damaged", origin,
                         (long long)at);
    length = ebml_number(&size_bytes, &unknown, bytes + at + 4, count - at - 4);
    if (!length || (!unknown && size_bytes > (u64)(count - at - 4 - length)))
        return cut_short(origin, "the Matroska segment", (u64)at + 4 + (u64)length + (length ? size_bytes : 8), count);
    return 0;
}

static int check_jpeg(const u8 *bytes, i64 count, const char *origin)
{
    for (i64 at = count - 2; at >= 2; at--)
        if (bytes[at] == 0xff && bytes[at + 1] == 0xd9)
            return 0;
    return error_set("%s: cut short: no end marker in the %lld bytes of a JPEG picture; copy it again", origin,
                     (long long)count);
}

int form_check_whole(const struct form *form, const void *bytes, i64 count, const char *origin)
{
    if (form->class == FORM_PNG)
        return check_png(bytes, count, origin);
    if (holds(bytes, count, 0, "FORM", 4) && 8 + (i64)big_endian((const u8 *)bytes + 4, 4) > count)
        return cut_short(origin, "the AIFF header", 8 + big_endian((const u8 *)bytes + 4, 4), count);
    if (holds(bytes, count, 0, "RIFF", 4))
        return check_riff(bytes, count, origin);
    if (form->reader && strcmp(form->reader, "mov") == 0)
        return check_boxes(bytes, count, origin);
    if (form->reader && strcmp(form->reader, "matroska") == 0)
        return check_segment(bytes, count, origin);
    if (form->reader && strcmp(form->reader, "mjpeg") == 0)
        return check_jpeg(bytes, count, origin);
    return 0;
}
