/* Decoding of H.264 with scaling to RGB, and of sounds to 16 kHz mono, alternating with the program
 * ffmpeg on the same work: CPU time with one thread each, and wall time with one file per worker
 * against ffmpeg with all threads on one file. ffmpeg's startup and opening of the file are
 * excluded, as it reports its own time. It discards its output, while this program keeps it. Both
 * verify checksums; without them ffmpeg reads FLAC in 90 % of the time. */
#include "bench/bench.h"
#include "data/media/media.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES = 250, RATE_HZ = 25, HEIGHT = 360, WIDTH = 640, SMALL_HEIGHT = 144, SMALL_WIDTH = 256, ROUNDS = 5 };
enum { TEXTURE = 256, SOUND_S = 120, SOUND_HZ = 16000 };

static const char begins[] =
    "ffmpeg -nostdin -hide_banner -benchmark -err_detect crccheck -threads %d -filter_threads %d -stream_loop %lld";
static const char scales[] = "-an -vf scale=256:144:flags=lanczos+accurate_rnd+full_chroma_int,format=rgb24 -f null -";
static const char resamples[] = "-vn -ac 1 -ar 16000 -c:a pcm_f32le -f null -";
static const char sounds[] =
    "ffmpeg -nostdin -v error -y -f lavfi -i anoisesrc=color=pink:amplitude=0.3:duration=%d:sample_rate=48000 "
    "-ac 2 -b:a 128k '%s' 2>/dev/null";

/* Noise of several scales, similar to a photograph. */
static u8 texture_at(i64 y, i64 x, i64 channel)
{
    double value = 128;
    for (u32 octave = 0; octave < 4; octave++) {
        i64 size = 32 >> octave;
        u32 row = (u32)(y / size), column = (u32)(x / size);
        value += 12 * rng_normal((struct rng_key){1, RNG_TEST}, row, column, octave, (u32)channel);
    }
    return (u8)fmin(fmax(value, 0), 255);
}

static u8 *make_texture(void)
{
    u8 *texture = memory_alloc(TEXTURE * TEXTURE * 3);
    for (i64 i = 0; i < TEXTURE * TEXTURE * 3; i++)
        texture[i] = texture_at(i / 3 / TEXTURE, i / 3 % TEXTURE, i % 3);
    return texture;
}

/* Draws the moving texture behind a disc that moves differently. */
static void draw_frame(u8 *out, const u8 *texture, i64 frame)
{
    double centre_y = HEIGHT / 2.0 + 120 * sin(0.05 * (double)frame),
           centre_x = WIDTH / 2.0 + 240 * cos(0.03 * (double)frame);
    for (i64 y = 0; y < HEIGHT; y++)
        for (i64 x = 0; x < WIDTH; x++, out += 3) {
            bool disc = hypot((double)y - centre_y, (double)x - centre_x) < 80;
            i64 v = (y + (disc ? 3 * frame : frame)) % TEXTURE, u = (x + (disc ? 0 : 2 * frame)) % TEXTURE;
            memcpy(out, texture + (v * TEXTURE + u) * 3, 3);
        }
}

static int make_file(const char *path)
{
    struct clip clip;
    u8 *texture = make_texture();
    clip_init(&clip, FRAMES, HEIGHT, WIDTH, RATE_HZ);
    for (i64 f = 0; f < FRAMES; f++)
        draw_frame(clip.pixels + f * HEIGHT * WIDTH * 3, texture, f);
    int status = clip_write_mp4(path, &clip);
    clip_release(&clip);
    memory_free(texture);
    return status;
}

typedef int reader(double *amount, const char *path, const struct buffer *file);

static int read_clip(double *frames, const char *path, const struct buffer *file)
{
    const struct clip_request request = {.max_frames = FRAMES, .height = SMALL_HEIGHT, .width = SMALL_WIDTH};
    struct clip clip;
    if (clip_read(&clip, file->data, file->length, path, &request) < 0)
        return -1;
    *frames += (double)clip.frames;
    clip_release(&clip);
    return 0;
}

static int read_sound(double *seconds, const char *path, const struct buffer *file)
{
    struct sound sound;
    if (sound_read(&sound, file->data, file->length, path, SOUND_HZ) < 0)
        return -1;
    *seconds += (double)sound.samples / SOUND_HZ;
    sound_release(&sound);
    return 0;
}

struct video_turn { /* repeated reading of one file for 1 s */
    reader *read;
    const char *path;
    const struct buffer *file;
    double amounts[WORKERS_MOST];
    bool failed[WORKERS_MOST];
};

static void read_for_a_second(void *context, i64 tile, int worker)
{
    struct video_turn *turn = context;
    double begin = clock_s();
    (void)worker;
    while (!turn->failed[tile] && clock_s() - begin < 1)
        turn->failed[tile] = turn->read(&turn->amounts[tile], turn->path, turn->file) < 0;
}

/* Frames, or seconds of sound, per second of `clock`. */
static int our_rate(double *rate, reader *read, const char *path, const struct buffer *file, int threads,
                    double (*clock)(void))
{
    struct video_turn *turn = memory_alloc(sizeof *turn);
    *turn = (struct video_turn){.read = read, .path = path, .file = file};
    double begin = clock(), amount = 0;
    bool failed = false;
    if (threads > 1)
        workers_run(threads, read_for_a_second, turn);
    else
        read_for_a_second(turn, 0, 0);
    double seconds = clock() - begin;
    for (int i = 0; i < threads; i++) {
        amount += turn->amounts[i];
        failed |= turn->failed[i];
    }
    memory_free(turn);
    *rate = amount / seconds;
    return failed ? -1 : 0;
}

/* CPU seconds of ffmpeg, or wall seconds with more than one thread. False: there is no such
 * program, or it cannot do this. */
static bool ffmpeg_seconds(double *seconds, const char *path, const char *does, i64 times, int threads)
{
    char *begin = string_format(begins, threads, threads, (long long)times - 1), said[4096];
    char *line = string_format("%s -i '%s' -threads %d %s 2>&1", begin, path, threads, does);
    FILE *program = popen(line, "re");
    *seconds = 0;
    memory_free(line);
    memory_free(begin);
    while (program && fgets(said, sizeof said, program)) {
        const char *own = strstr(said, "utime=");
        double user, system, clock;
        if (own && sscanf(own, "utime=%lfs stime=%lfs rtime=%lfs", &user, &system, &clock) == 3)
            *seconds += threads > 1 ? clock : user + system;
    }
    return program && pclose(program) == 0 && *seconds > 0;
}

struct video_case {
    const char *name, *file, *what, *unit, *does;
    reader *read;
    double amount; /* frames or seconds of the file */
};

static int measure(const struct video_case *c, const char *path, const struct buffer *file, int threads, bool json)
{
    double rates[ROUNDS], ratios[ROUNDS], warm;
    bool has_peer = ffmpeg_seconds(&warm, path, c->does, 1, threads);
    i64 times = has_peer ? 1 + (i64)(1.2 / warm) : 0;
    int status = 0;
    for (int round = 0; status == 0 && round < ROUNDS; round++) {
        double seconds = 1;
        status = our_rate(&rates[round], c->read, path, file, threads, threads > 1 ? clock_s : clock_cpu_s);
        has_peer = has_peer && ffmpeg_seconds(&seconds, path, c->does, times, threads);
        ratios[round] = rates[round] * seconds / ((double)times * c->amount);
    }
    if (status)
        return -1;
    double rate = bench_median(rates, ROUNDS), ratio = has_peer ? bench_median(ratios, ROUNDS) : 1;
    char *what = threads > 1 ? string_format("%s, %d at once", c->what, threads) : string_copy(c->what);
    bench_print(&(struct bench_row){c->name, what, c->unit, "ffmpeg -f null", rate, has_peer ? rate / ratio : 0, 0.95,
                                    false, has_peer ? NULL : "no program ffmpeg was found that reads this"},
                json);
    memory_free(what);
    return 0;
}

static int measure_threads(const struct video_case *c, const char *path, bool json)
{
    struct buffer file = {0};
    int threads = workers_count();
    int status = file_read(&file, path);
    if (status == 0)
        status = measure(c, path, &file, 1, json);
    if (status == 0 && threads > 1)
        status = measure(c, path, &file, threads, json);
    buffer_release(&file);
    return status;
}

static int make_sound(const char *path)
{
    char *line = string_format(sounds, SOUND_S, path);
    int status = system(line);
    memory_free(line);
    return status ? -1 : 0;
}

static int measure_all(const char *folder, bool json)
{
    static const struct video_case cases[] = {
        {"video", "clip.mp4", "360p H.264 to 256x144 RGB", "frames/s", scales, read_clip, FRAMES},
        {"sound", "sound.mp3", "MP3 to 16 kHz", "s/s", resamples, read_sound, SOUND_S},
        {"sound", "sound.m4a", "AAC to 16 kHz", "s/s", resamples, read_sound, SOUND_S},
        {"sound", "sound.opus", "Opus to 16 kHz", "s/s", resamples, read_sound, SOUND_S},
        {"sound", "sound.flac", "FLAC to 16 kHz", "s/s", resamples, read_sound, SOUND_S}};
    int status = 0;
    for (i64 i = 0; i < COUNT_OF(cases) && status == 0; i++) {
        char *path = path_join(folder, cases[i].file);
        bool made = (cases[i].read == read_clip ? make_file(path) : make_sound(path)) == 0;
        if (made || cases[i].read == read_clip)
            status = made ? measure_threads(&cases[i], path, json) : -1;
        memory_free(path);
    }
    return status;
}

int bench_video(struct device *device, bool json)
{
    char *folder = bench_folder();
    int status = folder ? 0 : -1;
    (void)device;
    if (status == 0) {
        status = measure_all(folder, json);
        directory_remove(folder);
    }
    memory_free(folder);
    return status;
}
