/* Every format and variant of the table in docs/collections.md, against what other readers read in it.
 * scripts/media-table
 * --keep writes the files of tests/media/table, their references, and the list with the largest differences. */
#include "tests/media_fixture.h"

#include <stdio.h>

static int map(struct file_view *out, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, SOURCE_TREE "/tests/media/table/%s", name);
    return file_map(out, path);
}

struct media_row {
    char name[64], kind[8], limit[16], reference[80];
};

/* Calls `check` for each line of the list; `ending` NULL: all. */
static void for_rows(void (*check)(const struct media_row *row), const char *ending)
{
    FILE *list = fopen(SOURCE_TREE "/tests/media/table/list.txt", "r");
    char line[256];
    i64 rows = 0;
    assert_non_null(list);
    while (fgets(line, sizeof line, list)) {
        struct media_row row = {0};
        assert_true(sscanf(line, "%63s %7s %15s %79s", row.name, row.kind, row.limit, row.reference) >= 3);
        if (ending && !strstr(row.name, ending))
            continue;
        check(&row);
        rows++;
    }
    fclose(list);
    assert_true(rows > 0);
}

static int read_row(struct clip *clip, struct sound *sound, const struct media_row *row, const void *bytes, i64 count)
{
    *clip = (struct clip){0};
    *sound = (struct sound){0};
    if (strcmp(row->kind, "wave") == 0)
        return sound_read(sound, bytes, count, row->name, 0);
    if (strcmp(row->kind, "rgb") == 0)
        return image_read(clip, bytes, count, row->name);
    double rate_hz = strcmp(row->kind, "timed") == 0 ? 2 : 0;
    return clip_read(clip, bytes, count, row->name, &(struct clip_request){.rate_hz = rate_hz});
}

static double clip_away(const struct media_row *row, const struct clip *clip, const struct file_view *reference)
{
    long long frames, height, width;
    int begin = 0;
    double most = 0;
    assert_int_equal(sscanf((const char *)reference->data, "%lld %lld %lld%n", &frames, &height, &width, &begin), 3);
    if (clip->frames != frames || clip->height != height || clip->width != width)
        fail_msg("%s: %lld frames of %lldx%lld, expected %lld of %lldx%lld", row->name, (long long)clip->frames,
                 (long long)clip->height, (long long)clip->width, frames, height, width);
    for (i64 i = 0; i < frames * height * width * 3; i++)
        most = fmax(most, abs(clip->pixels[i] - reference->data[begin + 1 + i]));
    return most;
}

static double sound_away(const struct media_row *row, const struct sound *sound, const struct file_view *reference)
{
    long long samples;
    int begin = 0;
    double most = 0;
    assert_int_equal(sscanf((const char *)reference->data, "%lld%n", &samples, &begin), 1);
    if (sound->samples != samples)
        fail_msg("%s: %lld samples, expected %lld", row->name, (long long)sound->samples, samples);
    for (i64 i = 0; i < samples; i++) {
        float wanted;
        memcpy(&wanted, reference->data + begin + 1 + 4 * i, 4);
        most = fmax(most, fabs((double)sound->values[i] - (double)wanted));
    }
    return most;
}

static void check_row(const struct media_row *row)
{
    struct file_view file, reference;
    struct clip clip;
    struct sound sound;
    assert_int_equal(map(&file, row->name), 0);
    int status = read_row(&clip, &sound, row, file.data, file.bytes);
    if (strcmp(row->limit, "refused") == 0) {
        if (status == 0)
            fail_msg("%s: it is read, expected a refusal", row->name);
        assert_says(row->name);
        file_unmap(&file);
        return;
    }
    if (status < 0)
        fail_msg("%s", error_text());
    assert_int_equal(map(&reference, row->reference), 0);
    double away = sound.values ? sound_away(row, &sound, &reference) : clip_away(row, &clip, &reference);
    if (!(away <= atof(row->limit) * 1.001))
        fail_msg("%s: differs by %g, expected at most %s", row->name, away, row->limit);
    clip_release(&clip);
    sound_release(&sound);
    file_unmap(&file);
    file_unmap(&reference);
}

TEST(every_variant_is_read_as_others_read_it_or_refused)
{
    for_rows(check_row, NULL);
}

/* Cuts of a file are refused, or read as the whole; a wrong byte crashes nothing. */
static void check_damage(const struct media_row *row)
{
    struct file_view file;
    struct clip whole, part;
    struct sound sound;
    assert_int_equal(map(&file, row->name), 0);
    bool read = read_row(&whole, &sound, row, file.data, file.bytes) == 0;
    i64 pixel_bytes = whole.frames * whole.height * whole.width * 3;
    for (i64 at = 1 + file.bytes % 5; at < file.bytes; at += 1 + file.bytes / 150) {
        u8 *copy = memory_alloc(file.bytes);
        memcpy(copy, file.data, (size_t)file.bytes);
        if (read_row(&part, &sound, row, copy, at) == 0 && read &&
            memcmp(part.pixels, whole.pixels, (size_t)pixel_bytes))
            fail_msg("%s: %lld of its %lld bytes are read in part", row->name, (long long)at, (long long)file.bytes);
        clip_release(&part);
        copy[at] ^= (u8)(1 << at % 8);
        if (read_row(&part, &sound, row, copy, file.bytes) == 0)
            clip_release(&part);
        memory_free(copy);
    }
    clip_release(&whole);
    file_unmap(&file);
}

TEST(damaged_tiffs_are_refused)
{
    for_rows(check_damage, ".tif");
}

/* Two seconds, and the same two once more: windows of the second half are those of the first. */
TEST(windows_behind_times_that_begin_anew_are_read)
{
    struct file_view file;
    struct clip first, second;
    struct sound early, late;
    double seconds;
    assert_int_equal(map(&file, "twice.ts"), 0);
    struct clip_request request = {.rate_hz = 4, .max_frames = 2, .from_s = 1};
    assert_int_equal(clip_read(&first, file.data, file.bytes, "twice.ts", &request), 0);
    request.from_s = 3;
    assert_int_equal(clip_read(&second, file.data, file.bytes, "twice.ts", &request), 0);
    assert_int_equal(second.frames, 2);
    assert_memory_equal(first.pixels, second.pixels, 2 * first.height * first.width * 3);
    assert_int_equal(media_seconds(&seconds, file.data, file.bytes, "twice.ts"), 0);
    assert_true(fabs(seconds - 4) < 0.1);
    assert_int_equal(film_sound_read(&early, file.data, file.bytes, "twice.ts", 8000, 0.5, 1), 0);
    assert_int_equal(film_sound_read(&late, file.data, file.bytes, "twice.ts", 8000, 2.5, 1), 0);
    assert_int_equal(late.samples, 8000);
    double loud[2] = {0, 0};
    for (i64 i = 0; i < 8000; i++) {
        loud[0] += fabs((double)early.values[i]) / 8000;
        loud[1] += fabs((double)late.values[i]) / 8000;
    }
    assert_true(loud[0] > 0.05 && fabs(loud[1] / loud[0] - 1) < 0.05);
    clip_release(&first);
    clip_release(&second);
    sound_release(&early);
    sound_release(&late);
    file_unmap(&file);
}

/* libjpeg fills up what is missing and only warns. */
TEST(a_jpeg_inside_a_tiff_with_a_hole_is_refused)
{
    struct file_view file;
    struct clip clip;
    assert_int_equal(map(&file, "jpeg-ycc.tif"), 0);
    u8 *copy = memory_alloc(file.bytes);
    memcpy(copy, file.data, (size_t)file.bytes);
    i64 scan = file.bytes - 2;
    while (copy[scan] != 0xff || copy[scan + 1] != 0xda)
        scan--;
    memset(copy + scan + 60, 0, (size_t)(file.bytes - scan - 62));
    assert_int_equal(image_read(&clip, copy, file.bytes, "hole.tif"), -1);
    assert_says("hole.tif: a TIFF picture");
    memory_free(copy);
    file_unmap(&file);
}

int main(void)
{
    return tests_run(NULL, NULL);
}
