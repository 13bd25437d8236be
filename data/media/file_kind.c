/* Detects a file's kind from its first bytes. It uses no libav, since it runs before any
 * decoder. */
#include "data/media/whole.h"
#include <string.h>

struct magic {
    i64 at; /* offset of `bytes` */
    const char *bytes;
    i64 length;
    const char *also; /* NULL, or the 4 bytes at 8, the form type of RIFF and FORM files */
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
    MAGIC(0, "II+\0\b\0\0\0", NULL, "a TIFF picture", FILE_STILL, "tiff"), /* BigTIFF */
    MAGIC(0, "MM\0+\0\b\0\0", NULL, "a TIFF picture", FILE_STILL, "tiff"),
    MAGIC(0, "GIF87a", NULL, "a GIF animation", FILE_CONTAINER, "gif"),
    MAGIC(0, "GIF89a", NULL, "a GIF animation", FILE_CONTAINER, "gif"),
    MAGIC(0, "P5\n", NULL, "a PGM picture", FILE_STILL, "pnm"),
    MAGIC(0, "P6\n", NULL, "a PPM picture", FILE_STILL, "pnm"),
    MAGIC(0, "P5 ", NULL, "a PGM picture", FILE_STILL, "pnm"),
    MAGIC(0, "P6 ", NULL, "a PPM picture", FILE_STILL, "pnm"),
    MAGIC(0, "P5\r", NULL, "a PGM picture", FILE_STILL, "pnm"),
    MAGIC(0, "P6\r", NULL, "a PPM picture", FILE_STILL, "pnm"),
    MAGIC(0, "P5\t", NULL, "a PGM picture", FILE_STILL, "pnm"),
    MAGIC(0, "P6\t", NULL, "a PPM picture", FILE_STILL, "pnm"),
    MAGIC(0, "P5#", NULL, "a PGM picture", FILE_STILL, "pnm"),
    MAGIC(0, "P6#", NULL, "a PPM picture", FILE_STILL, "pnm"),
    MAGIC(4, "ftypheic", NULL, "a HEIF picture", FILE_STILL, "heif"),
    MAGIC(4, "ftypheix", NULL, "a HEIF picture", FILE_STILL, "heif"),
    MAGIC(4, "ftypheim", NULL, "a HEIF picture", FILE_STILL, "heif"),
    MAGIC(4, "ftypheis", NULL, "a HEIF picture", FILE_STILL, "heif"),
    MAGIC(4, "ftypmif1", NULL, "a HEIF picture", FILE_STILL, "heif"),
    MAGIC(4, "ftypavif", NULL, "an AVIF picture", FILE_STILL, "heif"),
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
    MAGIC(0, "\x30\x26\xb2\x75\x8e\x66\xcf\x11", NULL, "an ASF file (WMV, WMA)", FILE_CONTAINER, "asf"),
    MAGIC(0, "RIFF", "WAVE", "a WAV sound", FILE_SOUND, "wav"),
    MAGIC(0, "RF64", "WAVE", "a WAV sound", FILE_SOUND, "wav"),
    MAGIC(0, "RIFX", "WAVE", "a WAV sound", FILE_SOUND, "wav"),
    MAGIC(0, "riff\x2e\x91\xcf\x11\xa5\xd6", NULL, "a W64 sound", FILE_SOUND, "w64"),
    MAGIC(0, "caff\0\1\0\0", NULL, "a CAF sound", FILE_SOUND, "caf"),
    MAGIC(0, "fLaC", NULL, "a FLAC sound", FILE_SOUND, "flac"),
    MAGIC(0, "FORM", "AIFF", "an AIFF sound", FILE_SOUND, "aiff"),
    MAGIC(0, "FORM", "AIFC", "an AIFF sound", FILE_SOUND, "aiff"),
    MAGIC(0, ".snd", NULL, "an AU sound", FILE_SOUND, "au"),
};
static const struct file_kind mpeg_ts = {"an MPEG transport stream", FILE_CONTAINER, "mpegts"};
static const struct file_kind flac = {"a FLAC sound", FILE_SOUND, "flac"};
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
    i64 tags_bytes = id3_bytes(bytes, count);
    if (tags_bytes && bytes_match(bytes, count, tags_bytes, "fLaC", 4))
        return &flac;
    if (tags_bytes)
        return tags_bytes < count && adts_begins(bytes + tags_bytes, count - tags_bytes) ? &adts : &mp3;
    /* Streams without a header begin with a packet's sync word. */
    if (count >= 189 && bytes[0] == 0x47 && bytes[188] == 0x47)
        return &mpeg_ts;
    /* M2TS: a time of 4 bytes before each packet. */
    if (count >= 197 && bytes[4] == 0x47 && bytes[196] == 0x47)
        return &mpeg_ts;
    if (count >= 4 && bytes[0] == 0xff && (bytes[1] & 0xf6) == 0xf0)
        return &adts;
    if (count >= 4 && bytes[0] == 0xff && (bytes[1] & 0xe6) == 0xe2)
        return &mp3;
    return mp3_begin(bytes, count) >= 0 ? &mp3 : NULL;
}

/* Detects APNG: a chunk acTL precedes the picture's data. */
static bool png_moves(const u8 *bytes, i64 count)
{
    for (i64 at = 8; at + 8 <= count;) {
        if (memcmp(bytes + at + 4, "acTL", 4) == 0)
            return true;
        if (memcmp(bytes + at + 4, "IDAT", 4) == 0)
            return false;
        at += 12 + ((i64)bytes[at] << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3]);
    }
    return false;
}

/* Detects animated WebP by the flags of its VP8X chunk (RFC 9649, 2.7). */
static bool webp_moves(const u8 *bytes, i64 count)
{
    enum { ANIMATION = 2 };
    return count > 20 && bytes_match(bytes, count, 12, "VP8X", 4) && bytes[20] & ANIMATION;
}

const struct file_kind *clip_kind_of(const void *bytes, i64 count)
{
    static const struct file_kind apng = {"an animated PNG", FILE_CONTAINER, "apng"};
    const struct file_kind *kind = file_kind_of(bytes, count);
    if (!kind || kind->class == FILE_CONTAINER)
        return kind;
    if (kind->class == FILE_PNG)
        return png_moves(bytes, count) ? &apng : NULL;
    return strcmp(kind->reader, "webp") == 0 && webp_moves(bytes, count) ? kind : NULL;
}

/* Media that no reader reads. */
static const char *describe_unread(const u8 *bytes, i64 count)
{
    static const struct {
        const char *bytes;
        i64 length;
        const char *name;
    } unread[] = {{"\0\0\1\0", 4, "an icon (ICO)"},
                  {"8BPS", 4, "a Photoshop picture (PSD)"},
                  {"DDS ", 4, "a DDS texture"},
                  {"\0\0\0\x0cjP  \r\n", 10, "a JPEG 2000 picture"},
                  {"\xff\x4f\xff\x51", 4, "a JPEG 2000 picture"},
                  {"\xff\x0a", 2, "a JPEG XL picture"},
                  {"\0\0\0\x0cJXL \r\n", 10, "a JPEG XL picture"},
                  {"#?RADIANCE", 10, "a Radiance picture (HDR)"},
                  {"\x76\x2f\x31\1", 4, "an OpenEXR picture"},
                  {"\1\xda", 2, "an SGI picture"},
                  {"\x0a\5\1\x08", 4, "a PCX picture"},
                  {"qoif", 4, "a QOI picture"},
                  {"P1\n", 3, "a PBM picture"},
                  {"P2\n", 3, "a PGM picture of text"},
                  {"P3\n", 3, "a PPM picture of text"},
                  {"P4\n", 3, "a PBM picture"},
                  {"P7\n", 3, "a PAM picture"},
                  {"PF\n", 3, "a PFM picture"},
                  {"wvpk", 4, "a WavPack sound"},
                  {"MAC ", 4, "a Monkey's Audio sound"},
                  {"#!AMR", 5, "an AMR sound"},
                  {"\x0b\x77", 2, "an AC-3 sound"},
                  {".RMF", 4, "a RealMedia file"},
                  {"version https://git-lfs", 23, "a pointer of Git LFS instead of the file (git lfs pull)"}};
    for (i64 i = 0; i < COUNT_OF(unread); i++)
        if (bytes_match(bytes, count, 0, unread[i].bytes, unread[i].length))
            return unread[i].name;
    bool targa = count >= 26 && memcmp(bytes + count - 18, "TRUEVISION-XFILE.", 17) == 0;
    return targa ? "a Targa picture (TGA)" : NULL;
}

const char *file_describe(const void *data, i64 count)
{
    const u8 *bytes = data;
    if (count == 0)
        return "an empty file";
    const struct file_kind *kind = file_kind_of(bytes, count);
    if (kind)
        return kind->name;
    const char *unread = describe_unread(bytes, count);
    if (unread)
        return unread;
    i64 looked_at = min_i64(count, 512);
    for (i64 i = 0; i < looked_at; i++)
        if (bytes[i] < 9 || (bytes[i] > 13 && bytes[i] < 32))
            return "unknown bytes";
    return "text";
}
