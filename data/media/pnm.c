/* Reads binary PPM (P6) and PGM (P5) [netpbm: ppm(5), pgm(5)]: a mark, a width, a height and the
 * largest sample as decimal numbers, then rows of samples of 8 bits, or of 16 where the largest is above
 * 255, the higher byte first. Notes from # to the end of the line may stand between the numbers. */
#include "data/media/picture.h"
#include "data/media/whole.h"

#include <string.h>

struct pnm {
    const u8 *bytes;
    i64 count, at;
    i64 width, height, most;
};

static bool is_space(u8 c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Reads the next number; 0: there is none, or it is too large. */
static i64 next_number(struct pnm *pnm)
{
    const u8 *bytes = pnm->bytes;
    i64 value = 0;
    while (pnm->at < pnm->count && (is_space(bytes[pnm->at]) || bytes[pnm->at] == '#')) {
        bool note = bytes[pnm->at] == '#';
        while (note && pnm->at < pnm->count && bytes[pnm->at] != '\n' && bytes[pnm->at] != '\r')
            pnm->at++;
        pnm->at += !note;
    }
    for (; pnm->at < pnm->count && bytes[pnm->at] >= '0' && bytes[pnm->at] <= '9' && value < INT32_MAX; pnm->at++)
        value = value * 10 + bytes[pnm->at] - '0';
    return value < INT32_MAX ? value : 0;
}

/* Behind the last number stands one white character. Programs of Windows write two. */
static void pass_space(struct pnm *pnm, i64 wanted)
{
    bool two = bytes_match(pnm->bytes, pnm->count, pnm->at, "\r\n", 2) && pnm->count - pnm->at - 1 > wanted;
    pnm->at += two ? 2 : 1;
}

int pnm_read(struct picture *out, const void *bytes, i64 count, const char *origin, const struct image_request *request)
{
    struct pnm pnm = {.bytes = bytes, .count = count, .at = 2};
    bool colour = pnm.bytes[1] == '6';
    *out = (struct picture){.inks = INKS_RGB};
    out->width = pnm.width = next_number(&pnm);
    out->height = pnm.height = next_number(&pnm);
    pnm.most = next_number(&pnm);
    if (pnm.most < 1 || pnm.most > 65535 || pnm.at >= count || !is_space(pnm.bytes[pnm.at]))
        return error_set("%s: a PNM picture without a largest sample of 1 to 65535; write it again", origin);
    if (picture_check_size(pnm.height, pnm.width, origin, request) < 0)
        return -1;
    i64 samples = pnm.height * pnm.width * (colour ? 3 : 1), size = pnm.most > 255 ? 2 : 1;
    pass_space(&pnm, samples * size);
    if (count - pnm.at < samples * size)
        return cut_short(origin, "a PNM picture", (u64)(pnm.at + samples * size), count);
    out->pixels = memory_alloc(pnm.height * pnm.width * 3);
    u8 *to = out->pixels;
    for (i64 i = 0; i < samples; i++) {
        i64 value = (i64)big_endian(pnm.bytes + pnm.at + i * size, (int)size);
        if (value > pnm.most)
            return error_set("%s: a PNM picture with a sample of %lld, above the largest, %lld; write it again", origin,
                             (long long)value, (long long)pnm.most);
        for (int c = 0; c < (colour ? 1 : 3); c++)
            *to++ = (u8)((value * 255 + pnm.most / 2) / pnm.most);
    }
    return 0;
}
