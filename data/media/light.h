/* Tone mapping of HDR video (ITU-R BT.2100: PQ and HLG, in BT.2020) to sRGB. Light below a third of
 * reference white keeps its brightness; the rest is compressed up to the peak with a Moebius curve.
 * Hues are preserved. */
#ifndef WEFT_DATA_LIGHT_H
#define WEFT_DATA_LIGHT_H
#include "core/core.h"

enum light { LIGHT_SDR, LIGHT_PQ, LIGHT_HLG };
/* Converts 16-bit R'G'B' to sRGB. peak: the brightest light to resolve, in cd/m2; HLG is displayed
 * at 1000 cd/m2. */
void light_to_srgb(u8 *out, const u16 *rgb, i64 pixels, enum light light, double peak);
#endif
