/* A realistic folder: 1,000 pictures, clips and sounds in 17 formats, 100 of them damaged in 10
 * ways. Exactly those are reported, each with its reason; the rest is read. */
#include "data/sources/media_list.h"
#include "tests/media_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { GOOD = 900, WAYS = 10, FORMATS = 2 /* formats per way */, DAMAGES = WAYS * FORMATS, BAD = 5 * DAMAGES };
static const char *const sources[] = {"full-chroma.jpg",
                                      "progressive.jpg",
                                      "lossy.webp",
                                      "lzw.tiff",
                                      "five.gif",
                                      "pictures/clear.png",
                                      "pictures/grey16.png",
                                      "pictures/inks.jpg",
                                      "pictures/still.heic",
                                      "pictures/turned-6.avif",
                                      "pictures/grey.pgm",
                                      "bt709-full.mp4",
                                      "vp9.webm",
                                      "short.avi",
                                      "clips/interlaced.mp4",
                                      "two.flac",
                                      "two.mp3",
                                      "two.ogg",
                                      "two.opus",
                                      "two.m4a"};

/* ---- Damage ---- */

struct mixed_folder_damage {
    const char *source, *ending;
    void (*change)(struct buffer *file);
    const char *reason; /* part of the message */
};

static void cut_in_half(struct buffer *file)
{
    file->length /= 2;
}

static void cut_the_end(struct buffer *file)
{
    file->length -= 3;
}

static void empty(struct buffer *file)
{
    file->length = 0;
}

static void answer_of_a_server(struct buffer *file)
{
    buffer_clear(file);
    buffer_printf(file, "<!DOCTYPE html><title>404 Not Found</title>");
}

static void lose_the_beginning(struct buffer *file)
{
    memset(file->data, 0, 16);
}

static void lose_the_middle(struct buffer *file)
{
    memset(file->data + file->length / 3, 0, (size_t)file->length / 3);
}

static void flip_a_bit(struct buffer *file)
{
    file->data[file->length * 3 / 4] ^= 4;
}

/* Sets width and height in a PNG's header to 60000, with a matching checksum. */
static void ask_for_gigapixels(struct buffer *file)
{
    struct buffer header = {0};
    append_be32(&header, 60000);
    append_be32(&header, 60000);
    memcpy(file->data + 16, header.data, 8);
    u32 crc = 0xffffffffu;
    for (int i = 12; i < 29; i++) {
        crc ^= (u8)file->data[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    header.length = 0;
    append_be32(&header, ~crc);
    memcpy(file->data + 29, header.data, 4);
    buffer_release(&header);
}

static void nothing(struct buffer *file) /* the extension is of another kind */
{
    (void)file;
}

/* A preallocated download that was never filled. */
static void zero_it(struct buffer *file)
{
    memset(file->data, 0, (size_t)file->length);
}

static const struct mixed_folder_damage damages[DAMAGES] = {
    {"full-chroma.jpg", "jpg", cut_in_half, "cut short"},
    {"bt709-full.mp4", "mp4", cut_in_half, "cut short"},
    {"lossy.webp", "webp", cut_the_end, "cut short"},
    {"two.ogg", "ogg", cut_the_end, "cut short"},
    {"lzw.tiff", "tiff", empty, "an empty file"},
    {"two.mp3", "mp3", empty, "an empty file"},
    {"five.gif", "gif", answer_of_a_server, "found text"},
    {"vp9.webm", "webm", answer_of_a_server, "found text"},
    {"pictures/still.heic", "heic", lose_the_beginning, "unknown bytes"},
    {"two.flac", "flac", lose_the_beginning, "unknown bytes"},
    {"pictures/clear.png", "png", lose_the_middle, "PNG"},
    {"pictures/adobe.png", "png", lose_the_middle, "PNG"},
    {"pictures/grey16.png", "png", flip_a_bit, "PNG picture"},
    {"two.flac", "flac", flip_a_bit, "damaged"},
    {"pictures/clear.png", "png", ask_for_gigapixels, "larger than 67108864 pixels"},
    {"pictures/palette-clear.png", "png", ask_for_gigapixels, "larger than 67108864 pixels"},
    {"two.m4a", "mp4", nothing, "without video"},
    {"two.ogg", "png", nothing, "expected a picture"},
    {"short.avi", "avi", zero_it, "unknown bytes"},
    {"two.opus", "opus", zero_it, "unknown bytes"},
};

/* ---- The folder ---- */

static char *folder;

static void put(const char *name, const char *source, void (*change)(struct buffer *file))
{
    struct buffer file = {0};
    char *from = string_format(SOURCE_TREE "/tests/media/%s", source), *to = path_join(folder, name);
    assert_int_equal(file_read(&file, from), 0);
    change(&file);
    assert_int_equal(file_replace(to, file.data, file.length), 0);
    memory_free(from);
    memory_free(to);
    buffer_release(&file);
}

static int make(void **state)
{
    (void)state;
    folder = string_format("/dev/shm/weft-mixed-%ld", (long)getpid());
    assert_int_equal(directory_make(folder), 0);
    for (i64 i = 0; i < GOOD; i++) {
        const char *source = sources[i % COUNT_OF(sources)];
        char *name = string_format("good%03lld%s", (long long)i, strrchr(source, '.'));
        put(name, source, nothing);
        memory_free(name);
    }
    for (i64 i = 0; i < BAD; i++) {
        char *name = string_format("bad%03lld.%s", (long long)i, damages[i % DAMAGES].ending);
        put(name, damages[i % DAMAGES].source, damages[i % DAMAGES].change);
        memory_free(name);
    }
    return 0;
}

static int clear(void **state)
{
    (void)state;
    directory_remove(folder);
    memory_free(folder);
    return 0;
}

/* ---- Reading ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mixed_folder_result {
    i64 arrived;
    char *reasons[BAD];
    struct buffer unexpected;
} result;

static void note_problem(const char *path)
{
    int number;
    const char *name = strrchr(path, '/') + 1;
    pthread_mutex_lock(&lock);
    if (sscanf(name, "bad%3d.", &number) == 1 && number < BAD && !result.reasons[number])
        result.reasons[number] = string_copy(error_text());
    else
        buffer_printf(&result.unexpected, "%s; ", error_text());
    pthread_mutex_unlock(&lock);
}

static int read_one(void *context, void *content, const struct medium *medium, const struct file_view *file)
{
    struct clip clip = {0};
    struct sound sound = {0};
    (void)context, (void)content;
    const struct clip_request request = {.rate_hz = 8, .max_frames = 9, .height = 32, .width = 32};
    int status = medium->kind == MODALITY_IMAGE   ? image_read(&clip, file->data, file->bytes, medium->path)
                 : medium->kind == MODALITY_VIDEO ? clip_read(&clip, file->data, file->bytes, medium->path, &request)
                                                  : sound_read(&sound, file->data, file->bytes, medium->path, 16000);
    if (status < 0)
        note_problem(medium->path);
    clip_release(&clip);
    sound_release(&sound);
    return status;
}

static void take_one(void *context, void *content, struct medium *medium)
{
    (void)context, (void)content;
    if (!strstr(medium->path, "/good"))
        buffer_printf(&result.unexpected, "%s was read; ", medium->path);
    result.arrived++;
}

TEST_WITH(exactly_the_damaged_are_named, make, clear)
{
    const struct media_request request = {
        .data = folder, .split = SPLIT_TRAIN, .kinds = 1 << MODALITY_IMAGE | 1 << MODALITY_VIDEO | 1 << MODALITY_AUDIO};
    struct media_reader reader = {
        .what = "media", .bad_share = 0.1, .content_bytes = 1, .read = read_one, .take = take_one};
    if (media_read(&reader, &request) < 0)
        fail_msg("%s", error_text());
    if (result.unexpected.length)
        fail_msg("%s", result.unexpected.data);
    assert_int_equal(result.arrived, GOOD);
    assert_int_equal(reader.bad_count, BAD);
    for (i64 i = 0; i < BAD; i++) {
        if (!result.reasons[i] || !strstr(result.reasons[i], damages[i % DAMAGES].reason))
            fail_msg("bad%03lld: \"%s\" does not say \"%s\"", (long long)i,
                     result.reasons[i] ? result.reasons[i] : "nothing", damages[i % DAMAGES].reason);
        memory_free(result.reasons[i]);
    }
}

int main(void)
{
    return tests_run(NULL, NULL);
}
