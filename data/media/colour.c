/* Converts colours by ICC profile, through Little CMS. Pixels already in sRGB keep their bits: a
 * profile that moves no colour of a 6 x 6 x 6 grid by more than 2 (rounding) is skipped. */
#include "data/media/picture.h"
#include <lcms2.h>
#include <stdlib.h>
#include <string.h>

enum { GRID = 6, GRID_COLOURS = GRID * GRID * GRID, ROUNDING = 2 };

/* Opens a relative colorimetric transform with black point compensation, as browsers and picture
 * editors use for photographs. Little CMS speeds up those of 8 bits by tables, which lose too much
 * where 16 bits are meant to tell dark colours apart. */
static cmsHTRANSFORM open_transform(cmsContext context, cmsHPROFILE profile, cmsUInt32Number from)
{
    cmsHPROFILE srgb = cmsCreate_sRGBProfileTHR(context);
    cmsUInt32Number flags = T_BYTES(from) == 2 && T_COLORSPACE(from) != PT_CMYK ? cmsFLAGS_NOOPTIMIZE : 0;
    cmsHTRANSFORM transform =
        cmsCreateTransformTHR(context, profile, from, srgb, TYPE_RGB_8, INTENT_RELATIVE_COLORIMETRIC,
                              flags | cmsFLAGS_BLACKPOINTCOMPENSATION);
    cmsCloseProfile(srgb);
    return transform;
}

static bool changes_little(cmsContext context, cmsHPROFILE profile)
{
    u8 before[GRID_COLOURS * 3], after[GRID_COLOURS * 3];
    cmsHTRANSFORM transform = open_transform(context, profile, TYPE_RGB_8);
    if (!transform)
        return false;
    for (int i = 0; i < GRID_COLOURS; i++) {
        before[3 * i] = (u8)(i % GRID * 51);
        before[3 * i + 1] = (u8)(i / GRID % GRID * 51);
        before[3 * i + 2] = (u8)(i / (GRID * GRID) * 51);
    }
    cmsDoTransform(transform, before, after, GRID_COLOURS);
    cmsDeleteTransform(transform);
    for (int i = 0; i < GRID_COLOURS * 3; i++)
        if (abs(before[i] - after[i]) > ROUNDING)
            return false;
    return true;
}

/* Transforms row by row through separate buffers, because input and output pixels differ in size.
 * `kept`: channels of a pixel that the profile reads. */
static void transform_pixels(struct picture *picture, cmsHTRANSFORM transform, int kept)
{
    i64 width = picture->width, from = picture->inks == INKS_RGB ? 3 : 4, to = picture->inks == INKS_RGBA ? 4 : 3;
    i64 bytes = picture->deep ? 2 : 1; /* of a channel */
    u8 *all = picture->deep ? (u8 *)picture->deep : picture->pixels;
    u8 *colours = memory_alloc(width * 3), *packed = memory_alloc(width * kept * bytes);
    for (i64 y = 0; y < picture->height; y++) {
        const u8 *in = all + y * width * from * bytes;
        u8 *out = all + y * width * to;
        for (i64 x = 0; x < width; x++)
            memcpy(packed + x * kept * bytes, in + x * from * bytes, (size_t)(kept * bytes));
        cmsDoTransform(transform, packed, colours, (cmsUInt32Number)width);
        for (i64 x = 0; x < width; x++) {
            const u8 *last = in + (x * from + from - 1) * bytes;
            u8 alpha = picture->deep ? deep_to_byte(*(const u16 *)(const void *)last) : *last;
            memcpy(out + x * to, colours + x * 3, 3);
            if (to == 4)
                out[x * to + 3] = alpha;
        }
    }
    memory_free(packed);
    memory_free(colours);
    i64 bytes_left = picture->height * width * to;
    picture->pixels = picture->deep ? memory_resize(all, bytes_left, bytes_left) : all;
    picture->deep = NULL;
    picture->inks = to == 4 ? INKS_RGBA : INKS_RGB;
}

/* Transforms a picture by its profile. Grey pixels are stored with equal R, G and B, so a grey
 * profile reads the first channel. */
static bool transform_by(struct picture *picture, cmsContext context, cmsHPROFILE profile)
{
    static const struct {
        cmsColorSpaceSignature space;
        int kept;
        cmsUInt32Number bytes, deep;
    } all[] = {{cmsSigRgbData, 3, TYPE_RGB_8, TYPE_RGB_16},
               {cmsSigGrayData, 1, TYPE_GRAY_8, TYPE_GRAY_16},
               {cmsSigCmykData, 4, TYPE_CMYK_8_REV, TYPE_CMYK_16_REV},
               {cmsSigLabData, 3, 0, TYPE_Lab_16}};
    i64 i = 0;
    while (i < COUNT_OF(all) && all[i].space != cmsGetColorSpace(profile))
        i++;
    if (i == COUNT_OF(all) || (picture->inks == INKS_CMYK) != (all[i].space == cmsSigCmykData) ||
        picture->lab != (all[i].space == cmsSigLabData))
        return false;
    if (all[i].space == cmsSigRgbData && changes_little(context, profile))
        return true;
    cmsHTRANSFORM transform = open_transform(context, profile, picture->deep ? all[i].deep : all[i].bytes);
    if (!transform)
        return false;
    transform_pixels(picture, transform, all[i].kept);
    cmsDeleteTransform(transform);
    return true;
}

bool colours_to_srgb(struct picture *picture)
{
    cmsContext context = cmsCreateContext(NULL, NULL);
    require_memory(context, "Little CMS");
    cmsHPROFILE profile = picture->lab ? cmsCreateLab4ProfileTHR(context, NULL)
                                       : cmsOpenProfileFromMemTHR(context, picture->profile.data,
                                                                  (cmsUInt32Number)picture->profile.length);
    bool done = profile && transform_by(picture, context, profile);
    if (profile)
        cmsCloseProfile(profile);
    cmsDeleteContext(context);
    return done;
}

/* ---- Colours that a file states by numbers ---- */

void profile_of_display(struct buffer *out, const double xy[8], double gamma)
{
    cmsContext context = cmsCreateContext(NULL, NULL);
    require_memory(context, "Little CMS");
    const double srgb[5] = {2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045};
    cmsToneCurve *curve = gamma > 0 ? cmsBuildGamma(context, gamma) : cmsBuildParametricToneCurve(context, 4, srgb);
    cmsToneCurve *curves[3] = {curve, curve, curve};
    cmsCIExyY white = {xy[0], xy[1], 1};
    cmsCIExyYTRIPLE points = {{xy[2], xy[3], 1}, {xy[4], xy[5], 1}, {xy[6], xy[7], 1}};
    cmsHPROFILE profile = curve ? cmsCreateRGBProfileTHR(context, &white, &points, curves) : NULL;
    cmsUInt32Number bytes = 0;
    if (profile && cmsSaveProfileToMem(profile, NULL, &bytes) && bytes) {
        u8 *data = memory_alloc(bytes);
        if (cmsSaveProfileToMem(profile, data, &bytes))
            buffer_append(out, data, bytes);
        memory_free(data);
    }
    if (profile)
        cmsCloseProfile(profile);
    cmsFreeToneCurve(curve);
    cmsDeleteContext(context);
}

/* H.273, table 2 */
static const struct {
    int number;
    double xy[8];
} displays[] = {{1, {0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06}},
                {4, {0.31, 0.316, 0.67, 0.33, 0.21, 0.71, 0.14, 0.08}},
                {5, {0.3127, 0.329, 0.64, 0.33, 0.29, 0.6, 0.15, 0.06}},
                {6, {0.3127, 0.329, 0.63, 0.34, 0.31, 0.595, 0.155, 0.07}},
                {7, {0.3127, 0.329, 0.63, 0.34, 0.31, 0.595, 0.155, 0.07}},
                {9, {0.3127, 0.329, 0.708, 0.292, 0.17, 0.797, 0.131, 0.046}},
                {11, {0.314, 0.351, 0.68, 0.32, 0.265, 0.69, 0.15, 0.06}},
                {12, {0.3127, 0.329, 0.68, 0.32, 0.265, 0.69, 0.15, 0.06}}};
/* H.273, table 3: an exponent; 0: the curve of sRGB, which players use for that of cameras too. */
static const struct {
    int number;
    double gamma;
} curves_of_numbers[] = {{1, 0}, {6, 0}, {13, 0}, {14, 0}, {15, 0}, {4, 2.2}, {5, 2.8}, {8, 1}};

int profile_of_numbers(struct buffer *out, int primaries, int transfer, const char *origin)
{
    enum { UNSPECIFIED = 2, SRGB = 1, SRGB_CURVE = 13 };
    i64 p = 0, t = 0;
    primaries = primaries == UNSPECIFIED ? SRGB : primaries;
    transfer = transfer == UNSPECIFIED ? SRGB_CURVE : transfer;
    while (p < COUNT_OF(displays) && displays[p].number != primaries)
        p++;
    while (t < COUNT_OF(curves_of_numbers) && curves_of_numbers[t].number != transfer)
        t++;
    if (p == COUNT_OF(displays) || t == COUNT_OF(curves_of_numbers))
        return error_set(
            "%s: a picture whose colours are stated as primaries %d and transfer %d (ITU-T H.273)%s, which is "
            "not read; convert it to sRGB",
            origin, primaries, transfer,
            transfer == 16   ? ", PQ"
            : transfer == 18 ? ", HLG"
                             : "");
    if (p > 0 || curves_of_numbers[t].gamma > 0)
        profile_of_display(out, displays[p].xy, curves_of_numbers[t].gamma);
    return 0;
}
