/* Reads Windows and OS/2 bitmaps [MSDN: Bitmap Header Types; OS/2 Presentation Manager]. A file has a
 * header of 14 bytes, an information header that begins with its own size, masks of the channels, a
 * palette, and rows, the lowest first, each up to a multiple of 4 bytes. */
#include "data/media/picture.h"
#include "data/media/whole.h"

#include <string.h>

enum {
    FILE_HEADER = 14,
    CORE_HEADER = 12,
    OS2_HEADER = 64,
    V4_HEADER = 108,
    V5_HEADER = 124,
    MASKS_AT = 40 /* of the information header, or behind it where that is shorter */
};
enum bmp_packing { BMP_PLAIN, BMP_RLE8, BMP_RLE4, BMP_MASKS, BMP_MASKS_AND_ALPHA = 6 };

struct bmp {
    const char *origin;
    const u8 *bytes, *head; /* head: the information header */
    i64 count, head_bytes;
    i64 height, width, bits, packing, begin; /* begin: of the rows */
    bool upright;                            /* the first row is the uppermost */
    u32 masks[4];                            /* red, green, blue, alpha; 0: none */
    u8 palette[256][3];
    i64 colours; /* of the palette */
};

static int refuse(const struct bmp *bmp, const char *why)
{
    return error_set("%s: a BMP picture %s; convert it to PNG", bmp->origin, why);
}

/* ---- The header ---- */

static int read_sizes(struct bmp *bmp)
{
    const u8 *head = bmp->head = bmp->bytes + FILE_HEADER;
    bmp->head_bytes = bmp->count >= FILE_HEADER + 4 ? (i64)little_endian(head, 4) : 0;
    if (bmp->count < FILE_HEADER + max_i64(bmp->head_bytes, CORE_HEADER) || bmp->head_bytes < CORE_HEADER)
        return error_set("%s: cut short: a BMP picture without its header; copy it again", bmp->origin);
    bool core = bmp->head_bytes == CORE_HEADER;
    if (!core && bmp->head_bytes < MASKS_AT)
        return refuse(bmp, "with an unknown header");
    i64 height = core ? (i64)little_endian(head + 6, 2) : (i64)(i32)little_endian(head + 8, 4);
    bmp->width = core ? (i64)little_endian(head + 4, 2) : (i64)(i32)little_endian(head + 4, 4);
    bmp->bits = (i64)little_endian(head + (core ? 10 : 14), 2);
    bmp->packing = core ? BMP_PLAIN : (i64)little_endian(head + 16, 4);
    bmp->upright = height < 0;
    bmp->height = height < 0 ? -height : height;
    bmp->begin = (i64)little_endian(bmp->bytes + 10, 4);
    return 0;
}

static bool is_one_run(u32 mask)
{
    u32 low = mask & -mask;
    return mask == 0 || ((mask + low) & mask) == 0;
}

/* Reads the masks of the channels. Returns the bytes that they take behind the header. */
static i64 read_masks(struct bmp *bmp)
{
    static const u32 of_16[3] = {0x7c00, 0x3e0, 0x1f}, of_32[3] = {0xff0000, 0xff00, 0xff};
    bool inside = bmp->head_bytes >= MASKS_AT + 12;
    bool stated = bmp->packing == BMP_MASKS || bmp->packing == BMP_MASKS_AND_ALPHA;
    i64 given = inside ? (bmp->head_bytes >= MASKS_AT + 16 ? 4 : 3) : bmp->packing == BMP_MASKS_AND_ALPHA ? 4 : 3;
    for (i64 c = 0; c < 3 && !stated; c++)
        bmp->masks[c] = bmp->bits == 16 ? of_16[c] : of_32[c];
    if (!stated)
        return 0;
    for (i64 c = 0; c < given && FILE_HEADER + MASKS_AT + 4 * c + 4 <= bmp->count; c++)
        bmp->masks[c] = (u32)little_endian(bmp->head + MASKS_AT + 4 * c, 4);
    return inside ? 0 : 4 * given;
}

static int check_form(const struct bmp *bmp)
{
    static const i64 depths[] = {1, 2, 4, 8, 16, 24, 32};
    bool known = false;
    for (i64 i = 0; i < COUNT_OF(depths); i++)
        known = known || depths[i] == bmp->bits;
    bool os2 = bmp->head_bytes == OS2_HEADER && bmp->packing > BMP_RLE4;
    bool masks = bmp->packing == BMP_MASKS || bmp->packing == BMP_MASKS_AND_ALPHA;
    if (os2 || (bmp->packing > BMP_MASKS && !masks))
        return error_set("%s: a BMP picture compressed in a way that is not read (%lld); convert it to PNG",
                         bmp->origin, (long long)bmp->packing);
    bool fits = bmp->packing == BMP_RLE8   ? bmp->bits == 8
                : bmp->packing == BMP_RLE4 ? bmp->bits == 4
                : masks                    ? bmp->bits == 16 || bmp->bits == 32
                                           : known;
    return fits ? 0
                : error_set("%s: a BMP picture of %lld bits a pixel, compression %lld; convert it to PNG", bmp->origin,
                            (long long)bmp->bits, (long long)bmp->packing);
}

static void read_palette(struct bmp *bmp, i64 at)
{
    i64 entry = bmp->head_bytes == CORE_HEADER ? 3 : 4;
    i64 stated = entry == 3 ? 0 : (i64)little_endian(bmp->head + 32, 4), room = (bmp->begin - at) / entry;
    bmp->colours = stated ? stated : (i64)1 << bmp->bits;
    bmp->colours = max_i64(0, min_i64(min_i64(bmp->colours, 256), room));
    for (i64 i = 0; i < bmp->colours && at + 3 <= bmp->count; i++, at += entry)
        for (int c = 0; c < 3; c++)
            bmp->palette[i][c] = bmp->bytes[at + 2 - c];
}

/* A profile that is in the file (V5). */
static void take_profile(struct picture *out, const struct bmp *bmp)
{
    bool embedded = bmp->head_bytes >= V5_HEADER && memcmp(bmp->head + 56, "DEBM", 4) == 0;
    u64 at = embedded ? FILE_HEADER + little_endian(bmp->head + 112, 4) : 0;
    u64 bytes = embedded ? little_endian(bmp->head + 116, 4) : 0;
    if (bytes && at < (u64)bmp->count && bytes <= (u64)bmp->count - at)
        buffer_append(&out->profile, bmp->bytes + at, (i64)bytes);
}

/* ---- Pixels ---- */

static u8 channel(u32 pixel, u32 mask)
{
    int shift = mask ? __builtin_ctz(mask) : 0;
    u64 most = mask >> shift, value = (pixel & mask) >> shift;
    return mask ? (u8)((value * 255 + most / 2) / most) : 0;
}

static void unpack_masked(u8 *out, const struct bmp *bmp, const u8 *row)
{
    i64 bytes = bmp->bits / 8;
    for (i64 x = 0; x < bmp->width; x++, row += bytes, out += 4) {
        u32 pixel = (u32)little_endian(row, (int)bytes);
        for (int c = 0; c < 4; c++)
            out[c] = channel(pixel, bmp->masks[c]);
    }
}

/* Returns whether all colours are in the palette. */
static bool unpack_indices(u8 *out, const struct bmp *bmp, const u8 *row)
{
    i64 worst = 0;
    for (i64 x = 0; x < bmp->width; x++, out += 4) {
        i64 bit = x * bmp->bits;
        int index = row[bit / 8] >> (8 - bmp->bits - bit % 8) & ((1 << bmp->bits) - 1);
        worst = max_i64(worst, index);
        memcpy(out, bmp->palette[index], 3);
    }
    return worst < bmp->colours;
}

static int unpack_row(u8 *out, const struct bmp *bmp, const u8 *row)
{
    if (bmp->bits == 16 || bmp->bits == 32)
        unpack_masked(out, bmp, row);
    for (i64 x = 0; x < bmp->width && bmp->bits == 24; x++, out += 4)
        for (int c = 0; c < 3; c++)
            out[c] = row[3 * x + 2 - c];
    if (bmp->bits <= 8 && !unpack_indices(out, bmp, row))
        return refuse(bmp, "with colours that are not in its palette");
    return 0;
}

static u8 *row_of(const struct picture *out, const struct bmp *bmp, i64 y)
{
    return out->pixels + (bmp->upright ? y : bmp->height - 1 - y) * bmp->width * 4;
}

static int read_rows(struct picture *out, const struct bmp *bmp)
{
    i64 row_bytes = (bmp->width * bmp->bits + 7) / 8, stride = round_up(row_bytes, 4);
    i64 wanted = bmp->begin + stride * (bmp->height - 1) + row_bytes;
    if (wanted > bmp->count)
        return cut_short(bmp->origin, "a BMP picture", (u64)wanted, bmp->count);
    for (i64 y = 0; y < bmp->height; y++)
        if (unpack_row(row_of(out, bmp, y), bmp, bmp->bytes + bmp->begin + y * stride) < 0)
            return -1;
    return 0;
}

/* Run-length codes: COUNT VALUE; 0 0: the end of a row; 0 1: of the picture; 0 2 DX DY: skips pixels,
 * which keep colour 0; 0 COUNT VALUES.., up to a multiple of 2 bytes. RLE4 has two values in a byte. */
struct bmp_runs {
    u8 *indices; /* [height, width] */
    i64 x, y;
    bool outside;
};

static void put_run(struct bmp_runs *runs, const struct bmp *bmp, const u8 *values, i64 count, bool one)
{
    bool half = bmp->packing == BMP_RLE4;
    for (i64 i = 0; i < count; i++, runs->x++) {
        u8 value = values[one ? 0 : half ? i / 2 : i];
        if (runs->x >= bmp->width || runs->y >= bmp->height)
            runs->outside = true;
        else
            runs->indices[runs->y * bmp->width + runs->x] = half ? (i & 1 ? value & 15 : value >> 4) : value;
    }
}

static int read_runs(struct bmp_runs *runs, const struct bmp *bmp)
{
    const u8 *bytes = bmp->bytes;
    i64 at = bmp->begin, count = bmp->count;
    while (at + 2 <= count && !(bytes[at] == 0 && bytes[at + 1] == 1)) {
        i64 run = bytes[at], more = bytes[at + 1], used = 2;
        if (run > 0) {
            put_run(runs, bmp, bytes + at + 1, run, true);
        } else if (more == 0) {
            runs->x = 0;
            runs->y++;
        } else if (more == 2) {
            used = 4;
            runs->x += at + 4 <= count ? bytes[at + 2] : 0;
            runs->y += at + 4 <= count ? bytes[at + 3] : 0;
        } else {
            i64 held = bmp->packing == BMP_RLE4 ? (more + 1) / 2 : more;
            used = 2 + round_up(held, 2);
            if (at + 2 + held <= count)
                put_run(runs, bmp, bytes + at + 2, more, false);
        }
        at += used;
    }
    if (at + 2 > count)
        return cut_short(bmp->origin, "a BMP picture", (u64)at + 2, count);
    return runs->outside ? refuse(bmp, "with pixels outside of it") : 0;
}

static int read_packed(struct picture *out, const struct bmp *bmp)
{
    struct bmp whole = *bmp;
    struct bmp_runs runs = {.indices = memory_alloc(bmp->height * bmp->width)};
    int status = read_runs(&runs, bmp);
    whole.bits = 8;
    for (i64 y = 0; y < bmp->height && status == 0; y++)
        status = unpack_row(row_of(out, bmp, y), &whole, runs.indices + y * bmp->width);
    memory_free(runs.indices);
    return status;
}

/* Without transparency the fourth value of a pixel is left out. A mask of alpha that is 0 everywhere
 * says nothing. */
static void settle_alpha(struct picture *out, const struct bmp *bmp)
{
    i64 count = out->height * out->width, any = 0;
    for (i64 i = 0; i < count && bmp->masks[3]; i++)
        any |= out->pixels[4 * i + 3];
    out->inks = any ? INKS_RGBA : INKS_RGB;
    for (i64 i = 0; i < count && !any; i++)
        memmove(out->pixels + 3 * i, out->pixels + 4 * i, 3);
    if (!any)
        out->pixels = memory_resize(out->pixels, 4 * count, 3 * count);
}

int bmp_read(struct picture *out, const void *bytes, i64 count, const char *origin, const struct image_request *request)
{
    struct bmp bmp = {.origin = origin, .bytes = bytes, .count = count};
    *out = (struct picture){0};
    if (read_sizes(&bmp) < 0 || check_form(&bmp) < 0 || picture_check_size(bmp.height, bmp.width, origin, request) < 0)
        return -1;
    i64 behind = FILE_HEADER + bmp.head_bytes + read_masks(&bmp);
    for (int c = 0; c < 4; c++)
        if (!is_one_run(bmp.masks[c]))
            return refuse(&bmp, "whose channels lie in several places of a pixel");
    if (bmp.bits <= 8)
        read_palette(&bmp, behind);
    out->height = bmp.height;
    out->width = bmp.width;
    out->pixels = memory_alloc(bmp.height * bmp.width * 4);
    bool packed = bmp.packing == BMP_RLE8 || bmp.packing == BMP_RLE4;
    if ((packed ? read_packed : read_rows)(out, &bmp) < 0)
        return -1;
    settle_alpha(out, &bmp);
    take_profile(out, &bmp);
    return 0;
}
