/* Squares of photographs: their pixels, and no photograph in two parts. */
#include "corpus/corpus.h"
#include "tests/scratch.h"

enum { PHOTOS = 8, SIZE = 16, HEIGHT = 40, WIDTH = 53 };

static void put_photo(int number)
{
    u8 pixels[HEIGHT * WIDTH * 3];
    char name[32];
    for (i64 i = 0; i < HEIGHT * WIDTH; i++) {
        pixels[3 * i] = (u8)(i % WIDTH);
        pixels[3 * i + 1] = (u8)(i / WIDTH);
        pixels[3 * i + 2] = (u8)(30 * number);
    }
    snprintf(name, sizeof name, "photos/%d.png", number);
    succeed(image_write_png(path_of(name), pixels, HEIGHT, WIDTH));
}

static void make_parts(const struct corpus *corpus)
{
    for (enum split split = 0; split < SPLIT_TEST; split++) {
        char *part = corpus_path(corpus, split, "image");
        succeed(directory_make(part));
        memory_free(part);
    }
}

/* Checks the square of a row and column in the photograph's size; true if it is there. */
static bool square_is_there(const struct corpus *corpus, enum split split, int number, int row, int column)
{
    char *name = string_format("image/%d.png-0-%d-%d.png", number, row, column);
    char *path = corpus_path(corpus, split, name);
    struct file_view view;
    struct clip clip;
    bool there = file_exists(path);
    if (there) {
        succeed(file_map(&view, path));
        succeed(image_read(&clip, view.data, view.bytes, path));
        assert_true(clip.height == SIZE && clip.width == SIZE);
        for (i64 i = 0; i < SIZE * SIZE; i++) {
            /* two rows and three columns of squares, from the middle */
            assert_int_equal(clip.pixels[3 * i], (WIDTH - 3 * SIZE) / 2 + column * SIZE + i % SIZE);
            assert_int_equal(clip.pixels[3 * i + 1], (HEIGHT - 2 * SIZE) / 2 + row * SIZE + i / SIZE);
            assert_int_equal(clip.pixels[3 * i + 2], 30 * number);
        }
        clip_release(&clip);
        file_unmap(&view);
    }
    memory_free(name);
    memory_free(path);
    return there;
}

TEST(photographs_are_cut)
{
    char *made = path_join(directory, "made"), *photos = path_join(directory, "photos");
    struct corpus corpus = {.directory = made, .photos = photos, .size = SIZE, .key = {3, RNG_CORPUS}};
    int held_out = 0;
    succeed(directory_make(corpus.photos));
    for (int i = 0; i < PHOTOS; i++)
        put_photo(i);
    memory_free(put_text("photos/zz.txt", "no picture"));
    make_parts(&corpus);
    succeed(make_photos(&corpus));
    for (int i = 0; i < PHOTOS; i++) {
        bool held = square_is_there(&corpus, SPLIT_VALIDATION, i, 0, 0);
        held_out += held;
        for (int k = 0; k < 6; k++) {
            assert_int_equal(square_is_there(&corpus, SPLIT_VALIDATION, i, k / 3, k % 3), held);
            assert_int_equal(square_is_there(&corpus, SPLIT_TRAIN, i, k / 3, k % 3), !held);
        }
        char *half = string_format("image/%d.png-1-0-0.png", i);
        char *path = corpus_path(&corpus, held ? SPLIT_VALIDATION : SPLIT_TRAIN, half);
        assert_true(file_exists(path)); /* 20 x 26: one square */
        memory_free(half);
        memory_free(path);
    }
    assert_in_range(held_out, 1, 2); /* of nine files */
    memory_free(made);
    memory_free(photos);
}

TEST(a_folder_without_photographs_is_refused)
{
    char *none = path_join(directory, "none"), *empty = path_join(directory, "empty");
    struct corpus corpus = {.directory = none, .photos = empty, .size = SIZE, .key = {3, RNG_CORPUS}};
    succeed(directory_make(corpus.photos));
    memory_free(put_text("empty/a.txt", "no picture"));
    make_parts(&corpus);
    assert_int_equal(make_photos(&corpus), -1);
    assert_non_null(strstr(error_text(), "give a folder of at least 4 photographs"));
    corpus.photos = path_of("absent");
    assert_int_equal(make_photos(&corpus), -1);
    memory_free(none);
    memory_free(empty);
}

int main(void)
{
    return tests_run(make_directory, remove_directory);
}
