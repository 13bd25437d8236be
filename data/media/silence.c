#include "data/media/silence.h"

#include <math.h>
#include <string.h>

enum { HOPS_A_SECOND = 100, HOPS_LOOKED_AT = 6 }; /* a cut is centred in 60 ms */
#define SILENT 1e-3f                              /* -60 dB of full scale */

static void begin(struct silence_cutter *cutter, i64 rate_hz, double longest_s)
{
    i64 longest = max_i64((i64)(longest_s * (double)rate_hz), rate_hz / HOPS_A_SECOND * HOPS_LOOKED_AT);
    *cutter = (struct silence_cutter){.rate_hz = rate_hz, .longest = longest};
    cutter->held = memory_alloc((longest + 1) * (i64)sizeof *cutter->held);
}

int silence_cutter_open(struct silence_cutter *cutter, const void *bytes, i64 count, const char *origin, i64 rate_hz,
                        double longest_s)
{
    begin(cutter, rate_hz, longest_s);
    cutter->stream = sound_stream_open(bytes, count, origin, rate_hz);
    if (!cutter->stream)
        silence_cutter_close(cutter);
    return cutter->held ? 0 : -1;
}

void silence_cutter_open_sound(struct silence_cutter *cutter, const struct sound *sound, double longest_s)
{
    begin(cutter, sound->rate_hz, longest_s);
    cutter->left = *sound;
}

void silence_cutter_close(struct silence_cutter *cutter)
{
    sound_stream_close(cutter->stream);
    memory_free(cutter->held);
    *cutter = (struct silence_cutter){0};
}

static i64 read_more(struct silence_cutter *c, float *out, i64 most)
{
    if (c->stream)
        return sound_stream_read(c->stream, out, most);
    i64 taken = min_i64(most, c->left.samples);
    if (taken)
        memcpy(out, c->left.values, (size_t)taken * sizeof *out);
    c->left.values += taken;
    c->left.samples -= taken;
    return taken;
}

/* Fills the buffer to one sample beyond a piece's maximum; that sample tells whether more
 * follows. */
static int fill(struct silence_cutter *c)
{
    while (!c->ended && c->count <= c->longest) {
        i64 more = read_more(c, c->held + c->count, c->longest + 1 - c->count);
        if (more < 0)
            return -1;
        c->ended = more == 0;
        c->count += more;
    }
    return 0;
}

static double energy(const float *samples, i64 count)
{
    double sum = 0;
    for (i64 i = 0; i < count; i++)
        sum += samples[i] * samples[i];
    return sum;
}

/* Position of the cut: the quietest 60 ms in the second half of the longest piece, the last one of
 * equals. */
static i64 place_of_cut(const struct silence_cutter *c)
{
    i64 hop = c->rate_hz / HOPS_A_SECOND, looked_at = hop * HOPS_LOOKED_AT, best = c->longest;
    double least = INFINITY;
    for (i64 at = max_i64(c->longest / 2, looked_at / 2); at + looked_at / 2 <= c->longest; at += hop) {
        double here = energy(c->held + at - looked_at / 2, looked_at);
        if (here <= least) {
            least = here;
            best = at;
        }
    }
    return best;
}

static bool is_silent(const float *samples, i64 count)
{
    for (i64 i = 0; i < count; i++)
        if (fabsf(samples[i]) > SILENT)
            return false;
    return true;
}

int silence_cutter_next(struct silence_cutter *c, struct sound *piece, double *from_s)
{
    for (;;) {
        if (fill(c) < 0)
            return -1;
        if (c->count == 0)
            return 0;
        i64 samples = c->count > c->longest ? place_of_cut(c) : c->count;
        bool silent = is_silent(c->held, samples);
        if (!silent) {
            sound_init(piece, samples, c->rate_hz);
            memcpy(piece->values, c->held, (size_t)samples * sizeof *piece->values);
            *from_s = (double)c->passed / (double)c->rate_hz;
        }
        c->passed += samples;
        c->count -= samples;
        memmove(c->held, c->held + samples, (size_t)c->count * sizeof *c->held);
        if (!silent)
            return 1;
    }
}
