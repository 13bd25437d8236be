/* A vision tokenizer of several areas: which shapes a picture gets, in training and in use. */
#define _GNU_SOURCE
#include "data/media/media.h"
#include "data/shapes/shaped.h"
#include "dist/dist.h"
#include "tests/prepare_fixture.h"
#include "tests/vision_stage_fixture.h"

static const struct aspect_settings one_shape = {.most = 1, .crop = 0.1, .count = 1};

/* Squares of 16 and 40 pixels, and of wide pictures. */
static char *picture_folder(void)
{
    static const struct {
        i64 height, width, count;
    } sizes[] = {{40, 40, 4}, {16, 16, 2}, {20, 80, 1}};
    char *folder = string_copy(path_of("pictures"));
    succeed(directory_make(folder));
    for (i64 i = 0; i < COUNT_OF(sizes); i++)
        for (i64 k = 0; k < sizes[i].count; k++) {
            i64 side = max_i64(sizes[i].height, sizes[i].width);
            u8 *pixels = toy_pixels(1 + k, 1, side);
            char *name = string_format("%s/%lld-%lld.png", folder, (long long)i, (long long)k);
            succeed(image_write_png(name, pixels + k * side * side * 3, sizes[i].height, sizes[i].width));
            memory_free(name);
            memory_free(pixels);
        }
    return folder;
}

TEST(areas_are_lists_of_shapes)
{
    struct aspect_settings several = {.most = 2, .crop = 0.1, .count = 3};
    struct aspect_list list;
    succeed(aspects_make(&list, &several, 32, 8));
    assert_int_equal(list.count, 3);
    succeed(aspects_add_area(&list, &several, 32, 64, 8));
    assert_int_equal(list.count, 6);
    for (i64 i = 0; i < 6; i++) {
        assert_int_equal(list.items[i].area, i / 3);
        double area = (double)(list.items[i].height * list.items[i].width), side = i < 3 ? 32 : 64;
        assert_true(area <= side * side && area > 0.7 * side * side);
    }
    assert_int_equal(aspects_add_area(&list, &several, 64, 120, 8), -1);
    assert_says("expected sides that at least double");
    assert_int_equal(aspects_add_area(&list, &several, 64, 130, 8), -1);
    assert_says("130 is no multiple of the stride, 8");
    several.count = 8;
    succeed(aspects_add_area(&list, &several, 64, 128, 8));
    assert_int_equal(aspects_add_area(&list, &several, 128, 256, 8), -1);
    assert_says("expected at most 16");
}

/* The area comes first: a large picture does not get a small shape of better proportions. */
TEST(a_picture_gets_the_nearest_shape_of_the_nearest_area)
{
    struct vision_config config = {.stride = 8, .bits = 4, .channels = {6, 8}, .blocks = {1, 1}};
    static const struct aspect shapes[] = {{16, 16, 0}, {16, 24, 0}, {64, 64, 1}, {48, 80, 1}};
    for (i64 i = 0; i < COUNT_OF(shapes); i++) {
        succeed(vision_add_shape(&config, 1, shapes[i].height, shapes[i].width, 0, NULL, 0));
        config.shapes[i].area = shapes[i].area;
    }
    static const struct {
        double height, width;
        i64 shape, limited;
    } cases[] = {{16, 16, 0, 0}, {20, 31, 1, 1}, {200, 300, 3, 1}, {100, 110, 2, 0}, {30, 30, 0, 0}, {36, 36, 2, 0}};
    struct json *text = vision_config_json(&config);
    struct vision_config loaded;
    succeed(vision_config_parse(&loaded, text, "config.json"));
    for (i64 i = 0; i < COUNT_OF(cases); i++) {
        double height = cases[i].height, width = cases[i].width;
        assert_int_equal(shaped_nearest(&config, false, height, width), cases[i].shape);
        assert_int_equal(shaped_nearest(&loaded, false, height, width), cases[i].shape);
        shaped_limit(&height, &width, 16);
        assert_float_equal(height / width, cases[i].height / cases[i].width, 1e-12);
        assert_int_equal(shaped_nearest(&config, false, height, width), cases[i].limited);
    }
    struct clip stored = {.frames = 1, .height = 100, .width = 110, .pixels = memory_alloc(100 * 110 * 3)}, out;
    assert_int_equal(shaped_still(&out, &stored, &config, 0), 2);
    clip_release(&out);
    assert_int_equal(shaped_still(&out, &stored, &config, 16), 0);
    assert_int_equal(out.height, 16);
    clip_release(&out);
    clip_release(&stored);
    json_free(text);
}

/* Each picture in its own area and in those below it, as resized from its file, kept or read again. */
TEST(pictures_are_trained_in_their_area_and_those_below)
{
    char *folder = picture_folder();
    struct vision_media_request request = {.frames = 5, .memory_mb = 100, .rules = picture_rules_usual};
    struct media_request from = {.data = folder, .split = SPLIT_TRAIN, .seed = 1};
    struct vision_media kept, again;
    succeed(aspects_make(&request.shapes[0], &one_shape, 16, 8));
    succeed(aspects_add_area(&request.shapes[0], &one_shape, 16, 32, 8));
    request.shapes[1] = request.shapes[0];
    succeed(vision_media_load(&kept, &from, &request));
    request.memory_mb = 0;
    succeed(vision_media_load(&again, &from, &request));
    assert_int_equal(kept.still_count, 12);
    assert_int_equal(again.still_count, 12);
    assert_int_equal(again.bytes, 0);
    assert_int_equal(vision_media_count(&kept, false, 0), 7);
    assert_int_equal(vision_media_count(&kept, false, 1), 5);
    for (i64 i = 0; i < 12; i++) {
        struct aspect shape = request.shapes[0].items[vision_media_shape(&kept, false, i)];
        i64 bytes = shape.height * shape.width * 3;
        u8 *one = memory_alloc(bytes), *two = memory_alloc(bytes);
        succeed(vision_media_copy(one, &kept, false, i, 1));
        succeed(vision_media_copy(two, &again, false, i, 1));
        assert_memory_equal(one, two, bytes);
        struct clip clip;
        struct vision_shape wanted = {.frames = 1, .height = shape.height, .width = shape.width};
        struct file_view file;
        succeed(file_map(&file, kept.still_labels[i].path));
        succeed(shaped_image_read(&clip, &wanted, NULL, file.data, file.bytes, "a picture"));
        for (i64 k = 0; k < bytes; k++) /* a smaller size may be decoded first */
            assert_true(abs(clip.pixels[k] - one[k]) <= 24);
        assert_int_equal(kept.still_inner[i].height, clip.inner_height);
        file_unmap(&file);
        clip_release(&clip);
        memory_free(one);
        memory_free(two);
    }
    vision_media_release(&kept);
    vision_media_release(&again);
    directory_remove(folder);
    memory_free(folder);
}

TEST(a_tokenizer_of_two_areas_reports_each)
{
    char *folder = picture_folder();
    struct setting_override more[] = {
        {"areas", "[32]"}, {"aspects.most", "1"}, {"clip_steps", "0"}, {"steps", "6"}, {"use_steps", "3"}};
    static const char *const names[] = {"16x16", "32x32"};
    static const i64 items[] = {7, 5}, scales[] = {2, 4};
    succeed(run_vision("areas", folder, more, 5));
    struct json *report = json_load(path_of("areas/report.json"));
    const struct json *shapes = json_get(json_get(report, "stills_training"), "shapes");
    struct vision_config config;
    succeed(vision_config_load(&config, path_of("areas")));
    assert_int_equal(json_count(shapes), 2);
    assert_int_equal(config.shape_count, 2);
    for (i64 i = 0; i < 2; i++) {
        assert_string_equal(json_string(json_get(json_at(shapes, i), "shape"), ""), names[i]);
        assert_int_equal(json_integer(json_get(json_at(shapes, i), "items"), 0), items[i]);
        assert_int_equal(config.shapes[i].area, i);
        assert_int_equal(config.shapes[i].scale_count, scales[i]);
    }
    assert_int_equal(json_count(json_get(json_get(report, "stills_training"), "scales")), 4);
    json_free(report);
    /* It goes on in the same areas. */
    struct setting_override on[] = {{"from", path_of("areas")}, {"clip_steps", "0"}, {"validation", "0"}};
    succeed(run_vision("on", folder, on, 3));
    succeed(vision_config_load(&config, path_of("on")));
    assert_int_equal(config.shapes[1].area, 1);
    struct setting_override bad[] = {{"areas", "[24]"}};
    assert_int_equal(run_vision("bad", folder, bad, 1), -1);
    assert_says("areas: 24 after 16");
    directory_remove(folder);
    memory_free(folder);
}

/* Without area_most in their own areas, with it in the small one. */
TEST(shards_have_the_areas_asked_for)
{
    char *folder = picture_folder(), *text = string_copy(path_of("text")), *vision = string_copy(path_of("vision"));
    struct setting_override more[] = {{"areas", "[32]"}, {"aspects.most", "1"}, {"clip_steps", "0"}, {"steps", "1"}};
    succeed(run_vision("vision", folder, more, 4));
    prepare_tokenizer(text);
    for (i64 i = 0; i < 2; i++)
        for (i64 k = 0; k < (i ? 2 : 4); k++) {
            char *caption = string_format("%s/%lld-%lld.txt", folder, (long long)i, (long long)k);
            succeed(file_replace(caption, "words", 5));
            memory_free(caption);
        }
    struct prepare_settings settings = prepare_text_settings(folder, text);
    settings.tokenizer[TOKENIZER_VISION] = vision;
    settings.pictures = (struct picture_settings){.background = "ffffff", .most_pixels = 1 << 20};
    for (i64 most = 0; most <= 16; most += 16) {
        struct shards shards;
        i64 large = 0, pictures = 0;
        settings.area_most = most;
        prepare_in(&settings, path_of(most ? "small" : "own"), NULL, NULL);
        succeed(shards_open(&shards, path_of(most ? "small" : "own"), "train"));
        for (i64 i = 0; i < shards.folders[0].part_count; i++) {
            const struct shard_part *part = shards_part(&shards, i);
            bool has_bits = part->kind < STREAMS && stream_rows[part->kind].form == FORM_SCALES;
            pictures += has_bits;
            large += has_bits && part->shape == 1;
        }
        assert_int_equal(large * 3, most ? 0 : pictures * 2);
        assert_true(pictures >= 6);
        shards_close(&shards);
    }
    directory_remove(folder);
    memory_free(folder);
    memory_free(text);
    memory_free(vision);
}

static int run(const char *name)
{
    return tests_run_as(name, make_directory, remove_directory);
}

int main(void)
{
    log_set_level(LOG_QUIET);
    return on_both_devices(&device, run);
}
