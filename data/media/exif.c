/* Reads the orientation from EXIF 2.32, which is a TIFF file of tags. */
#include "data/media/picture.h"

enum { TAG_BYTES = 12, ORIENTATION = 274, SHORT = 3 };

static u32 number(const u8 *bytes, int length, bool big_endian)
{
    u32 value = 0;
    for (int i = 0; i < length; i++)
        value = value << 8 | bytes[big_endian ? i : length - 1 - i];
    return value;
}

/* The value of a tag of type SHORT in the first directory; 0: none. */
static int tiff_number(const u8 *bytes, i64 count, int tag)
{
    bool big = bytes_match(bytes, count, 0, "MM\0*", 4);
    if (count < 8 || (!big && !bytes_match(bytes, count, 0, "II*\0", 4)))
        return 0;
    i64 at = number(bytes + 4, 4, big);
    if (at + 2 > count)
        return 0;
    i64 tags = number(bytes + at, 2, big);
    for (at += 2; tags > 0 && at + TAG_BYTES <= count; tags--, at += TAG_BYTES)
        if ((int)number(bytes + at, 2, big) == tag)
            return number(bytes + at + 2, 2, big) == SHORT ? (int)number(bytes + at + 8, 2, big) : 0;
    return 0;
}

int exif_orientation(const u8 *bytes, i64 count)
{
    if (count == 0)
        return 0;
    i64 begin = bytes_match(bytes, count, 0, "Exif\0\0", 6) ? 6 : 0;
    int value = tiff_number(bytes + begin, count - begin, ORIENTATION);
    return value >= 1 && value <= 8 ? value : 0;
}

struct orientation orientation_of_exif(int orientation)
{
    static const struct orientation turns[9] = {
        [2] = {false, true, false}, [3] = {false, true, true}, [4] = {false, false, true}, [5] = {true, false, false},
        [6] = {true, true, false},  [7] = {true, true, true},  [8] = {true, false, true}};
    return turns[orientation];
}
