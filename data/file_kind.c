/* What a file is, from its first bytes. No libav: these bytes are looked at before any decoder is. */
#include "data/file_kind.h"
#include <string.h>

struct magic {
    i64 at; /* where `bytes` stand */
    const char *bytes;
    i64 length;
    const char *also; /* four bytes at 8, or NULL: RIFF and FORM files say there what they hold */
    struct file_kind kind;
};
#define MAGIC(at, text, also, ...)                                                                                     \
    {                                                                                                                  \
        at, text, sizeof(text) - 1, also,                                                                              \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

static const struct magic magics[] = {
    MAGIC(0, "\x89PNG\r\n\x1a\n", NULL, "a PNG picture", FILE_PNG, "png"),
    MAGIC(0, "\xff\xd8\xff", NULL, "a JPEG picture", FILE_STILL, "mjpeg"),
    MAGIC(0, "RIFF", "WEBP", "a WebP picture", FILE_STILL, "webp"),
    MAGIC(0, "BM", NULL, "a BMP picture", FILE_STILL, "bmp"),
    MAGIC(0, "II*\0", NULL, "a TIFF picture", FILE_STILL, "tiff"),
    MAGIC(0, "MM\0*", NULL, "a TIFF picture", FILE_STILL, "tiff"),
    MAGIC(0, "GIF87a", NULL, "a GIF animation", FILE_CONTAINER, "gif"),
    MAGIC(0, "GIF89a", NULL, "a GIF animation", FILE_CONTAINER, "gif"),
    MAGIC(4, "ftyp", NULL, "an MP4 file", FILE_CONTAINER, "mov"),
    MAGIC(4, "moov", NULL, "a QuickTime file", FILE_CONTAINER, "mov"),
    MAGIC(4, "mdat", NULL, "a QuickTime file", FILE_CONTAINER, "mov"),
    MAGIC(4, "wide", NULL, "a QuickTime file", FILE_CONTAINER, "mov"),
    MAGIC(4, "free", NULL, "a QuickTime file", FILE_CONTAINER, "mov"),
    MAGIC(4, "skip", NULL, "a QuickTime file", FILE_CONTAINER, "mov"),
    MAGIC(0, "\x1a\x45\xdf\xa3", NULL, "a Matroska or WebM file", FILE_CONTAINER, "matroska"),
    MAGIC(0, "RIFF", "AVI ", "an AVI file", FILE_CONTAINER, "avi"),
    MAGIC(0, "OggS", NULL, "an Ogg file", FILE_CONTAINER, "ogg"),
    MAGIC(0, "FLV\x01", NULL, "an FLV file", FILE_CONTAINER, "flv"),
    MAGIC(0, "\0\0\x01\xba", NULL, "an MPEG programme stream", FILE_CONTAINER, "mpeg"),
    MAGIC(0, "RIFF", "WAVE", "a WAV sound", FILE_SOUND, "wav"),
    MAGIC(0, "RF64", "WAVE", "a WAV sound", FILE_SOUND, "wav"),
    MAGIC(0, "fLaC", NULL, "a FLAC sound", FILE_SOUND, "flac"),
    MAGIC(0, "FORM", "AIFF", "an AIFF sound", FILE_SOUND, "aiff"),
    MAGIC(0, "FORM", "AIFC", "an AIFF sound", FILE_SOUND, "aiff"),
    MAGIC(0, ".snd", NULL, "an AU sound", FILE_SOUND, "au"),
    MAGIC(0, "ID3", NULL, "an MP3 sound", FILE_SOUND, "mp3"),
};
static const struct file_kind mpeg_ts = {"an MPEG transport stream", FILE_CONTAINER, "mpegts"};
static const struct file_kind mp3 = {"an MP3 sound", FILE_SOUND, "mp3"};
static const struct file_kind adts = {"an AAC sound", FILE_SOUND, "aac"};

bool bytes_match(const u8 *bytes, i64 count, i64 at, const char *wanted, i64 length)
{
    return at + length <= count && memcmp(bytes + at, wanted, (size_t)length) == 0;
}

const struct file_kind *file_kind_of(const void *data, i64 count)
{
    const u8 *bytes = data;
    for (i64 i = 0; i < COUNT_OF(magics); i++) {
        const struct magic *magic = &magics[i];
        if (bytes_match(bytes, count, magic->at, magic->bytes, magic->length) &&
            (!magic->also || bytes_match(bytes, count, 8, magic->also, 4)))
            return &magic->kind;
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

const char *file_describe(const void *data, i64 count)
{
    const u8 *bytes = data;
    if (count == 0)
        return "an empty file";
    const struct file_kind *kind = file_kind_of(bytes, count);
    if (kind)
        return kind->name;
    i64 looked_at = min_i64(count, 512);
    for (i64 i = 0; i < looked_at; i++)
        if (bytes[i] < 9 || (bytes[i] > 13 && bytes[i] < 32))
            return "unknown bytes";
    return "text";
}
