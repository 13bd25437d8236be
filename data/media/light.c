#include "data/media/light.h"

#include <math.h>
#include <pthread.h>

enum { CODES = 4096, SRGB_STEPS = 65536 };
#define WHITE 203.0     /* cd/m2 of reference white, ITU-R BT.2408 */
#define HLG_PEAK 1000.0 /* peak of the display that HLG is graded for, cd/m2 */
#define KNEE 0.3f       /* fraction of reference white; light below is unchanged */

/* Indexed by the upper 12 bits of a code. pq_light: display light, reference white is 1. hlg_light:
 * scene light, 0..1. */
static float pq_light[CODES], hlg_light[CODES];
static u8 srgb_codes[SRGB_STEPS + 1];

/* SMPTE ST 2084, BT.2100 table 4. */
static double pq_eotf(double code)
{
    const double m1 = 2610.0 / 16384, m2 = 2523.0 / 32, c1 = 3424.0 / 4096, c2 = 2413.0 / 128, c3 = 2392.0 / 128;
    double power = pow(code, 1 / m2);
    return 10000 * pow(fmax(power - c1, 0) / (c2 - c3 * power), 1 / m1);
}

/* BT.2100 table 5, the inverse of its OETF. */
static double hlg_scene(double code)
{
    const double a = 0.17883277, b = 1 - 4 * a, c = 0.5 - a * log(4 * a);
    return code <= 0.5 ? code * code / 3 : (exp((code - c) / a) + b) / 12;
}

static double srgb_oetf(double light)
{
    return light <= 0.0031308 ? 12.92 * light : 1.055 * pow(light, 1 / 2.4) - 0.055;
}

static void fill_tables(void)
{
    for (int i = 0; i < CODES; i++) {
        pq_light[i] = (float)(pq_eotf(i / (CODES - 1.0)) / WHITE);
        hlg_light[i] = (float)hlg_scene(i / (CODES - 1.0));
    }
    for (int i = 0; i <= SRGB_STEPS; i++)
        srgb_codes[i] = (u8)lround(255 * srgb_oetf((double)i / SRGB_STEPS));
}

/* BT.2100 table 5: OOTF of a 1000 cd/m2 display, driven by the luminance of the whole pixel. */
static void apply_ootf(float rgb[3])
{
    float luminance = 0.2627f * rgb[0] + 0.6780f * rgb[1] + 0.0593f * rgb[2];
    float gain = (float)(HLG_PEAK / WHITE) * powf(luminance, 0.2f);
    for (int c = 0; c < 3; c++)
        rgb[c] *= gain;
}

struct tone_curve {
    float a, b, gain, peak;
};

/* Moebius curve gain (x + a) / (x + b) that meets y = x at the knee with slope 1 and reaches 1 at
 * the peak. */
static struct tone_curve curve_to(float peak)
{
    float j = KNEE, a = -j * j * (peak - 1) / (j * j - 2 * j + peak);
    float b = (j * j - 2 * j * peak + peak) / fmaxf(peak - 1, 1e-6f);
    return (struct tone_curve){a, b, (b * b + 2 * b * j + j * j) / (b - a), peak};
}

static float compress_highlights(float light, const struct tone_curve *curve)
{
    return light <= KNEE ? light : curve->gain * (light + curve->a) / (light + curve->b);
}

/* BT.2087: converts BT.2020 primaries to those of BT.709, which sRGB shares. */
static void to_srgb_primaries(float out[3], const float in[3])
{
    static const float matrix[3][3] = {
        {1.660491f, -0.587641f, -0.072850f}, {-0.124550f, 1.132900f, -0.008349f}, {-0.018151f, -0.100579f, 1.118730f}};
    for (int c = 0; c < 3; c++)
        out[c] = matrix[c][0] * in[0] + matrix[c][1] * in[1] + matrix[c][2] * in[2];
}

void light_to_srgb(u8 *out, const u16 *rgb, i64 pixels, enum light light, double peak)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_tables);
    const float *table = light == LIGHT_HLG ? hlg_light : pq_light;
    struct tone_curve curve = curve_to((float)(fmax(light == LIGHT_HLG ? HLG_PEAK : peak, WHITE + 1) / WHITE));
    for (i64 i = 0; i < pixels; i++, rgb += 3, out += 3) {
        float shown[3] = {table[rgb[0] >> 4], table[rgb[1] >> 4], table[rgb[2] >> 4]}, wide[3];
        if (light == LIGHT_HLG)
            apply_ootf(shown);
        to_srgb_primaries(wide, shown);
        float most = fmaxf(fmaxf(fmaxf(wide[0], wide[1]), wide[2]), 1e-6f),
              gain = compress_highlights(most, &curve) / most;
        for (int c = 0; c < 3; c++)
            out[c] = srgb_codes[(int)(fminf(fmaxf(wide[c] * gain, 0), 1) * SRGB_STEPS + 0.5f)];
    }
}
