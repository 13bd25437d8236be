/* Names the motion of the thing of a clip, from its place and size at the beginning and the end. */
#include "corpus/corpus.h"
#include <math.h>

const char *const motion_phrases[MOTIONS] = {
    [MOVE_LEFT] = "moves to the left",
    [MOVE_RIGHT] = "moves to the right",
    [MOVE_UP] = "moves up",
    [MOVE_DOWN] = "moves down",
    [GROW] = "grows",
    [SHRINK] = "shrinks",
    [TURN_CLOCKWISE] = "turns clockwise",
    [TURN_ANTICLOCKWISE] = "turns anticlockwise",
};

struct place { /* of the thing in a frame: its box's centre, in pixels, and its number of pixels */
    double y, x;
    i64 pixels;
};

static const u8 *frame_of(const struct clip *clip, i64 frame)
{
    return clip->pixels + frame * clip->height * clip->width * 3;
}

static struct place find_place(const struct clip *clip, i64 frame)
{
    struct looks looks;
    looks_read(&looks, NULL, frame_of(clip, frame), clip->height, clip->width);
    return (struct place){0.5 * (double)(looks.top + looks.bottom), 0.5 * (double)(looks.left + looks.right),
                          looks.pixels};
}

/* Mean squared difference between the last frame and the first one turned by `quarters` clockwise
 * quarter turns about the thing's middle. Outside of a frame is white. */
static double turned_distance(const struct clip *clip, struct place first, struct place last, int quarters)
{
    const u8 *from = frame_of(clip, 0), *to = frame_of(clip, clip->frames - 1);
    double sum = 0;
    for (i64 y = 0; y < clip->height; y++)
        for (i64 x = 0; x < clip->width; x++) {
            double down = (double)y - last.y, across = (double)x - last.x;
            i64 v = lround(first.y + (quarters ? -quarters * across : down));
            i64 u = lround(first.x + (quarters ? quarters * down : across));
            bool inside = v >= 0 && u >= 0 && v < clip->height && u < clip->width;
            for (int c = 0; c < 3; c++) {
                double d = to[(y * clip->width + x) * 3 + c] - (inside ? from[(v * clip->width + u) * 3 + c] : 255.0);
                sum += d * d;
            }
        }
    return sum / (double)(clip->height * clip->width * 3);
}

static int turn_of(const struct clip *clip, struct place first, struct place last)
{
    double still = turned_distance(clip, first, last, 0), right = turned_distance(clip, first, last, 1),
           left = turned_distance(clip, first, last, -1);
    if (2 * still < fmin(right, left))
        return -1;
    return right < left ? TURN_CLOCKWISE : TURN_ANTICLOCKWISE;
}

int motion_of(const struct clip *clip)
{
    struct place first = find_place(clip, 0), last = find_place(clip, clip->frames - 1);
    double down = last.y - first.y, across = last.x - first.x, side = (double)max_i64(clip->height, clip->width);
    if (clip->frames < 2 || !first.pixels || !last.pixels)
        return -1;
    if (last.pixels > 2 * first.pixels || first.pixels > 2 * last.pixels)
        return last.pixels > first.pixels ? GROW : SHRINK;
    if (fmax(fabs(down), fabs(across)) < 0.16 * side)
        return turn_of(clip, first, last);
    if (fabs(across) > fabs(down))
        return across < 0 ? MOVE_LEFT : MOVE_RIGHT;
    return down < 0 ? MOVE_UP : MOVE_DOWN;
}
