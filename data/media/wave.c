#include "data/media/wave.h"
#include "data/media/whole.h"
#include <math.h>
#include <sndfile.h>
#include <string.h>

enum { AT_ONCE = 4096 }; /* samples of a channel */

struct wave_reader {
    const char *origin;
    const u8 *bytes;
    i64 count, at;
    SNDFILE *file;
    SF_INFO info;
    double *held; /* [AT_ONCE, channels] */
    double scale;
    i64 size_at; /* where a length was left open, -1: nowhere; libsndfile reads `size` there */
    u8 size[4];
};

/* ---- The file in memory ---- */

static sf_count_t length(void *user)
{
    return ((struct wave_reader *)user)->count;
}

static sf_count_t seek(sf_count_t offset, int whence, void *user)
{
    struct wave_reader *wave = user;
    i64 base = whence == SEEK_CUR ? wave->at : whence == SEEK_END ? wave->count : 0;
    if (offset < -base || offset > wave->count - base)
        return -1;
    return wave->at = base + offset;
}

static sf_count_t give_bytes(void *out, sf_count_t wanted, void *user)
{
    struct wave_reader *wave = user;
    i64 given = max_i64(0, min_i64(wanted, wave->count - wave->at));
    memcpy(out, wave->bytes + wave->at, (size_t)given);
    for (i64 i = 0; i < 4 && wave->size_at >= 0; i++)
        if (wave->size_at + i >= wave->at && wave->size_at + i < wave->at + given)
            ((u8 *)out)[wave->size_at + i - wave->at] = wave->size[i];
    wave->at += given;
    return given;
}

static sf_count_t take_no_bytes(const void *bytes, sf_count_t count, void *user)
{
    (void)bytes, (void)count, (void)user;
    return 0;
}

static sf_count_t tell(void *user)
{
    return ((struct wave_reader *)user)->at;
}

/* ---- What libsndfile would misread ---- */

struct wave_chunks {
    i64 format, data; /* where they begin, behind type and size; 0: none */
};

static struct wave_chunks find_chunks(const u8 *bytes, i64 count)
{
    struct wave_chunks found = {0};
    for (i64 at = 12; at + 8 <= count && !found.data;) {
        i64 chunk_bytes = (i64)little_endian(bytes + at + 4, 4);
        if (memcmp(bytes + at, "fmt ", 4) == 0 && chunk_bytes >= 16 && at + 24 <= count)
            found.format = at + 8;
        if (memcmp(bytes + at, "data", 4) == 0)
            found.data = at + 8;
        at += 8 + chunk_bytes + (chunk_bytes & 1);
    }
    return found;
}

/* True if chunks, not samples, follow up to the end of the file. */
static bool chunks_follow(const u8 *bytes, i64 count, i64 at)
{
    for (i64 chunk_bytes; at < count; at += 8 + chunk_bytes + (chunk_bytes & 1)) {
        chunk_bytes = at + 8 <= count ? (i64)little_endian(bytes + at + 4, 4) : count;
        if (chunk_bytes > count - at - 8)
            return false;
        for (int i = 0; i < 4; i++)
            if (bytes[at + i] < 32 || bytes[at + i] > 126)
                return false;
    }
    return true;
}

/* Programs that write to a pipe leave the length of the data at 0, which libsndfile takes for an
 * empty sound. */
static void fill_open_length(struct wave_reader *wave, i64 data)
{
    i64 left = wave->count - data;
    if (!data || little_endian(wave->bytes + data - 4, 4) != 0 || chunks_follow(wave->bytes, wave->count, data))
        return;
    wave->size_at = data - 4;
    for (int i = 0; i < 4; i++)
        wave->size[i] = (u8)(min_i64(left, UINT32_MAX) >> 8 * i);
}

/* Plain PCM whose samples do not fill their containers: only WAVE_FORMAT_EXTENSIBLE says how they
 * lie in them. */
static int check_containers(const struct wave_reader *wave, i64 format)
{
    const u8 *fields = wave->bytes + format;
    if (!format)
        return 0;
    u64 kind = little_endian(fields, 2), channels = little_endian(fields + 2, 2);
    u64 frame_bytes = little_endian(fields + 12, 2), bits = little_endian(fields + 14, 2);
    if (kind != 1 || frame_bytes == channels * ((bits + 7) / 8))
        return 0;
    return error_set("%s: a WAV sound of %llu bits in frames of %llu bytes for %llu channels; expected frames of %llu "
                     "bytes, or WAVE_FORMAT_EXTENSIBLE: write it again",
                     wave->origin, (unsigned long long)bits, (unsigned long long)frame_bytes,
                     (unsigned long long)channels, (unsigned long long)(channels * ((bits + 7) / 8)));
}

static int check_layout(struct wave_reader *wave)
{
    wave->size_at = -1;
    if (!bytes_match(wave->bytes, wave->count, 0, "RIFF", 4))
        return 0;
    struct wave_chunks chunks = find_chunks(wave->bytes, wave->count);
    fill_open_length(wave, chunks.data);
    return check_containers(wave, chunks.format);
}

/* ---- The range of float samples ---- */

static bool is_float(const struct wave_reader *wave)
{
    int type = wave->info.format & SF_FORMAT_SUBMASK;
    return type == SF_FORMAT_FLOAT || type == SF_FORMAT_DOUBLE;
}

struct wave_range {
    double most; /* the largest magnitude */
    bool whole;  /* all samples are whole numbers */
};

/* Not-a-numbers are silence; see av_sound.c. */
static void take_range(struct wave_range *range, const double *values, i64 count)
{
    for (i64 i = 0; i < count; i++) {
        range->most = fmax(range->most, fabs(values[i]));
        range->whole = range->whole && (values[i] == rint(values[i]) || isnan(values[i]));
    }
}

/* What samples are multiplied by. */
static double range_scale(const struct wave_range *range)
{
    enum { LEAST_WHOLE = 128 }; /* fewer different values are no recording of 16 bits */
    if (range->most <= 1)
        return 1;
    if (!range->whole || range->most < LEAST_WHOLE)
        return 1 / range->most;
    static const double ranges[] = {32768, 8388608, 2147483648};
    for (i64 i = 0; i < COUNT_OF(ranges); i++)
        if (range->most <= ranges[i])
            return 1 / ranges[i];
    return 1 / range->most;
}

static int find_scale(struct wave_reader *wave)
{
    struct wave_range range = {.whole = true};
    for (i64 got; (got = sf_readf_double(wave->file, wave->held, AT_ONCE)) > 0;)
        take_range(&range, wave->held, got * wave->info.channels);
    if (isinf(range.most))
        return error_set("%s: float samples that are infinite; expected -1 to 1", wave->origin);
    wave->scale = range_scale(&range);
    return sf_seek(wave->file, 0, SEEK_SET) == 0 ? 0 : error_set("%s: its samples cannot be read twice", wave->origin);
}

/* ---- Samples ---- */

static bool is_for_libsndfile(const struct file_kind *kind)
{
    static const char *const readers[] = {"wav", "w64", "aiff", "au", "caf"};
    for (i64 i = 0; i < COUNT_OF(readers); i++)
        if (strcmp(readers[i], kind->reader) == 0)
            return true;
    return false;
}

int wave_open(struct wave_reader **out, const void *bytes, i64 count, const char *origin, const struct file_kind *kind)
{
    SF_VIRTUAL_IO io = {length, seek, give_bytes, take_no_bytes, tell};
    *out = NULL;
    if (!is_for_libsndfile(kind))
        return 0;
    if (file_check_whole(kind, bytes, count, origin) < 0)
        return -1;
    struct wave_reader *wave = memory_alloc(sizeof *wave);
    *wave = (struct wave_reader){.origin = origin, .bytes = bytes, .count = count, .scale = 1};
    if (check_layout(wave) < 0) {
        wave_close(wave);
        return -1;
    }
    wave->file = sf_open_virtual(&io, SFM_READ, &wave->info, wave);
    if (!wave->file || !wave->info.seekable) {
        wave_close(wave);
        return 0;
    }
    wave->held = memory_alloc(AT_ONCE * (i64)wave->info.channels * (i64)sizeof *wave->held);
    if (is_float(wave) && find_scale(wave) < 0) {
        wave_close(wave);
        return -1;
    }
    *out = wave;
    return 1;
}

void wave_close(struct wave_reader *wave)
{
    if (!wave)
        return;
    if (wave->file)
        sf_close(wave->file);
    memory_free(wave->held);
    memory_free(wave);
}

int wave_rate_hz(const struct wave_reader *wave)
{
    return wave->info.samplerate;
}

i64 wave_samples(const struct wave_reader *wave)
{
    return wave->info.frames;
}

i64 wave_read(struct wave_reader *wave, float *mono, i64 most)
{
    i64 channels = wave->info.channels, got = sf_readf_double(wave->file, wave->held, min_i64(most, AT_ONCE));
    if (sf_error(wave->file) != SF_ERR_NO_ERROR)
        return error_set("%s: %s; copy it again", wave->origin, sf_strerror(wave->file));
    for (i64 i = 0; i < got; i++) {
        double sum = 0;
        for (i64 c = 0; c < channels; c++)
            sum += wave->held[i * channels + c];
        mono[i] = (float)(sum * wave->scale / (double)channels);
    }
    return got;
}
