/* Converts colours by ICC profile, through Little CMS. Pixels already in sRGB keep their bits: a
 * profile that moves no colour of a 6 x 6 x 6 grid by more than 2 (rounding) is skipped. */
#include "data/media/picture.h"
#include <lcms2.h>
#include <stdlib.h>
#include <string.h>

enum { GRID = 6, GRID_COLOURS = GRID * GRID * GRID, ROUNDING = 2 };

/* Opens a relative colorimetric transform with black point compensation, as browsers and picture
 * editors use for photographs. */
static cmsHTRANSFORM open_transform(cmsContext context, cmsHPROFILE profile, cmsUInt32Number from)
{
    cmsHPROFILE srgb = cmsCreate_sRGBProfileTHR(context);
    cmsHTRANSFORM transform = cmsCreateTransformTHR(context, profile, from, srgb, TYPE_RGB_8,
                                                    INTENT_RELATIVE_COLORIMETRIC, cmsFLAGS_BLACKPOINTCOMPENSATION);
    cmsCloseProfile(srgb);
    return transform;
}

static bool changes_little(cmsHTRANSFORM transform)
{
    u8 before[GRID_COLOURS * 3], after[GRID_COLOURS * 3];
    for (int i = 0; i < GRID_COLOURS; i++) {
        before[3 * i] = (u8)(i % GRID * 51);
        before[3 * i + 1] = (u8)(i / GRID % GRID * 51);
        before[3 * i + 2] = (u8)(i / (GRID * GRID) * 51);
    }
    cmsDoTransform(transform, before, after, GRID_COLOURS);
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
    u8 *colours = memory_alloc(width * 3), *packed = memory_alloc(width * kept);
    for (i64 y = 0; y < picture->height; y++) {
        const u8 *in = picture->pixels + y * width * from;
        u8 *out = picture->pixels + y * width * to;
        for (i64 x = 0; x < width; x++)
            memcpy(packed + x * kept, in + x * from, (size_t)kept);
        cmsDoTransform(transform, packed, colours, (cmsUInt32Number)width);
        for (i64 x = 0; x < width; x++) {
            u8 alpha = in[x * from + from - 1];
            memcpy(out + x * to, colours + x * 3, 3);
            if (to == 4)
                out[x * to + 3] = alpha;
        }
    }
    memory_free(packed);
    memory_free(colours);
    picture->inks = to == 4 ? INKS_RGBA : INKS_RGB;
}

/* Transforms a picture by its profile. Grey pixels are stored with equal R, G and B, so a grey
 * profile reads the first channel. */
static bool transform_by(struct picture *picture, cmsContext context, cmsHPROFILE profile)
{
    cmsColorSpaceSignature space = cmsGetColorSpace(profile);
    bool cmyk = picture->inks == INKS_CMYK, grey = space == cmsSigGrayData;
    if (space != (cmyk ? cmsSigCmykData : grey ? cmsSigGrayData : cmsSigRgbData))
        return false;
    cmsHTRANSFORM transform = open_transform(context, profile,
                                             cmyk   ? TYPE_CMYK_8_REV
                                             : grey ? TYPE_GRAY_8
                                                    : TYPE_RGB_8);
    if (!transform)
        return false;
    if (cmyk || grey || !changes_little(transform))
        transform_pixels(picture, transform, cmyk ? 4 : grey ? 1 : 3);
    cmsDeleteTransform(transform);
    return true;
}

bool colours_to_srgb(struct picture *picture)
{
    cmsContext context = cmsCreateContext(NULL, NULL);
    require_memory(context, "Little CMS");
    cmsHPROFILE profile =
        cmsOpenProfileFromMemTHR(context, picture->profile.data, (cmsUInt32Number)picture->profile.length);
    bool done = profile && transform_by(picture, context, profile);
    if (profile)
        cmsCloseProfile(profile);
    cmsDeleteContext(context);
    return done;
}
