/* Reads the first picture of a TIFF file through libtiff, which decompresses strips and tiles. This
 * file gives their samples a meaning: depth, photometric interpretation, extra samples. What cannot
 * be shown as the file says is refused by name. [TIFF 6.0 and its technical notes; Adobe's
 * supplements for BigTIFF, Lab and float] */
#include "data/media/picture.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tiffio.h>

enum { SAMPLES_MOST = 64, PIXEL_BYTES_MOST = 8 };

struct tiff_reader {
    const char *origin;
    const u8 *bytes;
    i64 count, at;
    const struct image_request *request;
    TIFF *tiff;
    char problem[200]; /* libtiff's last complaint */
    bool damaged;      /* it complained about the data of a strip or tile */
    bool decoding;
    u32 height, width;
    u16 bits, samples, format, meaning, planar, packing; /* meaning: PhotometricInterpretation */
    int colours;                                         /* samples of a pixel that are colours */
    int alpha;                                           /* index of the sample; -1: none */
    bool premultiplied, unsure;                          /* unsure: nothing says that the sample is transparency */
    i64 channels;                                        /* of `out`, 3 or 4 */
    u16 *out;                                            /* [height, width, channels] */
    double least, largest;                               /* of float and 32-bit samples */
    bool not_finite;
    i64 block_height, block_width, block_bytes; /* strips are as wide as the picture */
    u8 *block;
};

/* ---- The file, and what libtiff says of it ---- */

static int on_message(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments)
{
    struct tiff_reader *reader = user;
    (void)tiff, (void)module;
    if (!reader->problem[0])
        vsnprintf(reader->problem, sizeof reader->problem, format, arguments);
    return 1;
}

/* libtiff warns of data that it fills up. Of a directory it warns for every unknown tag. */
static int on_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments)
{
    struct tiff_reader *reader = user;
    if (!reader->decoding || strstr(format, "Old-style LZW"))
        return 1;
    reader->damaged = true;
    return on_message(tiff, user, module, format, arguments);
}

static tmsize_t give_bytes(thandle_t handle, void *out, tmsize_t wanted)
{
    struct tiff_reader *reader = handle;
    i64 given = max_i64(0, min_i64(wanted, reader->count - reader->at));
    memcpy(out, reader->bytes + reader->at, (size_t)given);
    reader->at += given;
    return given;
}

static tmsize_t take_no_bytes(thandle_t handle, void *bytes, tmsize_t count)
{
    (void)handle, (void)bytes, (void)count;
    return -1;
}

static toff_t seek_bytes(thandle_t handle, toff_t offset, int whence)
{
    struct tiff_reader *reader = handle;
    i64 base = whence == SEEK_CUR ? reader->at : whence == SEEK_END ? reader->count : 0;
    i64 at = base + (i64)offset;
    if (at < 0 || at > reader->count)
        return (toff_t)-1;
    reader->at = at;
    return (toff_t)at;
}

static int close_nothing(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t file_length(thandle_t handle)
{
    return (toff_t)((struct tiff_reader *)handle)->count;
}

static int refuse(const struct tiff_reader *reader, const char *why)
{
    return error_set("%s: a TIFF picture %s; convert it to PNG", reader->origin, why);
}

static int fail(const struct tiff_reader *reader)
{
    return error_set("%s: a TIFF picture: %s; copy it again", reader->origin,
                     reader->problem[0] ? reader->problem : "damaged");
}

static int open_file(struct tiff_reader *reader)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    require_memory(options, "libtiff");
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_message, reader);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, reader);
    /* No table of a file is longer than the file, no strip has more bytes than the picture. */
    TIFFOpenOptionsSetMaxSingleMemAlloc(
        options, max_i64(reader->count, reader->request->rules->most_pixels * PIXEL_BYTES_MOST) + (1 << 20));
    /* m: not mapped, so that libtiff checks each read against the end of the file. */
    reader->tiff = TIFFClientOpenExt("", "rm", reader, give_bytes, take_no_bytes, seek_bytes, close_nothing,
                                     file_length, NULL, NULL, options);
    TIFFOpenOptionsFree(options);
    return reader->tiff ? 0 : fail(reader);
}

/* ---- Tags ---- */

/* Pictures that stand for something else than colours, or that only a converter can develop. */
static int refuse_meaning(const struct tiff_reader *reader)
{
    static const struct {
        u16 meaning;
        const char *why;
    } strange[] = {{PHOTOMETRIC_MASK, "that is a mask of another one"},
                   {PHOTOMETRIC_ITULAB, "in ITU Lab, the colours of fax machines"},
                   {PHOTOMETRIC_CFA, "that is the mosaic of a camera's sensor (raw)"},
                   {PHOTOMETRIC_LOGL, "of light intensities (LogL)"},
                   {PHOTOMETRIC_LOGLUV, "of light intensities (LogLuv)"},
                   {34892 /* LinearRaw */, "that a camera stored raw"},
                   {51177 /* Depth */, "of depths"}};
    for (i64 i = 0; i < COUNT_OF(strange); i++)
        if (strange[i].meaning == reader->meaning)
            return refuse(reader, strange[i].why);
    return error_set("%s: a TIFF picture whose PhotometricInterpretation is %d, which is unknown; convert it to PNG",
                     reader->origin, reader->meaning);
}

/* Raw files of cameras begin with a small preview. */
static int refuse_previews(struct tiff_reader *reader)
{
    enum { DNG_VERSION = 50706 };
    u32 kind = 0;
    u32 count;
    void *data;
    if (TIFFGetField(reader->tiff, DNG_VERSION, &count, &data))
        return refuse(reader, "that a camera stored raw (DNG)");
    TIFFGetFieldDefaulted(reader->tiff, TIFFTAG_SUBFILETYPE, &kind);
    if (kind & FILETYPE_REDUCEDIMAGE)
        return refuse(reader, "that begins with a preview of itself (NewSubfileType 1), as raw files of cameras do");
    return kind & FILETYPE_MASK ? refuse(reader, "that is a mask of another one") : 0;
}

/* Finds the sample that is transparency. A file with more samples than colours has to say what they
 * are. If it does not, one more that is full everywhere changes nothing. */
static int find_alpha(struct tiff_reader *reader)
{
    u16 count = 0, *kinds = NULL;
    int extra = reader->samples - reader->colours;
    bool stated = TIFFGetField(reader->tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds);
    reader->alpha = -1;
    for (int i = 0; stated && i < count && i < extra && reader->alpha < 0; i++)
        if (kinds[i] == EXTRASAMPLE_ASSOCALPHA || kinds[i] == EXTRASAMPLE_UNASSALPHA) {
            reader->alpha = reader->colours + i;
            reader->premultiplied = kinds[i] == EXTRASAMPLE_ASSOCALPHA;
        }
    if (reader->alpha >= 0)
        return reader->colours == 4 ? refuse(reader, "of four inks with transparency") : 0;
    if (!stated && extra == 1 && reader->colours < 4) {
        reader->alpha = reader->colours;
        reader->unsure = true;
        return 0;
    }
    bool bands = reader->colours == 1 && extra > 1;
    return bands || (extra && !stated) ? refuse(reader, "of more bands than colours, whose meaning it does not state")
                                       : 0;
}

/* How many samples of a pixel are colours. */
static int count_colours(struct tiff_reader *reader)
{
    u16 inks = INKSET_CMYK, none = 0, full = 1;
    switch (reader->meaning) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
    case PHOTOMETRIC_PALETTE:
        reader->colours = 1;
        break;
    case PHOTOMETRIC_RGB:
    case PHOTOMETRIC_YCBCR:
    case PHOTOMETRIC_CIELAB:
    case PHOTOMETRIC_ICCLAB:
        reader->colours = 3;
        break;
    case PHOTOMETRIC_SEPARATED:
        TIFFGetFieldDefaulted(reader->tiff, TIFFTAG_INKSET, &inks);
        reader->colours = 4;
        if (inks != INKSET_CMYK)
            return refuse(reader, "of inks other than cyan, magenta, yellow and black");
        if (TIFFGetField(reader->tiff, TIFFTAG_DOTRANGE, &none, &full) && none >= full)
            return refuse(reader, "of inks whose largest values mean none (DotRange)");
        break;
    default:
        return refuse_meaning(reader);
    }
    if (reader->samples < reader->colours)
        return error_set("%s: a TIFF picture of %d samples a pixel; expected %d for PhotometricInterpretation %d",
                         reader->origin, reader->samples, reader->colours, reader->meaning);
    return find_alpha(reader);
}

static bool is_lab(const struct tiff_reader *reader)
{
    return reader->meaning == PHOTOMETRIC_CIELAB || reader->meaning == PHOTOMETRIC_ICCLAB;
}

/* Depths that sample_at knows, and those that a meaning has. */
static int check_depth(const struct tiff_reader *reader)
{
    int bits = reader->bits, format = reader->format;
    bool whole = format == SAMPLEFORMAT_UINT || format == SAMPLEFORMAT_VOID, real = format == SAMPLEFORMAT_IEEEFP;
    bool colours = reader->meaning <= PHOTOMETRIC_RGB;
    bool known = whole  ? (bits >= 1 && bits <= 16) || (bits == 32 && colours)
                 : real ? colours && (bits == 16 || bits == 32 || bits == 64)
                        : is_lab(reader) && format == SAMPLEFORMAT_INT;
    if (is_lab(reader))
        known = known && (bits == 8 || bits == 16);
    if (reader->meaning == PHOTOMETRIC_YCBCR)
        known = known && bits == 8 && reader->samples == 3;
    static const char *const formats[] = {"unsigned", "unsigned", "signed", "float", "unsigned", "complex", "complex"};
    return known ? 0
                 : error_set("%s: a TIFF picture of %d-bit %s samples with PhotometricInterpretation %d, which is not "
                             "read; convert it to PNG",
                             reader->origin, bits, format < COUNT_OF(formats) ? formats[format] : "unknown",
                             reader->meaning);
}

static int check_packing(struct tiff_reader *reader)
{
    TIFF *tiff = reader->tiff;
    if (reader->packing == COMPRESSION_OJPEG)
        return refuse(reader, "compressed as JPEG in the old way (Compression 6)");
    if (!TIFFIsCODECConfigured(reader->packing))
        return error_set("%s: a TIFF picture compressed in a way that this libtiff lacks (Compression %d); convert it "
                         "to PNG",
                         reader->origin, reader->packing);
    if (reader->meaning != PHOTOMETRIC_YCBCR)
        return 0;
    if (reader->planar == PLANARCONFIG_SEPARATE)
        return refuse(reader, "in YCbCr with a plane for each");
    if (reader->packing == COMPRESSION_JPEG) {
        TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
        reader->meaning = PHOTOMETRIC_RGB;
    }
    return 0;
}

static int find_blocks(struct tiff_reader *reader)
{
    TIFF *tiff = reader->tiff;
    u32 height = reader->height, width = reader->width;
    bool tiled = TIFFIsTiled(tiff);
    if (tiled && (!TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &width) || !TIFFGetField(tiff, TIFFTAG_TILELENGTH, &height)))
        return refuse(reader, "of tiles without a size");
    if (!tiled)
        TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &height);
    reader->block_height = tiled ? height : min_i64(height, reader->height);
    reader->block_width = width;
    u64 bytes = tiled ? TIFFTileSize64(tiff) : TIFFVStripSize64(tiff, (u32)reader->block_height);
    u64 most = (u64)reader->request->rules->most_pixels * PIXEL_BYTES_MOST;
    if (reader->block_height < 1 || reader->block_width < 1 || bytes < 1)
        return refuse(reader, "of empty strips or tiles");
    if (bytes > most)
        return error_set(
            "%s: a TIFF picture with strips or tiles of %llu bytes; at most %llu are read at once, write it "
            "with smaller ones",
            reader->origin, (unsigned long long)bytes, (unsigned long long)most);
    reader->block_bytes = (i64)bytes;
    return 0;
}

static int read_tags(struct tiff_reader *reader)
{
    TIFF *tiff = reader->tiff;
    u32 depth = 1;
    TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &reader->height);
    TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &reader->width);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_IMAGEDEPTH, &depth);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &reader->bits);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &reader->samples);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLEFORMAT, &reader->format);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_PLANARCONFIG, &reader->planar);
    TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &reader->packing);
    if (picture_check_size(reader->height, reader->width, reader->origin, reader->request) < 0)
        return -1;
    if (depth != 1)
        return refuse(reader, "with a depth (ImageDepth)");
    if (reader->samples < 1 || reader->samples > SAMPLES_MOST)
        return refuse(reader, "of too many samples a pixel");
    if (!TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &reader->meaning))
        return refuse(reader, "that does not state what its samples are (PhotometricInterpretation)");
    return refuse_previews(reader) < 0 || count_colours(reader) < 0 || check_depth(reader) < 0 ||
                   check_packing(reader) < 0 || find_blocks(reader) < 0
               ? -1
               : 0;
}

/* ---- Samples ---- */

static double half_value(u16 half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                   : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                  : ldexp(fraction, -24);
    return half >> 15 ? -value : value;
}

static double float_at(const u8 *row, i64 i, int bits)
{
    u16 half;
    float single;
    double wide;
    if (bits == 16)
        return memcpy(&half, row + 2 * i, 2), half_value(half);
    if (bits == 32)
        return memcpy(&single, row + 4 * i, 4), single;
    return memcpy(&wide, row + 8 * i, 8), wide;
}

/* Sample i of a row in which samples follow each other without gaps, the first one in the highest
 * bits. libtiff has turned the bytes of 16 and 32 bits to this machine's order. */
static u32 sample_at(const u8 *row, i64 i, int bits)
{
    u16 half;
    u32 word = 0;
    if (bits == 8)
        return row[i];
    if (bits == 16)
        return memcpy(&half, row + 2 * i, 2), half;
    if (bits == 32)
        return memcpy(&word, row + 4 * i, 4), word;
    i64 first = i * bits, last = first + bits - 1;
    for (i64 byte = first / 8; byte <= last / 8; byte++)
        word = word << 8 | row[byte];
    return word >> (7 - last % 8) & ((1u << bits) - 1);
}

static u16 float_to_16(struct tiff_reader *reader, double value)
{
    reader->least = fmin(reader->least, value);
    reader->largest = fmax(reader->largest, value);
    reader->not_finite |= !isfinite(value);
    return value > 0 ? (u16)lrint(fmin(value, 1) * 65535) : 0;
}

/* Copies `count` samples of a row, every `step`th from `first` on, to every `channels`th of out: as
 * 16 bits, or as they are if they are indices of a palette. */
static void take_samples(u16 *out, struct tiff_reader *reader, const u8 *row, i64 first, i64 step, i64 count)
{
    int bits = reader->bits;
    i64 channels = reader->channels;
    if (reader->format == SAMPLEFORMAT_IEEEFP) {
        for (i64 i = 0; i < count; i++)
            out[i * channels] = float_to_16(reader, float_at(row, first + i * step, bits));
        return;
    }
    bool index = reader->meaning == PHOTOMETRIC_PALETTE && first == 0;
    u32 most = bits < 32 ? (1u << bits) - 1 : UINT32_MAX, largest = 0;
    for (i64 i = 0; i < count; i++) {
        u32 value = sample_at(row, first + i * step, bits);
        largest = value > largest ? value : largest;
        out[i * channels] = (u16)(index || bits == 16 ? value
                                  : bits == 32        ? value >> 16
                                                      : (value * 65535u + most / 2) / most);
    }
    if (bits == 32)
        reader->largest = fmax(reader->largest, largest);
}

/* The channel of the result that a sample goes to; -1: none. */
static int channel_of(const struct tiff_reader *reader, int sample)
{
    return sample < reader->colours ? sample : sample == reader->alpha ? 3 : -1;
}

/* Takes a block of whole samples whose corner is at y, x. `plane`: -1, or the sample it is of. */
static void place_block(struct tiff_reader *reader, i64 y, i64 x, int plane)
{
    i64 height = min_i64(reader->block_height, reader->height - y);
    i64 width = min_i64(reader->block_width, reader->width - x);
    i64 step = plane < 0 ? reader->samples : 1, row_bytes = (reader->block_width * step * reader->bits + 7) / 8;
    int begin = max_i64(plane, 0), end = plane < 0 ? reader->samples : plane + 1;
    for (i64 row = 0; row < height; row++)
        for (int sample = begin; sample < end; sample++) {
            int channel = channel_of(reader, sample);
            u16 *out = reader->out + ((y + row) * reader->width + x) * reader->channels + channel;
            if (channel >= 0)
                take_samples(out, reader, reader->block + row * row_bytes, plane < 0 ? sample : 0, step, width);
        }
}

/* ---- YCbCr [TIFF 6.0, 21] ---- */

struct ycbcr {
    u16 across, down; /* chroma is halved or quartered */
    const float *luma, *range;
};

static double coded(double value, double black, double white, double range)
{
    return white == black ? 0 : (value - black) * range / (white - black);
}

static u16 to_16(double value)
{
    return (u16)lrint(fmax(0, fmin(value, 255)) * 257);
}

static void ycbcr_to_rgb(u16 *out, const struct ycbcr *how, u8 light, u8 blue, u8 red)
{
    const float *range = how->range, *luma = how->luma;
    double y = coded(light, range[0], range[1], 255);
    double b = y + coded(blue, range[2], range[3], 127) * (2 - 2 * luma[2]);
    double r = y + coded(red, range[4], range[5], 127) * (2 - 2 * luma[0]);
    out[0] = to_16(r);
    out[1] = to_16((y - luma[0] * r - luma[2] * b) / luma[1]);
    out[2] = to_16(b);
}

/* A block is rows of units: across x down brightnesses, one blue and one red difference. */
static int place_ycbcr(struct tiff_reader *reader, i64 y, i64 x)
{
    struct ycbcr how;
    float *luma, *range;
    TIFFGetFieldDefaulted(reader->tiff, TIFFTAG_YCBCRSUBSAMPLING, &how.across, &how.down);
    TIFFGetFieldDefaulted(reader->tiff, TIFFTAG_YCBCRCOEFFICIENTS, &luma);
    TIFFGetFieldDefaulted(reader->tiff, TIFFTAG_REFERENCEBLACKWHITE, &range);
    how.luma = luma;
    how.range = range;
    bool known = (how.across == 1 || how.across == 2 || how.across == 4) &&
                 (how.down == 1 || how.down == 2 || how.down == 4) && luma[1] > 0;
    i64 height = min_i64(reader->block_height, reader->height - y);
    i64 width = min_i64(reader->block_width, reader->width - x);
    i64 units = (reader->block_width + how.across - 1) / max_i64(how.across, 1), unit_bytes = how.across * how.down + 2;
    if (!known || (height + how.down - 1) / how.down * units * unit_bytes > reader->block_bytes)
        return refuse(reader, "in YCbCr of an unknown kind (YCbCrSubSampling)");
    for (i64 row = 0; row < height; row++)
        for (i64 column = 0; column < width; column++) {
            const u8 *unit = reader->block + (row / how.down * units + column / how.across) * unit_bytes;
            const u8 *chroma = unit + how.across * how.down;
            u8 light = unit[row % how.down * how.across + column % how.across];
            ycbcr_to_rgb(reader->out + ((y + row) * reader->width + x + column) * reader->channels, &how, light,
                         chroma[0], chroma[1]);
        }
    return 0;
}

/* ---- From samples to colours ---- */

static void invert(u16 *pixels, i64 count, i64 channels, int inverted)
{
    for (i64 i = 0; i < count; i++)
        for (int c = 0; c < inverted; c++)
            pixels[i * channels + c] = (u16)(65535 - pixels[i * channels + c]);
}

static void spread_grey(u16 *pixels, i64 count, i64 channels)
{
    for (i64 i = 0; i < count; i++)
        pixels[i * channels + 1] = pixels[i * channels + 2] = pixels[i * channels];
}

/* Colours of a palette have 16 bits. Writers that had 8 shifted them or repeated them, or left them
 * as they were. */
static int look_up(struct tiff_reader *reader, i64 count)
{
    u16 *maps[3];
    i64 entries = (i64)1 << reader->bits, channels = reader->channels;
    if (!TIFFGetField(reader->tiff, TIFFTAG_COLORMAP, &maps[0], &maps[1], &maps[2]))
        return refuse(reader, "of palette colours without a palette");
    bool narrow = true;
    for (i64 i = 0; i < entries * 3; i++)
        narrow = narrow && maps[i / entries][i % entries] < 256;
    for (i64 i = 0; i < count; i++) {
        u16 *pixel = reader->out + i * channels, index = pixel[0];
        for (int c = 0; c < 3; c++)
            pixel[c] = (u16)((narrow ? maps[c][index] : maps[c][index] >> 8) * 257);
    }
    return 0;
}

/* Divides colours by their transparency, with which the file has multiplied them. */
static void divide_by_alpha(u16 *pixels, i64 count)
{
    for (u16 *pixel = pixels; count > 0; count--, pixel += 4)
        for (int c = 0; c < 3 && pixel[3] > 0; c++)
            pixel[c] = (u16)min_i64(65535, ((i64)pixel[c] * 65535 + pixel[3] / 2) / pixel[3]);
}

/* Lab as Little CMS takes it: 65535 is L 100, and a and b are (value + 128) * 257. CIE Lab has signed
 * a and b; ICC Lab of 16 bits has 65280 for L 100. */
static void encode_lab(struct tiff_reader *reader, i64 count)
{
    bool icc = reader->meaning == PHOTOMETRIC_ICCLAB, wide = reader->bits == 16;
    for (u16 *pixel = reader->out; count > 0; count--, pixel += reader->channels) {
        if (icc && wide)
            pixel[0] = (u16)min_i64(65535, (pixel[0] * 65535ll + 32640) / 65280);
        for (int c = 1; c < 3; c++) {
            i64 value = icc ? pixel[c] : wide ? pixel[c] ^ 0x8000 : (pixel[c] / 257 ^ 0x80) * 257;
            pixel[c] = (u16)(wide ? min_i64(65535, (value * 257 + 128) / 256) : value);
        }
    }
}

/* Values whose white is not known are refused rather than cut off. */
static int check_range(const struct tiff_reader *reader)
{
    if (reader->format == SAMPLEFORMAT_IEEEFP && reader->not_finite)
        return refuse(reader, "of float samples that are not all numbers");
    if (reader->format == SAMPLEFORMAT_IEEEFP && (reader->least < 0 || reader->largest > 1))
        return error_set("%s: a TIFF picture of float samples from %g to %g; expected 0 (black) to 1 (white): scale it",
                         reader->origin, reader->least, reader->largest);
    bool dark =
        reader->bits == 32 && reader->format != SAMPLEFORMAT_IEEEFP && reader->largest > 0 && reader->largest < 1 << 24;
    return dark ? error_set("%s: a TIFF picture of 32-bit samples up to %.0f, of which all are black; scale it to the "
                            "whole range",
                            reader->origin, reader->largest)
                : 0;
}

static int check_unsure(const struct tiff_reader *reader, i64 count)
{
    for (i64 i = 0; reader->unsure && i < count; i++)
        if (reader->out[i * 4 + 3] != 65535)
            return refuse(reader, "of more bands than colours, whose meaning it does not state");
    return 0;
}

static int give_meaning(struct picture *out, struct tiff_reader *reader)
{
    i64 count = (i64)reader->height * reader->width;
    if (check_range(reader) < 0 || check_unsure(reader, count) < 0)
        return -1;
    if (reader->meaning == PHOTOMETRIC_PALETTE && look_up(reader, count) < 0)
        return -1;
    if (reader->meaning == PHOTOMETRIC_MINISWHITE)
        invert(reader->out, count, reader->channels, 1);
    if (reader->meaning <= PHOTOMETRIC_MINISBLACK)
        spread_grey(reader->out, count, reader->channels);
    if (reader->meaning == PHOTOMETRIC_SEPARATED)
        invert(reader->out, count, 4, 4); /* 0 is no ink here */
    if (reader->premultiplied)
        divide_by_alpha(reader->out, count);
    if (is_lab(reader))
        encode_lab(reader, count);
    out->lab = is_lab(reader);
    if (reader->bits <= 8 && !out->lab)
        picture_narrow(out); /* as in other formats, whose profiles read 8 bits */
    return 0;
}

/* ---- Blocks ---- */

static int read_block(struct tiff_reader *reader, i64 y, i64 x, int plane)
{
    TIFF *tiff = reader->tiff;
    u16 of = (u16)max_i64(plane, 0);
    i64 rows = min_i64(reader->block_height, reader->height - y);
    bool tiled = TIFFIsTiled(tiff);
    i64 wanted = tiled ? reader->block_bytes : (i64)TIFFVStripSize64(tiff, (u32)rows);
    i64 read = tiled ? TIFFReadEncodedTile(tiff, TIFFComputeTile(tiff, (u32)x, (u32)y, 0, of), reader->block, wanted)
                     : TIFFReadEncodedStrip(tiff, TIFFComputeStrip(tiff, (u32)y, of), reader->block, wanted);
    if (read < wanted || reader->damaged)
        return fail(reader);
    if (reader->meaning == PHOTOMETRIC_YCBCR)
        return place_ycbcr(reader, y, x);
    place_block(reader, y, x, plane);
    return 0;
}

static int read_blocks(struct tiff_reader *reader)
{
    bool planes = reader->planar == PLANARCONFIG_SEPARATE && reader->samples > 1;
    int status = 0;
    reader->block = memory_alloc(reader->block_bytes);
    reader->decoding = true;
    for (int plane = planes ? 0 : -1; status == 0 && plane < (planes ? reader->samples : 0); plane++)
        for (i64 y = 0; status == 0 && y < reader->height && !(planes && channel_of(reader, plane) < 0);
             y += reader->block_height)
            for (i64 x = 0; status == 0 && x < reader->width; x += reader->block_width)
                status = read_block(reader, y, x, plane);
    memory_free(reader->block);
    return status;
}

static void take_notes(struct picture *out, const struct tiff_reader *reader)
{
    u32 bytes;
    void *profile;
    u16 orientation = 0;
    if (!out->lab && TIFFGetField(reader->tiff, TIFFTAG_ICCPROFILE, &bytes, &profile))
        buffer_append(&out->profile, profile, bytes);
    if (TIFFGetField(reader->tiff, TIFFTAG_ORIENTATION, &orientation) && orientation >= 1 && orientation <= 8)
        out->orientation = orientation;
}

int tiff_read(struct picture *out, const void *bytes, i64 count, const char *origin,
              const struct image_request *request)
{
    struct tiff_reader reader = {.origin = origin, .bytes = bytes, .count = count, .request = request};
    *out = (struct picture){0};
    int status = open_file(&reader);
    if (status == 0)
        status = read_tags(&reader);
    if (status == 0) {
        reader.channels = reader.alpha >= 0 || reader.colours == 4 ? 4 : 3;
        reader.out = memory_alloc((i64)reader.height * reader.width * reader.channels * (i64)sizeof *reader.out);
        *out = (struct picture){.inks = reader.colours == 4 ? INKS_CMYK
                                        : reader.alpha >= 0 ? INKS_RGBA
                                                            : INKS_RGB,
                                .height = reader.height,
                                .width = reader.width,
                                .deep = reader.out};
        status = read_blocks(&reader);
    }
    if (status == 0)
        status = give_meaning(out, &reader);
    if (status == 0)
        take_notes(out, &reader);
    if (reader.tiff)
        TIFFClose(reader.tiff);
    return status;
}
