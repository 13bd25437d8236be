/* Small files of every kind against the output of other decoders (tests/media/make.sh), and
 * truncated at every byte. */
#include "tests/media_fixture.h"

#include <stdio.h>

static struct file_view map(const char *name)
{
    char path[256];
    struct file_view view;
    snprintf(path, sizeof path, SOURCE_TREE "/tests/media/%s", name);
    if (file_map(&view, path) < 0)
        fail_msg("%s", error_text());
    return view;
}

/* ---- Agreement with other decoders ---- */

static int read_frames(struct clip *out, const struct file_view *file, const char *name)
{
    return media_kind(file->data, file->bytes, name) == MEDIA_VIDEO
               ? clip_read(out, file->data, file->bytes, name, &(struct clip_request){0})
               : image_read(out, file->data, file->bytes, name);
}

struct picture_case {
    const char *name, *reference;
    i64 frames, frame; /* number of frames; the frame to compare */
    double mean, most; /* |got - reference|, 0..255 */
};

/* Decoders interpolate half-size chroma differently. */
static const struct picture_case pictures[] = {
    {"full-chroma.jpg", "full-chroma.jpg.ppm", 1, 0, 0.1, 4},
    {"half-chroma.jpg", "half-chroma.jpg.ppm", 1, 0, 1.2, 12},
    {"progressive.jpg", "progressive.jpg.ppm", 1, 0, 0.1, 4},
    {"lossy.webp", "lossy.webp.ppm", 1, 0, 1.3, 13},
    {"lossless.webp", "lossless.ppm", 1, 0, 0, 0},
    {"raw.tiff", "lossless.ppm", 1, 0, 0, 0},
    {"lzw.tiff", "lossless.ppm", 1, 0, 0, 0},
    {"five.gif", "five.gif.ppm", 5, 4, 0, 0},
    {"bt601-limited.mp4", "bt601-limited.mp4.ppm", 5, 0, 0.8, 6},
    {"bt601-full.mp4", "bt601-full.mp4.ppm", 5, 0, 0.8, 6},
    {"bt709-limited.mp4", "bt709-limited.mp4.ppm", 5, 0, 0.8, 6},
    {"bt709-full.mp4", "bt709-full.mp4.ppm", 5, 0, 0.8, 6},
    {"vp9.webm", "vp9.webm.ppm", 5, 0, 0.8, 6},
};

static void check_picture(const struct picture_case *c)
{
    struct file_view file = map(c->name), reference = map(c->reference);
    struct clip clip;
    long long height, width;
    int begin = 0;
    if (read_frames(&clip, &file, c->name) < 0)
        fail_msg("%s", error_text());
    assert_int_equal(sscanf((const char *)reference.data, "P6 %lld %lld 255%n", &width, &height, &begin), 2);
    assert_int_equal(clip.frames, c->frames);
    assert_int_equal(clip.height, height);
    assert_int_equal(clip.width, width);
    const u8 *ours = clip.pixels + c->frame * height * width * 3, *theirs = reference.data + begin + 1;
    double sum = 0, most = 0;
    for (i64 i = 0; i < height * width * 3; i++) {
        sum += abs(ours[i] - theirs[i]);
        most = fmax(most, abs(ours[i] - theirs[i]));
    }
    sum /= (double)(height * width * 3);
    if (sum > c->mean || most > c->most)
        fail_msg("%s: differs by %.3f in the mean, by %.0f at most", c->name, sum, most);
    clip_release(&clip);
    file_unmap(&file);
    file_unmap(&reference);
}

TEST(pictures_and_clips_read_as_other_decoders_read_them)
{
    for (i64 i = 0; i < COUNT_OF(pictures); i++)
        check_picture(&pictures[i]);
}

TEST(a_gif_as_a_picture_is_its_first_frame)
{
    struct file_view file = map("five.gif");
    struct clip all, first;
    assert_int_equal(clip_read(&all, file.data, file.bytes, "five.gif", &(struct clip_request){0}), 0);
    assert_int_equal(image_read(&first, file.data, file.bytes, "five.gif"), 0);
    assert_int_equal(first.frames, 1);
    assert_memory_equal(first.pixels, all.pixels, first.height * first.width * 3);
    clip_release(&all);
    clip_release(&first);
    file_unmap(&file);
}

/* All of these are red: transparent pixels are black and
 * must be blended on white before any scaling. */
TEST(transparency_is_blended_before_it_is_scaled)
{
    struct file_view file = map("disc.gif");
    struct clip clip;
    i64 white = 0, red = 0;
    assert_int_equal(
        clip_read(&clip, file.data, file.bytes, "disc.gif", &(struct clip_request){.height = 22, .width = 22}), 0);
    for (i64 i = 0; i < 22 * 22; i++) {
        const u8 *pixel = clip.pixels + i * 3;
        if (pixel[0] < 250)
            fail_msg("pixel %lld is (%d, %d, %d)", (long long)i, pixel[0], pixel[1], pixel[2]);
        white += pixel[1] > 250;
        red += pixel[1] < 5;
    }
    assert_true(white > 200 && red > 30);
    clip_release(&clip);
    file_unmap(&file);
}

struct sound_case {
    const char *name, *reference;
    i64 rate_hz, delay; /* leading samples that only this decoder returns */
    double mean, most;  /* |got - reference|, -1..1 */
};

static const struct sound_case sounds[] = {
    {"two.flac", "two.flac.s16", 32000, 0, 1e-7, 1e-7}, {"two.mp3", "two.mp3.s16", 32000, 0, 2e-5, 5e-5},
    {"bare.mp3", "bare.mp3.s16", 32000, 0, 2e-5, 5e-5}, {"two.aac", "two.aac.s16", 32000, 1024, 2e-4, 5e-3},
    {"two.m4a", "two.aac.s16", 32000, 0, 2e-4, 5e-3},   {"two.ogg", "two.ogg.s16", 32000, 0, 2e-5, 5e-5},
    {"two.opus", "two.opus.s16", 48000, 0, 2e-4, 1e-3}, {"two.webm", "two.opus.s16", 48000, 0, 2e-4, 1e-3},
};

static void check_sound(const struct sound_case *c)
{
    struct file_view file = map(c->name), reference = map(c->reference);
    struct sound sound;
    if (sound_read(&sound, file.data, file.bytes, c->name, 0) < 0)
        fail_msg("%s", error_text());
    const int16_t *theirs = (const int16_t *)(const void *)reference.data; /* [samples, 2] */
    i64 samples = reference.bytes / 4;
    double sum = 0, most = 0;
    assert_int_equal(sound.rate_hz, c->rate_hz);
    assert_int_equal(sound.samples, samples + c->delay);
    for (i64 i = 0; i < samples; i++) {
        double away = fabs((double)sound.values[i + c->delay] - (theirs[2 * i] + theirs[2 * i + 1]) / 65536.0);
        sum += away / (double)samples;
        most = fmax(most, away);
    }
    if (sum > c->mean || most > c->most)
        fail_msg("%s: differs by %.7f in the mean, by %.7f at most", c->name, sum, most);
    sound_release(&sound);
    file_unmap(&file);
    file_unmap(&reference);
}

TEST(sounds_read_as_other_decoders_read_them)
{
    for (i64 i = 0; i < COUNT_OF(sounds); i++)
        check_sound(&sounds[i]);
}

/* ---- Cut short ---- */

struct media_files_content { /* contents of any kind of file */
    struct clip clip;
    struct sound sound;
};

static int read_any(struct media_files_content *out, const void *bytes, i64 count, const char *name)
{
    *out = (struct media_files_content){0};
    switch (media_kind(bytes, count, name)) {
    case MEDIA_UNKNOWN:
        return -1;
    case MEDIA_SOUND:
        return sound_read(&out->sound, bytes, count, name, 0);
    case MEDIA_VIDEO:
        return clip_read(&out->clip, bytes, count, name, &(struct clip_request){0});
    default:
        return image_read(&out->clip, bytes, count, name);
    }
}

static void content_release(struct media_files_content *content)
{
    clip_release(&content->clip);
    sound_release(&content->sound);
}

static i64 pixel_bytes(const struct clip *clip)
{
    return clip->frames * clip->height * clip->width * 3;
}

static bool same_content(const struct media_files_content *a, const struct media_files_content *b)
{
    if (pixel_bytes(&a->clip) != pixel_bytes(&b->clip) || a->sound.samples != b->sound.samples)
        return false;
    return a->clip.pixels ? memcmp(a->clip.pixels, b->clip.pixels, (size_t)pixel_bytes(&a->clip)) == 0
                          : memcmp(a->sound.values, b->sound.values, (size_t)a->sound.samples * 4) == 0;
}

/* Returns the number of truncations that read as a complete file. */
static i64 count_half(const u8 *bytes, i64 count, const char *name)
{
    struct media_files_content whole, part;
    i64 half = 0;
    if (read_any(&whole, bytes, count, name) < 0)
        fail_msg("%s", error_text());
    for (i64 cut = 1; cut < count; cut += 1 + count / 700) {
        u8 *copy = memory_alloc(cut); /* the allocation ends with the data */
        memcpy(copy, bytes, (size_t)cut);
        if (read_any(&part, copy, cut, name) == 0)
            half += !same_content(&part, &whole);
        content_release(&part);
        memory_free(copy);
    }
    content_release(&whole);
    return half;
}

TEST(no_file_that_is_cut_short_is_read_in_part)
{
    static const char *const names[] = {
        "full-chroma.jpg", "progressive.jpg", "lossy.webp", "lossless.webp", "raw.tiff",       "lzw.tiff",
        "five.gif",        "vp9.webm",        "live.webm",  "short.avi",     "bt709-full.mp4", "two.flac",
        "two.mp3",         "two.m4a",         "two.ogg",    "two.opus",      "two.webm",       "short.au",
        "short.aiff",      "short.rf64",      "short.wmv",  "short.wma"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct file_view file = map(names[i]);
        i64 half = count_half(file.data, file.bytes, names[i]);
        if (half)
            fail_msg("%s: %lld cuts of it are read in part", names[i], (long long)half);
        file_unmap(&file);
    }
}

/* These formats do not store the frame count: a cut between two frames is undetectable, any other
 * is detected. */
TEST(streams_of_frames_are_refused_unless_cut_between_two)
{
    static const struct {
        const char *name;
        i64 frames;
    } streams[] = {{"bare.mp3", 3}, {"two.aac", 5}};
    for (i64 i = 0; i < COUNT_OF(streams); i++) {
        struct file_view file = map(streams[i].name);
        i64 accepted = 0;
        for (i64 cut = 1; cut < file.bytes; cut++) {
            struct media_files_content part;
            accepted += read_any(&part, file.data, cut, streams[i].name) == 0;
            content_release(&part);
        }
        if (accepted < 1 || accepted > streams[i].frames)
            fail_msg("%s: %lld cuts are accepted", streams[i].name, (long long)accepted);
        file_unmap(&file);
    }
}

static void refuse_picture(const struct buffer *file, i64 count, const char *name, const char *wanted)
{
    struct clip clip;
    assert_int_equal(image_read(&clip, file->data, count, name), -1);
    assert_null(clip.pixels);
    assert_says(name);
    assert_says(wanted);
}

/* Cameras embed a small JPEG, with its own end marker, in a segment of the large one. */
TEST(a_thumbnails_end_is_not_the_pictures)
{
    struct file_view picture = map("half-chroma.jpg"), thumbnail = map("full-chroma.jpg");
    struct buffer file = {0};
    i64 segment = thumbnail.bytes + 8;
    buffer_append(&file, picture.data, 2);
    buffer_append(&file, (const u8[]){0xff, 0xe1, (u8)(segment >> 8), (u8)segment}, 4);
    buffer_append(&file, "Exif\0\0", 6);
    buffer_append(&file, thumbnail.data, thumbnail.bytes);
    buffer_append(&file, picture.data + 2, picture.bytes - 2);
    assert_int_equal(count_half((const u8 *)file.data, file.length, "camera.jpg"), 0);
    for (i64 cut = file.length - 200; cut < file.length; cut++)
        refuse_picture(&file, cut, "camera.jpg", "cut short");
    buffer_release(&file);
    file_unmap(&picture);
    file_unmap(&thumbnail);
}

/* A partial copy filled up with zeros: the end marker is there, half the picture is missing. */
TEST(a_jpeg_with_a_hole_is_refused)
{
    struct file_view picture = map("full-chroma.jpg");
    struct buffer file = {0};
    buffer_append(&file, picture.data, picture.bytes - 150);
    buffer_append(&file, "\xff\xd9", 2);
    refuse_picture(&file, file.length, "hole.jpg", "a JPEG picture");
    buffer_release(&file);
    file_unmap(&picture);
}

TEST(a_damaged_tiff_is_refused)
{
    struct file_view picture = map("lzw.tiff");
    struct buffer file = {0};
    buffer_append(&file, picture.data, picture.bytes);
    memset(file.data + 3000, 0xff, 400);
    refuse_picture(&file, file.length, "worn.tiff", "a TIFF picture");
    buffer_release(&file);
    file_unmap(&picture);
}

/* TIFF 6.0 requires StripByteCounts (279); without it a decoder would accept truncated data. */
TEST(a_tiff_without_lengths_is_refused)
{
    static const u32 entries[][2] = {{256, 16}, {257, 16}, {258, 8}, {259, 1}, {262, 1}, {273, 8 + 2 + 6 * 12 + 4}};
    struct buffer file = {0};
    u8 pixels[16 * 16] = {0};
    buffer_append(&file, "II*\0\x08\0\0\0\x06\0", 10);
    for (i64 i = 0; i < COUNT_OF(entries); i++) {
        append_le(&file, entries[i][0], 2);
        append_le(&file, 3, 2); /* SHORT */
        append_le(&file, 1, 4);
        append_le(&file, entries[i][1], 4);
    }
    append_le(&file, 0, 4);
    buffer_append(&file, pixels, sizeof pixels);
    refuse_picture(&file, file.length, "old.tiff", "StripByteCounts");
    buffer_release(&file);
}

/* A packet of a recording fails its checksum: 1 of 18 exceeds the permitted 5 %. */
TEST(a_flipped_bit_in_a_flac_is_noticed)
{
    struct file_view file = map("two.flac");
    struct buffer copy = {0};
    struct sound sound;
    buffer_append(&copy, file.data, file.bytes);
    copy.data[copy.length * 3 / 4] ^= 1; /* the first half is padding */
    assert_int_equal(sound_read(&sound, copy.data, copy.length, "worn.flac", 0), -1);
    assert_says("worn.flac");
    assert_null(sound.values);
    buffer_release(&copy);
    file_unmap(&file);
}

/* ---- Further containers ---- */

static i64 frames_of(const void *bytes, i64 count, const char *name)
{
    struct media_files_content content;
    if (read_any(&content, bytes, count, name) < 0)
        fail_msg("%s", error_text());
    i64 frames = content.clip.frames;
    content_release(&content);
    return frames;
}

TEST(further_containers_are_read)
{
    static const struct {
        const char *name;
        i64 frames;
    } clips[] = {{"short.mpg", 5}, {"short.ts", 5},  {"short.3gp", 5},
                 {"short.wmv", 5}, {"short.flv", 5}, {"short.wma", 0}};
    for (i64 i = 0; i < COUNT_OF(clips); i++) {
        struct file_view file = map(clips[i].name);
        assert_int_equal(frames_of(file.data, file.bytes, clips[i].name), clips[i].frames);
        file_unmap(&file);
    }
}

/* Cameras put a time of 4 bytes before each packet. */
TEST(a_transport_stream_with_times_is_read)
{
    enum { PACKET = 188 };
    struct file_view file = map("short.ts");
    struct buffer timed = {0};
    for (i64 at = 0; at + PACKET <= file.bytes; at += PACKET) {
        buffer_append(&timed, "\0\0\0\1", 4);
        buffer_append(&timed, file.data + at, PACKET);
    }
    assert_int_equal(frames_of(timed.data, timed.length, "short.m2ts"), 5);
    buffer_release(&timed);
    file_unmap(&file);
}

/* ---- Whole, though not as written ---- */

static void append_file(struct buffer *out, const char *name)
{
    struct file_view file = map(name);
    buffer_append(out, file.data, file.bytes);
    file_unmap(&file);
}

/* `file` must read as the first `like_bytes` of `like` do. */
static void check_same(const struct buffer *file, const struct buffer *like, i64 like_bytes, const char *name)
{
    struct media_files_content got, wanted;
    if (read_any(&wanted, like->data, like_bytes, name) < 0 || read_any(&got, file->data, file->length, name) < 0)
        fail_msg("%s", error_text());
    if (!same_content(&got, &wanted))
        fail_msg("%s: %lld samples, expected %lld", name, (long long)got.sound.samples,
                 (long long)wanted.sound.samples);
    content_release(&got);
    content_release(&wanted);
}

static void refuse_any(const struct buffer *file, i64 count, const char *name)
{
    struct media_files_content content;
    if (read_any(&content, file->data, count, name) == 0)
        fail_msg("%s: %lld bytes of %lld are read", name, (long long)count, (long long)file->length);
    assert_says("cut short");
}

static i64 ogg_page_end(const struct buffer *ogg, i64 at)
{
    const u8 *page = (const u8 *)ogg->data + at;
    i64 end = at + 27 + page[26];
    for (i64 i = 0; i < page[26]; i++)
        end += page[27 + i];
    return end;
}

/* RFC 3533: CRC-32 of 0x04c11db7, not reflected, from 0, of the page with 0 in its place. */
static void set_ogg_sum(u8 *page, i64 bytes)
{
    u32 sum = 0;
    memset(page + 22, 0, 4);
    for (i64 bit = 0; bit < 8 * bytes; bit++) {
        sum ^= bit % 8 ? 0 : (u32)page[bit / 8] << 24;
        sum = sum << 1 ^ (sum >> 31 ? 0x04c11db7u : 0);
    }
    for (int i = 0; i < 4; i++)
        page[22 + i] = (u8)(sum >> 8 * i);
}

/* Appends a file without the marks of its streams' ends. Returns where its last page begins. */
static i64 append_unmarked(struct buffer *out, const char *name)
{
    i64 last = 0;
    append_file(out, name);
    for (i64 at = 0; at < out->length; at = ogg_page_end(out, at)) {
        out->data[at + 5] &= (char)~4;
        set_ogg_sum((u8 *)out->data + at, ogg_page_end(out, at) - at);
        last = at;
    }
    return last;
}

/* Recorders that are switched off leave out the mark of the end. */
TEST(an_ogg_without_its_end_mark_is_read)
{
    static const char *const names[] = {"two.opus", "no-mark.ogg", "no-mark.oga"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct buffer whole = {0}, bare = {0};
        append_file(&whole, names[i]);
        i64 last = append_unmarked(&bare, names[i]);
        check_same(&bare, &whole, whole.length, names[i]);
        refuse_any(&bare, last, names[i]);
        refuse_any(&bare, last + 2, names[i]);
        refuse_any(&bare, bare.length - 1, names[i]);
        buffer_append(&bare, "TAG of a title", 14);
        check_same(&bare, &whole, whole.length, names[i]);
        buffer_release(&whole);
        buffer_release(&bare);
    }
}

/* The sound has ended, the pictures have not. */
TEST(all_streams_of_an_ogg_must_end)
{
    struct buffer bare = {0};
    i64 last = append_unmarked(&bare, "no-mark.ogv");
    refuse_any(&bare, last, "no-mark.ogv");
    buffer_release(&bare);
}

/* Players, cameras and broken copies append what is no box. */
TEST(bytes_behind_the_last_box_are_not_read)
{
    static const struct {
        const char *bytes;
        i64 count;
    } tails[] = {{"\x48\xb5\x9bpand so on", 13},
                 {"TAG of a title", 14},
                 {"abc", 3},
                 {"\0\0\0\x03\xa9xyz", 8},
                 {"\0\0\1\0free", 8}};
    static const char *const names[] = {"two.m4a", "bt709-full.mp4", "pictures/still.heic"};
    for (i64 i = 0; i < COUNT_OF(names) * COUNT_OF(tails); i++) {
        const char *name = names[i / COUNT_OF(tails)];
        bool heif = i / COUNT_OF(tails) == 2;
        struct buffer whole = {0}, more = {0};
        append_file(&whole, name);
        append_file(&more, name);
        buffer_append(&more, tails[i % COUNT_OF(tails)].bytes, tails[i % COUNT_OF(tails)].count);
        if (heif && i % COUNT_OF(tails) == 4)
            refuse_any(&more, more.length, name); /* stills list no samples that could be counted */
        else
            check_same(&more, &whole, whole.length, name);
        buffer_release(&whole);
        buffer_release(&more);
    }
}

static u32 read_be32(const char *bytes)
{
    const u8 *b = (const u8 *)bytes;
    return (u32)b[0] << 24 | (u32)b[1] << 16 | (u32)b[2] << 8 | b[3];
}

/* Writes a file of ftyp, free, mdat and moov anew with moov in front, as for sending. */
static void append_index_first(struct buffer *out, const char *name)
{
    struct buffer file = {0};
    append_file(&file, name);
    i64 first = read_be32(file.data), free_bytes = read_be32(file.data + first);
    i64 moov = first + free_bytes + read_be32(file.data + first + free_bytes), moov_bytes = file.length - moov;
    assert_memory_equal(file.data + moov + 4, "moov", 4);
    buffer_append(out, file.data, first);
    buffer_append(out, file.data + moov, moov_bytes);
    buffer_append(out, file.data + first, moov - first);
    for (i64 at = first; at < first + moov_bytes; at++)
        if (memcmp(out->data + at, "stco", 4) == 0)
            for (i64 i = 0; i < read_be32(out->data + at + 8); i++) {
                char *offset = out->data + at + 12 + 4 * i;
                u32 moved = read_be32(offset) + (u32)moov_bytes;
                for (int k = 0; k < 4; k++)
                    offset[k] = (char)(moved >> (24 - 8 * k));
            }
    buffer_release(&file);
}

/* Whether samples are missing is told by the index, not by the lengths of boxes. */
TEST(a_box_that_lacks_samples_is_cut_short)
{
    static const char *const names[] = {"two.m4a", "bt709-full.mp4"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct buffer whole = {0}, moved = {0}, padded = {0};
        append_file(&whole, names[i]);
        append_index_first(&moved, names[i]);
        check_same(&moved, &whole, whole.length, names[i]);
        assert_int_equal(count_half((const u8 *)moved.data, moved.length, names[i]), 0);
        refuse_any(&moved, moved.length - 1, names[i]);
        buffer_append(&padded, moved.data, moved.length);
        i64 mdat = padded.length;
        while (memcmp(padded.data + mdat - 4, "mdat", 4) != 0)
            mdat--;
        /* 256 bytes longer than the file. */
        padded.data[mdat - 6] = (char)(padded.data[mdat - 6] + 1);
        check_same(&padded, &whole, whole.length, names[i]);
        buffer_release(&whole);
        buffer_release(&moved);
        buffer_release(&padded);
    }
}

enum { REPEATED = 40 };

/* Fills `out` with the frames of a file, repeated, and returns their ends. */
static void make_frames(struct buffer *out, i64 *ends, const char *name, i64 (*frame_bytes)(const u8 *frame))
{
    struct file_view file = map(name);
    for (i64 i = 0, at = 0; i < REPEATED; i++) {
        i64 bytes = frame_bytes(file.data + at);
        buffer_append(out, file.data + at, bytes);
        ends[i] = out->length;
        at += bytes;
        if (at + 10 > file.bytes)
            at = 0;
    }
    file_unmap(&file);
}

static i64 bytes_of_mp3_frame(const u8 *frame) /* 64 kbit/s at 32 kHz, as make.sh asks for */
{
    (void)frame;
    return 288;
}

static i64 bytes_of_adts_frame(const u8 *frame)
{
    return (frame[3] & 3) << 11 | frame[4] << 3 | frame[5] >> 5;
}

/* The last of many frames is cut: the others are read. */
TEST(a_cut_last_frame_is_left_out)
{
    i64 ends[REPEATED];
    struct buffer mp3 = {0}, aac = {0}, cut = {0};
    make_frames(&mp3, ends, "bare.mp3", bytes_of_mp3_frame);
    buffer_append(&cut, mp3.data, mp3.length - 30);
    check_same(&cut, &mp3, ends[REPEATED - 2], "cut.mp3");
    refuse_any(&mp3, ends[9] - 30, "few.mp3");
    make_frames(&aac, ends, "two.aac", bytes_of_adts_frame);
    buffer_clear(&cut);
    buffer_append(&cut, aac.data, aac.length - 3);
    check_same(&cut, &aac, ends[REPEATED - 2], "cut.aac");
    refuse_any(&aac, ends[9] - 3, "few.aac");
    buffer_release(&mp3);
    buffer_release(&aac);
    buffer_release(&cut);
}

/* The first frame states how many follow. A long sound is read as far as it goes, and told of. */
TEST(a_sound_that_ends_before_its_header_says_is_read)
{
    i64 ends[REPEATED];
    struct file_view file = map("two.mp3");
    struct buffer frames = {0}, mp3 = {0}, cut = {0};
    i64 tag = 10 + file.data[9], first = bytes_of_mp3_frame(NULL);
    make_frames(&frames, ends, "bare.mp3", bytes_of_mp3_frame);
    buffer_append(&mp3, file.data + tag, first);
    /* Behind 4 bytes of header and 32 of side information. */
    assert_memory_equal(mp3.data + 36, "Info", 4);
    mp3.data[36 + 11] = REPEATED;
    buffer_append(&mp3, frames.data, frames.length);
    assert_false(sound_ends_early(mp3.data, mp3.length));
    assert_false(sound_ends_early(frames.data, frames.length));
    static const i64 frames_left[] = {REPEATED - 1, REPEATED - 2, REPEATED * 6 / 10, 19};
    for (i64 i = 0; i < COUNT_OF(frames_left); i++) {
        i64 end = first + ends[frames_left[i] - 1];
        buffer_clear(&cut);
        buffer_append(&cut, mp3.data, end + 100); /* and a part of the next frame */
        check_same(&cut, &mp3, end, "cut.mp3");
        assert_true(sound_ends_early(cut.data, cut.length));
    }
    refuse_any(&mp3, first + ends[17], "few.mp3");
    refuse_any(&mp3, first + 30, "none.mp3");
    buffer_release(&frames);
    buffer_release(&mp3);
    buffer_release(&cut);
    file_unmap(&file);
}

TEST(bytes_in_front_of_the_first_frame_are_not_read)
{
    static const char id3[10] = {'I', 'D', '3', 4, 0, 0, 0, 0, 0, 0};
    static const char *const fronts[] = {"", "some text", "\xff\xfb\x90 but no frame", "\0\0\0\0"};
    struct buffer whole = {0};
    append_file(&whole, "two.mp3");
    i64 tag = 10 + whole.data[9];
    for (i64 i = 0; i < COUNT_OF(fronts) * 2; i++) {
        struct buffer file = {0};
        i64 length = (i64)strlen(fronts[i / 2]);
        buffer_append(&file, id3, i % 2 ? 10 : 0);
        buffer_append(&file, fronts[i / 2], length ? length : i < 2 ? 0 : 4);
        buffer_append(&file, whole.data + tag, whole.length - tag);
        check_same(&file, &whole, whole.length, "front.mp3");
        refuse_any(&file, file.length - 128 - 40, "front.mp3"); /* 128: ID3v1 */
        buffer_release(&file);
    }
    buffer_release(&whole);
}

TEST(tags_in_front_do_not_make_an_mp3)
{
    static const char *const names[] = {"two.aac", "two.flac"};
    for (i64 i = 0; i < COUNT_OF(names); i++) {
        struct buffer whole = {0}, tagged = {0};
        append_file(&whole, names[i]);
        buffer_append(&tagged, "ID3\4\0\0\0\0\0\4tags", 14);
        buffer_append(&tagged, whole.data, whole.length);
        check_same(&tagged, &whole, whole.length, names[i]);
        buffer_release(&whole);
        buffer_release(&tagged);
    }
}

int main(void)
{
    return tests_run(NULL, NULL);
}
