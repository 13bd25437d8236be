/* Names the colours of a picture: the 11 basic colour terms of Berlin and Kay, by hue, saturation
 * and value. */
#include "corpus/corpus.h"

enum { BLACK, GRAY, WHITE, RED, ORANGE, YELLOW, BROWN, GREEN, BLUE, PURPLE, PINK };
const char *const colour_names[COLOURS] = {
    [BLACK] = "black",   [GRAY] = "gray",     [WHITE] = "white", [RED] = "red",
    [ORANGE] = "orange", [YELLOW] = "yellow", [BROWN] = "brown", [GREEN] = "green",
    [BLUE] = "blue",     [PURPLE] = "purple", [PINK] = "pink"};

/* Hue in degrees, 0 to 360. The channels must not all be equal. */
static int hue_of(const int rgb[3], int most, int spread)
{
    if (most == rgb[0])
        return (60 * (rgb[1] - rgb[2]) / spread + 360) % 360;
    return most == rgb[1] ? 120 + 60 * (rgb[2] - rgb[0]) / spread : 240 + 60 * (rgb[0] - rgb[1]) / spread;
}

static int colour_of_hue(int hue, int value, int saturation) /* both 0 to 255 */
{
    bool pale = value > 200 && saturation < 115;
    if (hue < 14 || hue >= 340)
        return pale ? PINK : value < 115 ? BROWN : RED;
    if (hue < 41)
        return value < 175 ? BROWN : ORANGE;
    if (hue < 68)
        return value < 140 ? BROWN : YELLOW;
    if (hue < 165)
        return GREEN;
    if (hue < 258)
        return BLUE;
    return hue < 295 || value < 150 ? PURPLE : PINK;
}

int colour_of(int red, int green, int blue)
{
    const int rgb[3] = {red, green, blue};
    int most = (int)max_i64(red, max_i64(green, blue)), least = (int)min_i64(red, min_i64(green, blue));
    int saturation = most ? 255 * (most - least) / most : 0;
    if (most < 64)
        return BLACK;
    if (saturation < 38)
        return most > 224 ? WHITE : most < 90 ? BLACK : GRAY;
    return colour_of_hue(hue_of(rgb, most, most - least), most, saturation);
}

static int most_of(const i64 pixels[COLOURS])
{
    int most = 0;
    for (int c = 1; c < COLOURS; c++)
        most = pixels[c] > pixels[most] ? c : most;
    return most;
}

void describe_colours(struct buffer *out, const i64 pixels[COLOURS])
{
    enum { SAID = 3, LEAST = 7 }; /* at most SAID names; all but the first need 1/LEAST of the pixels */
    i64 left[COLOURS], total = 0;
    int said[SAID], count = 0;
    for (int c = 0; c < COLOURS; c++)
        total += left[c] = pixels[c];
    while (count < SAID && (count == 0 || left[most_of(left)] * LEAST >= max_i64(total, 1))) {
        said[count] = most_of(left);
        left[said[count++]] = 0;
    }
    for (int i = 0; i < count; i++)
        buffer_printf(out, "%s%s", i == 0 ? "" : i == count - 1 ? " and " : ", ", colour_names[said[i]]);
}
