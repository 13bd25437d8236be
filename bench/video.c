/* Decoding H.264 and scaling it to RGB, one thread, against the program ffmpeg with the same scaling. What ffmpeg needs
 * to start and to open the file is left out, as it measures its own time; it drops its frames, we keep them. */
#include "bench/bench.h"
#include "data/media.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES = 250, RATE_HZ = 25, HEIGHT = 360, WIDTH = 640, SMALL_HEIGHT = 144, SMALL_WIDTH = 256, ROUNDS = 5 };
enum { TEXTURE = 256 };

static const char command[] =
    "ffmpeg -nostdin -hide_banner -benchmark -threads 1 -filter_threads 1 -stream_loop %lld -i '%s' -an -vf "
    "scale=%d:%d:flags=lanczos+accurate_rnd+full_chroma_int,format=rgb24 -threads 1 -f null - 2>&1";

/* Noise of several sizes, as a photograph has. */
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

/* The texture moves behind a disc that moves another way. */
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

/* Frames a second. */
static int our_rate(double *rate, const char *path, const struct text *file)
{
    const struct clip_request request = {.max_frames = FRAMES, .height = SMALL_HEIGHT, .width = SMALL_WIDTH};
    double begin = clock_s();
    i64 frames = 0;
    while (clock_s() - begin < 1) {
        struct clip clip;
        if (clip_read(&clip, file->data, file->length, path, &request) < 0)
            return -1;
        frames += clip.frames;
        clip_release(&clip);
    }
    *rate = (double)frames / (clock_s() - begin);
    return 0;
}

/* false: there is no such program, or it cannot do this. */
static bool ffmpeg_rate(double *rate, const char *path, i64 times)
{
    char *line = string_format(command, (long long)times - 1, path, SMALL_WIDTH, SMALL_HEIGHT), said[4096];
    FILE *program = popen(line, "r");
    double seconds = 0;
    memory_free(line);
    while (program && fgets(said, sizeof said, program)) {
        const char *own = strstr(said, " rtime=");
        if (own)
            seconds = atof(own + 7);
    }
    if (!program || pclose(program) != 0 || seconds <= 0)
        return false;
    *rate = (double)(times * FRAMES) / seconds;
    return true;
}

static int measure(const char *path, bool json)
{
    struct text file = {0};
    double rates[ROUNDS], ratios[ROUNDS], peer, warm;
    bool has_peer = ffmpeg_rate(&warm, path, 1);
    i64 times = has_peer ? 1 + (i64)(1.2 * warm / FRAMES) : 0;
    int status = file_read(&file, path);
    for (int round = 0; status == 0 && round < ROUNDS; round++) {
        status = our_rate(&rates[round], path, &file);
        has_peer = has_peer && ffmpeg_rate(&peer, path, times);
        ratios[round] = has_peer ? rates[round] / peer : 0;
    }
    text_release(&file);
    if (status)
        return -1;
    double rate = bench_median(rates, ROUNDS), ratio = bench_median(ratios, ROUNDS);
    bench_print(&(struct bench_row){"video", "360p H.264 to 256x144 RGB, one thread", "frames/s", "ffmpeg -f null",
                                    rate, has_peer ? rate / ratio : 0, 0.95, false,
                                    has_peer ? NULL : "no program ffmpeg was found that reads this"},
                json);
    return 0;
}

int bench_video(struct device *device, bool json)
{
    const char *place = getenv("TMPDIR");
    char *folder = string_format("%s/weft-bench-XXXXXX", place ? place : "/tmp"), *path = NULL;
    int status = mkdtemp(folder) ? 0 : error_set("%s: %s", folder, strerror(errno));
    (void)device;
    if (status == 0) {
        path = path_join(folder, "clip.mp4");
        status = make_file(path) < 0 ? -1 : measure(path, json);
        directory_remove(folder);
    }
    memory_free(path);
    memory_free(folder);
    return status;
}
