/* Video whose light goes beyond white (ITU-R BT.2100: PQ and HLG, in BT.2020) as sRGB. What is below a third of
 * reference white keeps its brightness, the rest is drawn together up to the peak (a Moebius curve), hues kept. */
#ifndef WEFT_DATA_LIGHT_H
#define WEFT_DATA_LIGHT_H
#include "core/core.h"

enum light { LIGHT_SDR, LIGHT_PQ, LIGHT_HLG };
/* R'G'B' of 16 bits -> sRGB. peak: cd/m2 of the brightest that is to be told apart; HLG is shown at 1000. */
void light_to_srgb(u8 *out, const u16 *rgb, i64 pixels, enum light light, double peak);
#endif
