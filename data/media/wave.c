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
    struct wave_patch { /* what libsndfile reads instead of what is there */
        i64 at, count;
        u8 bytes[OGG_HEAD_MOST];
    } patches[2];
    struct ogg_sounds ogg; /* of Ogg: `bytes` are those of sound `link` */
    const u8 *file_bytes;
    i64 link;
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
    for (const struct wave_patch *patch = wave->patches; patch < wave->patches + COUNT_OF(wave->patches); patch++)
        for (i64 i = 0; i < patch->count; i++)
            if (patch->at + i >= wave->at && patch->at + i < wave->at + given)
                ((u8 *)out)[patch->at + i - wave->at] = patch->bytes[i];
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
    wave->patches[0] = (struct wave_patch){.at = data - 4, .count = 4};
    for (int i = 0; i < 4; i++)
        wave->patches[0].bytes[i] = (u8)(min_i64(left, UINT32_MAX) >> 8 * i);
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

/* Opens the bytes of one sound. 1: opened; 0: libsndfile does not know it. */
static int open_file(struct wave_reader *wave)
{
    SF_VIRTUAL_IO io = {length, seek, give_bytes, take_no_bytes, tell};
    memory_free(wave->held);
    wave->held = NULL;
    wave->at = 0;
    wave->info = (SF_INFO){0};
    wave->file = sf_open_virtual(&io, SFM_READ, &wave->info, wave);
    if (!wave->file || (is_float(wave) && !wave->info.seekable))
        return 0;
    wave->held = memory_alloc(AT_ONCE * (i64)wave->info.channels * (i64)sizeof *wave->held);
    return 1;
}

/* The sounds of an Ogg file follow one another, each with its own channels and codes. */
static int open_link(struct wave_reader *wave)
{
    const struct ogg_sounds *ogg = &wave->ogg;
    if (wave->file)
        sf_close(wave->file);
    wave->bytes = wave->file_bytes + ogg->begins[wave->link];
    wave->count = ogg->begins[wave->link + 1] - ogg->begins[wave->link];
    struct ogg_mark mark = ogg_mark_end(wave->bytes, wave->count);
    wave->patches[0] = (struct wave_patch){.at = mark.at, .count = mark.at < 0 ? 0 : (i64)sizeof mark.header};
    memcpy(wave->patches[0].bytes, mark.header, sizeof mark.header);
    wave->patches[1].count = ogg_opus_head(wave->patches[1].bytes, wave->bytes, wave->count);
    return open_file(wave);
}

int wave_open(struct wave_reader **out, const void *bytes, i64 count, const char *origin, const struct file_kind *kind)
{
    bool ogg = strcmp(kind->reader, "ogg") == 0;
    *out = NULL;
    if (!ogg && !is_for_libsndfile(kind))
        return 0;
    if (file_check_whole(kind, bytes, count, origin) < 0)
        return -1;
    struct wave_reader *wave = memory_alloc(sizeof *wave);
    *wave = (struct wave_reader){.origin = origin, .bytes = bytes, .count = count, .scale = 1, .file_bytes = bytes};
    if (ogg)
        ogg_sounds_find(&wave->ogg, bytes, count);
    int opened = !ogg ? check_layout(wave) : wave->ogg.count ? open_link(wave) : 0;
    if (!ogg && opened == 0)
        opened = open_file(wave);
    if (opened == 1 && is_float(wave) && find_scale(wave) < 0)
        opened = -1;
    if (opened == 1)
        *out = wave;
    else
        wave_close(wave);
    return opened;
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

/* The next samples of the sound that is open, else of those behind it. */
static i64 read_frames(struct wave_reader *wave, i64 most)
{
    i64 got;
    while ((got = sf_readf_double(wave->file, wave->held, most)) == 0 && sf_error(wave->file) == SF_ERR_NO_ERROR) {
        int rate_hz = wave->info.samplerate;
        if (wave->link + 1 >= wave->ogg.count)
            return 0;
        wave->link++;
        if (open_link(wave) <= 0)
            return error_set("%s: the sound at byte %lld cannot be read; copy it again", wave->origin,
                             (long long)wave->ogg.begins[wave->link]);
        if (wave->info.samplerate != rate_hz)
            return error_set("%s: the sample rate changes from %d to %d in the middle; convert it to one rate",
                             wave->origin, rate_hz, wave->info.samplerate);
    }
    return got;
}

i64 wave_read(struct wave_reader *wave, float *mono, i64 most)
{
    i64 got = read_frames(wave, min_i64(most, AT_ONCE));
    if (got < 0)
        return -1;
    if (sf_error(wave->file) != SF_ERR_NO_ERROR)
        return error_set("%s: %s; copy it again", wave->origin, sf_strerror(wave->file));
    i64 channels = wave->info.channels;
    for (i64 i = 0; i < got; i++) {
        double sum = 0;
        for (i64 c = 0; c < channels; c++)
            sum += wave->held[i * channels + c];
        mono[i] = (float)(sum * wave->scale / (double)channels);
    }
    return got;
}
